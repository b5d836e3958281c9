/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls beside products, on a fake device whose clock adds up durations: products take 12 s, and each call of Shunt or
 * NCCL adds its own time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/bench/bench.h"

static double clock_now, mark_at[2], call_seconds[2];
static uint32_t starts, joins, opened, closed;
static bench_rank_t rank;

/* ---- The parts of shunt bench ---- */

void bench_barrier(bench_rank_t *of)
{
    (void)of;
}

double bench_slowest(bench_rank_t *of, double own)
{
    (void)of;
    return own;
}

double bench_median(double *values, uint32_t count)
{
    return values[count / 2];
}

bool bench_run_open(bench_rank_t *of, const bench_case_t *one, const bench_side_t *side, uint32_t calls,
                    bench_run_t *run)
{
    (void)of, (void)one;
    *run = (bench_run_t){.side = side, .calls = calls};
    opened++;
    return true;
}

bool bench_run_start(bench_rank_t *of, const bench_case_t *one, const bench_run_t *run)
{
    (void)one;
    assert_int_equal(starts, joins + 1); /* the products are under way */
    clock_now += run->calls * call_seconds[run->side - of->side];
    return true;
}

void bench_run_close(bench_rank_t *of, bench_run_t *run)
{
    (void)of, (void)run;
    closed++;
}

/* ---- The device ---- */

static bool load_open(bench_rank_t *of)
{
    (void)of;
    return true;
}

static bool load_start(bench_rank_t *of)
{
    (void)of;
    starts++;
    clock_now += 12;
    return true;
}

static bool load_join(bench_rank_t *of)
{
    (void)of;
    joins++;
    return true;
}

static bool put_mark(bench_rank_t *of, int which)
{
    (void)of;
    mark_at[which] = clock_now;
    return true;
}

static bool elapsed(bench_rank_t *of, double *seconds)
{
    (void)of;
    *seconds = mark_at[1] - mark_at[0];
    return true;
}

static const bench_device_t device = {
    .mark = put_mark, .elapsed = elapsed, .load_open = load_open, .load_start = load_start, .load_join = load_join};

static int open_products(void **state)
{
    (void)state;
    rank = (bench_rank_t){.device = &device, .sides = 2, .nranks = 1};
    starts = joins = opened = closed = 0;
    return bench_beside_open(&rank) ? 0 : -1;
}

/* ---- Tests ---- */

static void the_products_are_measured_alone(void **state)
{
    (void)state;
    assert_float_equal(rank.products, 12, 1e-9);
    assert_int_equal(starts, joins);
}

static void both_sides_make_as_many_calls(void **state)
{
    (void)state;
    const bench_case_t one = {.count = 1};
    const bench_row_t row = {.seconds = 0.5, .nccl_seconds = 1};
    bench_beside_t beside;
    call_seconds[0] = 0.25, call_seconds[1] = 2;
    assert_true(bench_beside(&rank, &one, &row, &beside));
    assert_int_equal(beside.calls, 9); /* three quarters of 12 s, for the slower */
    assert_float_equal(beside.products, 12, 1e-9);
    assert_float_equal(beside.total, 12 + 9 * 0.25, 1e-9);
    assert_float_equal(beside.nccl_total, 12 + 9 * 2, 1e-9);
    assert_int_equal(opened, 2);
    assert_int_equal(closed, 2);
}

static void without_nccl_there_is_one_total(void **state)
{
    (void)state;
    const bench_case_t one = {.count = 1};
    const bench_row_t row = {.seconds = 6};
    bench_beside_t beside;
    rank.sides = 1;
    call_seconds[0] = 6;
    assert_true(bench_beside(&rank, &one, &row, &beside));
    assert_float_equal(beside.total, 12 + 2 * 6, 1e-9);
    assert_float_equal(beside.nccl_total, 0, 1e-9);
}

static void the_number_of_calls_has_bounds(void **state)
{
    (void)state;
    assert_int_equal(bench_beside_calls(12e-3, 1), 2);
    assert_int_equal(bench_beside_calls(12e-3, 1e-6), 300);
    assert_int_equal(bench_beside_calls(12e-3, 0), 300);
    assert_int_equal(bench_beside_calls(12e-3, 90e-6), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(the_products_are_measured_alone, open_products),
                                       cmocka_unit_test_setup(both_sides_make_as_many_calls, open_products),
                                       cmocka_unit_test_setup(without_nccl_there_is_one_total, open_products),
                                       cmocka_unit_test(the_number_of_calls_has_bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
