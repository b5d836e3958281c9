/* SPDX-License-Identifier: Apache-2.0 */
/* scratch_cuda.c - a scratch on a CUDA device. Its streams do not synchronize with the program's default stream. */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "algorithms/scratch_device.h"

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

/* `result`: that of enqueueing the work. */
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

/* Graphs accept dependent launches since CUDA 12.3's driver. */
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

/* Copies from the host fill the memory: copy engines run them, beside any kernels. A memset may be a kernel, which
 * cannot start on a full GPU (docs/lab/proofs.md; test: transport.arming). */
enum { FILL_BYTES = 512 << 10, FILL_ALIGNMENT = 4096 };
static struct {
    uint8_t zeros[FILL_BYTES], ones[FILL_BYTES];
} g_fill __attribute__((aligned(FILL_ALIGNMENT)));
static pthread_once_t g_fill_once = PTHREAD_ONCE_INIT;

/* Unregistered memory, as after a device reset, is only slower. */
static void prepare_fill(void)
{
    memset(g_fill.ones, 0xff, sizeof g_fill.ones);
    if (cudaHostRegister(&g_fill, sizeof g_fill, cudaHostRegisterPortable) != cudaSuccess)
        (void)cudaGetLastError();
}

static cudaError_t enqueue_fill(uint8_t *at, size_t bytes, const uint8_t *with, cudaStream_t stream)
{
    cudaError_t result = cudaSuccess;
    (void)pthread_once(&g_fill_once, prepare_fill);
    for (size_t done = 0; done < bytes && result == cudaSuccess; done += FILL_BYTES) {
        const size_t part = bytes - done < FILL_BYTES ? bytes - done : FILL_BYTES;
        result = cudaMemcpyAsync(at + done, with, part, cudaMemcpyHostToDevice, stream);
    }
    return result;
}

/* Armed spans ascend and are disjoint. */
static cudaError_t enqueue_piece(const alg_scratch_t *scratch, uint32_t piece, cudaStream_t stream)
{
    uint8_t *at = scratch->team.scratch[scratch->rank];
    const alg_span_t whole = scratch->map.piece[piece];
    alg_span_t span[2];
    const uint32_t spans = alg_map_armed(&scratch->map, piece, span);
    size_t filled = whole.offset;
    cudaError_t result = cudaSuccess;
    for (uint32_t i = 0; i < spans && result == cudaSuccess; i++) {
        result = enqueue_fill(at + filled, span[i].offset - filled, g_fill.zeros, stream);
        if (result == cudaSuccess)
            result = enqueue_fill(at + span[i].offset, span[i].bytes, g_fill.ones, stream);
        filled = span[i].offset + span[i].bytes;
    }
    return result != cudaSuccess ? result
                                 : enqueue_fill(at + filled, whole.offset + whole.bytes - filled, g_fill.zeros, stream);
}

static int arm_pinned(const alg_scratch_t *scratch)
{
    cuda_task_t task;
    uint8_t *at = scratch->team.scratch[scratch->rank];
    const alg_map_t *map = &scratch->map;
    int error = task_begin(&task, scratch->ordinal);
    if (error)
        return error;
    memset(at, 0, map->total_bytes);
    memset(at + map->rings_offset, 0xff, map->rings_bytes);
    return task_end(&task, enqueue_fill(scratch->own, ALG_OWN_BYTES, g_fill.zeros, task.stream));
}

static int cuda_arm(const alg_scratch_t *scratch)
{
    cuda_task_t task;
    if (scratch->map.memory == ALG_MEMORY_PINNED)
        return arm_pinned(scratch);
    int error = task_begin(&task, scratch->ordinal);
    if (error)
        return error;
    cudaError_t result = cudaSuccess;
    for (uint32_t piece = 0; piece < scratch->map.pieces && result == cudaSuccess; piece++)
        if (scratch->memory[piece])
            result = enqueue_piece(scratch, piece, task.stream);
    return task_end(&task, result);
}

static int cuda_arm_piece(const alg_scratch_t *scratch, uint32_t piece, void **arming)
{
    cuda_task_t task;
    int error = task_begin(&task, scratch->ordinal);
    if (error)
        return error;
    const cudaError_t result = enqueue_piece(scratch, piece, task.stream);
    if (result != cudaSuccess)
        return task_end(&task, result);
    net_scope_leave(&task.scope);
    *arming = task.stream;
    return 0;
}

static int cuda_armed(const alg_scratch_t *scratch, void **arming, bool forget)
{
    net_scope_t scope;
    int error = net_scope_enter(&scope, scratch->ordinal);
    if (error)
        return error;
    const cudaError_t result = cudaStreamQuery(*arming);
    if (result != cudaErrorNotReady || forget) {
        (void)cudaStreamDestroy(*arming);
        *arming = NULL;
    }
    net_scope_leave(&scope);
    return result == cudaErrorNotReady ? 0 : result == cudaSuccess ? 1 : net_cuda_errno(result);
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
    uint8_t *mailbox = scratch->team.scratch[scratch->rank] + ALG_MAILBOX_OFFSET;
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
                                            .arm_piece = cuda_arm_piece,
                                            .armed = cuda_armed,
                                            .store = cuda_store,
                                            .collect = cuda_collect};
