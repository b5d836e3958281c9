/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - what Shunt reads from the application's ncclConfig_t.
 *
 * The structure grows with NCCL's versions and states its size; it is passed on by pointer and never copied.
 */
#ifndef SHUNT_SHIM_CONFIG_H
#define SHUNT_SHIM_CONFIG_H

#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>

/* Is the communicator blocking? NCCL_COMM_BLOCKING overrides; `fallback` if neither is set. NULL is fine. */
bool shim_config_blocking(const ncclConfig_t *config, bool fallback);
/* maxCTAs, or `fallback`. NULL is fine. */
uint32_t shim_config_max_blocks(const ncclConfig_t *config, uint32_t fallback);
/* Do the children of a split, or of a shrink that aborts nothing, share the communicator's resources, and with them its
 * abort? NCCL_COMM_SPLIT_SHARE_RESOURCES and NCCL_COMM_SHRINK_SHARE_RESOURCES override. NULL is fine. */
bool shim_config_split_share(const ncclConfig_t *config, bool fallback);
bool shim_config_shrink_share(const ncclConfig_t *config, bool fallback);
/* Whether launchOrderImplicit asks for an order among the communicators of a device, which only NCCL keeps;
 * `fallback` if it is not set. NULL is fine. */
bool shim_config_launch_order(const ncclConfig_t *config, bool fallback);
/* Must the communicator order graphs and eager work on unrelated streams? graphUsageMode, which
 * NCCL_GRAPH_MIXING_SUPPORT overrides; `fallback` if neither is set. NULL is fine. */
bool shim_config_graph_mixing(const ncclConfig_t *config, bool fallback);
/* The fault of a configuration, or NULL. For host mode; on GPUs the real NCCL checks it. */
const char *shim_config_fault(const ncclConfig_t *config);

#endif
