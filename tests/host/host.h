/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - what every test program of this folder starts with.
 *
 * Tests run in forked ranks (support/ranks.h); the cmocka program only counts.
 */
#ifndef TEST_HOST_H
#define TEST_HOST_H

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
static inline void host_run(ranks_shape_t shape, int nranks, ranks_body_t body, const void *arg)
{
    ranks_plan_t plan = {.shape = shape, .nranks = nranks, .body = body, .arg = arg};
    assert_int_equal(ranks_run(&plan), 0);
}

/* Nothing may hang a build machine: a program that idle needs at most `seconds` ends after ten times as long. The
 * library's own limit is beyond that of a run, so that a slow machine fails no test. */
static inline void host_limit(unsigned seconds)
{
    alarm(10 * seconds);
    setenv("SHUNT_TIMEOUT_MS", "600000", 1);
}

#endif
