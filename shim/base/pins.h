/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pins.h - NCCL's variables by which programs get the same bits from it at every size: one algorithm, protocol and
 * launch mode, few channels. They also ask for NCCL itself, which a user may want to measure, so Shunt follows them;
 * with SHUNT_DETERMINISTIC=1 they are satisfied, since the bits are given without them.
 */
#ifndef SHUNT_SHIM_PINS_H
#define SHUNT_SHIM_PINS_H

#include <stdint.h>

/* The variable for which everything is forwarded; NULL: none. */
const char *shim_pin_forwards(void);
/* The cap of NCCL_MAX_NCHANNELS; 0: none. */
uint32_t shim_pin_channels(void);
/* The variable that caps Shunt's grids; NULL: none. */
const char *shim_pin_caps(void);
/* With SHUNT_DETERMINISTIC=1 warn, once, that a communicator of one rank is NCCL's. */
void shim_pins_warn_alone(void);

#endif
