/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.c - reductions element by element, slow and simple.
 *
 * Conversions go through double and one generic rounding, so that they share
 * nothing with the library's bit operations. Compiled with -ffp-contract=off: a
 * fused multiply-add would round once where the rules round twice.
 */
#include "reference.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct ref_format {
    const char *name;
    uint8_t bytes;
    uint8_t is_float;
    uint8_t is_signed;
    uint8_t mantissa; /* stored bits */
    int16_t bias;
    double largest;    /* finite */
    uint8_t saturates; /* overflow gives `largest`, not infinity */
} ref_format_t;

static const ref_format_t formats[REF_TYPES] = {
    [ncclInt8] = {"int8", 1, 0, 1, 0, 0, 0, 0},
    [ncclUint8] = {"uint8", 1, 0, 0, 0, 0, 0, 0},
    [ncclInt32] = {"int32", 4, 0, 1, 0, 0, 0, 0},
    [ncclUint32] = {"uint32", 4, 0, 0, 0, 0, 0, 0},
    [ncclInt64] = {"int64", 8, 0, 1, 0, 0, 0, 0},
    [ncclUint64] = {"uint64", 8, 0, 0, 0, 0, 0, 0},
    [ncclFloat16] = {"half", 2, 1, 1, 10, 15, 65504.0, 0},
    [ncclFloat32] = {"float", 4, 1, 1, 23, 127, FLT_MAX, 0},
    [ncclFloat64] = {"double", 8, 1, 1, 52, 1023, DBL_MAX, 0},
    [ncclBfloat16] = {"bfloat16", 2, 1, 1, 7, 127, 0x1.fep127, 0},
    [ncclFloat8e4m3] = {"f8e4m3", 1, 1, 1, 3, 7, 448.0, 1},
    [ncclFloat8e5m2] = {"f8e5m2", 1, 1, 1, 2, 15, 57344.0, 1},
};

static const char *const op_names[REF_OPS] = {"sum", "prod", "max", "min", "avg", "premulsum"};

size_t ref_bytes(ncclDataType_t type)
{
    return formats[type].bytes;
}

const char *ref_type_name(ncclDataType_t type)
{
    return formats[type].name;
}

const char *ref_op_name(ref_op_t op)
{
    return op_names[op];
}

bool ref_is_float(ncclDataType_t type)
{
    return formats[type].is_float;
}

bool ref_is_signed(ncclDataType_t type)
{
    return formats[type].is_signed;
}

static uint64_t load_bits(const ref_format_t *f, const void *element)
{
    uint64_t bits = 0;  /* little-endian machines only, as CUDA's are */
    switch (f->bytes) { /* each a constant: a call of memcpy costs more than the conversion */
    case 1:
        memcpy(&bits, element, 1);
        break;
    case 2:
        memcpy(&bits, element, 2);
        break;
    case 4:
        memcpy(&bits, element, 4);
        break;
    default:
        memcpy(&bits, element, 8);
    }
    return bits;
}

static void store_bits(const ref_format_t *f, uint64_t bits, void *element)
{
    ref_store((size_t)f->bytes, bits, element);
}

/* To even, as nearbyint() in the default mode, without a call. */
static double round_to_even(double magnitude)
{
    return magnitude < 0x1p52 ? magnitude + 0x1p52 - 0x1p52 : magnitude;
}

/* Integers: the value modulo 2^64, sign-extended if the type is signed. */
static uint64_t load_integer(const ref_format_t *f, const void *element)
{
    uint64_t bits = load_bits(f, element);
    int unused = 64 - 8 * f->bytes;
    if (!f->is_signed)
        return bits;
    return (uint64_t)((int64_t)(bits << unused) >> unused);
}

/* 2^exponent, a normal double. */
static double power_of_two(int exponent)
{
    double power;
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    memcpy(&power, &bits, sizeof(power));
    return power;
}

/* The exponent e of a magnitude in [2^e, 2^(e + 1)). */
static int exponent_of(double magnitude)
{
    uint64_t bits;
    memcpy(&bits, &magnitude, sizeof(bits));
    return bits >> 52 ? (int)(bits >> 52) - 1023 : ilogb(magnitude);
}

