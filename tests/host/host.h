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

/* Run a body as ranks; the test passes if all ranks end well. */
static inline void host_run(ranks_shape_t shape, int nranks, ranks_body_t body, const void *arg)
{
    ranks_plan_t plan = {.shape = shape, .nranks = nranks, .body = body, .arg = arg};
    assert_int_equal(ranks_run(&plan), 0);
}

/* The whole program's limit, in seconds: nothing may hang a build machine. */
static inline void host_limit(unsigned seconds)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    seconds *= 3;
#endif
    alarm(seconds);
}

#endif
