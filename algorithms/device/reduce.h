/*
 * reduce.h - arithmetic on 16-byte vectors, and how a value tells that it has
 * arrived.
 *
 * Types below 32 bits add in fp32 and round once; the order is the caller's
 * (rank 0 .. n-1), so every algorithm gives the same bits.
 *
 * Arrival. Scratch is all-ones before a peer's value lands there, so a value
 * must never be all-ones:
 *   MARK_WORD    floats up to 32 bits: a word of all-ones is one or more NaNs, and
 *                becomes another NaN by losing its top bit.
 *   MARK_DOUBLE  fp64: the same with 8 bytes.
 *   MARK_ESCAPE  integers use every pattern: words of all-ones travel as ESCAPED, and only
 *                where a vector has such a word, an extra one tells what it was.
 */
#ifndef SHUNT_REDUCE_H
#define SHUNT_REDUCE_H

#include "algorithms/device/lane.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#else
#include "algorithms/device/convert_host.h"
#include <math.h>
#endif

typedef enum mark { MARK_WORD, MARK_DOUBLE, MARK_ESCAPE } mark_t;

/* A kernel for N ranks serves just N where N <= EXACT_RANKS, and any number up to N above. */
enum { EXACT_RANKS = 4 };

/* Kernels come in three kinds, so that a short message need not fetch what its operator does not use: sum and avg; max
 * and min; the rest, which switch on the operator. */
enum { OPS_SUM = 0, OPS_MAX = 1, OPS_OTHER = 2, OPS_KINDS = 3 };

LANE_HOST_FN int ops_kind(alg_op_t op)
{
    return op == ALG_SUM || op == ALG_AVG ? OPS_SUM : op == ALG_MAX || op == ALG_MIN ? OPS_MAX : OPS_OTHER;
}

/* Unsigned integers have the kernels of signed ones: they add and multiply alike; the rest asks (ordering_of,
 * reduce_average). */
LANE_HOST_FN constexpr bool is_unsigned(int type)
{
    return type == ALG_UINT8 || type == ALG_UINT32 || type == ALG_UINT64;
}

LANE_HOST_FN constexpr mark_t mark_of(int type)
{
    return type == ALG_FLOAT64 ? MARK_DOUBLE
           : type == ALG_FLOAT16 || type == ALG_FLOAT32 || type == ALG_BFLOAT16 || type == ALG_FLOAT8_E4M3 ||
                   type == ALG_FLOAT8_E5M2
               ? MARK_WORD
               : MARK_ESCAPE;
}

/* ---- Elements: what a type adds in, and its way there and back ---- */

template <class T> struct element_plain {
    typedef T acc;
    enum { COUNT = VEC / sizeof(T), BYTES = sizeof(T) };
    LANE_FN static void unpack(const vec16_t &v, acc a[COUNT])
    {
        memcpy(a, v.w, VEC);
    }
    LANE_FN static void pack(const acc a[COUNT], vec16_t &v)
    {
        memcpy(v.w, a, VEC);
    }
};

/* Four 8-bit integers, which stay in their word. */
typedef struct bytes4 {
    uint32_t w;
} bytes4_t;

struct element_bytes {
    typedef bytes4_t acc;
    enum { COUNT = 4, BYTES = 1 };
    LANE_FN static void unpack(const vec16_t &v, acc a[COUNT])
    {
        memcpy(a, v.w, VEC);
    }
    LANE_FN static void pack(const acc a[COUNT], vec16_t &v)
    {
        memcpy(v.w, a, VEC);
    }
};

/* Two 16-bit floats a word. */
template <class P> struct element_pair {
    typedef float acc;
    enum { COUNT = 8, BYTES = 2 };
    LANE_FN static void unpack(const vec16_t &v, acc a[COUNT])
    {
        LANE_UNROLL
        for (int i = 0; i < 4; i++)
            P::widen(v.w[i], a[2 * i], a[2 * i + 1]);
    }
    LANE_FN static void pack(const acc a[COUNT], vec16_t &v)
    {
        LANE_UNROLL
        for (int i = 0; i < 4; i++)
            v.w[i] = P::narrow(a[2 * i], a[2 * i + 1]);
    }
};

