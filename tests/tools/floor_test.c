/* SPDX-License-Identifier: Apache-2.0 */
/* floor_test.c - the formula of the floor, with figures measured on 4 and 2 H200 and results computed by hand. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "tools/floor/floor.h"

static const tool_floor_t four = {
    .launch_graph = 0.5e-6, .launch_eager = 4.1e-6, .push = 2.0e-6, .one_way = 0.7e-6, .bandwidth = 390e9};

static void near(double seconds, double us)
{
    double difference = seconds * 1e6 - us;
    if (difference < -0.05 || difference > 0.05)
        fail_msg("%.3f us, not %.2f", seconds * 1e6, us);
}

static void one_shot_then_two_shot(void **state)
{
    (void)state;
    tool_floor_t two = four;
    two.push = 1.8e-6;
    near(tool_floor_seconds(&four, ALG_ALL_REDUCE, 4, true, 1 << 10), 2.01);
    near(tool_floor_seconds(&four, ALG_ALL_REDUCE, 4, true, 64 << 10), 2.50);
    near(tool_floor_seconds(&four, ALG_ALL_REDUCE, 4, true, 256 << 10), 3.71); /* two-shot from here on */
    near(tool_floor_seconds(&four, ALG_ALL_REDUCE, 4, true, 1 << 20), 6.73);
    near(tool_floor_seconds(&four, ALG_ALL_REDUCE, 4, true, 64 << 20), 260.8);
    near(tool_floor_seconds(&two, ALG_ALL_REDUCE, 2, true, 64 << 10), 1.97);
    near(tool_floor_seconds(&two, ALG_ALL_REDUCE, 2, true, 64 << 20), 173.9); /* both cross once: one-shot always */
}

static void eager_is_never_faster_than_the_launch(void **state)
{
    (void)state;
    near(tool_floor_seconds(&four, ALG_ALL_REDUCE, 4, false, 1 << 10), 4.10);
    near(tool_floor_seconds(&four, ALG_ALL_REDUCE, 4, false, 1 << 20), 6.73);
}

static void other_collectives(void **state)
{
    (void)state;
    near(tool_floor_seconds(&four, ALG_ALL_GATHER, 4, true, 1 << 20), 4.02);
    near(tool_floor_seconds(&four, ALG_SCATTER, 4, true, 1 << 20), 4.02);
    near(tool_floor_seconds(&four, ALG_BROADCAST, 4, true, 64 << 10), 2.50); /* at once */
    near(tool_floor_seconds(&four, ALG_BROADCAST, 4, true, 1 << 20), 5.39);  /* passed on */
    near(tool_floor_seconds(&four, ALG_REDUCE, 2, true, 1 << 20), 4.69);
    near(tool_floor_seconds(&four, ALG_SEND_RECV, 4, true, 1 << 20), 4.69);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_shot_then_two_shot),
        cmocka_unit_test(other_collectives),
        cmocka_unit_test(eager_is_never_faster_than_the_launch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
