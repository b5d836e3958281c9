/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives on GPUs: rings, all pairs, thousands in flight, graphs, beside collectives, on both routes. */
#include "gpu.h"

#include "message.h"

enum { MOST_ENDS = 4 * REF_MAX_RANKS, LONG_BYTES = 3000000 };

/* A message_end_t whose buffer, including guards, has a copy on the GPU. */
typedef struct gpu_end {
    message_end_t host;
    size_t offset;
    uint8_t *device;
} gpu_end_t;

typedef struct ends {
    gpu_t *gpu;
    int count;
    size_t used; /* of the pool, before */
    gpu_end_t end[MOST_ENDS];
} ends_t;

static size_t block_of(const gpu_end_t *end)
{
    const data_buffer_t *buffer = &end->host.buffer;
    return (size_t)(buffer->data - buffer->base) + buffer->size + DATA_GUARD_BYTES;
}

static ends_t ends_begin(gpu_t *gpu)
{
    return (ends_t){.gpu = gpu, .used = gpu->pool_used};
}

static void upload(gpu_t *gpu, gpu_end_t *end)
{
    CHECK_CUDA(cudaMemcpyAsync(end->device, end->host.buffer.base, block_of(end), cudaMemcpyHostToDevice, gpu->stream));
}

/* This rank's ends of a message: two, if it is to itself. */
static void add(ends_t *ends, ncclComm_t comm, message_t m, size_t offset)
{
    gpu_t *gpu = ends->gpu;
    for (int sends = 0; sends < 2; sends++) {
        if ((sends ? m.from : m.to) != gpu->rank)
            continue;
        gpu_end_t *end = &ends->end[ends->count++];
        CHECK(ends->count <= MOST_ENDS);
        end->offset = offset * ref_bytes(m.type);
        end->device = gpu->pool + gpu->pool_used;
        message_prepare(&end->host, &m, sends, comm, end->offset);
        gpu->pool_used += (block_of(end) + 255) / 256 * 256;
        upload(gpu, end);
    }
}

static void issue(ends_t *ends, int i, cudaStream_t stream)
{
    gpu_end_t *end = &ends->end[i];
    const data_buffer_t *buffer = &end->host.buffer;
    CHECK_NCCL(message_issue_at(&end->host, end->device + (buffer->data - buffer->base), stream));
}

static void issue_all(ends_t *ends, bool grouped, cudaStream_t stream)
{
    if (grouped)
        CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < ends->count; i++)
        issue(ends, i, stream);
    if (grouped)
        CHECK_NCCL(ncclGroupEnd());
}