static double load_small_float(const ref_format_t *f, const void *element)
{
    uint64_t bits = load_bits(f, element);
    int width = 8 * f->bytes;
    uint64_t mantissa = bits & ((1u << f->mantissa) - 1);
    int exponent_bits = width - 1 - f->mantissa;
    int exponent = (int)(bits >> f->mantissa) & ((1 << exponent_bits) - 1);
    double sign = (bits >> (width - 1)) ? -1.0 : 1.0;
    bool top = exponent == (1 << exponent_bits) - 1;

    if (f == &formats[ncclFloat8e4m3]) {
        if (top && mantissa == 7)
            return NAN; /* the only NaN; there is no infinity */
    } else if (top) {
        return mantissa ? NAN : sign * INFINITY;
    }
    if (exponent == 0)
        return sign * (double)mantissa * power_of_two(1 - f->bias - f->mantissa);
    return sign * (double)(mantissa | (1u << f->mantissa)) * power_of_two(exponent - f->bias - f->mantissa);
}

double ref_value(ncclDataType_t type, const void *element)
{
    const ref_format_t *f = &formats[type];
    if (type == ncclFloat64) {
        double value;
        memcpy(&value, element, sizeof(value));
        return value;
    }
    if (type == ncclFloat32) {
        float value;
        memcpy(&value, element, sizeof(value));
        return value;
    }
    if (f->is_float)
        return load_small_float(f, element);
    if (f->is_signed)
        return (double)(int64_t)load_integer(f, element);
    return (double)load_integer(f, element);
}

static void store_small_float(const ref_format_t *f, double value, void *element)
{
    int width = 8 * f->bytes;
    uint64_t sign = signbit(value) ? 1ull << (width - 1) : 0;
    uint64_t infinity = (((1ull << (width - 1 - f->mantissa)) - 1) << f->mantissa);
    double magnitude = fabs(value), steps;
    const int least = 1 - f->bias; /* exponent of the smallest normal number */
    int exponent, quantum;

    if (magnitude == 0) {
        store_bits(f, sign, element);
        return;
    }
    if (!isinf(magnitude)) {
        exponent = exponent_of(magnitude);
        if (exponent > FLT_MAX_EXP + 1)
            exponent = FLT_MAX_EXP + 1; /* far above the largest of any of these types */
        quantum = (exponent < least ? least : exponent) - f->mantissa;
        steps = round_to_even(magnitude * power_of_two(-quantum));
        magnitude = steps * power_of_two(quantum);
    }
    if (magnitude > f->largest) {
        if (!f->saturates) {
            store_bits(f, sign | infinity, element);
            return;
        }
        magnitude = f->largest;
    }
    /* Rounding may have moved the value to the next binade; take exponent and mantissa from the rounded value. */
    if (magnitude < power_of_two(least)) {
        store_bits(f, sign | (uint64_t)(magnitude * power_of_two(f->mantissa - least)), element);
        return;
    }
    exponent = exponent_of(magnitude);
    steps = (magnitude * power_of_two(-exponent) - 1) * power_of_two(f->mantissa);
    store_bits(f, sign | ((uint64_t)(exponent + f->bias) << f->mantissa) | (uint64_t)steps, element);
}

void ref_encode(ncclDataType_t type, double value, void *element)
{
    const ref_format_t *f = &formats[type];
    if (f->is_float && isnan(value)) {
        store_bits(f, (1ull << (8 * f->bytes - 1)) - 1, element);
    } else if (type == ncclFloat64) {
        memcpy(element, &value, sizeof(value));
    } else if (type == ncclFloat32) {
        float narrow = (float)value;
        memcpy(element, &narrow, sizeof(narrow));
    } else if (f->is_float) {
        store_small_float(f, value, element);
    } else {
        store_bits(f, (uint64_t)(int64_t)value, element);
    }
}

