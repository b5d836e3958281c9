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

/* In place of net_kernel_launch, which does not know the arguments' types. */
template <class P>
static int emulator_start(void (*kernel)(alg_team_t, P), const net_launch_t &launch, const alg_team_t &team,
                          const P &what)
{
    emulator_launch((struct CUstream_st *)launch.stream, (const void *)kernel, launch.blocks, launch.threads,
                    launch.shared_bytes, launch.dependent, [=] { kernel(team, what); });
    return cudaSuccess;
}
