/*
 * input.h - what an all-reduce kernel is given, prepared once per lane: the
 * caller's buffers as vectors, the pre-multiplier, the order of summation.
 */
#ifndef SHUNT_INPUT_H
#define SHUNT_INPUT_H

#include "algorithms/device/buffers.h"
#include "algorithms/device/reduce.h"

/* N: an upper bound of the number of ranks, for which loops unroll. */
template <int TYPE, int OPS, int N> struct reduction {
    typedef element<TYPE> E;
    typedef typename unsigned_of<VEC / E::COUNT>::type U;
    static constexpr mark_t MARK = mark_of(TYPE);

    buffer_t input, output;
    vec16_t scalar;
    uint32_t nranks;
    alg_op_t op;

    LANE_FN static reduction make(const alg_team_t &team, const alg_call_t &call)
    {
        const uint64_t bytes = call.count * (VEC / E::COUNT);
        reduction r = {
            buffer_make(call.input, bytes), buffer_make(call.output, bytes), {{0, 0, 0, 0}}, team.nranks, call.op};
        if (OPS == OPS_OTHER && call.op == ALG_PREMUL_SUM) {
            U bits = (U)call.scalar_bits;
            if (call.scalar_pointer)
                bits = *(const U *)call.scalar_pointer;
            memcpy(r.scalar.w, &bits, sizeof bits);
        }
        return r;
    }

    LANE_FN uint32_t vectors() const
    {
        return buffer_vectors(input.bytes);
    }

    /* This rank's contribution. The same bits each time it is loaded, and (but for integers) fit to be sent. */
    LANE_FN vec16_t load(uint32_t v) const
    {
        vec16_t x = buffer_load<U>(input, v);
        if (OPS == OPS_OTHER && op == ALG_PREMUL_SUM)
            reduce_premultiply<TYPE>(x, scalar);
        if (MARK != MARK_ESCAPE)
            mark_clean<MARK>(x);
        return x;
    }

    LANE_FN void store(uint32_t v, const vec16_t &x) const
    {
        buffer_store<U>(output, v, x);
    }

    /* x[0] op x[1] op ... op x[nranks-1], rounded once, with x[rank] replaced by `own`. Cleaned like load, so that
     * every algorithm gives every rank the same bits for a NaN too. */
    LANE_FN vec16_t combine(const vec16_t x[N], uint32_t rank, const vec16_t &own) const
    {
        typename E::acc a[E::COUNT];
        if (OPS == OPS_SUM || op == ALG_PREMUL_SUM)
            reduce_fold<TYPE, ALG_SUM, N>(a, x, nranks, rank, own);
        else if (op == ALG_PROD)
            reduce_fold<TYPE, ALG_PROD, N>(a, x, nranks, rank, own);
        else if (op == ALG_MAX)
            reduce_fold<TYPE, ALG_MAX, N>(a, x, nranks, rank, own);
        else
            reduce_fold<TYPE, ALG_MIN, N>(a, x, nranks, rank, own);
        if (OPS == OPS_SUM && op == ALG_AVG)
            reduce_average<TYPE>(a, nranks);
        vec16_t result;
        E::pack(a, result);
        if (MARK != MARK_ESCAPE)
            mark_clean<MARK>(result);
        return result;
    }
};

#endif
