/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - whether this process uses GPUs or the CPU device. */
#ifndef SHUNT_SHIM_DEVICE_H
#define SHUNT_SHIM_DEVICE_H

#include <stdbool.h>

/* True: no GPU is used, and the real NCCL only makes unique ids (cpu/cpu.c). Decided once, from SHUNT_DEVICE and, for
 * `auto`, whether a CUDA driver answers; again in a child forked without GPUs. */
bool shim_cpu_mode(void);
/* Whether the CPU device is used only because CUDA_VISIBLE_DEVICES hides GPUs, which workers may see. */
bool shim_gpus_hidden(void);

#endif
