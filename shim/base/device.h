/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - does this process use GPUs, or the host device?
 */
#ifndef SHUNT_SHIM_DEVICE_H
#define SHUNT_SHIM_DEVICE_H

#include <stdbool.h>

/* The host device: no GPU and no real NCCL. Decided once: SHUNT_DEVICE, and with `auto` whether a CUDA driver
 * answers. */
bool shim_host_mode(void);

#endif
