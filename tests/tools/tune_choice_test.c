/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choices by two prices: how much slower a choice may be alone, and how much faster it must be beside products.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/tune/tune.h"

enum { COUNT = 3 };

static void a_gain_beside_products_is_taken(void **state)
{
    (void)state;
    const tune_price_t price[COUNT] = {{100, 20}, {102.9, 17}, {101, 18}};
    assert_int_equal(tune_choose(price, COUNT, 0), 1);
    const tune_price_t last[COUNT] = {{100, 20}, {101, 18}, {102.9, 17}};
    assert_int_equal(tune_choose(last, COUNT, 0), 2);
}

static void it_may_not_cost_more_than_three_percent_alone(void **state)
{
    (void)state;
    const tune_price_t price[COUNT] = {{100, 20}, {103.1, 15}, {110, 10}};
    assert_int_equal(tune_choose(price, COUNT, 0), 0);
}

static void noise_changes_nothing(void **state)
{
    (void)state;
    const tune_price_t price[COUNT] = {{100, 20}, {100, 19.7}, {99, 21}};
    assert_int_equal(tune_choose(price, COUNT, 0), 0);
    assert_int_equal(tune_choose(price, COUNT, 2), 1);
}

static void an_unmeasured_call_is_not_taken(void **state)
{
    (void)state;
    const tune_price_t price[COUNT] = {{100, 0}, {100, 20}, {90, 0}};
    assert_int_equal(tune_choose(price, COUNT, 1), 1);
}

/* The cost is relative to the first choice, which is not always the fastest alone: the built-in row stays if another
 * one's gain is too small. */
static void the_cost_counts_from_the_first_choice(void **state)
{
    (void)state;
    const tune_price_t price[COUNT] = {{99, 21}, {100, 20}, {102.5, 16}};
    assert_int_equal(tune_choose(price, COUNT, 1), 2);
}

/* In a quick run, which has few rounds, Shunt needs a larger gain over NCCL if the model predicted the choice, and only
 * clear gains replace a built-in row. */
static void a_quick_run_needs_clear_gains(void **state)
{
    (void)state;
    const tune_leads_t full = tune_leads(false, true, true), eager = tune_leads(false, false, false);
    const tune_leads_t guessed = tune_leads(true, true, true), known = tune_leads(true, true, false);
    assert_true(full.over_nccl == 1.02 && full.over_builtin == 1.02 && full.nccl_over_builtin == 1);
    assert_true(eager.over_nccl == 1.10 && eager.over_builtin == 1.10 && eager.nccl_over_builtin == 1);
    assert_true(guessed.over_nccl == 1.03 && guessed.over_builtin == 1.03 && guessed.nccl_over_builtin < 0.98);
    assert_true(known.over_nccl == 1.03 && known.over_builtin == 1.10 && known.nccl_over_builtin == 1.03);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_quick_run_needs_clear_gains),
                                       cmocka_unit_test(a_gain_beside_products_is_taken),
                                       cmocka_unit_test(it_may_not_cost_more_than_three_percent_alone),
                                       cmocka_unit_test(noise_changes_nothing),
                                       cmocka_unit_test(an_unmeasured_call_is_not_taken),
                                       cmocka_unit_test(the_cost_counts_from_the_first_choice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
