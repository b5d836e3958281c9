/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_cuda.cuh - algorithms/device/start_cuda.cuh for emulated GPUs.
 */
#ifndef SHUNT_START_CUDA_CUH
#define SHUNT_START_CUDA_CUH

template <class P>
static int start_kernel(kernel_t<P> kernel, const net_launch_t &launch, const alg_team_t &team, const P &what)
{
    emulator_launch((struct CUstream_st *)launch.stream, (const void *)kernel, launch.blocks, launch.threads,
                    launch.shared_bytes, launch.dependent, [=] { kernel(team, what); });
    return cudaSuccess;
}

#endif
