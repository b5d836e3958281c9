/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/algorithms/gpu_calls.h"

#include <stdio.h>
#include <string.h>

#include "tests/algorithms/gpu_draw.h"

enum { MOST_BYTES = GPU_BYTES, SLACK = 64, SHARED_BLOCKS = 16 };

static uint8_t host[MOST_BYTES], landed[MOST_BYTES + 2 * SLACK];

void gpu_buffers_make(gpu_buffers_t *b, const gpu_team_t *g)
{
    for (int r = 0; r < g->nranks; r++) {
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaMalloc((void **)&b->input[r], MOST_BYTES + 2 * SLACK));
        GPU(cudaMalloc((void **)&b->output[r], MOST_BYTES + 2 * SLACK));
    }
}

void gpu_buffers_free(const gpu_buffers_t *b, const gpu_team_t *g)
{
    for (int r = 0; r < g->nranks; r++) {
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaFree(b->input[r]));
        GPU(cudaFree(b->output[r]));
    }
}

/* Not for messages, which gpu_pairs.c tests. */
bool gpu_call_drawn(const gpu_team_t *g, const alg_algorithm_t *algorithm)
{
    return algorithm->memory == g->map.memory && algorithm->collective != ALG_SEND_RECV &&
           algorithm->max_bytes(&g->map, (uint32_t)g->nranks, ALG_FLOAT32) > 0;
}

/* Of one call in eight: some blocks are spare. */
static uint32_t sure_blocks(uint64_t seed, uint32_t blocks)
{
    return seed % 8 == 0 ? 1 + (uint32_t)(seed / 8 % blocks) : 0;
}

gpu_call_t gpu_call_draw(const gpu_team_t *g, const gpu_buffers_t *b, uint64_t *state, int only, size_t most_bytes)
{
    static const size_t awkward[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 127, 1000, 4097, 16384, 65537};
    const uint32_t nranks = (uint32_t)g->nranks;
    gpu_call_t d;
    size_t width, most; /* 0: the scratch is too small for the algorithm */
    do {
        d = (gpu_call_t){.algorithm = alg_registry[only >= 0 ? (uint64_t)only : data_below(state, alg_registry_count)]};
        d.k.collective = d.algorithm->collective;
        d.k.c.type = gpu_draw_type(state);
        width = alg_type_bytes((alg_type_t)d.k.c.type);
        most = d.algorithm->max_bytes(&g->map, nranks, (alg_type_t)d.k.c.type);
        most_bytes = most_bytes < MOST_BYTES ? most_bytes : MOST_BYTES;
        most = (most < most_bytes ? most : most_bytes) / width / alg_collective_blocks(d.k.collective, nranks);
    } while (!gpu_call_drawn(g, d.algorithm) || most == 0);
    d.k.root = (uint32_t)data_below(state, nranks);
    d.k.c.op = (ref_op_t)data_below(state, REF_OPS);
    d.k.c.kind = (data_kind_t)data_below(state, DATA_KINDS);
    d.k.c.seed = data_random(state);
    d.k.c.nranks = g->nranks;
    size_t count = data_below(state, 4) ? awkward[data_below(state, sizeof awkward / sizeof awkward[0])]
                                        : 1 + data_below(state, most);
    d.k.c.count = count < most ? count : most;
    d.in_place = data_below(state, 2) && d.k.collective != ALG_ALL_TO_ALL;
    const uint64_t most_blocks = g->shared && GPU_BLOCKS > (int)SHARED_BLOCKS ? (int)SHARED_BLOCKS : GPU_BLOCKS;
    uint32_t blocks = 1 + (uint32_t)data_below(state, most_blocks), threads = 32u << data_below(state, GPU_DOUBLED + 1);
    d.algorithm->shape(d.k.c.count * width * alg_collective_blocks(d.k.collective, nranks), nranks, &blocks, &threads);
    for (uint32_t r = 0; r < nranks; r++) {
        const size_t shift = data_below(state, 3) ? 0 : data_below(state, 16 / width) * width;
        const ptrdiff_t at = coll_in_place_at(&d.k, r) * (ptrdiff_t)width;
        uint8_t *input = b->input[r] + SLACK + shift / 2 / width * width, *output = b->output[r] + SLACK + shift;
        if (!coll_input_count(&d.k, r) || !coll_output_count(&d.k, r)) {
            /* one buffer only, so in place does not apply */
        } else if (d.in_place && at < 0) { /* the input holds the output */
            input = output;
            output = input - at;
        } else if (d.in_place) {
            input = output + at;
        }
        d.call[r] = (alg_call_t){.collective = d.k.collective,
                                 .root = d.k.root,
                                 .input = coll_input_count(&d.k, r) ? input : NULL,
                                 .output = coll_output_count(&d.k, r) ? output : NULL,
                                 .count = d.k.c.count,
                                 .type = (alg_type_t)d.k.c.type,
                                 .op = (alg_op_t)d.k.c.op,
                                 .blocks = d.algorithm->unaligned_blocks || d.algorithm->any_grid
                                               ? 1 + (uint32_t)data_below(state, blocks)
                                               : blocks,
                                 .threads = d.algorithm->any_grid ? 32u << data_below(state, GPU_DOUBLED + 1) : threads,
                                 .most_blocks = (uint32_t)data_below(state, 2 * blocks),
                                 .sure_blocks = sure_blocks(d.k.c.seed + r, blocks),
                                 .early = !g->shared && data_below(state, 2)};
        data_scalar(&d.k.c, (int)r, &d.call[r].scalar_bits);
    }
    return d;
}

