/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Broadcasts and reduces of several roots, and short all-reduces, reduce-scatters, all-gathers and all-to-alls, on
 * GPUs, from one thread: lists of them, which each rank makes in one kernel or in several, with other collectives
 * between, several lists queued behind each other, eagerly and replayed. Every element is compared after each replay,
 * and the bytes around the outputs, too. Usage: gpu_parts [-g GPUs] [-n batches] [-s seed]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/algorithms/gpu_draw.h"
#include "tests/algorithms/gpu_team.h"
#include "tests/support/collective.h"

enum { LISTS = 5, MOST = 40, AREA = 24 << 20, LONG_BYTES = GPU_BYTES / 4 * 3 };
/* MARGIN: bytes before the first buffer and behind the last one. */
enum { REPLAYS = 3, POISON = 0xa5, MARGIN = 4096 };
/* One in which some of the lists' calls are short (places.h). */
#ifdef EMULATED
enum { SCRATCH = 8 << 20 };
#else
enum { SCRATCH = 80 << 20 };
#endif

typedef struct list {
    coll_t k[MOST + 1];
    uint32_t count;
    uint8_t *in[MOST + 1][ALG_MAX_RANKS], *out[MOST + 1][ALG_MAX_RANKS];
    uint32_t parts[MOST][ALG_MAX_RANKS]; /* that the rank makes in one, from this call on */
    uint32_t blocks[ALG_MAX_RANKS], threads[ALG_MAX_RANKS], most_blocks[ALG_MAX_RANKS];
    bool other; /* an all-gather comes behind it: call number `count` */
} list_t;

static uint8_t *area[ALG_MAX_RANKS];  /* on the GPUs: inputs and outputs */
static uint8_t *image[ALG_MAX_RANKS]; /* on the host: what lies there before a launch */
static uint8_t *kept[ALG_MAX_RANKS];  /* pinned: what all replays but the last have left there */
static uint8_t *host;
static list_t lists[LISTS];

static size_t place(size_t used[ALG_MAX_RANKS], uint32_t rank, size_t bytes, size_t width, uint64_t *state)
{
    const size_t at = used[rank] + (data_below(state, 3) ? 0 : data_below(state, 16 / width) * width);
    used[rank] = (at + bytes + 31) / 16 * 16;
    return at;
}

/* Draw a call of the list. False: no room for its buffers. */
static bool draw_call(const gpu_team_t *g, list_t *l, coll_t k, bool in_place, size_t used[ALG_MAX_RANKS],
                      uint64_t *state)
{
    const size_t width = alg_type_bytes((alg_type_t)k.c.type);
    const size_t bytes = k.c.count * width * alg_collective_blocks(k.collective, (uint32_t)g->nranks);
    for (int r = 0; r < g->nranks; r++) {
        if (used[r] + 2 * bytes + 128 > AREA - MARGIN)
            return false;
    }
    in_place = in_place && k.collective != ALG_ALL_TO_ALL && !alg_collective_rooted(k.collective);
    for (uint32_t r = 0; r < (uint32_t)g->nranks; r++) {
        uint8_t **in = &l->in[l->count][r], **out = &l->out[l->count][r];
        *out = area[r] + place(used, r, bytes, width, state);
        *in = in_place ? *out : area[r] + place(used, r, bytes, width, state);
        const ptrdiff_t at = in_place ? coll_in_place_at(&k, r) * (ptrdiff_t)width : 0;
        *in += at > 0 ? at : 0;
        *out -= at < 0 ? at : 0;
    }
    l->k[l->count++] = k;
    return true;
}

static const alg_algorithm_t *algorithm_of(alg_collective_t collective)
{
    return alg_find(collective, collective == ALG_ALL_REDUCE ? "oneshot" : "push");
}

/* One that this build has: a mutant may lack some. */
static alg_collective_t draw_collective(uint64_t *state)
{
    static const alg_collective_t all[] = {ALG_BROADCAST,      ALG_REDUCE,     ALG_ALL_REDUCE,
                                           ALG_REDUCE_SCATTER, ALG_ALL_GATHER, ALG_ALL_TO_ALL};
    for (;;) {
        const alg_collective_t collective = all[data_below(state, sizeof all / sizeof all[0])];
        if (algorithm_of(collective))
            return collective;
    }
}

/* Whether call i may join the kernel of the call before it, as part number `parts`. */
static bool may_join(const gpu_team_t *g, const list_t *l, uint32_t i, uint32_t parts)
{
    if (alg_collective_rooted(l->k[i].collective))
        return l->k[i].root > l->k[i - 1].root;
    const size_t width = alg_type_bytes((alg_type_t)l->k[i].c.type);
    const size_t most = algorithm_of(l->k[i].collective)->part_bytes(&g->team[0], NULL);
    return parts < ALG_MOST_PARTS && l->k[i].c.count * width <= most && l->k[i - 1].c.count * width <= most;
}