/* Four 8-bit floats a word, two at a time. */
template <class P> struct element_quad {
    typedef float acc;
    enum { COUNT = 16, BYTES = 1 };
    LANE_FN static void unpack(const vec16_t &v, acc a[COUNT])
    {
        LANE_UNROLL
        for (int i = 0; i < 8; i++)
            P::widen(v.w[i / 2] >> (16 * (i % 2)) & 0xffff, a[2 * i], a[2 * i + 1]);
    }
    LANE_FN static void pack(const acc a[COUNT], vec16_t &v)
    {
        LANE_UNROLL
        for (int i = 0; i < 4; i++)
            v.w[i] = P::narrow(a[4 * i], a[4 * i + 1]) | P::narrow(a[4 * i + 2], a[4 * i + 3]) << 16;
    }
};

#ifdef __CUDACC__
struct pair_bf16 {
    LANE_FN static void widen(uint32_t w, float &lo, float &hi)
    {
        lo = __uint_as_float(w << 16);
        hi = __uint_as_float(w & 0xffff0000u);
    }
    LANE_FN static uint32_t narrow(float lo, float hi)
    {
        const __nv_bfloat162 p = __floats2bfloat162_rn(lo, hi);
        uint32_t w;
        memcpy(&w, &p, 4);
        return w;
    }
};
struct pair_f16 {
    LANE_FN static void widen(uint32_t w, float &lo, float &hi)
    {
        __half2 p;
        memcpy(&p, &w, 4);
        const float2 f = __half22float2(p);
        lo = f.x;
        hi = f.y;
    }
    LANE_FN static uint32_t narrow(float lo, float hi)
    {
        const __half2 p = __floats2half2_rn(lo, hi);
        uint32_t w;
        memcpy(&w, &p, 4);
        return w;
    }
};
template <__nv_fp8_interpretation_t FORMAT> struct pair_f8 {
    LANE_FN static void widen(uint32_t w, float &lo, float &hi)
    {
        const __half2_raw p = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)w, FORMAT);
        const float2 f = __half22float2(__half2(p));
        lo = f.x;
        hi = f.y;
    }
    LANE_FN static uint32_t narrow(float lo, float hi)
    {
        return __nv_cvt_float2_to_fp8x2(make_float2(lo, hi), __NV_SATFINITE, FORMAT);
    }
};
typedef pair_f8<__NV_E4M3> pair_e4m3;
typedef pair_f8<__NV_E5M2> pair_e5m2;
#else
struct pair_bf16 {
    LANE_FN static void widen(uint32_t w, float &lo, float &hi)
    {
        lo = convert_widen_bf16(w & 0xffff);
        hi = convert_widen_bf16(w >> 16);
    }
    LANE_FN static uint32_t narrow(float lo, float hi)
    {
        return convert_narrow_bf16(lo) | convert_narrow_bf16(hi) << 16;
    }
};
template <const small_float_t &FORMAT, int BITS> struct pair_small {
    LANE_FN static void widen(uint32_t w, float &lo, float &hi)
    {
        lo = convert_widen(FORMAT, w & ((1u << BITS) - 1));
        hi = convert_widen(FORMAT, w >> BITS);
    }
    LANE_FN static uint32_t narrow(float lo, float hi)
    {
        return convert_narrow(FORMAT, lo) | convert_narrow(FORMAT, hi) << BITS;
    }
};
typedef pair_small<FORMAT_F16, 16> pair_f16;
typedef pair_small<FORMAT_E4M3, 8> pair_e4m3;
typedef pair_small<FORMAT_E5M2, 8> pair_e5m2;
#endif

template <int TYPE> struct element;
template <> struct element<ALG_INT8> : element_bytes {
};
template <> struct element<ALG_INT32> : element_plain<int32_t> {
};
template <> struct element<ALG_INT64> : element_plain<int64_t> {
};
template <> struct element<ALG_FLOAT32> : element_plain<float> {
};
template <> struct element<ALG_FLOAT64> : element_plain<double> {
};
template <> struct element<ALG_FLOAT16> : element_pair<pair_f16> {
};
template <> struct element<ALG_BFLOAT16> : element_pair<pair_bf16> {
};
template <> struct element<ALG_FLOAT8_E4M3> : element_quad<pair_e4m3> {
};
template <> struct element<ALG_FLOAT8_E5M2> : element_quad<pair_e5m2> {
};

/* ---- Operators. Integers wrap: they add and multiply as unsigned. ---- */

