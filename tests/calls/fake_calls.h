/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_calls.h - calls on the fake GPU (fake.h), and checks of their order; with cmocka's headers.
 */
#ifndef SHUNT_FAKE_CALLS_H
#define SHUNT_FAKE_CALLS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka wants the three above first */
#include "fake.h"
#include <cmocka.h>

#define ALL_OF(n) ((UINT64_C(1) << (n)) - 1)
enum { SMALL = 10, LARGE = FAKE_TAKEN_LIMIT + 1 }; /* elements: taken, forwarded */

extern float buffer[2];

ncclResult_t reduce(shim_comm_t *comm, size_t count, int stream);
/* A forwarded one. */
ncclResult_t broadcast(shim_comm_t *comm, int stream);

/* Whether work `later` waits for work `sooner`; below: whether neither waits for the other. */
bool after(uint32_t later, uint32_t sooner);
bool beside(uint32_t a, uint32_t b);
/* Check that there are this many works, and that each from `first` on runs after all before it. */
void assert_in_order_from(uint32_t first, uint32_t works);
void assert_in_order(uint32_t works);
/* Check that `count` works of the device have run, eagerly or in a replay, each after all before it. */
void assert_run_in_order(int device, int count);

/* Make the state of a test: an attached communicator of GPU 0. */
int set_up(void **state);
int tear_down(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
