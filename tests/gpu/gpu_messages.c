/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives on GPUs: rings, all pairs, thousands in flight, graphs, beside collectives, on both routes; and
 * random programs of them and collectives. */
#include "gpu.h"

#include "message.h"
#include "mix.h"

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
    return gpu_block_bytes(&end->host.buffer);
}

static ends_t ends_begin(gpu_t *gpu)
{
    return (ends_t){.gpu = gpu, .used = gpu->pool_used};
}

static void upload(gpu_t *gpu, gpu_end_t *end)
{
    CHECK_CUDA(cudaMemcpyAsync(end->device, end->host.buffer.base, block_of(end), cudaMemcpyHostToDevice, gpu->stream));
}

/* Add this rank's ends of a message: two for a message to itself. */
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

/* Check the ends after the stream has ended. */
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

/* Give the same ends new data. */
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

/* Messages of unequal lengths, some empty or to the own rank, arrive from one group with a different order on each
 * rank. */
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

/* Thousands of short messages without a wait arrive: one by one, in one group on rank 0 only, and in one group on each
 * rank. */
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

/* Replayed messages with new data each time arrive, among eager messages and collectives. */
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

/* Make the real NCCL connect two ranks, at their first forwarded messages; both must then connect the same
 * directions. */
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

/* Rank 0 groups two all-reduces with its messages, which the others make one by one with the collective first, in
 * between or last: no order may deadlock. In every other round rank 0 captures. */
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

/* Forwarded long and taken short messages of one pair arrive in both directions, in either order, grouped on rank 0
 * only. */
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

/* ---- Random programs ------------------------------------------------------------------------------- */

/* Each communicator has a stream of its own: a group's collectives of two communicators run one after the other on one
 * stream, and their order is not that of the other rank, which makes them one by one. */
typedef struct place {
    gpu_t *gpu;
    cudaStream_t second; /* beside the rank's own */
    cudaEvent_t event;
    bool captures;
} place_t;

static uint8_t *place_put(void *context, const data_buffer_t *buffer)
{
    gpu_t *gpu = ((place_t *)context)->gpu;
    uint8_t *copy = gpu->pool + gpu->pool_used;
    const size_t bytes = gpu_block_bytes(buffer);
    gpu->pool_used += (bytes + 255) / 256 * 256;
    CHECK_CUDA(cudaMemcpyAsync(copy, buffer->base, bytes, cudaMemcpyHostToDevice, gpu->stream));
    return copy + (buffer->data - buffer->base);
}

static void follow(const place_t *p, cudaStream_t waiter, cudaStream_t stream)
{
    CHECK_CUDA(cudaEventRecord(p->event, stream));
    CHECK_CUDA(cudaStreamWaitEvent(waiter, p->event, 0));
}

/* Begin a place, sometimes in a capture of both streams. */
static void place_begin(void *context, uint64_t *own, cudaStream_t streams[MIX_COMMS])
{
    place_t *p = context;
    streams[0] = p->gpu->stream;
    streams[1] = p->second;
    p->captures = data_below(own, 4) == 0;
    CHECK_CUDA(cudaStreamSynchronize(p->gpu->stream));
    if (p->captures) {
        CHECK_CUDA(cudaStreamBeginCapture(p->gpu->stream, cudaStreamCaptureModeThreadLocal));
        follow(p, p->second, p->gpu->stream);
    }
}

static void place_end(void *context)
{
    place_t *p = context;
    if (p->captures) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        follow(p, p->gpu->stream, p->second);
        CHECK_CUDA(cudaStreamEndCapture(p->gpu->stream, &graph));
        CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
        CHECK_CUDA(cudaGraphLaunch(exec, p->gpu->stream));
        CHECK_CUDA(cudaStreamSynchronize(p->gpu->stream));
        CHECK_CUDA(cudaGraphExecDestroy(exec));
        CHECK_CUDA(cudaGraphDestroy(graph));
    }
    CHECK_CUDA(cudaStreamSynchronize(p->gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(p->second));
    p->gpu->pool_used = 0;
}

static void place_get(void *context, const data_buffer_t *buffer, const uint8_t *data)
{
    gpu_t *gpu = ((place_t *)context)->gpu;
    CHECK_CUDA(cudaMemcpyAsync(buffer->base, data - (buffer->data - buffer->base), gpu_block_bytes(buffer),
                               cudaMemcpyDeviceToHost, gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
}

/* Random programs of messages and collectives are right, for -t seconds. */
static void programs(gpu_t *gpu)
{
    place_t p = {.gpu = gpu};
    const mix_place_t place = {&p, place_put, place_begin, place_end, place_get};
    const mix_t mix = {.events = 150,
                       .comms = MIX_COMMS,
                       .collectives = 4,
                       .largest = 1000000,
                       .group = MIX_MOST_GROUP,
                       .stall_one_in = 10,
                       .seed = gpu->options->seed};
    ncclComm_t comms[MIX_COMMS * REF_MAX_RANKS] = {0};
    comms[gpu->rank] = gpu->comm;
    comms[gpu->nranks + gpu->rank] = ranks_init(gpu->ranks);
    CHECK_CUDA(cudaStreamCreateWithFlags(&p.second, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&p.event, cudaEventDisableTiming));
    const uint64_t made = mix_run_for(gpu->options->seconds, &mix, &place, gpu->ranks, comms, gpu->nranks);
    if (gpu->rank == 0)
        printf("%llu programs of %d events\n", (unsigned long long)made, mix.events);
    CHECK_CUDA(cudaEventDestroy(p.event));
    CHECK_CUDA(cudaStreamDestroy(p.second));
    CHECK_NCCL(ncclCommDestroy(comms[gpu->nranks + gpu->rank]));
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {
        {"ring", ring, GPU_RANKS, 120},         {"pairs", pairs, GPU_RANKS, 120},   {"queued", queued, GPU_RANKS, 60},
        {"captured", captured, GPU_RANKS, 120}, {"beside", beside, GPU_RANKS, 120}, {"routes", routes, GPU_RANKS, 120},
        {"programs", programs, GPU_RANKS, 40},
    };
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
