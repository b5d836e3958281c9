/* SPDX-License-Identifier: Apache-2.0 */
/* launch_cuda.cuh - kernels and their launch on CUDA. */
#ifndef SHUNT_LAUNCH_CUDA_CUH
#define SHUNT_LAUNCH_CUDA_CUH

#include "algorithms/device/grid.h"
#include "algorithms/device/kernel_call.h"

template <class P> using kernel_t = void (*)(alg_team_t, P);

#include "algorithms/device/start_cuda.cuh"

template <class A, class P, int TYPE, int OPS, int N, bool WHOLE>
__global__ void __launch_bounds__(grid_most_threads<A>(N), BLOCKS_A_MULTIPROCESSOR<A, N>)
    ncclKernel_shunt_reduce(const __grid_constant__ alg_team_t team, const __grid_constant__ P what)
{
    lane_t lane = lane_here();
    const auto &call = kernel_call_of(what, lane);
    A::template run<TYPE, OPS, N, WHOLE>(lane, team, call);
}

template <class A, class P, int N, bool WHOLE, bool EACH>
__global__ void __launch_bounds__(grid_most_threads<A>(N), BLOCKS_A_MULTIPROCESSOR<A, N>)
    ncclKernel_shunt_move(const __grid_constant__ alg_team_t team, const __grid_constant__ P what)
{
    lane_t lane = lane_here();
    const auto &call = kernel_call_of(what, lane);
    A::template run<N, WHOLE, EACH>(lane, team, call);
}

/* Enqueues the kernel. Returns a cudaError_t. Dependent launch: blocks start while the previous kernel drains, or once
 * it allows that (lane_begin). Priority: blocks get the next free multiprocessors beside matrix products. */
template <class P>
static int launch_grid(kernel_t<P> kernel, const alg_team_t *team, const P &what, uint32_t blocks, uint32_t threads,
                       size_t shared_bytes, void *stream)
{
    net_launch_t launch = {};
    launch.blocks = blocks;
    launch.threads = threads;
    launch.shared_bytes = shared_bytes;
    launch.stream = stream;
    launch.dependent = team->dependent_launch;
    launch.priority = team->priority;
    return start_kernel(kernel, launch, *team, what);
}

template <class P>
static int launch_collective(kernel_t<P> kernel, const alg_team_t *team, const P &what, const kernel_call_t &grid,
                             uint32_t calls, void *stream)
{
    (void)calls;
    return launch_grid(kernel, team, what, grid.grid_blocks, grid.threads, 0, stream);
}

template <class P> static int launch_preload(kernel_t<P> kernel)
{
    cudaFuncAttributes attributes;
    return (int)cudaFuncGetAttributes(&attributes, (const void *)kernel);
}

#endif