static void draw_list(const gpu_team_t *g, list_t *l, bool replay, size_t used[ALG_MAX_RANKS], uint64_t *state)
{
    const uint32_t n = (uint32_t)g->nranks;
    coll_t k = {.collective = draw_collective(state),
                .c = {.type = gpu_draw_type(state),
                      .op = (ref_op_t)data_below(state, REF_PREMUL),
                      .kind = (data_kind_t)data_below(state, DATA_KINDS),
                      .nranks = g->nranks}};
    const size_t width = alg_type_bytes((alg_type_t)k.c.type);
    const size_t longest = data_below(state, 4) ? 5000 : data_below(state, 4) ? LONG_BYTES / 16 : LONG_BYTES / n;
    const size_t most = longest / width;
    const bool whole = data_below(state, 2), all = !alg_collective_rooted(k.collective);
    const bool any = all || data_below(state, 4) == 0;
    *l = (list_t){0};
    const bool other = data_below(state, 3) == 0;
    for (uint32_t i = 0; i < (any ? 1 + data_below(state, all ? MOST : 2 * ALG_MAX_RANKS) : n); i++) {
        k.root = all ? 0 : any ? (uint32_t)data_below(state, n) : i;
        k.c.count = 1 + data_below(state, all && data_below(state, 4) ? 300 : most);
        if (whole)
            k.c.count = (k.c.count + 15) / 16 * 16;
        k.c.seed = data_random(state);
        if (data_below(state, 5) && !draw_call(g, l, k, !replay && data_below(state, 3) == 0, used, state))
            break;
    }
    for (uint32_t r = 0; r < n; r++) {
        const uint32_t together = (uint32_t)data_below(state, 3); /* all, none, some */
        l->blocks[r] = 1 + (uint32_t)data_below(state, g->shared && GPU_BLOCKS > 12 ? 12 : GPU_BLOCKS);
        l->threads[r] = 32u << data_below(state, GPU_DOUBLED + 1);
        l->most_blocks[r] = data_below(state, 3) ? 0 : 1 + (uint32_t)data_below(state, 16);
        for (uint32_t at = 0; at < l->count; at += l->parts[at][r]) {
            uint32_t *parts = &l->parts[at][r];
            for (*parts = 1; at + *parts < l->count && may_join(g, l, at + *parts, *parts) &&
                             (together == 0 || (together == 2 && data_below(state, 8)));)
                ++*parts;
        }
    }
    k = (coll_t){.collective = ALG_ALL_GATHER,
                 .c = {.type = ncclUint8, .count = 1000, .seed = data_random(state), .nranks = g->nranks}};
    l->other = other && algorithm_of(ALG_ALL_GATHER) && draw_call(g, l, k, false, used, state);
    l->count -= l->other;
}

static void launch_list(gpu_team_t *g, const list_t *l, uint32_t r)
{
    for (uint32_t at = 0; at < l->count; at += l->parts[at][r]) {
        const coll_t *k = &l->k[at];
        alg_part_t part[MOST];
        for (uint32_t i = 0; i < l->parts[at][r]; i++)
            part[i] = (alg_part_t){k[i].root, l->in[at + i][r], l->out[at + i][r], k[i].c.count};
        const alg_call_t call = {.collective = k->collective,
                                 .root = k->root,
                                 .input = part[0].input,
                                 .output = part[0].output,
                                 .count = k->c.count,
                                 .type = (alg_type_t)k->c.type,
                                 .op = (alg_op_t)k->c.op,
                                 .blocks = l->blocks[r],
                                 .threads = l->threads[r],
                                 .most_blocks = l->most_blocks[r],
                                 .early = !g->shared,
                                 .part_count = l->parts[at][r] > 1 ? l->parts[at][r] : 0,
                                 .parts = part};
        GPU((cudaError_t)algorithm_of(k->collective)->launch_cuda(&g->team[r], &call, g->stream[r]));
    }
    if (l->other) {
        const alg_call_t call = {.collective = ALG_ALL_GATHER,
                                 .input = l->in[l->count][r],
                                 .output = l->out[l->count][r],
                                 .count = l->k[l->count].c.count,
                                 .type = ALG_UINT8,
                                 .blocks = 2,
                                 .threads = 64};
        GPU((cudaError_t)algorithm_of(ALG_ALL_GATHER)->launch_cuda(&g->team[r], &call, g->stream[r]));
    }
}

static void launch(gpu_team_t *g, uint32_t r)
{
    GPU(cudaSetDevice(g->device[r]));
    for (int i = 0; i < LISTS; i++)
        launch_list(g, &lists[i], r);
}