/* The stream must have ended. */
static void check(ends_t *ends)
{
    cudaStream_t stream = ends->gpu->stream;
    for (int i = 0; i < ends->count; i++) {
        gpu_end_t *end = &ends->end[i];
        CHECK_CUDA(cudaMemcpyAsync(end->host.buffer.base, end->device, block_of(end), cudaMemcpyDeviceToHost, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        message_finish(&end->host);
    }
}

/* The same ends with other data. */
static void renew(ends_t *ends, uint64_t seed)
{
    for (int i = 0; i < ends->count; i++) {
        gpu_end_t *end = &ends->end[i];
        message_t m = end->host.m;
        m.seed = seed * 1000 + (uint64_t)m.from * 10 + (uint64_t)m.to;
        message_prepare(&end->host, &m, end->host.sends, end->host.comm, end->offset);
        upload(ends->gpu, end);
    }
    CHECK_CUDA(cudaStreamSynchronize(ends->gpu->stream));
}

static void finish(ends_t *ends)
{
    CHECK_CUDA(cudaStreamSynchronize(ends->gpu->stream));
    check(ends);
    ends->gpu->pool_used = ends->used;
}

static message_t message(int from, int to, size_t bytes, uint64_t seed)
{
    static const ncclDataType_t types[] = {ncclUint8, ncclBfloat16, ncclFloat32, ncclInt64};
    const ncclDataType_t type = bytes % 8 ? ncclUint8 : types[seed % 4];
    return (message_t){from, to, bytes / ref_bytes(type), type, seed % 3 == 0, seed};
}

/* ---- Cases --------------------------------------------------------------------------------------- */

static void add_ring(ends_t *ends, ncclComm_t comm, size_t bytes, uint64_t seed, size_t offset)
{
    const int n = ends->gpu->nranks;
    for (int from = 0; from < n; from++)
        add(ends, comm, message(from, (from + 1) % n, bytes, seed + (uint64_t)from), offset);
}

static void ring(gpu_t *gpu)
{
    static const size_t around[] = {0, 1, 8, 13};
    uint64_t own = gpu->options->seed + (uint64_t)gpu->rank, seed = 1;
    for (int power = 0; power <= 26; power++)
        for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++) {
            ends_t ends = ends_begin(gpu);
            if (power > 22 && i != (size_t)power % 4)
                continue; /* the check takes its time */
            add_ring(&ends, gpu->comm, ((size_t)1 << power) + around[i], seed++, data_below(&own, 8));
            issue_all(&ends, true, gpu->stream);
            finish(&ends);
        }
}

/* Unequal parts, some empty, also to oneself; in another order on each rank, all in one group. */
static void pairs(gpu_t *gpu)
{
    const int n = gpu->nranks;
    for (uint64_t round = 0; round < 60; round++) {
        ends_t ends = ends_begin(gpu);
        for (int i = 0; i < n * n; i++) {
            const int at = (i * 7 + gpu->rank * (int)round) % (n * n), from = at / n, to = at % n;
            const uint64_t draw = (uint64_t)at * 7919 + round * 104729;
            const size_t bytes = draw % 4 == 0 ? 0 : draw % 9 == 0 ? 3000000 + draw % 1000 : draw % 70000;
            add(&ends, gpu->comm, message(from, to, bytes, round * 64 + (uint64_t)at), (size_t)round % 8);
        }
        issue_all(&ends, true, gpu->stream);
        finish(&ends);
    }
}

/* Thousands of short ones without a wait: one by one, in one group on rank 0 only, and in one group on each. */
static void queued(gpu_t *gpu)
{
    enum { MESSAGES = 3000, MOST = 2048 };
    const int next = (gpu->rank + 1) % gpu->nranks, last = (gpu->rank + gpu->nranks - 1) % gpu->nranks;
    uint8_t *host = malloc(2 * MESSAGES * MOST);
    uint8_t *device = gpu->pool, *got = device + MESSAGES * MOST;
    CHECK(host);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < MESSAGES * MOST; i++)
            host[i] = (uint8_t)(i * 31 + i / MOST + (size_t)gpu->rank * 7 + (size_t)round);
        CHECK_CUDA(cudaMemcpyAsync(device, host, MESSAGES * MOST, cudaMemcpyHostToDevice, gpu->stream));
        const bool grouped = round == 2 || (round == 1 && gpu->rank == 0);
        if (grouped)
            CHECK_NCCL(ncclGroupStart());
        for (int k = 0; k < 2 * MESSAGES; k++) {
            const size_t i = (size_t)k / 2, bytes = i * 37 % 1000 + 1;
            if ((k + gpu->rank) % 2)
                CHECK_NCCL(ncclSend(device + i * MOST, bytes, ncclUint8, next, gpu->comm, gpu->stream));
            else
                CHECK_NCCL(ncclRecv(got + i * MOST, bytes, ncclUint8, last, gpu->comm, gpu->stream));
        }
        if (grouped)
            CHECK_NCCL(ncclGroupEnd());
        CHECK_CUDA(cudaMemcpyAsync(host, got, MESSAGES * MOST, cudaMemcpyDeviceToHost, gpu->stream));
        CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
        for (size_t i = 0; i < MESSAGES; i++)
            for (size_t b = 0; b < i * 37 % 1000 + 1; b++)
                CHECK(host[i * MOST + b] == (uint8_t)((i * MOST + b) * 31 + i + (size_t)last * 7 + (size_t)round));
    }
    free(host);
}

/* Replays with other data each time, among eager messages and collectives. */
static void captured(gpu_t *gpu)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    ends_t ends = ends_begin(gpu);
    uint64_t hash = 0;
    const int n = gpu->nranks;
    for (int i = 0; i < n * n; i++)
        add(&ends, gpu->comm, message(i / n, i % n, 1 + (size_t)i * 4099, (uint64_t)i), 0);
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    CHECK_CUDA(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
    issue_all(&ends, true, gpu->stream);
    CHECK_CUDA(cudaStreamEndCapture(gpu->stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (uint64_t round = 0; round < 100; round++) {
        const data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, round, 500 + 9000 * (round % 3), n};
        ends_t eager = ends_begin(gpu);
        if (round > 0)
            renew(&ends, round);
        add_ring(&eager, gpu->comm, 100 + 50000 * (round % 4), round, 0);
        if (round % 2)
            issue_all(&eager, true, gpu->stream);
        CHECK_CUDA(cudaGraphLaunch(exec, gpu->stream));
        if (round % 2 == 0)
            issue_all(&eager, true, gpu->stream);
        CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
        check(&ends);
        finish(&eager);
        gpu_run(gpu, &c, (gpu_shape_t){0, 0, false}, &hash);
    }
    gpu_agree(gpu, hash);
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaGraphDestroy(graph));
    gpu->pool_used = ends.used;
}

/* The real NCCL connects two ranks at the first messages that it gets, and needs both to connect the same directions
 * then. */
