/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_cuda.c - a GPU for a rank: one stream, events as marks, graphs.
 *
 * This program has its own static CUDA runtime. Both it and the library's runtime use the device's primary context, so
 * they share streams and memory. Buffers come from cudaMalloc, as in ordinary applications.
 */
#include <cuda_runtime.h>
#include <stdlib.h>

#include "tools/bench/bench.h"
#include "tools/bench/load.h"

typedef struct cuda_state {
    cudaStream_t stream;
    cudaEvent_t mark[2];
    tool_load_t *load; /* NULL: not opened */
} cuda_state_t;

static bool ok(bench_rank_t *rank, cudaError_t status, const char *call)
{
    return status == cudaSuccess || bench_fail(rank, "%s: %s", call, cudaGetErrorString(status));
}

static void cuda_close(bench_rank_t *rank)
{
    cuda_state_t *state = rank->device_state;
    if (state == NULL) {
        return;
    }
    /* Errors of the clean-up do not matter. */
    tool_load_close(state->load);
    for (int i = 0; i < 2; i++) {
        if (state->mark[i] != NULL) {
            (void)cudaEventDestroy(state->mark[i]);
        }
    }
    if (state->stream != NULL) {
        (void)cudaStreamDestroy(state->stream);
    }
    free(state);
    rank->device_state = NULL;
    rank->stream = NULL;
}

static bool cuda_open(bench_rank_t *rank)
{
    cuda_state_t *state = calloc(1, sizeof *state);
    if (state == NULL) {
        return bench_fail(rank, "out of memory");
    }
    rank->device_state = state;
    if (!ok(rank, cudaSetDevice((int)rank->local), "cudaSetDevice") ||
        !ok(rank, cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags") ||
        !ok(rank, cudaEventCreate(&state->mark[0]), "cudaEventCreate") ||
        !ok(rank, cudaEventCreate(&state->mark[1]), "cudaEventCreate")) {
        return false;
    }
    rank->stream = state->stream;
    return true;
}

static bool cuda_allocate(bench_rank_t *rank, size_t bytes, uint8_t **memory)
{
    void *pointer = NULL;
    if (!ok(rank, cudaMalloc(&pointer, bytes), "cudaMalloc")) {
        return false;
    }
    *memory = pointer;
    return true;
}

static void cuda_release(bench_rank_t *rank, uint8_t *memory)
{
    (void)rank;
    (void)cudaFree(memory);
}

static bool cuda_wait(bench_rank_t *rank)
{
    const cuda_state_t *state = rank->device_state;
    return ok(rank, cudaStreamSynchronize(state->stream), "cudaStreamSynchronize");
}

static bool copy(bench_rank_t *rank, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    const cuda_state_t *state = rank->device_state;
    return ok(rank, cudaMemcpyAsync(to, from, bytes, kind, state->stream), "cudaMemcpyAsync") && cuda_wait(rank);
}

static bool cuda_upload(bench_rank_t *rank, uint8_t *to, const void *from, size_t bytes)
{
    return copy(rank, to, from, bytes, cudaMemcpyHostToDevice);
}

static bool cuda_download(bench_rank_t *rank, void *to, const uint8_t *from, size_t bytes)
{
    return copy(rank, to, from, bytes, cudaMemcpyDeviceToHost);
}

static bool cuda_fill(bench_rank_t *rank, uint8_t *to, int byte, size_t bytes)
{
    const cuda_state_t *state = rank->device_state;
    return ok(rank, cudaMemsetAsync(to, byte, bytes, state->stream), "cudaMemsetAsync") && cuda_wait(rank);
}

static bool cuda_mark(bench_rank_t *rank, int which)
{
    const cuda_state_t *state = rank->device_state;
    return ok(rank, cudaEventRecord(state->mark[which], state->stream), "cudaEventRecord");
}

static bool cuda_elapsed(bench_rank_t *rank, double *seconds)
{
    const cuda_state_t *state = rank->device_state;
    float milliseconds = 0;
    if (!ok(rank, cudaEventSynchronize(state->mark[1]), "cudaEventSynchronize") ||
        !ok(rank, cudaEventElapsedTime(&milliseconds, state->mark[0], state->mark[1]), "cudaEventElapsedTime")) {
        return false;
    }
    *seconds = milliseconds * 1e-3;
    return true;
}

static bool cuda_launch_empty(bench_rank_t *rank)
{
    const cuda_state_t *state = rank->device_state;
    return ok(rank, (cudaError_t)tool_floor_launch(state->stream), "cudaLaunchKernel");
}

static bool cuda_capture_begin(bench_rank_t *rank)
{
    const cuda_state_t *state = rank->device_state;
    return ok(rank, cudaStreamBeginCapture(state->stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
}

static bool cuda_capture_end(bench_rank_t *rank, void **graph)
{
    const cuda_state_t *state = rank->device_state;
    cudaGraph_t captured = NULL;
    cudaGraphExec_t made = NULL;
    if (!ok(rank, cudaStreamEndCapture(state->stream, &captured), "cudaStreamEndCapture")) {
        return false;
    }
    /* As PyTorch does: else kernels have the replaying stream's priority, not their own. */
    cudaError_t status = cudaGraphInstantiateWithFlags(&made, captured, cudaGraphInstantiateFlagUseNodePriority);
    (void)cudaGraphDestroy(captured);
    if (!ok(rank, status, "cudaGraphInstantiateWithFlags")) {
        return false;
    }
    /* Without the upload here, the first timed replay would contain it. */
    if (!ok(rank, cudaGraphUpload(made, state->stream), "cudaGraphUpload") || !cuda_wait(rank)) {
        (void)cudaGraphExecDestroy(made);
        return false;
    }
    *graph = made;
    return true;
}

static bool cuda_replay(bench_rank_t *rank, void *graph)
{
    const cuda_state_t *state = rank->device_state;
    return ok(rank, cudaGraphLaunch(graph, state->stream), "cudaGraphLaunch");
}

static void cuda_graph_free(bench_rank_t *rank, void *graph)
{
    (void)rank;
    (void)cudaGraphExecDestroy(graph);
}

static bool cuda_load_open(bench_rank_t *rank)
{
    cuda_state_t *state = rank->device_state;
    char error[TOOL_LOAD_ERROR_BYTES];
    state->load = tool_load_open(rank->shared->machine.nccl_path, error);
    return state->load != NULL || bench_fail(rank, "the products: %s", error);
}

static bool cuda_load_start(bench_rank_t *rank)
{
    const cuda_state_t *state = rank->device_state;
    return ok(rank, (cudaError_t)tool_load_start(state->load, state->stream), "the products");
}

static bool cuda_load_join(bench_rank_t *rank)
{
    const cuda_state_t *state = rank->device_state;
    return ok(rank, (cudaError_t)tool_load_join(state->load, state->stream), "cudaStreamWaitEvent");
}

static const bench_device_t device = {
    .open = cuda_open,
    .close = cuda_close,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .upload = cuda_upload,
    .download = cuda_download,
    .fill = cuda_fill,
    .wait = cuda_wait,
    .mark = cuda_mark,
    .elapsed = cuda_elapsed,
    .launch_empty = cuda_launch_empty,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .replay = cuda_replay,
    .graph_free = cuda_graph_free,
    .load_open = cuda_load_open,
    .load_start = cuda_load_start,
    .load_join = cuda_load_join,
};
const bench_device_t *const bench_device_cuda = &device;
