/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock_back.h - a system clock that is set back, for programs linked with --wrap=clock_gettime.
 */
#ifndef SHUNT_TESTS_CLOCK_BACK_H
#define SHUNT_TESTS_CLOCK_BACK_H

#include <stdatomic.h>

/* The time of day is always read before the change, by an hour, and what waits for it waits after it. */
extern atomic_bool clock_goes_back;

#endif