static uint32_t calls_of(const list_t *l)
{
    return l->count + l->other;
}

static void load(gpu_team_t *g, const size_t used[ALG_MAX_RANKS])
{
    for (uint32_t r = 0; r < (uint32_t)g->nranks; r++) {
        memset(image[r], POISON, used[r] + MARGIN);
        for (int i = 0; i < LISTS; i++) {
            for (uint32_t at = 0; at < calls_of(&lists[i]); at++) {
                const coll_t *k = &lists[i].k[at];
                if (coll_input_count(k, r) > 0)
                    coll_fill(k, r, image[r] + (lists[i].in[at][r] - area[r]));
            }
        }
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaMemcpy(area[r], image[r], used[r] + MARGIN, cudaMemcpyHostToDevice));
        GPU(cudaDeviceSynchronize());
    }
}

/* Whether what rank r has left in its area is right; if not, prints a line. Outputs are put into the image, which is
 * then what all bytes must be. */
static bool is_right(uint32_t r, const uint8_t *left, size_t bytes)
{
    for (int i = 0; i < LISTS; i++) {
        for (uint32_t at = 0; at < calls_of(&lists[i]); at++) {
            const coll_t *k = &lists[i].k[at];
            const size_t count = coll_output_count(k, r), place = (size_t)(lists[i].out[at][r] - area[r]);
            char fault[160] = "";
            if (count > 0 && !coll_right(k, r, left + place, fault, sizeof fault)) {
                printf("rank %u, list %d, %s %s %s, call %u, root %u: %s\n", r, i, alg_collective_name(k->collective),
                       ref_type_name(k->c.type), ref_op_name(k->c.op), at, k->root, fault);
                return false;
            }
            if (count > 0)
                memcpy(image[r] + place, left + place, count * alg_type_bytes((alg_type_t)k->c.type));
        }
    }
    if (memcmp(left, image[r], bytes) == 0)
        return true;
    size_t at = 0;
    while (left[at] == image[r][at])
        at++;
    printf("rank %u: offset %zu, outside of the outputs, was written\n", r, at);
    return false;
}

static int check(const gpu_team_t *g, const size_t used[ALG_MAX_RANKS], bool replay)
{
    for (uint32_t r = 0; r < (uint32_t)g->nranks; r++) {
        const size_t bytes = used[r] + MARGIN;
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaMemcpy(host, area[r], bytes, cudaMemcpyDeviceToHost));
        if (!is_right(r, host, bytes))
            return 1;
        for (int i = 0; replay && i < REPLAYS - 1; i++) {
            const uint8_t *left = kept[r] + (size_t)i * AREA;
            if (memcmp(left, host, bytes) != 0 && !is_right(r, left, bytes))
                return 1;
        }
    }
    return 0;
}

/* Queue rank r's replay number i. It finds poison; what the one before has left is kept. */
static void replay_once(gpu_team_t *g, uint32_t r, int i, cudaGraphExec_t exec, size_t bytes)
{
    if (i > 0)
        GPU(cudaMemcpyAsync(kept[r] + (size_t)(i - 1) * AREA, area[r], bytes, cudaMemcpyDeviceToHost, g->stream[r]));
    for (int l = 0; i > 0 && l < LISTS; l++) {
        for (uint32_t at = 0; at < calls_of(&lists[l]); at++) {
            const coll_t *k = &lists[l].k[at];
            GPU(cudaMemsetAsync(lists[l].out[at][r], POISON,
                                coll_output_count(k, r) * alg_type_bytes((alg_type_t)k->c.type), g->stream[r]));
        }
    }
    GPU(cudaGraphLaunch(exec, g->stream[r]));
}

static int batch(gpu_team_t *g, uint64_t *state, bool replay)
{
    size_t used[ALG_MAX_RANKS];
    cudaGraphExec_t exec[ALG_MAX_RANKS];
    for (int r = 0; r < g->nranks; r++)
        used[r] = MARGIN;
    for (int i = 0; i < LISTS; i++)
        draw_list(g, &lists[i], replay, used, state);
    load(g, used);
    for (int r = 0; replay && r < g->nranks; r++) {
        cudaGraph_t graph;
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaStreamBeginCapture(g->stream[r], cudaStreamCaptureModeThreadLocal));
        launch(g, (uint32_t)r);
        GPU(cudaStreamEndCapture(g->stream[r], &graph));
        GPU(cudaGraphInstantiate(&exec[r], graph, 0));
        GPU(cudaGraphDestroy(graph));
    }
    for (int i = 0; i < (replay ? REPLAYS : 1); i++) {
        for (int r = 0; r < g->nranks; r++) {
            GPU(cudaSetDevice(g->device[r]));
            if (replay)
                replay_once(g, (uint32_t)r, i, exec[r], used[r] + MARGIN);
            else
                launch(g, (uint32_t)r);
        }
    }
    gpu_team_sync(g);
    for (int r = 0; replay && r < g->nranks; r++)
        GPU(cudaGraphExecDestroy(exec[r]));
    return check(g, used, replay);
}

