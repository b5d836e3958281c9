/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times each algorithm with each grid; the rows of the built-in table are chosen from the results. One process, one
 * thread; a graph of calls per GPU. Two replays are queued back to back and the second is timed, so that the GPUs start
 * together. CSV on stdout; µs a call, the median over rounds of the slowest rank. Usage: gpu_sweep [-g ranks: more than
 * GPUs share them, which only compares kernels of few blocks]
 *                              [-c collective] [-a algorithm] [-b from] [-e to] [-s factor] [-t type]
 *                              [-B blocks,...] [-T threads,...] [-E 0|1: early] [-P priority]
 *                              [-m ring|pair|all: messages to the next rank, from rank 0 to 1, between all]
 *                              [-M: through pinned memory] [-p: calls of a part for each root]
 *                              [-u bytes: inputs so far off alignment] [-i: in place, as an all-gather is]
 *                              [-d random|word: what inputs hold; default: bytes 0x11, 0x22, ... by rank]
 * Bytes are those of a message, but of -m all those of a rank's messages to all, itself included, and of -p those of
 * all parts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/algorithms/gpu_team.h"
#include "tests/support/data.h"

enum { ROUNDS = 7, MOST_LIST = 16 };

typedef struct options {
    int ranks;
    const char *collective, *algorithm, *messages;
    size_t from, to, factor;
    alg_memory_t memory;
    uint32_t early;
    int priority;
    int parts, in_place;
    const char *data;
    size_t off;
    alg_type_t type;
    uint32_t blocks[MOST_LIST], threads[MOST_LIST];
    int nblocks, nthreads;
} options_t;

static int parse_list(char *text, uint32_t *list)
{
    int n = 0;
    for (char *word = strtok(text, ","); word && n < MOST_LIST; word = strtok(NULL, ","))
        list[n++] = (uint32_t)atoi(word);
    return n;
}

static int compare_float(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static float measure(gpu_team_t *g, const alg_algorithm_t *algorithm, alg_call_t *call, int calls)
{
    cudaGraphExec_t exec[ALG_MAX_RANKS];
    cudaEvent_t begin[ALG_MAX_RANKS], end[ALG_MAX_RANKS];
    for (int r = 0; r < g->nranks; r++) {
        cudaGraph_t graph;
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaEventCreate(&begin[r]));
        GPU(cudaEventCreate(&end[r]));
        GPU(cudaStreamBeginCapture(g->stream[r], cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < calls; i++)
            GPU((cudaError_t)algorithm->launch_cuda(&g->team[r], &call[r], g->stream[r]));
        GPU(cudaStreamEndCapture(g->stream[r], &graph));
        GPU(cudaGraphInstantiate(&exec[r], graph, 0));
        GPU(cudaGraphDestroy(graph));
    }
    float round[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        for (int r = 0; r < g->nranks; r++) {
            GPU(cudaSetDevice(g->device[r]));
            GPU(cudaGraphLaunch(exec[r], g->stream[r]));
            GPU(cudaEventRecord(begin[r], g->stream[r]));
            GPU(cudaGraphLaunch(exec[r], g->stream[r]));
            GPU(cudaEventRecord(end[r], g->stream[r]));
        }
        gpu_team_sync(g);
        round[i] = 0;
        for (int r = 0; r < g->nranks; r++) {
            float ms;
            GPU(cudaEventElapsedTime(&ms, begin[r], end[r]));
            round[i] = ms > round[i] ? ms : round[i];
        }
    }
    for (int r = 0; r < g->nranks; r++) {
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaGraphExecDestroy(exec[r]));
        GPU(cudaEventDestroy(begin[r]));
        GPU(cudaEventDestroy(end[r]));
    }
    qsort(round, ROUNDS, sizeof round[0], compare_float);
    return round[ROUNDS / 2] * 1000 / (float)calls;
}

