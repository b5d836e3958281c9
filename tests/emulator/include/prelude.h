/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prelude.h - what kernels include of others, before they are compiled in a namespace of
 * their own: functions and types of the same names are the host device's in the same
 * program.
 */
#include <cuda_runtime.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "algorithms/algorithm.h"
