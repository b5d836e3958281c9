/* SPDX-License-Identifier: Apache-2.0 */
/* The reference itself: conversions of the small floats, exhaustively where that is possible. */
#include "cpu.h"

#include <math.h>
#include <string.h>

static void round_trip(void **state)
{
    static const ncclDataType_t types[] = {ncclFloat16, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};
    (void)state;
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        for (uint32_t bits = 0; bits < 1u << (8 * ref_bytes(types[t])); bits++) {
            uint32_t again = 0;
            double value = ref_value(types[t], &bits);
            if (isnan(value) || (types[t] == ncclFloat8e5m2 && isinf(value)))
                continue;
            ref_encode(types[t], value, &again);
            assert_int_equal(bits, again);
        }
    }
}

/* Rounding is to nearest even: below the middle of neighbours a and b to a, above it to b, the middle to the even
 * one. */
static void nearest_even(void **state)
{
    static const ncclDataType_t types[] = {ncclFloat16, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};
    (void)state;
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        for (uint32_t bits = 0; bits < (1u << (8 * ref_bytes(types[t]) - 1)) - 1; bits++) {
            uint32_t next = bits + 1, got = 0;
            double a = ref_value(types[t], &bits), b = ref_value(types[t], &next), middle = a + (b - a) / 2;
            if (!isfinite(a) || !isfinite(b))
                continue;
            ref_encode(types[t], nextafter(middle, 0), &got);
            assert_int_equal(got, bits);
            ref_encode(types[t], nextafter(middle, b), &got);
            assert_int_equal(got, next);
            ref_encode(types[t], middle, &got);
            assert_int_equal(got, bits & 1 ? next : bits);
        }
    }
}

static uint32_t encoded(ncclDataType_t type, double value)
{
    uint32_t bits = 0;
    ref_encode(type, value, &bits);
    return bits;
}

static void edges(void **state)
{
    (void)state;
    assert_int_equal(encoded(ncclFloat8e4m3, 1e9), 0x7e); /* saturates at 448 */
    assert_int_equal(encoded(ncclFloat8e4m3, -INFINITY), 0xfe);
    assert_int_equal(encoded(ncclFloat8e4m3, NAN) & 0x7f, 0x7f);
    assert_int_equal(encoded(ncclFloat8e5m2, INFINITY), 0x7b); /* 57344 */
    assert_int_equal(encoded(ncclFloat8e5m2, -1e9), 0xfb);
    assert_int_equal(encoded(ncclFloat16, 65519.99), 0x7bff);
    assert_int_equal(encoded(ncclFloat16, 65520), 0x7c00); /* infinity */
    assert_int_equal(encoded(ncclFloat16, 0x1p-24), 1);
    assert_int_equal(encoded(ncclFloat16, 0x1p-25), 0);
    assert_int_equal(encoded(ncclBfloat16, -1.0), 0xbf80);
    assert_int_equal(encoded(ncclBfloat16, 3.4e38), 0x7f80);
}

static void integers(void **state)
{
    int8_t a[2] = {127, 1}, sum, average;
    uint8_t b[2] = {255, 3}, smallest;
    int8_t c[3] = {-1, -1, -2}, third;
    (void)state;
    ref_reduce(ncclInt8, REF_SUM, 2, a, NULL, &sum);
    assert_int_equal(sum, -128);
    ref_reduce(ncclInt8, REF_AVG, 2, a, NULL, &average);
    assert_int_equal(average, -64);
    ref_reduce(ncclUint8, REF_MIN, 2, b, NULL, &smallest);
    assert_int_equal(smallest, 3);
    ref_reduce(ncclInt8, REF_AVG, 3, c, NULL, &third);
    assert_int_equal(third, -1);
}

/* Reductions that have several right results in NCCL have a single one here. */
static void one_result(void **state)
{
    (void)state;
    const float nans[2] = {-NAN, -NAN}, zeros[2] = {0, -0.0f}, thirds[3] = {1, 1, 5};
    const uint8_t infinite[2] = {0x7c, 0x01};
    const uint32_t quiet = 0x7fc00000;
    uint32_t bits;
    float value;
    uint8_t small;
    for (int op = REF_SUM; op <= REF_AVG; op++) {
        ref_reduce(ncclFloat32, (ref_op_t)op, 2, nans, NULL, &bits);
        assert_int_equal(bits, 0x7fffffff);
        assert_false(ref_right(ncclFloat32, (ref_op_t)op, REF_STRICT, 2, nans, NULL, &quiet));
    }
    ref_reduce(ncclFloat32, REF_MAX, 2, zeros, NULL, &value);
    assert_false(signbit(value));
    ref_reduce(ncclFloat32, REF_MIN, 2, zeros, NULL, &value);
    assert_true(signbit(value));
    ref_reduce(ncclFloat32, REF_AVG, 3, thirds, NULL, &value); /* 1.75 + 1.75 * (1 / 3) */
    assert_true(value == 0x1.2aaaaap+1f);
    assert_true(ref_right(ncclFloat32, REF_AVG, REF_STRICT, 3, thirds, NULL, &value));
    value = nextafterf(value, 0);
    assert_false(ref_right(ncclFloat32, REF_AVG, REF_STRICT, 3, thirds, NULL, &value));
    ref_reduce(ncclFloat8e5m2, REF_MAX, 2, infinite, NULL, &small);
    assert_int_equal(small, 0x7b);
}

/* The checker itself detects a wrong element. */
static void faults_are_seen(void **state)
{
    data_case_t c = {ncclBfloat16, REF_SUM, DATA_RANDOM, 5, 40, 4};
    uint16_t input[4], output[40];
    char fault[256];
    (void)state;
    for (size_t i = 0; i < c.count; i++) {
        uint16_t all[40];
        for (int r = 0; r < 4; r++) {
            data_fill(&c, r, all);
            input[r] = all[i];
        }
        ref_reduce(c.type, c.op, 4, input, NULL, &output[i]);
    }
    assert_true(data_right(&c, REF_STRICT, output, 0, 1, fault, sizeof(fault)));
    assert_true(data_right(&c, REF_BOUND, output, 0, 1, fault, sizeof(fault)));
    output[39] ^= 1;
    assert_false(data_right(&c, REF_STRICT, output, 0, 1, fault, sizeof(fault)));
    output[39] ^= 0x40;
    assert_false(data_right(&c, REF_BOUND, output, 39, 1, fault, sizeof(fault)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip), cmocka_unit_test(nearest_even),    cmocka_unit_test(edges),
        cmocka_unit_test(integers),   cmocka_unit_test(faults_are_seen), cmocka_unit_test(one_result),
    };
    cpu_limit(20);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
