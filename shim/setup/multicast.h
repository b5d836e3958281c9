/* SPDX-License-Identifier: Apache-2.0 */
/* multicast.h - the least number of GPUs for which the real NCCL may use NVLink multicast. */
#ifndef SHUNT_SHIM_MULTICAST_H
#define SHUNT_SHIM_MULTICAST_H

#include <stdbool.h>
#include <stdint.h>

/* 0: never. has: the device has multicast. Do not call in CPU mode. */
uint32_t shim_multicast_least(bool has);

#endif
