/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends and receives of the kernels on GPUs, from one thread: rounds of random messages, each rank with its own order
 * and grid, several rounds queued behind each other, eagerly and replayed. Every byte is compared after each replay,
 * and the bytes around the messages, too. At the end each rank in turn is aborted amid messages: all kernels must end
 * without a memory fault. With -n 0 only this part runs, 60 times.
 *
 * Usage: gpu_pairs [-g GPUs] [-n batches] [-s seed]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/algorithms/gpu_draw.h"
#include "tests/algorithms/gpu_team.h"
#include "tests/support/data.h"

enum { ABORTS = 60, ROUNDS = 6, MOST = 40, AREA = 24 << 20, MOST_QUERIES = 200 };
/* MARGIN: bytes before the first message and behind the last one. */
enum { REPLAYS = 3, POISON = 0x5a, MARGIN = 4096 };

typedef struct message {
    uint32_t from, to;
    bool bulk;
    size_t bytes, out, in; /* position in the sender's input, and in the receiver's output */
} message_t;

typedef struct round {
    message_t message[MOST];
    uint32_t count;
    const alg_algorithm_t *algorithm; /* of device memory: one that carries some messages by bulk copies, or not */
    alg_message_t list[ALG_MAX_RANKS][2 * MOST];
    alg_call_t call[ALG_MAX_RANKS];
} round_t;

static uint8_t *input[ALG_MAX_RANKS], *output[ALG_MAX_RANKS]; /* on the GPUs */
static uint8_t *sent[ALG_MAX_RANKS], *got, *expected;         /* on the host */
static uint8_t *kept[ALG_MAX_RANKS];                          /* pinned: outputs of all replays but the last */
static round_t rounds[ROUNDS];

/* Fill with words of which one in 16 needs an escape, in some parts all. */
static void fill(uint8_t *at, size_t bytes, uint64_t *state)
{
    bool all = false;
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        if (i % 8192 == 0)
            all = data_below(state, 8) == 0;
        const uint64_t bits = data_random(state);
        const uint32_t word = all || bits >> 60 == 0 ? data_escaped(bits) : (uint32_t)bits;
        memcpy(at + i, &word, sizeof word);
    }
}

/* Of those that there are. */
static const alg_algorithm_t *draw_algorithm(const gpu_team_t *g, uint64_t *state)
{
    const alg_algorithm_t *shm = alg_find(ALG_SEND_RECV, "shm-pairs"), *pairs = alg_find(ALG_SEND_RECV, "pairs"),
                          *bulk = alg_find(ALG_SEND_RECV, "bulk");
    if (g->map.memory == ALG_MEMORY_PINNED)
        return shm;
    return pairs && (!bulk || data_below(state, 2)) ? pairs : bulk;
}

/* Draw one aligned message for each pair of ranks, most of them so long that a warp serves several channels of each. */
static void draw_pairs(const gpu_team_t *g, round_t *r, uint64_t *state)
{
    const uint32_t n = (uint32_t)g->nranks;
    r->count = 0;
    for (uint32_t i = 0; i < n * n && r->count < MOST; i++) {
        if (i / n != i % n || data_below(state, 2))
            r->message[r->count++] = (message_t){
                .from = i / n, .to = i % n, .bytes = 1 + data_below(state, data_below(state, 4) ? GPU_BYTES : 4096)};
    }
}

static void draw_round(const gpu_team_t *g, round_t *r, uint64_t *state, size_t out[], size_t in[])
{
    static const size_t awkward[] = {1, 2, 15, 16, 17, 511, 512, 513, 1000, 4096, 65536, 65537};
    const uint32_t n = (uint32_t)g->nranks;
    const bool brief = data_below(state, 3) == 0;
    r->algorithm = draw_algorithm(g, state);
    r->count = 1 + (uint32_t)data_below(state, data_below(state, 3) ? 8 : MOST);
    r->count = brief ? 1 + r->count % 3 : r->count;
    const bool pairs = !brief && data_below(state, 3) == 0;
    if (pairs)
        draw_pairs(g, r, state);
    for (uint32_t i = 0; i < r->count; i++) {
        message_t *m = &r->message[i];
        *m = pairs ? *m : (message_t){.from = (uint32_t)data_below(state, n), .to = (uint32_t)data_below(state, n)};
        m->bytes = pairs                  ? m->bytes
                   : data_below(state, 3) ? awkward[data_below(state, sizeof awkward / sizeof awkward[0])]
                                          : 1 + data_below(state, data_below(state, 4) ? GPU_BYTES / 16 : GPU_BYTES);
        m->bytes = brief ? 1 + m->bytes % (GPU_BYTES / 32) : m->bytes;
        m->bulk = r->algorithm->bulk_messages && data_below(state, 3) > 0;
        m->out = out[m->from] + (pairs || data_below(state, 3) ? 0 : data_below(state, 16));
        m->in = in[m->to] + (pairs || data_below(state, 3) ? 0 : data_below(state, 16));
        if (m->out + m->bytes > AREA - MARGIN || m->in + m->bytes > AREA - MARGIN) {
            r->count = i;
            break;
        }
        out[m->from] = (m->out + m->bytes + 31) / 16 * 16;
        in[m->to] = (m->in + m->bytes + 31) / 16 * 16;
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t count = 0;
        for (int pass = 0; pass < 2; pass++) { /* sends or receives first */
            const bool send = pass == (int)(k & 1);
            for (uint32_t i = 0; i < r->count; i++) {
                const message_t *m = &r->message[i];
                if (send && m->from == k)
                    r->list[k][count++] = (alg_message_t){input[k] + m->out, m->bytes, m->to, true, m->bulk};
                if (!send && m->to == k)
                    r->list[k][count++] = (alg_message_t){output[k] + m->in, m->bytes, m->from, false, m->bulk};
            }
        }
        r->call[k] = (alg_call_t){.collective = ALG_SEND_RECV,
                                  .blocks = 1 + (uint32_t)data_below(state, g->shared ? 4 : GPU_BLOCKS),
                                  .threads = 64u << data_below(state, GPU_DOUBLED),
                                  .most_blocks = data_below(state, 3) ? 0 : 1 + (uint32_t)data_below(state, 2),
                                  .early = (uint32_t)data_below(state, g->shared ? 1 : 2),
                                  .messages = r->list[k],
                                  .message_count = count};
    }
}

