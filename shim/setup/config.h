/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - what Shunt reads from the application's ncclConfig_t.
 *
 * The structure grows with NCCL's versions and says its own size; it is passed
 * through by pointer and never copied.
 */
#ifndef SHUNT_SHIM_CONFIG_H
#define SHUNT_SHIM_CONFIG_H

#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>

/* Is the communicator blocking? NCCL_COMM_BLOCKING overrides; `fallback` where neither says. NULL is fine. */
bool shim_config_blocking(const ncclConfig_t *config, bool fallback);
/* maxCTAs, or `fallback`. NULL is fine. */
uint32_t shim_config_max_blocks(const ncclConfig_t *config, uint32_t fallback);
/* Do the children of a split, or of a shrink that aborts nothing, share the communicator's resources, and with them its
 * abort? NCCL_COMM_SPLIT_SHARE_RESOURCES and NCCL_COMM_SHRINK_SHARE_RESOURCES override. NULL is fine. */
bool shim_config_split_share(const ncclConfig_t *config, bool fallback);
bool shim_config_shrink_share(const ncclConfig_t *config, bool fallback);
/* Whether launchOrderImplicit asks for an order among the communicators of a device, which NCCL alone keeps; `fallback`
 * where it is not said. NULL is fine. */
bool shim_config_launch_order(const ncclConfig_t *config, bool fallback);
/* May graphs and eager work of the communicator mix, in streams that nothing orders, so that it has to order them?
 * graphUsageMode, which NCCL_GRAPH_MIXING_SUPPORT overrides; `fallback` where neither says. NULL is fine. */
bool shim_config_graph_mixing(const ncclConfig_t *config, bool fallback);
/* What is wrong with it, or NULL; host mode, where nobody else looks. */
const char *shim_config_fault(const ncclConfig_t *config);

#endif
