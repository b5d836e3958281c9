/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - host mode: no GPU and no real NCCL. Handles, ids, checks and errors
 * are Shunt's own; the algorithms are the same ones, compiled for the host.
 */
#ifndef SHUNT_SHIM_HOST_TABLE_H
#define SHUNT_SHIM_HOST_TABLE_H

#include "shim/real/real.h"

/* Stands in for the real NCCL, except for calls on streams (call/). A function that it lacks logs one line and
 * returns ncclInvalidUsage, as in the real table. */
const shim_real_t *shim_host_nccl(void);

#endif
