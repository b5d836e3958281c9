/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - does this process use GPUs, or the host device?
 */
#ifndef SHUNT_SHIM_DEVICE_H
#define SHUNT_SHIM_DEVICE_H

#include <stdbool.h>

/* The host device: no GPU, and no calls of the real NCCL but for unique ids (host/host.c). Decided once: SHUNT_DEVICE,
 * and with `auto` whether a CUDA driver answers. A forked child of a process without GPUs decides anew. */
bool shim_host_mode(void);
/* This process uses the host device because CUDA_VISIBLE_DEVICES hides the GPUs; its workers may see them. */
bool shim_gpus_hidden(void);

#endif
