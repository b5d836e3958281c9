/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - what Shunt reads from the application's ncclConfig_t.
 *
 * The structure grows with NCCL's versions and says its own size; it is passed
 * through by pointer and never copied.
 */
#ifndef SHUNT_SHIM_CONFIG_H
#define SHUNT_SHIM_CONFIG_H

#include "shim/comm/comm.h"

/* NULL: a child's is its parent's, and without a parent all fields have NCCL's defaults, as those have that a
 * configuration leaves out. NCCL_COMM_BLOCKING, NCCL_COMM_SPLIT_SHARE_RESOURCES, NCCL_COMM_SHRINK_SHARE_RESOURCES and
 * NCCL_GRAPH_MIXING_SUPPORT override. */
shim_config_t shim_config_read(const ncclConfig_t *config, const shim_config_t *parent);
/* What is wrong with it, or NULL; host mode, where nobody else looks. */
const char *shim_config_fault(const ncclConfig_t *config);

#endif