static void connect_both_ways(gpu_t *gpu, int ranks)
{
    ends_t ends = ends_begin(gpu);
    for (int peer = 1; peer < ranks; peer++) {
        add(&ends, gpu->comm, message(0, peer, LONG_BYTES, 5), 0);
        add(&ends, gpu->comm, message(peer, 0, LONG_BYTES, 6), 0);
    }
    issue_all(&ends, true, gpu->stream);
    finish(&ends);
}

/* Rank 0 groups two all-reduces with its messages; the others make them one by one, the collective first, between or
 * last. On rank 0 captured in every other round. */
static void beside(gpu_t *gpu)
{
    enum { CALLS = 2 };
    const int n = gpu->nranks;
    uint64_t hash = 0;
    connect_both_ways(gpu, n);
    for (int round = 0; round < 60; round++) {
        gpu_call_t calls[CALLS];
        ends_t ends = ends_begin(gpu);
        const size_t bytes = round % 5 == 0 ? 9000001 : 100 + 3000 * (size_t)round;
        for (int i = 0; i < CALLS; i++) {
            const data_case_t c = {ncclBfloat16, REF_SUM, DATA_SMALL, (uint64_t)round, round % 7 ? 3000 : 3000000, n};
            gpu_prepare(gpu, &calls[i], gpu->comm, gpu->rank, &c, (gpu_shape_t){0, 0, false});
        }
        for (int peer = 1; peer < n; peer++) {
            const message_t there = message(0, peer, bytes, (uint64_t)round), back = message(peer, 0, bytes, 7);
            add(&ends, gpu->comm, round & 1 ? there : back, 0);
            add(&ends, gpu->comm, round & 1 ? back : there, 0);
        }
        CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
        const bool capture = gpu->rank == 0 && round & 2;
        cudaGraph_t graph = NULL;
        cudaGraphExec_t exec = NULL;
        if (capture)
            CHECK_CUDA(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
        if (gpu->rank == 0)
            CHECK_NCCL(ncclGroupStart());
        int issued = 0, called = 0;
        while (issued < ends.count || called < CALLS) {
            if (called < CALLS && (gpu->rank == 0 || issued >= (round + called) % 3 || issued == ends.count))
                CHECK_NCCL(gpu_issue(&calls[called++], gpu->stream));
            if (issued < ends.count && (gpu->rank == 0 || issued < (round + called) % 3 || called == CALLS))
                issue(&ends, issued++, gpu->stream);
        }
        if (gpu->rank == 0)
            CHECK_NCCL(ncclGroupEnd());
        if (capture) {
            CHECK_CUDA(cudaStreamEndCapture(gpu->stream, &graph));
            CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
            CHECK_CUDA(cudaGraphLaunch(exec, gpu->stream));
        }
        CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
        check(&ends);
        for (int i = 0; i < CALLS; i++)
            gpu_verify(&calls[i], gpu->rank, n, &hash);
        if (capture) {
            CHECK_CUDA(cudaGraphExecDestroy(exec));
            CHECK_CUDA(cudaGraphDestroy(graph));
        }
        for (int i = CALLS - 1; i >= 0; i--)
            gpu_release(&calls[i]);
        gpu->pool_used = ends.used;
    }
}

/* Long ones by the real NCCL and short ones by Shunt: between one pair, in both directions, in either order, grouped on
 * rank 0 only. */
static void routes(gpu_t *gpu)
{
    static const size_t sizes[2] = {1000, LONG_BYTES};
    gpu_policy(gpu->comm, "sendrecv:64K-=nccl");
    connect_both_ways(gpu, 2);
    for (int round = 0; round < 80 && gpu->rank < 2; round++) {
        ends_t ends = ends_begin(gpu);
        const message_t there[2] = {message(0, 1, sizes[round & 1], 1), message(0, 1, sizes[~round & 1], 2)},
                        back[2] = {message(1, 0, sizes[round >> 1 & 1], 3), message(1, 0, sizes[~round >> 1 & 1], 4)};
        const bool first = round & 4;
        for (int i = 0; i < 2; i++)
            add(&ends, gpu->comm, first ? there[i] : back[i], 0);
        for (int i = 0; i < 2; i++)
            add(&ends, gpu->comm, first ? back[i] : there[i], 0);
        issue_all(&ends, gpu->rank == 0, gpu->stream);
        finish(&ends);
    }
    ranks_barrier(gpu->ranks);
    gpu_policy(gpu->comm, "");
    ring(gpu);
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {
        {"ring", ring, GPU_RANKS, 120},         {"pairs", pairs, GPU_RANKS, 120},   {"queued", queued, GPU_RANKS, 60},
        {"captured", captured, GPU_RANKS, 120}, {"beside", beside, GPU_RANKS, 120}, {"routes", routes, GPU_RANKS, 120},
    };
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