template <class T> struct wrapping {
    typedef T type;
};
template <> struct wrapping<int32_t> {
    typedef uint32_t type;
};
template <> struct wrapping<int64_t> {
    typedef uint64_t type;
};

template <class A> LANE_FN A op_sum(A a, A b)
{
    typedef typename wrapping<A>::type U;
    return (A)((U)a + (U)b);
}

template <class A> LANE_FN A op_prod(A a, A b)
{
    typedef typename wrapping<A>::type U;
    return (A)((U)a * (U)b);
}

template <class A> LANE_FN A op_max(A a, A b)
{
    return a > b ? a : b;
}

/* The sign bits of a word's bytes, and what is below them: there bytes add and subtract without touching each other. */
static const uint32_t BYTES_TOP = 0x80808080, BYTES_LOW = 0x7f7f7f7f;

LANE_FN bytes4_t op_sum(bytes4_t a, bytes4_t b)
{
    return {((a.w & BYTES_LOW) + (b.w & BYTES_LOW)) ^ ((a.w ^ b.w) & BYTES_TOP)};
}
LANE_FN bytes4_t op_prod(bytes4_t a, bytes4_t b)
{
    uint32_t w = 0;
    LANE_UNROLL
    for (int i = 0; i < 32; i += 8)
        w |= (a.w & 0xffu << i) * (b.w >> i) & 0xffu << i;
    return {w};
}
LANE_FN bytes4_t op_max(bytes4_t a, bytes4_t b)
{
    const uint32_t low = (a.w | BYTES_TOP) - (b.w & BYTES_LOW); /* top bit: the lower bits of a are not less */
    const uint32_t first = ((b.w & ~a.w) | (~(a.w ^ b.w) & low)) & BYTES_TOP;
    const uint32_t mask = (first << 1) - (first >> 7); /* a byte of ones for each top bit */
    return {(a.w & mask) | (b.w & ~mask)};
}

/* NaN, signalling or not, is dropped when the other value is a number. */
LANE_FN double op_max(double a, double b)
{
    return a != a ? b : b != b || a > b ? a : b;
}
LANE_FN float op_max(float a, float b)
{
#ifdef __CUDACC__
    return fmaxf(a, b); /* one instruction, which does just that; the host's keeps a signalling NaN */
#else
    return a != a ? b : b != b || a > b ? a : b;
#endif
}

/* a[i] = a[i] op v[i] */
template <int TYPE, alg_op_t OP>
LANE_FN void reduce_step(typename element<TYPE>::acc a[element<TYPE>::COUNT], const vec16_t &v)
{
    typename element<TYPE>::acc b[element<TYPE>::COUNT];
    element<TYPE>::unpack(v, b);
    LANE_UNROLL
    for (int i = 0; i < element<TYPE>::COUNT; i++)
        a[i] = OP == ALG_SUM ? op_sum(a[i], b[i]) : OP == ALG_PROD ? op_prod(a[i], b[i]) : op_max(a[i], b[i]);
}

/* Word by word: a choice between vectors would be made by their addresses, in memory. */
LANE_FN vec16_t vec_select(bool first, const vec16_t &a, const vec16_t &b)
{
    vec16_t v;
    LANE_UNROLL
    for (int i = 0; i < 4; i++)
        v.w[i] = first ? a.w[i] : b.w[i];
    return v;
}

/* What turns the order that a call wants into that of max over the kernel's type, when every word of a vector is xored
 * with it (even and odd ones apart, for 8 bytes), before and after. The sign bit mirrors floats (-x) and takes unsigned
 * integers to signed ones; ~x mirrors integers. Mirrored, the smallest is the largest, which is min. */
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

/* a = the values of all ranks in rank order, joined by OP: `own` is this rank's, x are the others' in their order. */
template <int TYPE, alg_op_t OP, int N>
LANE_FN void reduce_fold(typename element<TYPE>::acc a[element<TYPE>::COUNT], const vec16_t x[N - 1], uint32_t nranks,
                         uint32_t rank, const vec16_t &own)
{
    /* Two values may be joined in any order. It is less code: 0.15 us of a short message. */
    constexpr bool ANY_ORDER =
        N == 2 && (mark_of(TYPE) == MARK_ESCAPE || (LANE_ANY_ORDER && mark_of(TYPE) != MARK_DOUBLE));
    element<TYPE>::unpack(vec_select(ANY_ORDER || rank == 0, own, x[0]), a);
    LANE_UNROLL
    for (uint32_t r = 1; r < N; r++) {
        const vec16_t other = vec_select(r < rank, x[r < N - 1 ? r : r - 1], x[r - 1]);
        if (N <= EXACT_RANKS || r < nranks)
            reduce_step<TYPE, OP>(a, vec_select(!ANY_ORDER && r == rank, own, other));
    }
}

