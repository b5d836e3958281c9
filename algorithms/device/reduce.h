/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce.h - the values of all ranks, joined by an operator. 8- and 16-bit floats add in fp32 and round once; the
 * caller gives the order (rank 0 .. n-1), so every algorithm gives the same bits.
 */
#ifndef SHUNT_REDUCE_H
#define SHUNT_REDUCE_H

#include "algorithms/device/element.h"
#include "algorithms/device/mark.h"

/* A kernel for N ranks serves exactly N where N <= EXACT_RANKS, and any number up to N above. */
enum { EXACT_RANKS = 4 };

/* Three kinds of kernels, so that a short message does not fetch code that its operator does not use: sum and avg; max
 * and min; the rest, which switch on the operator. */
enum { OPS_SUM = 0, OPS_MAX = 1, OPS_OTHER = 2, OPS_KINDS = 3 };

LANE_HOST_FN int ops_kind(alg_op_t op)
{
    return op == ALG_SUM || op == ALG_AVG ? OPS_SUM : op == ALG_MAX || op == ALG_MIN ? OPS_MAX : OPS_OTHER;
}

/* Unsigned integers use the kernels of signed ones: they add and multiply alike; ordering_of and
 * reduce_average_integers handle the differences. */
LANE_HOST_FN constexpr bool is_unsigned(int type)
{
    return type == ALG_UINT8 || type == ALG_UINT32 || type == ALG_UINT64;
}

/* Values of an average of floats are divided by this power of two first, so that no sum leaves the range where the
 * average does not. */
LANE_FN uint32_t reduce_share(uint32_t nranks)
{
    return nranks <= 1 ? 1 : nranks <= 2 ? 2 : nranks <= 4 ? 4 : 8;
}

/* a[i] = a[i] op v[i]; a value that is added is multiplied by `scale` first. */
template <int TYPE, alg_op_t OP>
LANE_FN void reduce_step(typename element<TYPE>::acc a[element<TYPE>::COUNT], const vec16_t &v, float scale)
{
    /* The types below 32 bits have room in fp32 for a power of two; rounding once would make two ranks' order count. */
    constexpr bool EXACT = element<TYPE>::BYTES < sizeof(float);
    typename element<TYPE>::acc b[element<TYPE>::COUNT];
    element<TYPE>::unpack(v, b);
    LANE_UNROLL
    for (int i = 0; i < element<TYPE>::COUNT; i++)
        a[i] = OP == ALG_SUM    ? op_add<EXACT>(a[i], b[i], scale)
               : OP == ALG_PROD ? op_prod(a[i], b[i])
                                : op_max(a[i], b[i]);
}

/* Word by word: the compiler would make a choice between vectors by address, in memory. */
LANE_FN vec16_t vec_select(bool first, const vec16_t &a, const vec16_t &b)
{
    vec16_t v;
    LANE_UNROLL
    for (int i = 0; i < 4; i++)
        v.w[i] = first ? a.w[i] : b.w[i];
    return v;
}

/* Xored with every word of a vector before and after (even and odd words apart, for 8 bytes), this turns max over the
 * kernel's type into the order that the call wants. The sign bit mirrors floats (-x) and maps unsigned integers to
 * signed ones; ~x mirrors integers. Mirrored, max gives min. */
typedef struct ordering {
    uint32_t even, odd;
} ordering_t;

template <int TYPE> LANE_FN ordering_t ordering_of(alg_type_t type, alg_op_t op)
{
    constexpr int BYTES = element<TYPE>::BYTES;
    constexpr uint32_t SIGN = BYTES == 1 ? 0x80808080 : BYTES == 2 ? 0x80008000 : 0x80000000;
    constexpr bool INTEGER = mark_of(TYPE) == MARK_ESCAPE;
    const uint32_t sign = (INTEGER ? is_unsigned(type) : op == ALG_MIN) ? SIGN : 0;
    const uint32_t every = INTEGER && op == ALG_MIN ? SENTINEL : 0;
    return {every ^ (BYTES == 8 ? 0 : sign), every ^ sign};
}

