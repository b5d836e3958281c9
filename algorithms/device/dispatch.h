/* SPDX-License-Identifier: Apache-2.0 */
/* dispatch.h - the kernels of an algorithm A, and which of them serves a call.
 *
 * Fetching code takes time, so each case has a kernel: 2, 3, 4 or up to 8 ranks (lists and parts that reduce: 2 or up
 * to 8), whole or other buffers, and, if it reduces, each ops_kind and type. */
#ifndef SHUNT_DISPATCH_H
#define SHUNT_DISPATCH_H

#include "algorithms/device/grid.h"
#include "algorithms/device/kernel_call.h"

#ifdef __CUDACC__

template <class P> using kernel_t = void (*)(alg_team_t, P);

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

#else

template <class P> using kernel_t = void (*)(lane_t, const alg_team_t &, const P &);

template <class A, class P, int TYPE, int OPS, int N, bool WHOLE>
static void ncclKernel_shunt_reduce(lane_t lane, const alg_team_t &team, const P &what)
{
    const auto &call = kernel_call_of(what, lane);
    A::template run<TYPE, OPS, N, WHOLE>(lane, team, call);
}

template <class A, class P, int N, bool WHOLE, bool EACH>
static void ncclKernel_shunt_move(lane_t lane, const alg_team_t &team, const P &what)
{
    const auto &call = kernel_call_of(what, lane);
    A::template run<N, WHOLE, EACH>(lane, team, call);
}

#endif

/* The only number of ranks that A's kernels serve; 0: any. */
template <class A> constexpr int ONLY_RANKS = 0;
/* Most bytes of a rank's block in A's kernels. */
template <class A> constexpr uint64_t ONLY_BYTES = UINT64_MAX;

template <class A> constexpr int move_kernel_ranks(int nranks)
{
    return ONLY_RANKS<A> ? ONLY_RANKS<A> : nranks;
}

template <class A, class P, bool WHOLE, bool EACH> static kernel_t<P> move_kernel_of_ranks(uint32_t nranks)
{
    switch (nranks) {
#if defined(__CUDACC__) && !defined(ALG_FEW_KERNELS)
    case 2:
        return ncclKernel_shunt_move<A, P, move_kernel_ranks<A>(2), WHOLE, EACH>;
    case 3:
        return ncclKernel_shunt_move<A, P, move_kernel_ranks<A>(3), WHOLE, EACH>;
#endif
    case 4:
        return ncclKernel_shunt_move<A, P, move_kernel_ranks<A>(4), WHOLE, EACH>;
    default:
        return ncclKernel_shunt_move<A, P, move_kernel_ranks<A>(ALG_MAX_RANKS), WHOLE, EACH>;
    }
}

template <class A, class P, bool EACH> static kernel_t<P> move_kernel_of(uint32_t nranks, bool whole)
{
    return whole ? move_kernel_of_ranks<A, P, true, EACH>(nranks) : move_kernel_of_ranks<A, P, false, EACH>(nranks);
}

template <class A, class P, bool EACH, class F> static int move_kernels_each(uint32_t nranks, F load)
{
    const int error = load(move_kernel_of<A, P, EACH>(nranks, false));
    return error != 0 ? error : load(move_kernel_of<A, P, EACH>(nranks, true));
}

/* A with argument type P has a kernel for each number of ranks up to this one. */
template <class A, class P> constexpr int REDUCE_EXACT_RANKS = EXACT_RANKS;

template <class A, class P> constexpr int reduce_kernel_ranks(int nranks)
{
    return ONLY_RANKS<A> ? ONLY_RANKS<A> : nranks <= REDUCE_EXACT_RANKS<A, P> ? nranks : ALG_MAX_RANKS;
}

