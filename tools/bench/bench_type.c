/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_type.c - element types and operators, and how a number is written in each type. All floats consist of a sign,
 * an exponent with the usual bias and a fraction, so one pair of functions serves them all.
 */
#include <math.h>
#include <string.h>

#include "tools/bench/bench.h"

const bench_type_t bench_types[] = {
    {"int8", "char", ncclInt8, BENCH_SIGNED, 1, 0, 0},
    {"uint8", "", ncclUint8, BENCH_UNSIGNED, 1, 0, 0},
    {"int32", "int", ncclInt32, BENCH_SIGNED, 4, 0, 0},
    {"uint32", "", ncclUint32, BENCH_UNSIGNED, 4, 0, 0},
    {"int64", "", ncclInt64, BENCH_SIGNED, 8, 0, 0},
    {"uint64", "", ncclUint64, BENCH_UNSIGNED, 8, 0, 0},
    {"half", "float16", ncclFloat16, BENCH_FLOAT, 2, 10, 5},
    {"float", "float32", ncclFloat32, BENCH_FLOAT, 4, 23, 8},
    {"double", "float64", ncclFloat64, BENCH_FLOAT, 8, 52, 11},
    {"bfloat16", "bf16", ncclBfloat16, BENCH_FLOAT, 2, 7, 8},
    {"f8e4m3", "fp8_e4m3", ncclFloat8e4m3, BENCH_FLOAT, 1, 3, 4},
    {"f8e5m2", "fp8_e5m2", ncclFloat8e5m2, BENCH_FLOAT, 1, 2, 5},
};
const uint32_t bench_type_count = sizeof bench_types / sizeof bench_types[0];

const bench_op_t bench_ops[] = {
    {"sum", ncclSum, false}, {"prod", ncclProd, false}, {"max", ncclMax, false},
    {"min", ncclMin, false}, {"avg", ncclAvg, false},   {"premulsum", ncclSum, true},
};
const uint32_t bench_op_count = sizeof bench_ops / sizeof bench_ops[0];

int32_t bench_type_find(const char *name)
{
    for (uint32_t i = 0; i < bench_type_count; i++) {
        const bench_type_t *type = &bench_types[i];
        if (strcmp(name, type->name) == 0 || (type->alias[0] != '\0' && strcmp(name, type->alias) == 0)) {
            return (int32_t)i;
        }
    }
    return -1;
}

static int bias(const bench_type_t *type)
{
    return (1 << (type->exponent - 1)) - 1;
}

static uint64_t encode_float(const bench_type_t *type, double value)
{
    uint64_t sign = signbit(value) ? 1ull << (type->mantissa + type->exponent) : 0;
    int power = 0;
    double fraction = frexp(fabs(value), &power); /* [0.5, 1) */
    if (fraction == 0) {
        return sign;
    }
    /* No denormals or overflow: the values are well inside every type's normal range. */
    uint64_t mantissa = (uint64_t)nearbyint(ldexp(fraction * 2 - 1, type->mantissa));
    uint64_t exponent = (uint64_t)(power - 1 + bias(type));
    return sign | ((exponent << type->mantissa) + mantissa); /* a fraction rounded up to 1 carries into the exponent */
}

uint64_t bench_encode(const bench_type_t *type, double value)
{
    if (type->kind == BENCH_FLOAT) {
        return encode_float(type, value);
    }
    return (uint64_t)(int64_t)value;
}

double bench_decode(const bench_type_t *type, uint64_t bits)
{
    uint64_t mantissa = bits & ((1ull << type->mantissa) - 1);
    int exponent = (int)(bits >> type->mantissa & ((1ull << type->exponent) - 1));
    bool negative = (bits >> (type->mantissa + type->exponent) & 1) != 0;
    int last = (1 << type->exponent) - 1;
    double value;
    if (type->type == ncclFloat8e4m3) {
        if (exponent == last && mantissa == 7) {
            return NAN; /* NaN is the only special value of this type */
        }
    } else if (exponent == last) {
        return mantissa != 0 ? NAN : negative ? -INFINITY : INFINITY;
    }
    if (exponent == 0) {
        value = ldexp((double)mantissa, 1 - bias(type) - type->mantissa);
    } else {
        value = ldexp((double)(mantissa | 1ull << type->mantissa), exponent - bias(type) - type->mantissa);
    }
    return negative ? -value : value;
}

/* The factor differs between ranks, and keeps sums of small integers exact: a factor of two would exceed the integers,
 * up to eight, that the smallest type holds exactly. */
int bench_scalar(const bench_type_t *type, uint32_t rank)
{
    if (type->kind == BENCH_FLOAT) {
        return rank % 2 == 0 ? 1 : -1;
    }
    return 1 + (int)(rank % 3);
}