static int team(int nranks, int gpus, int batches, uint64_t *state)
{
    gpu_team_t g;
    int wrong = 0;
    gpu_team_make(&g, nranks, gpus, ALG_MEMORY_PEER, SCRATCH);
    for (int r = 0; r < nranks; r++) {
        GPU(cudaSetDevice(g.device[r]));
        GPU(cudaMalloc((void **)&area[r], AREA));
        if (!g.shared)
            GPU(cudaHostAlloc((void **)&kept[r], (size_t)(REPLAYS - 1) * AREA, cudaHostAllocPortable));
        image[r] = malloc(AREA);
    }
    for (int i = 0; i < batches && wrong == 0; i++)
        wrong = batch(&g, state, i % 4 == 3 && !g.shared);
    for (int r = 0; r < nranks; r++) {
        GPU(cudaSetDevice(g.device[r]));
        GPU(cudaFree(area[r]));
        if (!g.shared)
            GPU(cudaFreeHost(kept[r]));
        free(image[r]);
    }
    gpu_team_free(&g);
    printf("%d ranks on %d GPUs: %s\n", nranks, nranks < gpus ? nranks : gpus, wrong ? "wrong" : "right");
    fflush(stdout);
    return wrong;
}

/* ---- The time limit ---------------------------------------------------------------------- */

enum { LIMIT_MS = 100, LISTED = 4 };

static uint64_t now_ns(void)
{
#ifdef EMULATED
    return emulator_now_ns();
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

/* Milliseconds until rank 0 gives up a list of all-reduces whose peer never comes. */
static uint64_t patience_ms(uint32_t count, int gpus)
{
    gpu_team_t g;
    gpu_team_make(&g, 2, gpus, ALG_MEMORY_PEER, 80u << 20);
    GPU(cudaSetDevice(g.device[0]));
    GPU(cudaMalloc((void **)&area[0], 4096));
    g.team[0].limit = alg_limit(LIMIT_MS * UINT64_C(1000000), 0);
    alg_part_t part[LISTED];
    for (uint32_t i = 0; i < count; i++)
        part[i] = (alg_part_t){0, area[0] + 64 * i, area[0] + 2048 + 64 * i, 4};
    const alg_call_t call = {.collective = ALG_ALL_REDUCE,
                             .input = part[0].input,
                             .output = part[0].output,
                             .count = 4,
                             .type = ALG_FLOAT32,
                             .op = ALG_SUM,
                             .blocks = 1,
                             .threads = 32,
                             .part_count = count > 1 ? count : 0,
                             .parts = part};
    const uint64_t begin = now_ns();
    GPU((cudaError_t)algorithm_of(ALG_ALL_REDUCE)->launch_cuda(&g.team[0], &call, g.stream[0]));
    GPU(cudaStreamSynchronize(g.stream[0]));
    const uint64_t ms = (now_ns() - begin) / 1000000;
    if (g.control[0]->status != ALG_STATUS_TIMEOUT)
        gpu_fail(__FILE__, __LINE__, "a list whose peer never comes", "did not run into its time limit");
    GPU(cudaFree(area[0]));
    gpu_team_free(&g);
    return ms;
}

/* The time limit for a list: the sum of its calls' limits, as the peer may make the calls one by one, each within its
 * own limit. */
static int patience(int gpus)
{
    const uint64_t one = patience_ms(1, gpus), all = patience_ms(LISTED, gpus);
    const bool wrong = one < LIMIT_MS || all < LISTED * LIMIT_MS;
    printf("a call waits for %llu ms, a list of %d for %llu: %s\n", (unsigned long long)one, LISTED,
           (unsigned long long)all, wrong ? "wrong" : "right");
    return wrong;
}

int main(int argc, char **argv)
{
    int gpus = 0, batches = 24, wrong = 0;
    uint64_t seed = (uint64_t)time(NULL);
    gpu_options(argc, argv, &gpus, &batches, &seed);
    alarm(GPU_SECONDS);
    gpus = gpu_count_or_skip(gpus, 1);
    host = malloc(AREA);
    printf("seed %llu\n", (unsigned long long)seed);
    for (int n = 2; n <= ALG_MAX_RANKS && wrong == 0; n++)
        wrong = team(n, gpus, n > gpus ? batches / 3 + 1 : batches, &seed);
    if (wrong == 0 && algorithm_of(ALG_ALL_REDUCE))
        wrong = patience(gpus);
    free(host);
    return wrong ? 1 : 0;
}