/* All bytes that a rank's call may touch, and a margin around them. */
size_t gpu_call_bytes(const gpu_call_t *d, int r)
{
    const size_t in = coll_input_count(&d->k, (uint32_t)r), out = coll_output_count(&d->k, (uint32_t)r);
    const size_t bytes = (in > out ? in : out) * alg_type_bytes((alg_type_t)d->k.c.type);
    return bytes < MOST_BYTES ? bytes + 2 * SLACK : MOST_BYTES + 2 * SLACK;
}

void gpu_call_load(gpu_team_t *g, const gpu_buffers_t *b, const gpu_call_t *d)
{
    const size_t width = alg_type_bytes((alg_type_t)d->k.c.type);
    for (int r = 0; r < g->nranks; r++) {
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaMemsetAsync(b->output[r], 0xa5, gpu_call_bytes(d, r), g->stream[r]));
        if (d->call[r].input) {
            coll_fill(&d->k, (uint32_t)r, host);
            GPU(cudaMemcpyAsync((void *)d->call[r].input, host, coll_input_count(&d->k, (uint32_t)r) * width,
                                cudaMemcpyHostToDevice, g->stream[r]));
        }
        GPU(cudaStreamSynchronize(g->stream[r]));
    }
}

void gpu_call_launch(const gpu_team_t *g, const gpu_call_t *d, int r)
{
    GPU(cudaSetDevice(g->device[r]));
    GPU((cudaError_t)d->algorithm->launch_cuda(&g->team[r], &d->call[r], g->stream[r]));
}

/* Whether a byte of rank r's output buffer may differ from its poison. */
static bool may_change(const gpu_call_t *d, const gpu_buffers_t *b, int r, size_t i)
{
    const size_t width = alg_type_bytes((alg_type_t)d->k.c.type);
    const uint8_t *byte = b->output[r] + i, *output = d->call[r].output, *input = d->call[r].input;
    if (output && byte >= output && byte < output + coll_output_count(&d->k, (uint32_t)r) * width)
        return true;
    return input && byte >= input && byte < input + coll_input_count(&d->k, (uint32_t)r) * width;
}

bool gpu_call_right(const gpu_team_t *g, const gpu_buffers_t *b, const gpu_call_t *d, int r)
{
    const size_t bytes = gpu_call_bytes(d, r);
    GPU(cudaSetDevice(g->device[r]));
    GPU(cudaMemcpy(landed, b->output[r], bytes, cudaMemcpyDeviceToHost));
    char fault[160] = "";
    bool right = true;
    for (size_t i = 0; i < bytes && right; i++)
        right = landed[i] == 0xa5 || may_change(d, b, r, i);
    if (!right)
        snprintf(fault, sizeof fault, "bytes around the output were written");
    else if (d->call[r].output)
        right =
            coll_right(&d->k, (uint32_t)r, landed + ((uint8_t *)d->call[r].output - b->output[r]), fault, sizeof fault);
    if (!right)
        printf("wrong: %s %s %s %s count %zu root %u blocks %u of %u threads %u in place %d rank %d: %s\n",
               alg_collective_name(d->k.collective), d->algorithm->name, ref_type_name(d->k.c.type),
               ref_op_name(d->k.c.op), d->k.c.count, d->k.root, d->call[r].most_blocks, d->call[r].blocks,
               d->call[r].threads, d->in_place, r, fault);
    return right;
}