LANE_FN void vec_order(vec16_t &v, ordering_t order)
{
    LANE_UNROLL
    for (int i = 0; i < 4; i++)
        v.w[i] ^= i % 2 ? order.odd : order.even;
}

/* a = the values of all ranks joined in rank order by OP: `own` is this rank's, x the others' in their order. Sums are
 * of values times `scale`. */
template <int TYPE, alg_op_t OP, int N>
LANE_FN void reduce_fold(typename element<TYPE>::acc a[element<TYPE>::COUNT], const vec16_t x[N - 1], uint32_t nranks,
                         uint32_t rank, const vec16_t &own, float scale)
{
    /* Two values may be joined in any order, which is less code: 0.15 us of a short message. */
    constexpr bool ANY_ORDER =
        N == 2 && (mark_of(TYPE) == MARK_ESCAPE || (LANE_ANY_ORDER && mark_of(TYPE) != MARK_DOUBLE));
    element<TYPE>::unpack(vec_select(ANY_ORDER || rank == 0, own, x[0]), a);
    if constexpr (OP == ALG_SUM && mark_of(TYPE) != MARK_ESCAPE) {
        LANE_UNROLL
        for (int i = 0; i < element<TYPE>::COUNT; i++)
            a[i] *= scale;
    }
    LANE_UNROLL
    for (uint32_t r = 1; r < N; r++) {
        /* x leaves this rank out: rank r's value is x[r] before it, x[r - 1] behind it */
        const vec16_t other = vec_select(r < rank, x[r < N - 1 ? r : r - 1], x[r - 1]);
        if (N <= EXACT_RANKS || r < nranks)
            reduce_step<TYPE, OP>(a, vec_select(!ANY_ORDER && r == rank, own, other), scale);
    }
}

/* A maximum of mirrored values is mirrored back, and NaN has one pattern. */
template <int TYPE, int OPS>
LANE_FN void reduce_settle_floats(typename element<TYPE>::acc a[element<TYPE>::COUNT], ordering_t order)
{
    LANE_UNROLL
    for (int i = 0; i < element<TYPE>::COUNT; i++)
        a[i] = op_one_nan(OPS == OPS_MAX ? op_mirror(a[i], order.odd) : a[i]);
}

template <int TYPE, int N>
LANE_FN void reduce_average_floats(typename element<TYPE>::acc a[element<TYPE>::COUNT], uint32_t nranks)
{
    typedef typename element<TYPE>::acc A;
    const uint32_t n = N <= EXACT_RANKS ? N : nranks, share = reduce_share(n);
    if (n == share)
        return;
    const A rest = (A)(share - n) / (A)n; /* a + a * rest stays in range where a * (1 + rest) need not */
    LANE_UNROLL
    for (int i = 0; i < element<TYPE>::COUNT; i++)
        a[i] = op_fma(a[i], a[i], rest);
}

template <int TYPE, int N>
LANE_FN void reduce_average_integers(typename element<TYPE>::acc a[element<TYPE>::COUNT], uint32_t nranks,
                                     alg_type_t type)
{
    const uint32_t n = N <= EXACT_RANKS ? N : nranks; /* with a constant, a division is a few instructions */
    if (is_unsigned(type)) {
        LANE_UNROLL
        for (int i = 0; i < element<TYPE>::COUNT; i++)
            a[i] = op_divide<true>(a[i], n);
        return;
    }
    LANE_UNROLL
    for (int i = 0; i < element<TYPE>::COUNT; i++)
        a[i] = op_divide<false>(a[i], n);
}

/* This rank's input times its scalar, rounded to the type: what it sends and adds itself. */
template <int TYPE> LANE_FN void reduce_premultiply(vec16_t &v, const vec16_t &scalar)
{
    typename element<TYPE>::acc a[element<TYPE>::COUNT], s[element<TYPE>::COUNT];
    element<TYPE>::unpack(v, a);
    element<TYPE>::unpack(scalar, s);
    LANE_UNROLL
    for (int i = 0; i < element<TYPE>::COUNT; i++)
        a[i] = op_prod(a[i], s[0]);
    element<TYPE>::pack(a, v);
}

#endif