/* A rank's messages, of which there may be none. */
static uint32_t list_messages(const options_t *o, uint32_t rank, uint32_t nranks, void *input, void *output,
                              size_t bytes, alg_message_t *list)
{
    uint32_t n = 0;
    if (strcmp(o->messages, "ring") == 0) {
        list[n++] = (alg_message_t){input, bytes, (rank + 1) % nranks, true, false};
        list[n++] = (alg_message_t){output, bytes, (rank + nranks - 1) % nranks, false, false};
    } else if (strcmp(o->messages, "pair") == 0) {
        if (rank < 2)
            list[n++] = (alg_message_t){rank ? output : input, bytes, 1 - rank, rank == 0, false};
    } else {
        const size_t part = bytes / nranks;
        for (uint32_t p = 0; p < nranks; p++) {
            list[n++] = (alg_message_t){(char *)input + p * part, part, p, true, false};
            list[n++] = (alg_message_t){(char *)output + p * part, part, p, false, false};
        }
    }
    return n;
}

/* List the parts of an all-gather as a group of broadcasts, or of a reduce-scatter as reduces. */
static void list_parts(alg_call_t *call, uint32_t nranks, size_t bytes, alg_part_t *list)
{
    const size_t part = bytes / nranks;
    const bool gathers = call->collective == ALG_BROADCAST;
    for (uint32_t i = 0; i < nranks; i++)
        list[i] = (alg_part_t){.root = i,
                               .input = (const char *)call->input + (gathers ? 0 : i * part),
                               .output = (char *)call->output + (gathers ? i * part : 0),
                               .count = part / alg_type_bytes(call->type)};
    call->parts = list;
    call->part_count = nranks;
}

static void sweep_size(gpu_team_t *g, const options_t *o, uint8_t **input, uint8_t **output, size_t bytes)
{
    const int calls = bytes <= 1 << 20 ? 100 : bytes <= 16 << 20 ? 20 : 4;
    for (uint32_t a = 0; a < alg_registry_count; a++) {
        const alg_algorithm_t *algorithm = alg_registry[a];
        const uint32_t parts = alg_collective_blocks(algorithm->collective, (uint32_t)g->nranks);
        if (algorithm->memory != o->memory || (o->algorithm && strcmp(o->algorithm, algorithm->name) != 0) ||
            (o->collective && strcmp(o->collective, alg_collective_name(algorithm->collective)) != 0) ||
            bytes > algorithm->max_bytes(&g->map, (uint32_t)g->nranks, o->type) || (o->parts && !algorithm->part_bytes))
            continue;
        uint32_t done[MOST_LIST * MOST_LIST] = {0};
        int ndone = 0;
        for (int i = 0; i < o->nblocks * o->nthreads; i++) {
            uint32_t blocks = o->blocks[i / o->nthreads], threads = o->threads[i % o->nthreads];
            algorithm->shape(bytes, (uint32_t)g->nranks, &blocks, &threads);
            int seen = 0;
            for (int k = 0; k < ndone; k++)
                seen |= done[k] == (blocks << 16 | threads);
            if (seen)
                continue;
            done[ndone++] = blocks << 16 | threads;
            alg_call_t call[ALG_MAX_RANKS];
            alg_message_t list[ALG_MAX_RANKS][2 * ALG_MAX_RANKS];
            alg_part_t part[ALG_MAX_RANKS][ALG_MAX_RANKS];
            for (int r = 0; r < g->nranks; r++) {
                call[r] = (alg_call_t){.collective = algorithm->collective,
                                       .input = (o->in_place ? output[r] + r * (bytes / parts) : input[r]) + o->off,
                                       .output = output[r] + (o->in_place ? o->off : 0),
                                       .count = bytes / parts / alg_type_bytes(o->type),
                                       .early = o->early,
                                       .type = o->type,
                                       .op = ALG_SUM,
                                       .blocks = blocks,
                                       .threads = threads,
                                       .messages = list[r]};
                if (algorithm->collective == ALG_SEND_RECV)
                    call[r].message_count =
                        list_messages(o, (uint32_t)r, (uint32_t)g->nranks, input[r], output[r], bytes, list[r]);
                for (uint32_t m = 0; m < call[r].message_count; m++)
                    list[r][m].bulk = algorithm->bulk_messages;
                if (o->parts)
                    list_parts(&call[r], (uint32_t)g->nranks, bytes, part[r]);
            }
            const float us = measure(g, algorithm, call, calls);
            printf("%d,%s,%zu,%d,%s,%u,%u,%.3f\n", g->nranks, alg_collective_name(algorithm->collective), bytes,
                   o->type, algorithm->name, blocks, threads, us);
            fflush(stdout);
        }
    }
}