static void launch(gpu_team_t *g, int k)
{
    GPU(cudaSetDevice(g->device[k]));
    for (int i = 0; i < ROUNDS; i++) {
        if (rounds[i].call[k].message_count)
            GPU((cudaError_t)rounds[i].algorithm->launch_cuda(&g->team[k], &rounds[i].call[k], g->stream[k]));
    }
}

static void draw_rounds(const gpu_team_t *g, uint64_t *state, size_t out[], size_t in[])
{
    for (int k = 0; k < g->nranks; k++)
        out[k] = in[k] = MARGIN;
    for (int i = 0; i < ROUNDS; i++)
        draw_round(g, &rounds[i], state, out, in);
}

/* What must lie in rank k's output, up to `bytes`. */
static void expect(int k, size_t bytes)
{
    memset(expected, POISON, bytes);
    for (int i = 0; i < ROUNDS; i++) {
        for (uint32_t j = 0; j < rounds[i].count; j++) {
            const message_t *m = &rounds[i].message[j];
            if (m->to == (uint32_t)k)
                memcpy(expected + m->in, sent[m->from] + m->out, m->bytes);
        }
    }
}

/* Whether rank k's output is as expected; if not, prints a line. */
static bool is_right(int k, const uint8_t *found, size_t bytes)
{
    if (memcmp(found, expected, bytes) == 0)
        return true;
    for (int i = 0; i < ROUNDS; i++) {
        for (uint32_t j = 0; j < rounds[i].count; j++) {
            const message_t *m = &rounds[i].message[j];
            if (m->to != (uint32_t)k || memcmp(found + m->in, expected + m->in, m->bytes) == 0)
                continue;
            printf("round %d, message %u from %u to %u, %zu bytes: wrong\n", i, j, m->from, m->to, m->bytes);
            return false;
        }
    }
    size_t at = 0;
    while (found[at] == expected[at])
        at++;
    printf("rank %d: byte %zu of its output, outside of the messages, was written\n", k, at);
    return false;
}

static int check(const gpu_team_t *g, const size_t out[], const size_t in[], bool replay)
{
    for (int k = 0; k < g->nranks; k++) {
        const size_t bytes = in[k] + MARGIN;
        expect(k, bytes);
        for (int i = 0; replay && i < REPLAYS - 1; i++) {
            if (!is_right(k, kept[k] + (size_t)i * AREA, bytes))
                return 1;
        }
        GPU(cudaSetDevice(g->device[k]));
        GPU(cudaMemcpy(got, output[k], bytes, cudaMemcpyDeviceToHost));
        if (!is_right(k, got, bytes))
            return 1;
        GPU(cudaMemcpy(got, input[k], out[k] + MARGIN, cudaMemcpyDeviceToHost));
        if (memcmp(got, sent[k], out[k] + MARGIN) != 0) {
            printf("rank %d: its input was written\n", k);
            return 1;
        }
    }
    return 0;
}

/* Rank k's replays, queued behind each other: each finds poison, and what it leaves is kept. */
static void replay_all(gpu_team_t *g, int k, cudaGraphExec_t exec, size_t bytes)
{
    for (int i = 0; i < REPLAYS; i++) {
        if (i > 0) {
            GPU(cudaMemcpyAsync(kept[k] + (size_t)(i - 1) * AREA, output[k], bytes, cudaMemcpyDeviceToHost,
                                g->stream[k]));
            GPU(cudaMemsetAsync(output[k], POISON, bytes, g->stream[k]));
        }
        GPU(cudaGraphLaunch(exec, g->stream[k]));
    }
}

