/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - what Shunt reads from the application's ncclConfig_t. The structure grows with NCCL's versions and states
 * its size; it is passed on by pointer, never copied.
 */
#ifndef SHUNT_SHIM_CONFIG_H
#define SHUNT_SHIM_CONFIG_H

#include "shim/comm/comm.h"

/* Unset fields and a NULL config mean NCCL's defaults; for a child, NULL means its parent's values. NCCL_COMM_BLOCKING,
 * NCCL_COMM_SPLIT_SHARE_RESOURCES, NCCL_COMM_SHRINK_SHARE_RESOURCES, NCCL_GRAPH_MIXING_SUPPORT and NCCL_CTA_POLICY
 * override fields; NCCL_MAX_NCHANNELS caps blocks (base/pins.h). */
shim_config_t shim_config_read(const ncclConfig_t *config, const shim_config_t *parent);
/* The configuration's fault, or NULL. For host mode; on GPUs the real NCCL checks. */
const char *shim_config_fault(const ncclConfig_t *config);

#endif
