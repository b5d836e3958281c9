/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpus.h - the GPUs that this process sees, for `shunt info` and for the head of a benchmark's report. No other part of
 * the command queries the driver about GPUs. A process must not call it before it forks ranks.
 */
#ifndef SHUNT_TOOL_GPUS_H
#define SHUNT_TOOL_GPUS_H

#include <stdint.h>

enum { TOOL_MAX_GPUS = 16 };

typedef enum tool_link {
    TOOL_LINK_SELF = 0,
    TOOL_LINK_NVLINK = 1,
    TOOL_LINK_PEER = 2, /* peer access, and no NVLink is known */
    TOOL_LINK_NONE = 3
} tool_link_t;

typedef struct tool_gpu {
    char name[64];
    char bus[20];
    uint32_t capability; /* 10 * major + minor */
    uint32_t multiprocessors;
    uint64_t bytes;        /* of the GPU's memory */
    uint32_t busy_percent; /* part of the last sample period in which kernels ran; 0 also without NVML */
    uint64_t used_bytes;   /* memory in use by all processes and the driver; 0 also without NVML */
} tool_gpu_t;

typedef struct tool_gpus {
    uint32_t count;
    uint32_t listed;       /* at most TOOL_MAX_GPUS */
    char error[128];       /* why no GPU was found; "" if there are GPUs */
    char driver[32];       /* version of the kernel driver, from NVML; "" if unknown */
    uint32_t cuda_driver;  /* 13000 for 13.0; 0: none */
    uint32_t cuda_runtime; /* version that the command was built with; 0: built without CUDA */
    tool_gpu_t gpu[TOOL_MAX_GPUS];
    uint8_t link[TOOL_MAX_GPUS][TOOL_MAX_GPUS]; /* tool_link_t */
} tool_gpus_t;

void tool_gpus_read(tool_gpus_t *gpus);

#endif