static int batch(gpu_team_t *g, uint64_t *state, bool replay)
{
    size_t out[ALG_MAX_RANKS], in[ALG_MAX_RANKS];
    draw_rounds(g, state, out, in);
    cudaGraphExec_t exec[ALG_MAX_RANKS];
    for (int k = 0; k < g->nranks; k++) {
        GPU(cudaSetDevice(g->device[k]));
        GPU(cudaMemset(output[k], POISON, in[k] + MARGIN));
        GPU(cudaDeviceSynchronize());
        if (replay) {
            cudaGraph_t graph;
            GPU(cudaStreamBeginCapture(g->stream[k], cudaStreamCaptureModeThreadLocal));
            launch(g, k);
            GPU(cudaStreamEndCapture(g->stream[k], &graph));
            GPU(cudaGraphInstantiate(&exec[k], graph, 0));
            GPU(cudaGraphDestroy(graph));
        }
    }
    for (int k = 0; k < g->nranks; k++) {
        GPU(cudaSetDevice(g->device[k]));
        if (replay)
            replay_all(g, k, exec[k], in[k] + MARGIN);
        else
            launch(g, k);
    }
    gpu_team_sync(g);
    for (int k = 0; replay && k < g->nranks; k++)
        GPU(cudaGraphExecDestroy(exec[k]));
    return check(g, out, in, replay);
}

static void abort_all(gpu_team_t *g, uint64_t *state)
{
    size_t out[ALG_MAX_RANKS], in[ALG_MAX_RANKS];
    draw_rounds(g, state, out, in);
    for (int k = 0; k < g->nranks; k++)
        launch(g, k);
    for (int k = 0; k < g->nranks; k++) {
        GPU(cudaSetDevice(g->device[k]));
        for (uint64_t i = data_below(state, MOST_QUERIES); i > 0; i--)
            (void)cudaStreamQuery(g->stream[k]); /* time passes */
        __atomic_store_n(&g->control[k]->abort, 1, __ATOMIC_RELEASE);
        GPU(cudaStreamSynchronize(g->stream[k]));
    }
}

static int team(int nranks, int gpus, alg_memory_t memory, int batches, uint64_t *state)
{
    gpu_team_t g;
    int wrong = 0;
    gpu_team_make(&g, nranks, gpus, memory, GPU_SCRATCH);
    for (int k = 0; k < nranks; k++) {
        GPU(cudaSetDevice(g.device[k]));
        GPU(cudaMalloc((void **)&input[k], AREA));
        GPU(cudaMalloc((void **)&output[k], AREA));
        sent[k] = malloc(AREA);
        fill(sent[k], AREA, state);
        if (batches > 0)
            GPU(cudaMemcpy(input[k], sent[k], AREA, cudaMemcpyHostToDevice));
        if (batches > 0 && !g.shared)
            GPU(cudaHostAlloc((void **)&kept[k], (size_t)(REPLAYS - 1) * AREA, cudaHostAllocPortable));
    }
    for (int i = 0; i < batches && wrong == 0; i++)
        wrong = batch(&g, state, i % 4 == 3 && !g.shared);
    for (int i = batches > 0 ? ABORTS : 1; i <= ABORTS; i++) {
        abort_all(&g, state);
        gpu_team_free(&g);
        gpu_team_make(&g, nranks, gpus, memory, GPU_SCRATCH);
    }
    for (int k = 0; k < nranks; k++) {
        GPU(cudaSetDevice(g.device[k]));
        GPU(cudaFree(input[k]));
        GPU(cudaFree(output[k]));
        if (batches > 0 && !g.shared)
            GPU(cudaFreeHost(kept[k]));
        free(sent[k]);
    }
    gpu_team_free(&g);
    printf("%d ranks on %d GPUs, %s memory: %s\n", nranks, nranks < gpus ? nranks : gpus,
           memory == ALG_MEMORY_PINNED ? "pinned" : "device", wrong ? "wrong" : "right");
    fflush(stdout);
    return wrong;
}

int main(int argc, char **argv)
{
    int gpus = 0, batches = 24, wrong = 0;
    uint64_t seed = (uint64_t)time(NULL);
    gpu_options(argc, argv, &gpus, &batches, &seed);
    gpus = gpu_count_or_skip(gpus, 1);
    got = malloc(AREA);
    expected = malloc(AREA);
    printf("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < ALG_MEMORY_COUNT * (gpu_most_ranks(gpus) - 1) && wrong == 0; i++) {
        if (i % ALG_MEMORY_COUNT == ALG_MEMORY_PINNED && !alg_find(ALG_SEND_RECV, "shm-pairs"))
            continue;
        wrong = team(2 + i / ALG_MEMORY_COUNT, gpus, (alg_memory_t)(i % ALG_MEMORY_COUNT), batches, &seed);
    }
    free(got);
    free(expected);
    return wrong ? 1 : 0;
}