/* Reduce integers; an average divides by `all`. */
static void reduce_integers(const ref_format_t *f, ref_op_t op, int n, int all, const uint8_t *inputs,
                            const uint8_t *scalars, void *result)
{
    uint64_t sum = 0;
    for (int r = 0; r < n; r++) {
        uint64_t x = load_integer(f, inputs + (size_t)r * f->bytes);
        bool less = f->is_signed ? (int64_t)x < (int64_t)sum : x < sum;
        if (op == REF_PREMUL)
            x *= load_integer(f, scalars + (size_t)r * f->bytes);
        if (r == 0)
            sum = x;
        else if (op == REF_PROD)
            sum *= x;
        else if (op == REF_MAX)
            sum = less ? sum : x;
        else if (op == REF_MIN)
            sum = less ? x : sum;
        else
            sum += x;
    }
    store_bits(f, sum, result);
    if (op != REF_AVG)
        return;
    sum = load_integer(f, result); /* wrapped in its type */
    sum = f->is_signed ? (uint64_t)((int64_t)sum / all) : sum / (uint64_t)all;
    store_bits(f, sum, result);
}

/* Whether x is greater: numbers are greater than NaN, and +0 than -0. (fmax drops only quiet NaNs.) */
static bool greater(double x, double a)
{
    if (isnan(a) || isnan(x))
        return isnan(a);
    return x > a || (x == 0 && a == 0 && signbit(a));
}

static double fold_double(ref_op_t op, double a, double x)
{
    if (op == REF_PROD)
        return a * x;
    if (op == REF_MAX)
        return greater(x, a) ? x : a;
    if (op == REF_MIN)
        return greater(-x, -a) ? x : a;
    return a + x;
}

static float fold_float(ref_op_t op, float a, float x)
{
    if (op == REF_MAX || op == REF_MIN)
        return (float)fold_double(op, a, x);
    return op == REF_PROD ? a * x : a + x;
}

/* The average from the sum of the shares. */
static double average_double(double a, int n, int share)
{
    return n == share ? a : fma(a, (double)(share - n) / n, a);
}

static float average_float(float a, int n, int share)
{
    return n == share ? a : fmaf(a, (float)(share - n) / (float)n, a);
}

/* Input r, times its scalar and rounded to the type if the operator says so. */
static double term(ncclDataType_t type, ref_op_t op, int r, const uint8_t *inputs, const uint8_t *scalars)
{
    size_t at = (size_t)r * ref_bytes(type);
    double x = ref_value(type, inputs + at), s;
    uint64_t rounded = 0;
    if (op != REF_PREMUL)
        return x;
    s = ref_value(type, scalars + at);
    if (type == ncclFloat64)
        return x * s;
    /* fp32 first, as the kernels multiply; the product of two small floats is exact there */
    ref_encode(type, (float)((float)x * (float)s), &rounded);
    return ref_value(type, &rounded);
}

/* The power of two by which every input of an average is divided before it is added. */
static int share_of(ref_op_t op, int n)
{
    int share = 1;
    while (op == REF_AVG && share < n)
        share *= 2;
    return share;
}

static void reduce_floats(ncclDataType_t type, ref_op_t op, int n, const uint8_t *inputs, const uint8_t *scalars,
                          void *result)
{
    const int share = share_of(op, n);
    double wide = term(type, op, 0, inputs, scalars) / share;
    float narrow = (float)wide;
    if (type == ncclFloat64) {
        for (int r = 1; r < n; r++)
            wide = fold_double(op, wide, term(type, op, r, inputs, scalars) / share);
        ref_encode(type, op == REF_AVG ? average_double(wide, n, share) : wide, result);
        return;
    }
    for (int r = 1; r < n; r++)
        narrow = fold_float(op, narrow, (float)(term(type, op, r, inputs, scalars) / share));
    ref_encode(type, op == REF_AVG ? average_float(narrow, n, share) : narrow, result);
}

void ref_reduce(ncclDataType_t type, ref_op_t op, int n, const void *inputs, const void *scalars, void *result)
{
    const ref_format_t *f = &formats[type];
    if (n == 1 && op != REF_PREMUL)
        memcpy(result, inputs, f->bytes);
    else if (f->is_float)
        reduce_floats(type, op, n, inputs, scalars, result);
    else
        reduce_integers(f, op, n, n, inputs, scalars, result);
}