template <class A, class P, int TYPE, int OPS, bool WHOLE> static kernel_t<P> reduce_kernel_of_ranks(uint32_t nranks)
{
    switch (nranks) {
#if defined(__CUDACC__) && !defined(ALG_FEW_KERNELS)
    case 2:
        return ncclKernel_shunt_reduce<A, P, TYPE, OPS, reduce_kernel_ranks<A, P>(2), WHOLE>;
    case 3:
        return ncclKernel_shunt_reduce<A, P, TYPE, OPS, reduce_kernel_ranks<A, P>(3), WHOLE>;
#endif
    case 4:
        return ncclKernel_shunt_reduce<A, P, TYPE, OPS, reduce_kernel_ranks<A, P>(4), WHOLE>;
    default:
        return ncclKernel_shunt_reduce<A, P, TYPE, OPS, reduce_kernel_ranks<A, P>(ALG_MAX_RANKS), WHOLE>;
    }
}

template <class A, class P, int TYPE, int OPS> static kernel_t<P> reduce_kernel_of_ops(uint32_t nranks, bool whole)
{
    return whole ? reduce_kernel_of_ranks<A, P, TYPE, OPS, true>(nranks)
                 : reduce_kernel_of_ranks<A, P, TYPE, OPS, false>(nranks);
}

#if defined(__CUDACC__) && !defined(ALG_ONE_TYPE) && !defined(ALG_FEW_KERNELS)
/* All types at once would compile for minutes, so a file that reduces is compiled once per type, with ALG_ONE_TYPE, and
 * once without. */
template <class A, class P, int TYPE> kernel_t<P> reduce_kernel_of_type(int ops, uint32_t nranks, bool whole);
#else
#if defined(ALG_FEW_KERNELS) && !defined(ALG_EVERY_TYPE)
template <int TYPE> constexpr bool COMPILED = TYPE == ALG_BFLOAT16;
#else
template <int TYPE> constexpr bool COMPILED = true;
#endif

template <class A, class P, int TYPE> kernel_t<P> reduce_kernel_of_type(int ops, uint32_t nranks, bool whole)
{
    if constexpr (!COMPILED<TYPE>)
        return NULL; /* the launch then fails */
    else if (ops == OPS_SUM)
        return reduce_kernel_of_ops<A, P, TYPE, OPS_SUM>(nranks, whole);
    else if (ops == OPS_MAX)
        return reduce_kernel_of_ops<A, P, TYPE, OPS_MAX>(nranks, whole);
    else
        return reduce_kernel_of_ops<A, P, TYPE, OPS_OTHER>(nranks, whole);
}
#endif

template <class A, class P> static kernel_t<P> reduce_kernel_of(int type, int ops, uint32_t nranks, bool whole)
{
    switch (type) {
    case ALG_INT8:
    case ALG_UINT8:
        return reduce_kernel_of_type<A, P, ALG_INT8>(ops, nranks, whole);
    case ALG_INT32:
    case ALG_UINT32:
        return reduce_kernel_of_type<A, P, ALG_INT32>(ops, nranks, whole);
    case ALG_INT64:
    case ALG_UINT64:
        return reduce_kernel_of_type<A, P, ALG_INT64>(ops, nranks, whole);
    case ALG_FLOAT16:
        return reduce_kernel_of_type<A, P, ALG_FLOAT16>(ops, nranks, whole);
    case ALG_FLOAT32:
        return reduce_kernel_of_type<A, P, ALG_FLOAT32>(ops, nranks, whole);
    case ALG_FLOAT64:
        return reduce_kernel_of_type<A, P, ALG_FLOAT64>(ops, nranks, whole);
    case ALG_BFLOAT16:
        return reduce_kernel_of_type<A, P, ALG_BFLOAT16>(ops, nranks, whole);
    case ALG_FLOAT8_E4M3:
        return reduce_kernel_of_type<A, P, ALG_FLOAT8_E4M3>(ops, nranks, whole);
    default:
        return reduce_kernel_of_type<A, P, ALG_FLOAT8_E5M2>(ops, nranks, whole);
    }
}

template <class A, class P, class F> static int reduce_kernels_each(uint32_t nranks, F load)
{
    for (int type = 0; type < ALG_TYPE_COUNT; type++) {
        if (is_unsigned(type))
            continue;
        for (int ops = 0; ops < OPS_KINDS; ops++) {
            int error = load(reduce_kernel_of<A, P>(type, ops, nranks, false));
            if (error == 0)
                error = load(reduce_kernel_of<A, P>(type, ops, nranks, true));
            if (error != 0)
                return error;
        }
    }
    return 0;
}

#endif
