/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pins.h - NCCL's variables for equal bits at every size: one algorithm, protocol and launch mode, few channels. They
 * also ask for NCCL itself, which a user may want to measure, so Shunt follows them, unless SHUNT_DETERMINISTIC=1,
 * which gives equal bits without them.
 */
#ifndef SHUNT_SHIM_PINS_H
#define SHUNT_SHIM_PINS_H

#include <stdint.h>

/* The variable that forwards everything; NULL: none. */
const char *shim_pin_forwards(void);
/* NCCL_MAX_NCHANNELS's cap; 0: none. */
uint32_t shim_pin_channels(void);
/* The variable that caps Shunt's grids; NULL: none. */
const char *shim_pin_caps(void);
/* Warn once, with SHUNT_DETERMINISTIC=1, that communicators of one rank are NCCL's. */
void shim_pins_warn_alone(void);

#endif
