/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - reads the program's ncclConfig_t, but only fields within its stated size, since NCCL's versions add
 * fields. The real NCCL gets the program's pointer, never a copy.
 */
#ifndef SHUNT_SHIM_CONFIG_H
#define SHUNT_SHIM_CONFIG_H

#include "shim/comm/comm.h"

/* Unset fields and a NULL config mean NCCL's defaults; a child with a NULL config gets its parent's values. NCCL's
 * variables override fields; NCCL_MAX_NCHANNELS caps blocks (base/pins.h). */
shim_config_t shim_config_read(const ncclConfig_t *config, const shim_config_t *parent);
/* The configuration's fault, or NULL. For CPU mode; on GPUs the real NCCL checks. */
const char *shim_config_fault(const ncclConfig_t *config);

#endif
