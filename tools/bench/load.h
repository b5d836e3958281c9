/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h - matrix products that fill the current GPU, for collectives to run beside.
 *
 * cuBLAS computes them if it can be opened, as in a training step. Otherwise a tiled kernel of this file's does:
 * slower, but its blocks also occupy a multiprocessor each, for about as long. A load belongs to the thread that opened
 * it, and owns its matrices and its stream.
 */
#ifndef SHUNT_TOOL_LOAD_H
#define SHUNT_TOOL_LOAD_H

#ifdef __cplusplus
extern "C" {
#endif

enum { TOOL_LOAD_ERROR_BYTES = 256 };
typedef struct tool_load tool_load_t;

/* Open a load on the current device. `nccl_path` is the real NCCL's path, or "": in Python environments cuBLAS lies
 * near it. NULL: `error` has the reason. */
tool_load_t *tool_load_open(const char *nccl_path, char error[TOOL_LOAD_ERROR_BYTES]);
/* Enqueue the products, about 12 ms on an H200, on the load's stream, after the present work of `stream` (a
 * cudaStream_t). A cudaError_t. */
int tool_load_start(tool_load_t *load, void *stream);
/* Make later work on `stream` wait for the products. A cudaError_t. */
int tool_load_join(tool_load_t *load, void *stream);
/* Close the load after its products have ended. NULL is ignored. */
void tool_load_close(tool_load_t *load);

#ifdef __cplusplus
}
#endif

#endif
