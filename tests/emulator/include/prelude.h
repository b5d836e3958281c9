/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prelude.h - the headers that kernels include. They come before the namespace in which
 * the emulated kernels are compiled: the CPU device's kernels, in the same program, have
 * functions and types of the same names.
 */
#include <cuda_runtime.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "algorithms/algorithm.h"
#include "transport/transport.h"
