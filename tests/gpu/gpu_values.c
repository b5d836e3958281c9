/* SPDX-License-Identifier: Apache-2.0 */
/* Every type, operator, count and address on GPUs; chains of calls without a wait between them. Shunt must take every
 * call. */
#include "gpu.h"

static void types(gpu_t *gpu)
{
    static const size_t counts[] = {1, 3, 16, 31, 127, 1000, 4097, 30000};
    uint64_t hash = 0, next = 0;
    for (int type = 0; type < REF_TYPES; type++) {
        for (int op = 0; op < REF_OPS; op++) {
            for (int kind = 0; kind < DATA_KINDS; kind++) {
                for (int i = 0; i < 3; i++, next++) {
                    data_case_t c = {(ncclDataType_t)type, (ref_op_t)op, (data_kind_t)kind, next, 0, gpu->nranks};
                    gpu_shape_t shape = {0, 0, (next & 1) != 0};
                    c.count = counts[next % (sizeof(counts) / sizeof(counts[0]))];
                    gpu_run(gpu, &c, shape, &hash);
                }
            }
        }
    }
    gpu_agree(gpu, hash);
}

static void counts(gpu_t *gpu)
{
    static const ncclDataType_t kinds[] = {ncclUint8, ncclBfloat16, ncclFloat32, ncclInt64};
    gpu_shape_t shape = {0, 0, false};
    uint64_t hash = 0, seed = 0;
    for (size_t t = 0; t < sizeof(kinds) / sizeof(kinds[0]); t++) {
        for (int power = 3; power <= 24; power++) {
            for (int around = -1; around <= 1; around++) {
                data_case_t c = {kinds[t], REF_SUM, DATA_RANDOM, seed++, 0, gpu->nranks};
                c.count = (size_t)((1ll << power) / (long long)ref_bytes(c.type) + around);
                if (c.count == 0 || (power > 20 && around == 0))
                    continue; /* the reference takes long for large ones */
                gpu_run(gpu, &c, shape, &hash);
            }
        }
    }
    /* an empty call, with and without buffers */
    CHECK_NCCL(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, gpu->comm, gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    gpu_agree(gpu, hash);
}

/* Results are right for all pairs of offsets; in every other call this rank draws offsets that differ from the
 * others'. */
static void offsets(gpu_t *gpu)
{
    static const ncclDataType_t kinds[] = {ncclUint8, ncclFloat16, ncclFloat32, ncclFloat64};
    static const size_t sizes[] = {1, 2, 9, 15, 16, 17, 33, 127, 260, 1031, 20001};
    uint64_t hash = 0, own = gpu->options->seed + (uint64_t)gpu->rank;
    for (size_t t = 0; t < sizeof(kinds) / sizeof(kinds[0]); t++) {
        size_t bytes = ref_bytes(kinds[t]), steps = 16 / bytes + 1;
        for (size_t i = 0; i < steps * steps; i++) {
            data_case_t c = {kinds[t], REF_SUM, DATA_BITS, i, 0, gpu->nranks};
            gpu_shape_t shape = {i / steps * bytes, i % steps * bytes, false};
            c.count = sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];
            if (i & 1)
                shape = gpu_random_shape(&own, c.type);
            gpu_run(gpu, &c, shape, &hash);
        }
    }
    gpu_agree(gpu, hash);
}

/* Repeated calls in place without waits are right: x becomes x0-sum times nranks^(k-1), wrapped. */
static void chain(gpu_t *gpu)
{
    enum { LINKS = 2000 };
    static const size_t lengths[] = {1, 100, 3000, 40000, 400000};
    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
        data_case_t c = {ncclUint32, REF_SUM, DATA_RANDOM, l, lengths[l], gpu->nranks};
        gpu_shape_t shape = {0, 0, true};
        gpu_call_t call;
        uint32_t factor = 1, *all = malloc(c.count * sizeof(*all)), *expected = calloc(c.count, sizeof(*expected));
        CHECK(all && expected);
        for (int r = 0; r < gpu->nranks; r++) {
            data_fill(&c, r, all);
            for (size_t i = 0; i < c.count; i++)
                expected[i] += all[i];
        }
        gpu_prepare(gpu, &call, gpu->comm, gpu->rank, &c, shape);
        for (int k = 0; k < LINKS; k++) {
            CHECK_NCCL(gpu_issue(&call, gpu->stream));
            factor *= k ? (uint32_t)gpu->nranks : 1;
        }
        CHECK_CUDA(cudaMemcpyAsync(all, call.device_output + (call.output.data - call.output.base),
                                   c.count * sizeof(*all), cudaMemcpyDeviceToHost, gpu->stream));
        CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
        for (size_t i = 0; i < c.count; i++)
            CHECK(all[i] == expected[i] * factor);
        gpu_release(&call);
        free(all);
        free(expected);
    }
}

/* A scalar in device memory is read when the kernel runs, as an earlier kernel may have written it. */
static void scalars(gpu_t *gpu)
{
    float in = (float)(gpu->rank + 1), out = 0, sum = 0, scalar, *memory;
    ncclRedOp_t op;
    for (int r = 0; r < gpu->nranks; r++)
        sum += (float)(r + 1);
    CHECK_CUDA(cudaMalloc((void **)&memory, 3 * sizeof(float)));
    CHECK_CUDA(cudaMemcpy(memory, &in, sizeof(in), cudaMemcpyHostToDevice));
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&op, memory + 2, ncclFloat32, ncclScalarDevice, gpu->comm));
    for (int i = 0; i < 20; i++) {
        scalar = (float)i;
        CHECK_CUDA(cudaMemcpyAsync(memory + 2, &scalar, sizeof(scalar), cudaMemcpyHostToDevice, gpu->stream));
        CHECK_NCCL(ncclAllReduce(memory, memory + 1, 1, ncclFloat32, op, gpu->comm, gpu->stream));
        CHECK(gpu_last_taken() || !gpu->all_taken);
        CHECK_CUDA(cudaMemcpyAsync(&out, memory + 1, sizeof(out), cudaMemcpyDeviceToHost, gpu->stream));
        CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
        CHECK(out == scalar * sum);
    }
    CHECK_NCCL(ncclRedOpDestroy(op, gpu->comm));
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaFree(memory));
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {
        {"types", types, GPU_RANKS | GPU_ALL_TAKEN, 120},    {"counts", counts, GPU_PROCESSES | GPU_ALL_TAKEN, 180},
        {"offsets", offsets, GPU_RANKS | GPU_ALL_TAKEN, 90}, {"chain", chain, GPU_RANKS | GPU_ALL_TAKEN, 120},
        {"scalars", scalars, GPU_RANKS | GPU_ALL_TAKEN, 40},
    };
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
