/* SPDX-License-Identifier: Apache-2.0 */
/* real.h - NVIDIA's libnccl_ep: found and opened once, when a call first needs it. */
#ifndef SHUNT_SHIM_EP_REAL_H
#define SHUNT_SHIM_EP_REAL_H

#include "shim/experts/nccl_ep.h"

/* No member is NULL: a function that the library lacks logs a line and returns ncclInvalidUsage. */
typedef struct shim_ep_real {
#define SHIM_EP_NAME(name) __typeof__(&ncclEp##name) name;
#include "shim/ep/names.def"
} shim_ep_real_t;

/* NULL: none; shim_ep_real_failure says why. */
const shim_ep_real_t *shim_ep_real(void);
/* The same, but opens nothing. */
const shim_ep_real_t *shim_ep_real_opened(void);
const char *shim_ep_real_failure(void);

#endif
