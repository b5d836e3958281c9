/* SPDX-License-Identifier: Apache-2.0 */
/* One communicator on several streams, groups of several streams, collectives and communicators. */
#include "gpu.h"

#include <string.h>

enum { STREAMS = 3, BATCH = 12 };

static void make_streams(cudaStream_t streams[STREAMS])
{
    CHECK_CUDA(cudaStreamCreateWithFlags(&streams[0], cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreate(&streams[1])); /* orders itself with the default stream */
    streams[2] = NULL;                         /* the default stream */
}

static void drop_streams(cudaStream_t streams[STREAMS])
{
    CHECK_CUDA(cudaStreamDestroy(streams[0]));
    CHECK_CUDA(cudaStreamDestroy(streams[1]));
}

static void wait_streams(cudaStream_t streams[STREAMS])
{
    for (int i = 0; i < STREAMS; i++)
        CHECK_CUDA(cudaStreamSynchronize(streams[i]));
}

/* Calls on changing streams that the program does not order are ordered by the communicator. Small and large sizes, so
 * that taken and forwarded calls alternate. */
static void turns(gpu_t *gpu)
{
    cudaStream_t streams[STREAMS];
    uint64_t seed = gpu->options->seed, own = seed + (uint64_t)gpu->rank, hash = 0;
    gpu_call_t calls[BATCH];
    make_streams(streams);
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < BATCH; i++) {
            data_case_t c = gpu_random_case(&seed, gpu->nranks, 30000);
            if (i == BATCH / 2)
                c = (data_case_t){ncclFloat32, REF_SUM, DATA_SMALL, seed, 1 << 20, gpu->nranks};
            gpu_prepare(gpu, &calls[i], gpu->comm, gpu->rank, &c, gpu_random_shape(&own, c.type));
        }
        for (int i = 0; i < BATCH; i++)
            CHECK_NCCL(gpu_issue(&calls[i], streams[data_below(&seed, STREAMS)]));
        wait_streams(streams);
        for (int i = 0; i < BATCH; i++)
            gpu_verify(&calls[i], gpu->rank, gpu->nranks, &hash);
        for (int i = BATCH - 1; i >= 0; i--)
            gpu_release(&calls[i]);
    }
    gpu_agree(gpu, hash);
    drop_streams(streams);
}

