/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The estimate of the time left; test_tools.py tests the bar on a terminal.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/base/progress.h"

static void left(void **state)
{
    (void)state;
    tool_progress_t progress = {.weight = 100, .done = 1};
    assert_true(tool_progress_left(&progress, 10) < 0); /* too early */
    progress.done = 25;
    assert_float_equal(tool_progress_left(&progress, 10), 30, 1e-9);
    progress.limit = 25;
    assert_float_equal(tool_progress_left(&progress, 10), 15, 1e-9);
    assert_float_equal(tool_progress_left(&progress, 26), 0, 1e-9);
    progress.done = 101;
    assert_float_equal(tool_progress_left(&progress, 10), 0, 1e-9);
    progress = (tool_progress_t){0};
    assert_true(tool_progress_left(&progress, 10) < 0);
}

static void weights(void **state)
{
    (void)state;
    assert_float_equal(tool_progress_weight(0), 1, 1e-9);
    assert_float_equal(tool_progress_weight(32 << 20), 2, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(left), cmocka_unit_test(weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
