/* SPDX-License-Identifier: Apache-2.0 */
/* convert_cpu.h - 8- and 16-bit floats to fp32 and back on the CPU device, with the bits of CUDA's conversions: to
 * nearest even; 8-bit types saturate, 16-bit types overflow to infinity; all NaN become one. */
#ifndef SHUNT_CONVERT_CPU_H
#define SHUNT_CONVERT_CPU_H

#include <stdint.h>
#include <string.h>

static inline float convert_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t convert_to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

typedef struct small_float {
    int exponent, mantissa, bias;
    uint32_t nan;
    uint32_t largest;
    bool infinity; /* infinity follows `largest`; false: the type saturates */
    bool all_ones_is_nan_only;
} small_float_t;

inline constexpr small_float_t FORMAT_F16 = {5, 10, 15, 0x7fff, 0x7bff, true, false};
inline constexpr small_float_t FORMAT_E5M2 = {5, 2, 15, 0x7f, 0x7b, false, false};
inline constexpr small_float_t FORMAT_E4M3 = {4, 3, 7, 0x7f, 0x7e, false, true};

static inline float convert_widen(const small_float_t &format, uint32_t bits)
{
    const uint32_t magnitude_mask = (1u << (format.exponent + format.mantissa)) - 1;
    const uint32_t magnitude = bits & magnitude_mask;
    const uint32_t sign = (bits >> (format.exponent + format.mantissa) & 1) << 31;
    const uint32_t exponent = magnitude >> format.mantissa;
    const uint32_t fraction = magnitude & ((1u << format.mantissa) - 1);
    const uint32_t top = (1u << format.exponent) - 1;
    if (format.all_ones_is_nan_only ? magnitude == magnitude_mask : exponent == top && fraction != 0)
        return convert_from_bits(sign | 0x7fffffff);
    if (!format.all_ones_is_nan_only && exponent == top)
        return convert_from_bits(sign | 0x7f800000);
    if (exponent == 0) {
        /* fraction * 2^(1 - bias - mantissa), exact in fp32 */
        const float unit = convert_from_bits((uint32_t)(127 + 1 - format.bias - format.mantissa) << 23);
        const float value = (float)fraction * unit;
        return convert_from_bits(sign | convert_to_bits(value));
    }
    return convert_from_bits(sign | (exponent + 127 - (uint32_t)format.bias) << 23 |
                             fraction << (23 - format.mantissa));
}

static inline uint32_t convert_narrow(const small_float_t &format, float value)
{
    const uint32_t bits = convert_to_bits(value);
    const uint32_t sign = bits >> 31 << (format.exponent + format.mantissa);
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return format.nan;
    const int exponent = (int)(magnitude >> 23) - 127 + format.bias;
    if (exponent > (1 << format.exponent))
        return sign | (format.infinity ? format.largest + 1 : format.largest);
    const uint32_t significand = (magnitude & 0x7fffff) | (magnitude >= 0x800000 ? 0x800000 : 0);
    const int drop = 23 - format.mantissa + (exponent > 0 ? 0 : 1 - exponent);
    if (drop > 25)
        return sign;
    uint32_t kept = significand >> drop;
    const uint32_t rest = significand & ((1u << drop) - 1), half = 1u << (drop - 1);
    if (rest > half || (rest == half && (kept & 1)))
        kept++;
    /* A carry increments the exponent. */
    const uint32_t result = exponent > 0 ? ((uint32_t)(exponent - 1) << format.mantissa) + kept : kept;
    if (result > format.largest)
        return sign | (format.infinity ? format.largest + 1 : format.largest);
    return sign | result;
}

static inline float convert_widen_bf16(uint32_t bits)
{
    return convert_from_bits(bits << 16);
}

static inline uint32_t convert_narrow_bf16(float value)
{
    const uint32_t bits = convert_to_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

#endif
