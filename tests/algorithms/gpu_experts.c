/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatch and combine on GPUs, from one thread: random programs (experts_case.h) of 2 ranks and more, with different
 * grids, several in each team so that rooms are used again; at the end of each team an abort. Usage: gpu_experts [-g
 * GPUs] [-n teams] [-s seed]
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/algorithms/experts_case.h"
#include "tests/algorithms/gpu_team.h"
#include "tests/support/data.h"

static gpu_team_t g_team;
enum { LIMIT_NS = 20000000 };

static void *device_make(int rank, size_t bytes)
{
    void *p;
    GPU(cudaSetDevice(g_team.device[rank]));
    GPU(cudaMalloc(&p, bytes + 1));
    return p;
}

static void device_put(int rank, void *to, const void *from, size_t bytes)
{
    GPU(cudaSetDevice(g_team.device[rank]));
    GPU(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}

static void device_get(int rank, void *to, const void *from, size_t bytes)
{
    GPU(cudaSetDevice(g_team.device[rank]));
    GPU(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

static void device_drop(int rank, void *memory)
{
    GPU(cudaSetDevice(g_team.device[rank]));
    GPU(cudaFree(memory));
}

static const experts_memory_t device_memory = {device_make, device_put, device_get, device_drop};

/* Returns the number of ranks with a fault. */
static int play(const alg_experts_shape_t *shape, experts_program_t *p, experts_rank_t (*ranks)[EXPERTS_CASES],
                uint64_t *state)
{
    uint32_t blocks[ALG_MAX_RANKS];
    int wrong = 0;
    experts_program_draw(p, shape, state);
    for (int r = 0; r < g_team.nranks; r++) {
        /* Ranks that share a GPU must find places side by side. */
        blocks[r] = 1 + (uint32_t)data_below(state, g_team.shared ? 8 : 64);
        for (int i = 0; i < EXPERTS_CASES; i++)
            experts_rank_load(&ranks[r][i], &p->cases[i]);
    }
    for (uint32_t i = 0; i < p->steps; i++) {
        for (int r = 0; r < g_team.nranks; r++) {
            const alg_experts_call_t call = experts_step_call(&p->step[i], ranks[r], blocks[r]);
            GPU(cudaSetDevice(g_team.device[r]));
            GPU((cudaError_t)alg_experts_launch_cuda(&g_team.team[r], shape, &call, g_team.stream[r]));
        }
    }
    gpu_team_sync(&g_team);
    for (int r = 0; r < g_team.nranks; r++) {
        char fault[200];
        if (!experts_program_right(p, ranks[r], fault, sizeof fault)) {
            printf("%s\n", fault);
            wrong++;
        }
    }
    experts_program_free(p);
    return wrong;
}

static void launch(int rank, const alg_experts_shape_t *shape, const experts_rank_t *of, uint32_t blocks,
                   uint32_t phases)
{
    alg_experts_call_t call = of->dispatch;
    call.blocks = blocks;
    call.phases = phases;
    GPU(cudaSetDevice(g_team.device[rank]));
    GPU((cudaError_t)alg_experts_launch_cuda(&g_team.team[rank], shape, &call, g_team.stream[rank]));
}

/* Odd ranks receive when they have sent into all staged rooms, the first room's call last. The others receive at once,
 * so they come to that room again while its last call lies there. Returns the number of faults. */
static int play_late(const alg_experts_shape_t *shape, uint64_t *state)
{
    static experts_case_t cases[ALG_EXPERTS_STAGED + 1];
    static experts_rank_t ranks[ALG_MAX_RANKS][ALG_EXPERTS_STAGED + 1];
    const uint32_t rooms = alg_experts_staged(shape);
    int wrong = 0;
    for (uint32_t i = 0; i <= rooms; i++)
        experts_case_draw(&cases[i], shape, state);
    for (int r = 0; r < g_team.nranks; r++) {
        for (uint32_t i = 0; i <= rooms; i++) {
            experts_rank_make(&ranks[r][i], r, &device_memory, shape);
            experts_rank_load(&ranks[r][i], &cases[i]);
        }
    }
    for (int r = 0; r < g_team.nranks; r++) {
        const uint32_t blocks = 1 + (uint32_t)data_below(state, 8);
        for (uint32_t i = 0; i <= rooms; i++) {
            for (uint32_t k = rooms; r % 2 == 1 && i == rooms && k > 0; k--)
                launch(r, shape, &ranks[r][k - 1], blocks, ALG_EXPERTS_RECEIVE);
            launch(r, shape, &ranks[r][i], blocks, ALG_EXPERTS_SEND);
            if (r % 2 == 0 || i == rooms)
                launch(r, shape, &ranks[r][i], blocks, ALG_EXPERTS_RECEIVE);
        }
    }
    gpu_team_sync(&g_team);
    for (int r = 0; r < g_team.nranks; r++) {
        for (uint32_t i = 0; i <= rooms; i++) {
            char fault[200];
            if (!experts_dispatch_right(&ranks[r][i], &cases[i], fault, sizeof fault)) {
                printf("late, %s\n", fault);
                wrong++;
            }
            experts_rank_free(&ranks[r][i]);
        }
    }
    for (uint32_t i = 0; i <= rooms; i++)
        experts_case_free(&cases[i]);
    return wrong;
}

/* One rank is aborted while it waits to send into a room whose last call its peers have not received. A peer that ends
 * without an error has received that call. The team can make no further call. Returns the number of faults. */
static int play_abort(const alg_experts_shape_t *shape, uint64_t *state)
{
    static experts_case_t cases[ALG_EXPERTS_STAGED + 1];
    static experts_rank_t ranks[ALG_MAX_RANKS][ALG_EXPERTS_STAGED + 1];
    const uint32_t rooms = alg_experts_staged(shape);
    const int victim = (int)data_below(state, (uint64_t)g_team.nranks);
    const uint32_t blocks = 2 + (uint32_t)data_below(state, g_team.shared ? 7 : 24);
    int wrong = 0;
    for (uint32_t i = 0; i <= rooms; i++)
        experts_case_draw(&cases[i], shape, state);
    for (int r = 0; r < g_team.nranks; r++) {
        g_team.team[r].limit = alg_limit(LIMIT_NS, 0);
        for (uint32_t i = 0; i <= rooms; i++) {
            experts_rank_make(&ranks[r][i], r, &device_memory, shape);
            experts_rank_load(&ranks[r][i], &cases[i]);
        }
        for (uint32_t i = 0; i < rooms; i++)
            launch(r, shape, &ranks[r][i], r == victim ? blocks : 4, ALG_EXPERTS_SEND);
    }
    launch(victim, shape, &ranks[victim][0], 4, ALG_EXPERTS_RECEIVE);
    launch(victim, shape, &ranks[victim][rooms], blocks, ALG_EXPERTS_SEND);
    for (uint64_t i = data_below(state, 400); i > 0; i--)
        (void)cudaStreamQuery(g_team.stream[victim]);
    __atomic_store_n(&g_team.control[victim]->abort, 1, __ATOMIC_RELEASE);
    GPU(cudaStreamSynchronize(g_team.stream[victim]));
    for (int r = 0; r < g_team.nranks; r++)
        for (uint32_t i = 0; r != victim && i < rooms; i++)
            launch(r, shape, &ranks[r][i], 4, ALG_EXPERTS_RECEIVE);
    for (int r = 0; r < g_team.nranks; r++) {
        GPU(cudaStreamSynchronize(g_team.stream[r]));
        for (uint32_t i = 0; r != victim && !g_team.control[r]->status && i < rooms; i++) {
            char fault[200];
            if (experts_dispatch_right(&ranks[r][i], &cases[i], fault, sizeof fault))
                continue;
            printf("beside an abort, %s\n", fault);
            wrong++;
        }
    }
    for (uint32_t i = 0; i <= rooms; i++) {
        for (int r = 0; r < g_team.nranks; r++)
            experts_rank_free(&ranks[r][i]);
        experts_case_free(&cases[i]);
    }
    return wrong;
}

static int play_team(int gpus, const alg_experts_shape_t *its_shape, uint64_t *state)
{
    static experts_rank_t ranks[ALG_MAX_RANKS][EXPERTS_CASES];
    const alg_experts_shape_t shape = *its_shape;
    const int nranks = (int)shape.nranks;
    alg_map_t map;
    if (!alg_experts_map(&shape, &map))
        gpu_fail(__FILE__, __LINE__, "alg_experts_map", "refused");
    gpu_team_make_map(&g_team, nranks, gpus, &map);
    for (int r = 0; r < nranks; r++) {
        GPU(cudaSetDevice(g_team.device[r]));
        GPU((cudaError_t)alg_experts_preload_cuda(&shape));
        for (int i = 0; i < EXPERTS_CASES; i++)
            experts_rank_make(&ranks[r][i], r, &device_memory, &shape);
    }
    experts_program_t p = {.sent = 0};
    int wrong = 0;
    for (int i = 0; i < 3 && !wrong; i++)
        wrong = play(&shape, &p, ranks, state);
    if (!wrong)
        wrong = play_late(&shape, state);
    if (!wrong)
        wrong = play_abort(&shape, state);
    for (int r = 0; r < nranks; r++) {
        for (int i = 0; i < EXPERTS_CASES; i++)
            experts_rank_free(&ranks[r][i]);
    }
    gpu_team_free(&g_team);
    return wrong;
}

int main(int argc, char **argv)
{
    int gpus = 0, amount = 60, wrong = 0;
    uint64_t state = 1;
    gpu_options(argc, argv, &gpus, &amount, &state);
    const uint64_t seed = state;
    gpus = gpu_count_or_skip(gpus, 1);
    for (int i = 0; i < amount && !wrong; i++) {
        const int nranks = 2 + (int)data_below(&state, (uint64_t)gpu_most_ranks(gpus) - 1);
        const bool large = i % 4 == 3 && amount >= 20;
        alg_experts_shape_t shape = experts_draw_shape((uint32_t)nranks, large ? 128 : 9, large ? 14336 : 1200, &state);
        if (i % 4 == 1) /* where most calls send sums */
            shape = (alg_experts_shape_t){2, 32, 40, 12, 272, 0};
        if (i == 0 && amount >= 20) /* the largest tables in shared memory */
            shape = (alg_experts_shape_t){2, 64, ALG_EXPERTS_CHOICES / 2 / 8, 8, 16, 0};
        wrong = play_team(gpus, &shape, &state);
        if (wrong)
            printf("team %d of %u ranks is wrong; seed %llu\n", i, shape.nranks, (unsigned long long)seed);
    }
    if (!wrong)
        printf("%d teams, 0 wrong\n", amount);
    return wrong > 0;
}
