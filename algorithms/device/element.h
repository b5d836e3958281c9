/* SPDX-License-Identifier: Apache-2.0 */
/* element.h - a vector's elements as numbers, and their arithmetic.
 *
 * element<TYPE>: values are reduced as `acc`, COUNT is the number of `acc` in a vector, BYTES a value's size. Shorter
 * floats are reduced as fp32, 8-bit integers as four in a word. */
#ifndef SHUNT_ELEMENT_H
#define SHUNT_ELEMENT_H

#include "algorithms/device/lane.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#else
#include "algorithms/device/convert_cpu.h"
#endif

template <class T, int SIZE = sizeof(T)> struct element_plain {
    typedef T acc;
    enum { COUNT = VEC / sizeof(T), BYTES = SIZE };
    LANE_FN static void unpack(const vec16_t &v, acc a[COUNT])
    {
        memcpy(a, v.w, VEC);
    }
    LANE_FN static void pack(const acc a[COUNT], vec16_t &v)
    {
        memcpy(v.w, a, VEC);
    }
};

typedef struct bytes4 {
    uint32_t w;
} bytes4_t;

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
template <> struct element<ALG_INT8> : element_plain<bytes4_t, 1> {
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

/* ---- Operators. Integers wrap, so they add and multiply as unsigned */

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

/* Masks of each byte: the sign bit; the other bits, whose sums do not carry out; the value 1. */
static const uint32_t BYTES_TOP = 0x80808080, BYTES_LOW = 0x7f7f7f7f, BYTES_EACH = 0x01010101;

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
    const uint32_t low = (a.w | BYTES_TOP) - (b.w & BYTES_LOW); /* top bit: a's lower bits >= b's */
    const uint32_t first = ((b.w & ~a.w) | (~(a.w ^ b.w) & low)) & BYTES_TOP;
    const uint32_t mask = (first << 1) - (first >> 7);
    return {(a.w & mask) | (b.w & ~mask)};
}

static const uint32_t FLOAT_SIGN = 0x80000000;

LANE_FN bool op_negative(float a)
{
    uint32_t w;
    memcpy(&w, &a, sizeof w);
    return w & FLOAT_SIGN;
}
LANE_FN bool op_negative(double a)
{
    uint64_t w;
    memcpy(&w, &a, sizeof w);
    return w >> 63;
}

/* A NaN, signalling or not, loses to a number; -0 is less than +0. */
template <class F> LANE_FN F op_max_float(F a, F b)
{
    return a != a ? b : b != b || a > b || (a == b && !op_negative(a)) ? a : b;
}
LANE_FN double op_max(double a, double b)
{
#ifdef __CUDACC__
    return fmax(a, b);
#else
    return op_max_float(a, b);
#endif
}
LANE_FN float op_max(float a, float b)
{
#ifdef __CUDACC__
    return fmaxf(a, b); /* the host's fmaxf keeps a signalling NaN */
#else
    return op_max_float(a, b);
#endif
}

/* Flips the sign, even of a NaN, if bit 31 of `sign` is set. */
LANE_FN float op_mirror(float a, uint32_t sign)
{
    uint32_t w;
    memcpy(&w, &a, sizeof w);
    w ^= sign & FLOAT_SIGN;
    memcpy(&a, &w, sizeof w);
    return a;
}
LANE_FN double op_mirror(double a, uint32_t sign)
{
    uint64_t w;
    memcpy(&w, &a, sizeof w);
    w ^= (uint64_t)(sign & FLOAT_SIGN) << 32;
    memcpy(&a, &w, sizeof w);
    return a;
}

/* Turns every NaN into all ones but the sign: a GPU's fp32 arithmetic and narrowing conversions give no other NaN. */
LANE_FN double op_one_nan(double a)
{
    const uint64_t nan = UINT64_MAX >> 1;
    if (a != a)
        memcpy(&a, &nan, sizeof a);
    return a;
}
LANE_FN float op_one_nan(float a)
{
#ifndef __CUDACC__
    const uint32_t nan = UINT32_MAX >> 1;
    if (a != a)
        memcpy(&a, &nan, sizeof a);
#endif
    return a;
}

LANE_FN float op_fma(float a, float x, float y)
{
    return __builtin_fmaf(x, y, a);
}
LANE_FN double op_fma(double a, double x, double y)
{
    return __builtin_fma(x, y, a);
}

/* a + x * scale, with the product rounded. EXACT: the product needs no rounding. Integers ignore scale. */
template <bool EXACT, class A> LANE_FN A op_add(A a, A x, float)
{
    return op_sum(a, x);
}
template <bool EXACT> LANE_FN float op_add(float a, float x, float scale)
{
#ifdef __CUDACC__
    return EXACT ? __fmaf_rn(x, scale, a) : __fadd_rn(a, __fmul_rn(x, scale));
#else
    return a + x * scale;
#endif
}
template <bool EXACT> LANE_FN double op_add(double a, double x, float scale)
{
#ifdef __CUDACC__
    return __dadd_rn(a, __dmul_rn(x, scale));
#else
    return a + x * scale;
#endif
}

template <bool UNSIGNED, class A> LANE_FN A op_divide(A a, uint32_t n)
{
    typedef typename wrapping<A>::type U;
    return UNSIGNED ? (A)((U)a / n) : (A)(a / (A)n);
}

/* Divides four bytes by 2 or 4: with n - 1 added to negative bytes, a shift truncates toward zero. */
template <bool UNSIGNED> LANE_FN bytes4_t bytes_shift(bytes4_t a, uint32_t n)
{
    const uint32_t bits = n / 2, mask = BYTES_EACH * (0xff >> bits), negative = UNSIGNED ? 0 : (a.w & BYTES_TOP) >> 7;
    const uint32_t w = op_sum(a, bytes4_t{negative * (n - 1)}).w, sign = UNSIGNED ? 0 : w & BYTES_TOP;
    return {(w >> bits & mask) | sign | (bits == 2 ? sign >> 1 : 0)};
}
template <bool UNSIGNED> LANE_FN bytes4_t op_divide(bytes4_t a, uint32_t n)
{
    if (n == 2 || n == 4)
        return bytes_shift<UNSIGNED>(a, n);
    uint32_t w = 0;
    LANE_UNROLL
    for (int i = 0; i < 32; i += 8) {
        const int byte = UNSIGNED ? (uint8_t)(a.w >> i) : (int8_t)(a.w >> i);
        w |= (uint32_t)(byte / (int)n & 0xff) << i;
    }
    return {w};
}

#endif
