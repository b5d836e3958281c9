/* SPDX-License-Identifier: Apache-2.0 */
/* start_cuda.cuh - starts a kernel on a stream. tests/emulator/ has its own. */
#ifndef SHUNT_START_CUDA_CUH
#define SHUNT_START_CUDA_CUH

#include "transport/transport.h"

/* `launch` has all but its kernel. Returns a cudaError_t. */
template <class P>
static int start_kernel(kernel_t<P> kernel, net_launch_t launch, const alg_team_t &team, const P &what)
{
    const void *const arguments[] = {&team, &what};
    launch.kernel = (const void *)kernel;
    return net_kernel_launch(&launch, arguments);
}

#endif
