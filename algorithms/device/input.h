/* SPDX-License-Identifier: Apache-2.0 */
/* input.h - what a reducing kernel's lane prepares once: buffers, pre-multiplier, order of values. */
#ifndef SHUNT_INPUT_H
#define SHUNT_INPUT_H

#include "algorithms/device/buffers.h"
#include "algorithms/device/kernel_call.h"
#include "algorithms/device/reduce.h"

template <int TYPE, int OPS, int N, bool WHOLE> struct reduction {
    typedef element<TYPE> E;
    typedef typename unsigned_of<E::BYTES>::type U;
    static constexpr mark_t MARK = mark_of(TYPE);
    static constexpr bool KEEPS = WHOLE && N == 2;

    buffer_t input, output;
    uint8_t *kept; /* KEEPS: address of this lane's first output vector */
    vec16_t scalar;
    ordering_t order;
    const uint8_t *readable; /* any device memory (lane_load_if) */
    uint32_t nranks;
    alg_type_t type; /* TYPE or its unsigned counterpart */
    alg_op_t op;

    LANE_FN static reduction make(const alg_team_t &team, const kernel_call_t &call)
    {
        const uint64_t bytes = call.count * E::BYTES;
        return {buffer_make(call.input, bytes),
                buffer_make(call.output, bytes),
                NULL,
                {{0, 0, 0, 0}},
                ordering_of<TYPE>(call.type, call.op),
                team.own,
                team.nranks,
                call.type,
                call.op};
    }

    LANE_FN uint64_t held() const
    {
        return (uintptr_t)input.base | (uintptr_t)output.base;
    }

    /* Prepares store_kept. Warp-wide, before lane_begin. */
    LANE_FN void keep(uint32_t first)
    {
        uint32_t same = op;
        if (!KEEPS)
            return;
        kept = output.base + (uint64_t)first * VEC;
        lane_keep(kept);
        lane_keep_same(same);
        op = (alg_op_t)same;
    }

    LANE_FN void begin(const kernel_call_t &call)
    {
        if (OPS == OPS_OTHER && op == ALG_PREMUL_SUM) {
            const U bits = call.scalar_pointer ? *(const U *)call.scalar_pointer : (U)call.scalar_bits;
            memcpy(scalar.w, &bits, sizeof bits);
            if (E::BYTES == 1)
                scalar.w[0] *= BYTES_EACH; /* bytes4_t multiplies four at once */
        }
    }

    LANE_FN uint32_t vectors() const
    {
        return buffer_vectors(input.bytes);
    }

    /* Returns this rank's vector, each time with the same bits. Floats are ready to send. */
    LANE_FN vec16_t load(uint32_t v) const
    {
        return load_from(input, v);
    }

    /* The result is undefined unless `wanted`. This load does not wait for earlier ones. */
    LANE_FN vec16_t load_if(bool wanted, uint32_t v) const
    {
        return load_from_if(wanted, input, v);
    }

    LANE_FN vec16_t load_from(const buffer_t &part, uint32_t v) const
    {
        return prepare(WHOLE ? buffer_load_whole(part, v) : buffer_load<U>(part, v));
    }

    LANE_FN vec16_t load_from_if(bool wanted, const buffer_t &part, uint32_t v) const
    {
        if (WHOLE)
            return prepare(buffer_load_whole_if(wanted, part, v, readable));
        return wanted ? load_from(part, v) : vec16_t{{0, 0, 0, 0}};
    }

    LANE_FN vec16_t prepare(vec16_t x) const
    {
        if (OPS == OPS_OTHER && op == ALG_PREMUL_SUM)
            reduce_premultiply<TYPE>(x, scalar);
        if (MARK != MARK_ESCAPE)
            mark_clean<MARK>(x);
        return x;
    }

    LANE_FN void store(uint32_t v, const vec16_t &x) const
    {
        store_to(output, v, x);
    }

    /* Stores vector first + k, after keep(first). */
    LANE_FN void store_kept(uint32_t first, uint32_t k, const vec16_t &x) const
    {
        if (KEEPS)
            lane_store(kept + (uint64_t)k * VEC, x);
        else
            store(first + k, x);
    }

    LANE_FN void store_to(const buffer_t &part, uint32_t v, const vec16_t &x) const
    {
        if (WHOLE)
            buffer_store_whole(part, v, x);
        else
            buffer_store<U>(part, v, x);
    }

    /* Reduces all ranks' vectors; a result of floats is ready to send. Overwrites x, the other ranks' vectors. Every
     * NaN gets the same bits, so the result depends on values alone. */
    LANE_FN vec16_t combine(vec16_t x[N - 1], uint32_t rank, vec16_t own) const
    {
        return combine_of(x, rank, own, nranks);
    }

    /* The same if each value is a result of several ranks: averages of integers divide by `all` ranks. */
    LANE_FN vec16_t combine_of(vec16_t x[N - 1], uint32_t rank, vec16_t own, uint32_t all) const
    {
        constexpr bool FLOATS = MARK != MARK_ESCAPE;
        const bool averages = OPS == OPS_SUM && op == ALG_AVG;
        const float scale = FLOATS && averages ? 1.0f / (float)reduce_share(N <= EXACT_RANKS ? N : nranks) : 1.0f;
        typename E::acc a[E::COUNT];
        vec16_t result;
        if constexpr (OPS == OPS_MAX) {
            vec_order(own, order);
            LANE_UNROLL
            for (int j = 0; j < N - 1; j++)
                vec_order(x[j], order);
            reduce_fold<TYPE, ALG_MAX, N>(a, x, nranks, rank, own, scale);
        } else if (OPS == OPS_OTHER && op == ALG_PROD) {
            reduce_fold<TYPE, ALG_PROD, N>(a, x, nranks, rank, own, scale);
        } else {
            reduce_fold<TYPE, ALG_SUM, N>(a, x, nranks, rank, own, scale);
        }
        if constexpr (OPS == OPS_SUM && FLOATS) {
            if (averages)
                reduce_average_floats<TYPE, N>(a, nranks);
        } else if constexpr (OPS == OPS_SUM) {
            if (averages)
                reduce_average_integers<TYPE, N>(a, all, type);
        }
        if constexpr (FLOATS)
            reduce_finish_floats<TYPE, OPS>(a, order);
        E::pack(a, result);
        if constexpr (OPS == OPS_MAX && !FLOATS)
            vec_order(result, order);
        if (MARK == MARK_WORD)
            mark_clean<MARK>(result); /* a GPU's fp32 minimum may be a mirrored NaN: all-ones */
        return result;
    }
};

#endif
