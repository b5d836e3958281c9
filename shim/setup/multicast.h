/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multicast.h - between how many GPUs the real NCCL may use NVLink multicast.
 */
#ifndef SHUNT_SHIM_MULTICAST_H
#define SHUNT_SHIM_MULTICAST_H

#include <stdbool.h>
#include <stdint.h>

/* Between so many or more; 0: between none. has: the device has it. Not in host mode. */
uint32_t shim_multicast_least(bool has);

#endif