/* A call uses the results of the stream's earlier work, and later work uses the call's result. */
static void order(gpu_t *gpu)
{
    enum { COUNT = 5000, ROUNDS = 300 };
    static const uint32_t zero = 0;
    uint32_t *data, *copy, *got = malloc(COUNT * sizeof(*got));
    cudaStream_t streams[STREAMS];
    CHECK(got != NULL);
    make_streams(streams);
    CHECK_CUDA(cudaMalloc((void **)&data, 2 * COUNT * sizeof(*data)));
    copy = data + COUNT;
    for (int i = 0; i < ROUNDS; i++) {
        cudaStream_t stream = streams[i % STREAMS];
        CHECK_CUDA(cudaMemsetAsync(data, i & 127, COUNT * sizeof(*data), stream));
        CHECK_NCCL(ncclAllReduce(data, data, COUNT, ncclUint32, ncclSum, gpu->comm, stream));
        CHECK_CUDA(cudaMemcpyAsync(copy, data, COUNT * sizeof(*data), cudaMemcpyDeviceToDevice, stream));
        CHECK_CUDA(cudaMemsetAsync(data, 0xff, COUNT * sizeof(*data), stream));
        CHECK_CUDA(cudaMemcpyAsync(got, copy, COUNT * sizeof(*data), cudaMemcpyDeviceToHost, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        for (int k = 0; k < COUNT; k++)
            CHECK(got[k] == (zero + 0x01010101u * (uint32_t)(i & 127)) * (uint32_t)gpu->nranks);
    }
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaFree(data));
    drop_streams(streams);
    free(got);
}

typedef struct others {
    float *data; /* nranks slots of SLOT for each of four collectives */
    float *host;
} others_t;

enum { SLOT = 256 };

static void others_make(gpu_t *gpu, others_t *o)
{
    size_t bytes = 4 * (size_t)gpu->nranks * SLOT * sizeof(float);
    o->host = calloc(1, bytes);
    CHECK(o->host != NULL);
    CHECK_CUDA(cudaMalloc((void **)&o->data, bytes));
}

static void others_load(gpu_t *gpu, others_t *o)
{
    size_t quarter = (size_t)gpu->nranks * SLOT;
    for (size_t i = 0; i < quarter; i++) {
        o->host[i] = gpu->rank == 0 ? (float)i : -1;                 /* broadcast from 0 */
        o->host[quarter + i] = (float)(gpu->rank * 1000) + (float)i; /* all-gather of the own slot */
        o->host[2 * quarter + i] = (float)(gpu->rank + 1);           /* reduce-scatter into the own slot */
        o->host[3 * quarter + i] = (float)gpu->rank;                 /* send to the right, receive from the left */
    }
    CHECK_CUDA(cudaMemcpyAsync(o->data, o->host, 4 * quarter * sizeof(float), cudaMemcpyHostToDevice, gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
}

static void others_issue(gpu_t *gpu, others_t *o, cudaStream_t stream)
{
    size_t quarter = (size_t)gpu->nranks * SLOT, own = (size_t)gpu->rank * SLOT;
    float *gather = o->data + quarter, *scatter = o->data + 2 * quarter, *pass = o->data + 3 * quarter;
    int right = (gpu->rank + 1) % gpu->nranks, left = (gpu->rank + gpu->nranks - 1) % gpu->nranks;
    CHECK_NCCL(ncclBroadcast(o->data, o->data, quarter, ncclFloat32, 0, gpu->comm, stream));
    CHECK_NCCL(ncclAllGather(gather + own, gather, SLOT, ncclFloat32, gpu->comm, stream));
    CHECK_NCCL(ncclReduceScatter(scatter, scatter + own, SLOT, ncclFloat32, ncclSum, gpu->comm, stream));
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSend(pass, SLOT, ncclFloat32, right, gpu->comm, stream));
    CHECK_NCCL(ncclRecv(pass + SLOT, SLOT, ncclFloat32, left, gpu->comm, stream));
    CHECK_NCCL(ncclGroupEnd());
}

static void others_verify(gpu_t *gpu, others_t *o)
{
    size_t quarter = (size_t)gpu->nranks * SLOT, own = (size_t)gpu->rank * SLOT;
    float sum = (float)(gpu->nranks * (gpu->nranks + 1) / 2);
    CHECK_CUDA(cudaMemcpyAsync(o->host, o->data, 4 * quarter * sizeof(float), cudaMemcpyDeviceToHost, gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    for (size_t i = 0; i < quarter; i++) {
        CHECK(o->host[i] == (float)i);
        CHECK(o->host[quarter + i] == (float)(i / SLOT * 1000) + (float)i);
    }
    for (size_t i = 0; i < SLOT; i++) {
        CHECK(o->host[2 * quarter + own + i] == sum);
        CHECK(o->host[3 * quarter + SLOT + i] == (float)((gpu->rank + gpu->nranks - 1) % gpu->nranks));
    }
}

static void others_drop(others_t *o)
{
    CHECK_CUDA(cudaFree(o->data));
    free(o->host);
}

/* All-reduces and other collectives, alone and in one group, are right on several streams. */
static void mixed(gpu_t *gpu)
{
    cudaStream_t streams[STREAMS];
    uint64_t seed = gpu->options->seed + 1, own = seed + (uint64_t)gpu->rank, hash = 0;
    gpu_call_t calls[BATCH];
    others_t o;
    others_make(gpu, &o);
    make_streams(streams);
    for (int round = 0; round < 40; round++) {
        bool group = round % 2;
        others_load(gpu, &o);
        for (int i = 0; i < BATCH; i++) {
            data_case_t c = gpu_random_case(&seed, gpu->nranks, 30000);
            gpu_prepare(gpu, &calls[i], gpu->comm, gpu->rank, &c, gpu_random_shape(&own, c.type));
        }
        if (group)
            CHECK_NCCL(ncclGroupStart());
        for (int i = 0; i < BATCH; i++) {
            if (i == BATCH / 2)
                others_issue(gpu, &o, streams[round % STREAMS]);
            CHECK_NCCL(gpu_issue(&calls[i], streams[data_below(&seed, STREAMS)]));
        }
        if (group)
            CHECK_NCCL(ncclGroupEnd());
        wait_streams(streams);
        others_verify(gpu, &o);
        for (int i = 0; i < BATCH; i++) {
            calls[i].taken = calls[i].taken && !group; /* in a group the route is decided at its end */
            gpu_verify(&calls[i], gpu->rank, gpu->nranks, &hash);
        }
        for (int i = BATCH - 1; i >= 0; i--)
            gpu_release(&calls[i]);
    }
    gpu_agree(gpu, hash);
    ranks_barrier(gpu->ranks);
    others_drop(&o);
    drop_streams(streams);
}

static void pass_on(gpu_t *gpu, float *data)
{
    const int right = (gpu->rank + 1) % gpu->nranks, left = (gpu->rank + gpu->nranks - 1) % gpu->nranks;
    CHECK_NCCL(ncclSend(data, SLOT, ncclFloat32, right, gpu->comm, gpu->stream));
    CHECK_NCCL(ncclRecv(data + SLOT, SLOT, ncclFloat32, left, gpu->comm, gpu->stream));
}

/* All-reduces beside taken and forwarded messages complete, in one group on some ranks and one after another on the
 * rest. */
static void apart(gpu_t *gpu)
{
    enum { ROUNDS = 100, GROUPED = 4 };
    const int left = (gpu->rank + gpu->nranks - 1) % gpu->nranks;
    uint64_t seed = gpu->options->seed + 3, own = seed + (uint64_t)gpu->rank, hash = 0;
    gpu_call_t calls[GROUPED];
    float *data, host[2 * SLOT];
    CHECK_CUDA(cudaMalloc((void **)&data, sizeof(host)));
    gpu_policy(gpu->comm, "sendrecv:nccl");
    CHECK_NCCL(ncclGroupStart()); /* the real NCCL connects its ranks */
    pass_on(gpu, data);
    CHECK_NCCL(ncclGroupEnd());
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    for (int round = 0; round < ROUNDS; round++) {
        const bool group = (round + gpu->rank) % 2;
        if (round % 10 == 0)
            gpu_policy(gpu->comm, round % 20 == 0 ? "" : "sendrecv:nccl");
        for (int i = 0; i < 2 * SLOT; i++)
            host[i] = i < SLOT ? (float)(gpu->rank + round) : -1;
        CHECK_CUDA(cudaMemcpyAsync(data, host, sizeof(host), cudaMemcpyHostToDevice, gpu->stream));
        for (int i = 0; i < GROUPED; i++) {
            data_case_t c = gpu_random_case(&seed, gpu->nranks, 20000);
            gpu_prepare(gpu, &calls[i], gpu->comm, gpu->rank, &c, gpu_random_shape(&own, c.type));
        }
        if (group)
            CHECK_NCCL(ncclGroupStart());
        for (int i = 0; i < GROUPED; i++)
            CHECK_NCCL(gpu_issue(&calls[i], gpu->stream));
        if (!group)
            CHECK_NCCL(ncclGroupStart());
        pass_on(gpu, data);
        CHECK_NCCL(ncclGroupEnd());
        CHECK_CUDA(cudaMemcpyAsync(host, data, sizeof(host), cudaMemcpyDeviceToHost, gpu->stream));
        CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
        for (int i = 0; i < SLOT; i++)
            CHECK(host[SLOT + i] == (float)(left + round));
        for (int i = 0; i < GROUPED; i++) {
            calls[i].taken = false; /* in a group the route is decided at its end */
            gpu_verify(&calls[i], gpu->rank, gpu->nranks, &hash);
        }
        for (int i = GROUPED - 1; i >= 0; i--)
            gpu_release(&calls[i]);
    }
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaFree(data));
}

/* Several communicators complete alternately on one stream, concurrently on two, and in one group. */
static void communicators(gpu_t *gpu)
{
    cudaStream_t streams[STREAMS];
    ncclComm_t comms[2] = {gpu->comm, ranks_init(gpu->ranks)};
    uint64_t seed = gpu->options->seed + 2, own = seed + (uint64_t)gpu->rank, hash = 0;
    gpu_call_t calls[BATCH];
    make_streams(streams);
    for (int round = 0; round < 40; round++) {
        bool group = round % 2;
        for (int i = 0; i < BATCH; i++) {
            data_case_t c = gpu_random_case(&seed, gpu->nranks, 20000);
            gpu_prepare(gpu, &calls[i], comms[i % 2], gpu->rank, &c, gpu_random_shape(&own, c.type));
        }
        if (group)
            CHECK_NCCL(ncclGroupStart());
        /* Outside a group the program must order the two: all on one stream. */
        for (int i = 0; i < BATCH; i++)
            CHECK_NCCL(gpu_issue(&calls[i], group ? streams[i % 2] : streams[0]));
        if (group)
            CHECK_NCCL(ncclGroupEnd());
        wait_streams(streams);
        for (int i = 0; i < BATCH; i++) {
            calls[i].taken = calls[i].taken && !group;
            gpu_verify(&calls[i], gpu->rank, gpu->nranks, &hash);
        }
        for (int i = BATCH - 1; i >= 0; i--)
            gpu_release(&calls[i]);
    }
    gpu_agree(gpu, hash);
    CHECK_NCCL(ncclCommDestroy(comms[1]));
    drop_streams(streams);
}

/* A group that fails launches nothing. */
static void poisoned(gpu_t *gpu)
{
    data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, 4, 700, gpu->nranks};
    gpu_shape_t shape = {0, 0, false};
    data_buffer_t got;
    gpu_call_t call;
    uint64_t hash = 0;
    size_t bytes;
    gpu_prepare(gpu, &call, gpu->comm, gpu->rank, &c, shape);
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(gpu_issue(&call, gpu->stream));
    CHECK_RESULT(ncclAllReduce(gpu->pool, gpu->pool, 1, (ncclDataType_t)99, ncclSum, gpu->comm, gpu->stream),
                 ncclInvalidArgument);
    CHECK_RESULT(ncclGroupEnd(), ncclInvalidArgument);
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    got = call.output;
    bytes = (size_t)(got.data - got.base) + got.size + DATA_GUARD_BYTES;
    got.base = malloc(bytes);
    CHECK(got.base != NULL);
    got.data = got.base + (call.output.data - call.output.base);
    CHECK_CUDA(cudaMemcpy(got.base, call.device_output, bytes, cudaMemcpyDeviceToHost));
    CHECK(data_buffer_untouched(&got));
    free(got.base);
    gpu_release(&call);
    gpu_run(gpu, &c, shape, &hash);
    gpu_agree(gpu, hash);
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {
        {"turns", turns, GPU_RANKS, 120},      {"order", order, GPU_PROCESSES, 60},
        {"mixed", mixed, GPU_RANKS, 90},       {"communicators", communicators, GPU_RANKS, 90},
        {"poisoned", poisoned, GPU_RANKS, 40}, {"apart", apart, GPU_RANKS, 60},
    };
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
