/* SPDX-License-Identifier: Apache-2.0 */
/* pins.h - NCCL's variables that users set for reproducible bits: they fix algorithm, protocol or launch mode, or limit
 * channels. Unless SHUNT_DETERMINISTIC=1 gives such bits, Shunt forwards calls, or limits its blocks: a user may want
 * to measure NCCL itself. */
#ifndef SHUNT_SHIM_PINS_H
#define SHUNT_SHIM_PINS_H

#include <stdint.h>

/* The variable that makes Shunt forward every call; NULL: none. */
const char *shim_pin_forwards(void);
/* NCCL_MAX_NCHANNELS; 0: no limit. */
uint32_t shim_pin_channels(void);
/* The variable that caps the blocks of Shunt's kernels; NULL: none. */
const char *shim_pin_caps(void);
/* With SHUNT_DETERMINISTIC=1, warns once that communicators of one rank are forwarded to NCCL. */
void shim_pins_warn_alone(void);

#endif
