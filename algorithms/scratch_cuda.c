/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch_cuda.c - a scratch on a CUDA device: own memory, arming, proof.
 *
 * All work runs on a stream made for it, which does not synchronize with the
 * program's default stream, and is waited for here.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <string.h>

#include "algorithms/scratch_device.h"

/* A device made current, with a stream. */
typedef struct cuda_task {
    net_scope_t scope;
    cudaStream_t stream;
} cuda_task_t;

static int task_begin(cuda_task_t *task, int ordinal)
{
    int error = net_scope_enter(&task->scope, ordinal);
    if (error)
        return error;
    error = net_cuda_errno(cudaStreamCreateWithFlags(&task->stream, cudaStreamNonBlocking));
    if (error)
        net_scope_leave(&task->scope);
    return error;
}

/* Wait for the task's work; `result` is the result of enqueueing it. */
static int task_end(cuda_task_t *task, int result)
{
    cudaError_t waited = cudaStreamSynchronize(task->stream);
    (void)cudaStreamDestroy(task->stream);
    net_scope_leave(&task->scope);
    return net_cuda_errno(result != cudaSuccess ? result : (int)waited);
}

static int cuda_own_create(int ordinal, uint8_t **own)
{
    net_scope_t scope;
    void *at = NULL;
    int error = net_scope_enter(&scope, ordinal);
    if (error)
        return error;
    error = net_cuda_errno(cudaMalloc(&at, ALG_OWN_BYTES));
    net_scope_leave(&scope);
    if (!error)
        *own = at;
    return error;
}

static void cuda_own_destroy(int ordinal, uint8_t *own)
{
    net_scope_t scope;
    if (net_scope_enter(&scope, ordinal) != 0)
        return;
    (void)cudaFree(own);
    net_scope_leave(&scope);
}

/* Graphs accept dependent launches from the driver of CUDA 12.3 on. */
static bool cuda_dependent_launch(int ordinal)
{
    net_scope_t scope;
    int driver = 0;
    if (net_scope_enter(&scope, ordinal) != 0)
        return false;
    const bool dependent = cudaDriverGetVersion(&driver) == cudaSuccess && driver >= 12030 && alg_probe_dependent();
    net_scope_leave(&scope);
    return dependent;
}

static int cuda_priority(int ordinal)
{
    net_scope_t scope;
    int lowest = 0, highest = 0;
    if (net_scope_enter(&scope, ordinal) != 0)
        return 0;
    if (cudaDeviceGetStreamPriorityRange(&lowest, &highest) != cudaSuccess) {
        (void)cudaGetLastError();
        highest = 0;
    }
    net_scope_leave(&scope);
    return highest;
}

static int cuda_arm(const alg_scratch_t *scratch)
{
    cuda_task_t task;
    uint8_t *at = net_memory_pointer(scratch->memory);
    const alg_map_t *map = &scratch->map;
    int error = task_begin(&task, scratch->ordinal);
    if (error)
        return error;
    cudaError_t result;
    if (map->memory == ALG_MEMORY_SHM) {
        memset(at, 0, map->total_bytes);
        memset(at + map->rings_offset, 0xff, map->rings_bytes);
        result = cudaMemsetAsync(scratch->own, 0, ALG_OWN_BYTES, task.stream);
        return task_end(&task, result);
    }
    result = cudaMemsetAsync(at, 0, map->half_offset, task.stream);
    if (result == cudaSuccess)
        result = cudaMemsetAsync(at + map->half_offset, 0xff, map->flags_offset - map->half_offset, task.stream);
    if (result == cudaSuccess)
        result = cudaMemsetAsync(at + map->flags_offset, 0, map->total_bytes - map->flags_offset, task.stream);
    return task_end(&task, result);
}

static int cuda_store(const alg_scratch_t *scratch, const alg_probe_t *probe)
{
    cuda_task_t task;
    int error = task_begin(&task, scratch->ordinal);
    if (error)
        return error;
    return task_end(&task, alg_probe_launch(probe, task.stream));
}

static int cuda_collect(const alg_scratch_t *scratch, uint64_t words[ALG_MAX_RANKS])
{
    cuda_task_t task;
    const size_t bytes = ALG_MAX_RANKS * sizeof(uint64_t);
    uint8_t *mailbox = (uint8_t *)net_memory_pointer(scratch->memory) + ALG_MAILBOX_OFFSET;
    int error = task_begin(&task, scratch->ordinal);
    if (error)
        return error;
    cudaError_t result = cudaMemcpyAsync(words, mailbox, bytes, cudaMemcpyDefault, task.stream);
    if (result == cudaSuccess)
        result = cudaMemsetAsync(mailbox, 0, bytes, task.stream);
    return task_end(&task, result);
}

const alg_scratch_ops_t alg_scratch_cuda = {.control_create = alg_control_create_cuda,
                                            .control_destroy = alg_control_destroy_cuda,
                                            .own_create = cuda_own_create,
                                            .own_destroy = cuda_own_destroy,
                                            .dependent_launch = cuda_dependent_launch,
                                            .priority = cuda_priority,
                                            .arm = cuda_arm,
                                            .store = cuda_store,
                                            .collect = cuda_collect};