/* A sum over n ranks to their average: floats are scaled once, integers truncate toward zero. */
template <bool UNSIGNED, class A> LANE_FN A op_divide(A a, uint32_t n)
{
    typedef typename wrapping<A>::type U;
    return UNSIGNED ? (A)((U)a / n) : (A)(a / (A)n);
}
template <bool UNSIGNED> LANE_FN float op_divide(float a, uint32_t n)
{
    return a * (1.0f / (float)n);
}
template <bool UNSIGNED> LANE_FN double op_divide(double a, uint32_t n)
{
    return a * (1.0 / n);
}
template <bool UNSIGNED> LANE_FN bytes4_t op_divide(bytes4_t a, uint32_t n)
{
    uint32_t w = 0;
    LANE_UNROLL
    for (int i = 0; i < 32; i += 8) {
        const int byte = UNSIGNED ? (uint8_t)(a.w >> i) : (int8_t)(a.w >> i);
        w |= (uint32_t)(byte / (int)n & 0xff) << i;
    }
    return {w};
}

template <int TYPE, int N>
LANE_FN void reduce_average(typename element<TYPE>::acc a[element<TYPE>::COUNT], uint32_t nranks, alg_type_t type)
{
    const uint32_t n = N <= EXACT_RANKS ? N : nranks; /* by a constant, a division is a few instructions */
    if (mark_of(TYPE) == MARK_ESCAPE && is_unsigned(type)) {
        LANE_UNROLL
        for (int i = 0; i < element<TYPE>::COUNT; i++)
            a[i] = op_divide<true>(a[i], n);
        return;
    }
    LANE_UNROLL
    for (int i = 0; i < element<TYPE>::COUNT; i++)
        a[i] = op_divide<false>(a[i], n);
}

/* This rank's input times its scalar, rounded to the type: what it sends and what it adds itself. */
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

/* ---- Arrival ---- */

static const uint32_t ESCAPED = SENTINEL - 1;

/* Make v fit to be sent. MARK_ESCAPE: returns the extra word, or 0 if there is none: bit i says that word i was
 * all-ones, bit 4 that there is something to say. */
template <mark_t MARK> LANE_FN uint32_t mark_clean(vec16_t &v)
{
    uint32_t escape = 0;
    if constexpr (MARK == MARK_DOUBLE) {
        LANE_UNROLL
        for (int i = 0; i < 4; i += 2) {
            if ((v.w[i] & v.w[i + 1]) == SENTINEL)
                v.w[i + 1] = SENTINEL >> 1;
        }
    } else {
        LANE_UNROLL
        for (int i = 0; i < 4; i++) {
            if (v.w[i] == SENTINEL) {
                v.w[i] = MARK == MARK_WORD ? SENTINEL >> 1 : ESCAPED;
                escape |= 1u << i;
            }
            if (v.w[i] == ESCAPED)
                escape |= 1u << 4;
        }
    }
    return escape;
}

template <mark_t MARK> LANE_FN bool mark_arrived(const vec16_t &v)
{
    if (MARK == MARK_DOUBLE)
        return (v.w[0] & v.w[1]) != SENTINEL && (v.w[2] & v.w[3]) != SENTINEL;
    return v.w[0] != SENTINEL && v.w[1] != SENTINEL && v.w[2] != SENTINEL && v.w[3] != SENTINEL;
}

LANE_FN bool mark_escaped(const vec16_t &v)
{
    return v.w[0] == ESCAPED || v.w[1] == ESCAPED || v.w[2] == ESCAPED || v.w[3] == ESCAPED;
}

LANE_FN void mark_unescape(vec16_t &v, uint32_t escape)
{
    LANE_UNROLL
    for (int i = 0; i < 4; i++) {
        if (escape >> i & 1)
            v.w[i] = SENTINEL;
    }
}

#endif
