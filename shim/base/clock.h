/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - the clock of all waits: CLOCK_MONOTONIC. */
#ifndef SHUNT_SHIM_CLOCK_H
#define SHUNT_SHIM_CLOCK_H

#include <stdint.h>

uint64_t shim_now_ns(void);

#endif
