/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - CPU mode's substitute for the real NCCL, except for calls on streams (call/). */
#ifndef SHUNT_SHIM_CPU_TABLE_H
#define SHUNT_SHIM_CPU_TABLE_H

#include "shim/real/real.h"

/* As in the real table, a missing function logs one line and returns ncclInvalidUsage. */
const shim_real_t *shim_cpu_nccl(void);

#endif