/* Fill the input of a rank on the current device. */
static void fill(const options_t *o, uint8_t *input, int rank)
{
    uint32_t *words = o->data ? malloc(o->to) : NULL;
    uint64_t state = (uint64_t)rank;
    GPU(cudaMemset(input, 0x11 * (rank + 1), o->to));
    if (!words)
        return;
    for (size_t i = 0; i < o->to / sizeof *words; i++)
        words[i] =
            strcmp(o->data, "random") == 0 ? (uint32_t)data_random(&state) : (uint32_t)strtoull(o->data, NULL, 0);
    GPU(cudaMemcpy(input, words, o->to, cudaMemcpyHostToDevice));
    free(words);
}

int main(int argc, char **argv)
{
    options_t o = {.factor = 4,
                   .messages = "ring",
                   .early = 1,
                   .from = 1024,
                   .to = 1 << 20,
                   .type = ALG_BFLOAT16,
                   .blocks = {8, 16, 32, 64},
                   .nblocks = 4,
                   .threads = {256, 512},
                   .nthreads = 2};
    int option;
    while ((option = getopt(argc, argv, "g:c:a:b:e:s:t:B:T:E:P:m:Mpu:id:")) != -1) {
        switch (option) {
        case 'g':
            o.ranks = atoi(optarg);
            break;
        case 'c':
            o.collective = optarg;
            break;
        case 's':
            o.factor = strtoull(optarg, NULL, 0);
            break;
        case 'E':
            o.early = (uint32_t)atoi(optarg);
            break;
        case 'P':
            o.priority = atoi(optarg);
            break;
        case 'm':
            o.messages = optarg;
            break;
        case 'M':
            o.memory = ALG_MEMORY_PINNED;
            break;
        case 'p':
            o.parts = 1;
            break;
        case 'u':
            o.off = strtoull(optarg, NULL, 0);
            break;
        case 'i':
            o.in_place = 1;
            break;
        case 'd':
            o.data = optarg;
            break;
        case 'a':
            o.algorithm = optarg;
            break;
        case 'b':
            o.from = strtoull(optarg, NULL, 0);
            break;
        case 'e':
            o.to = strtoull(optarg, NULL, 0);
            break;
        case 't':
            o.type = (alg_type_t)atoi(optarg);
            break;
        case 'B':
            o.nblocks = parse_list(optarg, o.blocks);
            break;
        case 'T':
            o.nthreads = parse_list(optarg, o.threads);
            break;
        default:
            return 2;
        }
    }
    const int gpus = gpu_count_or_skip(0, o.ranks > 1 ? 1 : 2);
    if (o.ranks == 0)
        o.ranks = gpus;
    gpu_team_t g;
    gpu_team_make(&g, o.ranks, gpus < o.ranks ? gpus : o.ranks, o.memory, 80u << 20);
    uint8_t *input[ALG_MAX_RANKS], *output[ALG_MAX_RANKS];
    for (int r = 0; r < o.ranks; r++) {
        GPU(cudaSetDevice(g.device[r]));
        GPU(cudaMalloc((void **)&input[r], o.to + o.off));
        GPU(cudaMalloc((void **)&output[r], o.to + o.off));
        fill(&o, input[r], r);
        g.team[r].priority = o.priority;
        GPU(cudaDeviceSynchronize());
    }
    printf("ranks,collective,bytes,type,algorithm,blocks,threads,us\n");
    for (size_t bytes = o.from; bytes <= o.to; bytes *= o.factor)
        sweep_size(&g, &o, input, output, bytes);
    gpu_team_free(&g);
    return 0;
}
