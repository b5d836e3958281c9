/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.h - joins the ranks' values by an operator, in rank order, so that every algorithm gives the same bits. 8-
 * and 16-bit floats add in fp32 and round once (docs/determinism.md). */
#ifndef SHUNT_REDUCE_H
#define SHUNT_REDUCE_H

#include "algorithms/device/element.h"
#include "algorithms/device/mark.h"

/* Kernels for up to this many ranks serve exactly their number; kernels for more also serve fewer. */
enum { EXACT_RANKS = 4 };

enum { OPS_SUM = 0, OPS_MAX = 1, OPS_OTHER = 2, OPS_KINDS = 3 };

LANE_HOST_FN int ops_kind(alg_op_t op)
{
    return op == ALG_SUM || op == ALG_AVG ? OPS_SUM : op == ALG_MAX || op == ALG_MIN ? OPS_MAX : OPS_OTHER;
}

/* Unsigned types use the signed kernels (ordering_of, reduce_average_integers). */
LANE_HOST_FN constexpr bool is_unsigned(int type)
{
    return type == ALG_UINT8 || type == ALG_UINT32 || type == ALG_UINT64;
}

/* An average first divides floats by this, so that the sum is in range if the average is. */
LANE_FN uint32_t reduce_share(uint32_t nranks)
{
    return nranks <= 1 ? 1 : nranks <= 2 ? 2 : nranks <= 4 ? 4 : 8;
}

template <int TYPE, alg_op_t OP>
LANE_FN void reduce_step(typename element<TYPE>::acc a[element<TYPE>::COUNT], const vec16_t &v, float scale)
{
    /* A shorter type times a power of two is exact in fp32. For others, an fma rounds once, so two ranks' order would
     * matter. */
    constexpr bool EXACT = element<TYPE>::BYTES < sizeof(float);
    typename element<TYPE>::acc b[element<TYPE>::COUNT];
    element<TYPE>::unpack(v, b);
    LANE_UNROLL
    for (int i = 0; i < element<TYPE>::COUNT; i++)
        a[i] = OP == ALG_SUM    ? op_add<EXACT>(a[i], b[i], scale)
               : OP == ALG_PROD ? op_prod(a[i], b[i])
                                : op_max(a[i], b[i]);
}

/* Selects by words: the compiler would put whole vectors in memory. */
LANE_FN vec16_t vec_select(bool first, const vec16_t &a, const vec16_t &b)
{
    vec16_t v;
    LANE_UNROLL
    for (int i = 0; i < 4; i++)
        v.w[i] = first ? a.w[i] : b.w[i];
    return v;
}

/* Masks of even and odd words, which differ for 8-byte types. A signed max is the call's operator if its operands and
 * result are xored with them. The sign bit makes a float's max a min, and maps unsigned integers to signed ones. All
 * bits make an integer's max a min. */
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

/* own: this rank's value; x: the other ranks', in rank order. */
template <int TYPE, alg_op_t OP, int N>
LANE_FN void reduce_fold(typename element<TYPE>::acc a[element<TYPE>::COUNT], const vec16_t x[N - 1], uint32_t nranks,
                         uint32_t rank, const vec16_t &own, float scale)
{
    /* Two values in any order need less code. */
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
        const vec16_t other = vec_select(r < rank, x[r < N - 1 ? r : r - 1], x[r - 1]);
        if (N <= EXACT_RANKS || r < nranks)
            reduce_step<TYPE, OP>(a, vec_select(!ANY_ORDER && r == rank, own, other), scale);
    }
}

template <int TYPE, int OPS>
LANE_FN void reduce_finish_floats(typename element<TYPE>::acc a[element<TYPE>::COUNT], ordering_t order)
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
    const A rest = (A)(share - n) / (A)n; /* a + a * rest stays in range where a * (1 + rest) may not */
    LANE_UNROLL
    for (int i = 0; i < element<TYPE>::COUNT; i++)
        a[i] = op_fma(a[i], a[i], rest);
}

template <int TYPE, int N>
LANE_FN void reduce_average_integers(typename element<TYPE>::acc a[element<TYPE>::COUNT], uint32_t nranks,
                                     alg_type_t type)
{
    const uint32_t n = N <= EXACT_RANKS ? N : nranks;
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
