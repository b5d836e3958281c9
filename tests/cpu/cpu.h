/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu.h - common start of this folder's test programs.
 *
 * Tests run in forked ranks (support/ranks.h); the cmocka program itself only counts failed ranks.
 */
#ifndef TEST_CPU_H
#define TEST_CPU_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka.h wants the three above */
#include <cmocka.h>

#include "call.h"
#include "data.h"
#include "ranks.h"
#include "scaled.h"

/* Run a body as ranks; the test passes if all ranks end well. */
static inline void cpu_run(ranks_shape_t shape, int nranks, ranks_body_t body, const void *arg)
{
    ranks_plan_t plan = {.shape = shape, .nranks = nranks, .body = body, .arg = arg};
    assert_int_equal(ranks_run(&plan), 0);
}

/* No program may hang a build machine: one that needs at most `seconds` on an idle machine is killed after ten times as
 * long. The library's own limit is longer than a run's, so that a slow machine fails no test. */
static inline void cpu_limit(unsigned seconds)
{
    alarm(10 * seconds);
    setenv("SHUNT_TIMEOUT_MS", "600000", 1);
}

#endif