static bool same_value(ncclDataType_t type, const void *a, const void *b)
{
    double x, y;
    if (!ref_is_float(type))
        return memcmp(a, b, ref_bytes(type)) == 0;
    x = ref_value(type, a);
    y = ref_value(type, b);
    return x == y || (isnan(x) && isnan(y));
}

/* Whether `got` is right. For more than one rank there is exactly one right bit pattern. */
static bool right_result(ncclDataType_t type, ref_precision_t precision, int n, const void *expected, const void *got)
{
    if (precision == REF_STRICT && n > 1)
        return memcmp(expected, got, ref_bytes(type)) == 0;
    return same_value(type, expected, got);
}

/* Compute the rounded value that a node sends: the sum, but the average for averages of floats, so that it stays in
 * range. */
static void reduce_node(ncclDataType_t type, ref_op_t op, int n, const int *node_of, int node, const uint8_t *inputs,
                        const uint8_t *scalars, void *result)
{
    uint64_t in[REF_MAX_RANKS], scale[REF_MAX_RANKS];
    const size_t bytes = ref_bytes(type);
    size_t here = 0;
    for (int r = 0; r < n; r++) {
        if (node_of[r] != node)
            continue;
        memcpy((uint8_t *)in + here * bytes, inputs + (size_t)r * bytes, bytes);
        memcpy((uint8_t *)scale + here++ * bytes, scalars + (size_t)r * bytes, bytes);
    }
    ref_reduce(type, op == REF_AVG && !ref_is_float(type) ? REF_SUM : op, (int)here, in, scale, result);
}

bool ref_right_on_nodes(ncclDataType_t type, ref_op_t op, int n, const int *node_of, const void *inputs,
                        const void *scalars, const void *got)
{
    uint64_t sums[REF_MAX_RANKS], expected = 0;
    int nodes = 0;
    for (int r = 0; r < n; r++)
        nodes = node_of[r] >= nodes ? node_of[r] + 1 : nodes;
    for (int h = 0; h < nodes; h++)
        reduce_node(type, op, n, node_of, h, inputs, scalars, (uint8_t *)sums + (size_t)h * ref_bytes(type));
    op = op == REF_PREMUL ? REF_SUM : op;
    if (ref_is_float(type))
        reduce_floats(type, op, nodes, (const uint8_t *)sums, NULL, &expected);
    else
        reduce_integers(&formats[type], op, nodes, n, (const uint8_t *)sums, NULL, &expected);
    return right_result(type, REF_STRICT, n, &expected, got);
}

static bool right_bound(ncclDataType_t type, ref_op_t op, int n, const uint8_t *inputs, const uint8_t *scalars,
                        const void *got)
{
    const ref_format_t *f = &formats[type];
    long double u = ldexpl(1.0L, -(f->mantissa + 1)), m = ldexpl(1.0L, 1 - f->bias - f->mantissa);
    long double value = op == REF_PROD ? 1.0L : 0.0L, magnitudes = 0, bound;
    for (int r = 0; r < n; r++) {
        long double x = ref_value(type, inputs + (size_t)r * f->bytes);
        if (op == REF_PREMUL)
            x *= ref_value(type, scalars + (size_t)r * f->bytes);
        value = op == REF_PROD ? value * x : value + x;
        magnitudes += fabsl(x);
    }
    if (op == REF_PROD)
        bound = 2 * n * u * fabsl(value);
    else if (op == REF_AVG)
        bound = (n + 3) * u * magnitudes / n;
    else
        bound = (n + 1) * u * magnitudes;
    if (op == REF_AVG)
        value /= n;
    return fabsl((long double)ref_value(type, got) - value) <= bound + n * m;
}

bool ref_right(ncclDataType_t type, ref_op_t op, ref_precision_t precision, int n, const void *inputs,
               const void *scalars, const void *got)
{
    uint64_t expected = 0;
    if (precision == REF_BOUND && ref_is_float(type) && op != REF_MAX && op != REF_MIN)
        return right_bound(type, op, n, inputs, scalars, got);
    ref_reduce(type, op, n, inputs, scalars, &expected);
    return right_result(type, precision, n, &expected, got);
}
