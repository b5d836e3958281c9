/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_scratch_test.c - scratch on GPUs: both kinds of memory, ranks as processes and as threads, one GPU a rank or all
 * ranks on one. Without a GPU it is skipped, with exit status 77.
 *
 * CUDA does not survive a fork, so the parent never uses it: each case runs in
 * children of its own.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "team.h"

enum { SCRATCH_BYTES = 4 << 20, MOST_GPUS = 8 };

#define CUDA_CHECK(call)                                                     \
    do {                                                                     \
        cudaError_t result_ = (call);                                        \
        if (result_ != cudaSuccess)                                          \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(result_)); \
        CHECK(result_ == cudaSuccess);                                       \
    } while (0)

typedef struct gpus {
    int count;
    char reason[128];
} gpus_t;

static int count_gpus(uint32_t rank, uint32_t nranks, void *argument)
{
    gpus_t *gpus = argument;
    (void)rank, (void)nranks;
    cudaError_t result = cudaGetDeviceCount(&gpus->count);
    if (result != cudaSuccess) {
        gpus->count = 0;
        snprintf(gpus->reason, sizeof gpus->reason, "%s", cudaGetErrorString(result));
    }
    return 0;
}

/* Check that the set-up has left the thread's state unchanged. */
static int check_guest(int device)
{
    int now = -1;
    CUDA_CHECK(cudaGetDevice(&now));
    CHECK(now == device);
    CUDA_CHECK(cudaPeekAtLastError());
    return 0;
}

static bool all_bytes(const uint8_t *at, size_t size, int value)
{
    for (size_t i = 0; i < size; i++)
        if (at[i] != value)
            return false;
    return true;
}

static int check_armed(alg_scratch_t *scratch, const alg_map_t *map)
{
    const alg_team_t *team = alg_scratch_team(scratch);
    size_t end = map->flags_offset;
    uint8_t *copy = malloc(map->total_bytes);
    CHECK(copy);
    CUDA_CHECK(cudaMemcpy(copy, team->scratch[team->rank], map->total_bytes, cudaMemcpyDeviceToHost));
    CHECK(all_bytes(copy, map->half_offset, 0));
    CHECK(all_bytes(copy + map->half_offset, end - map->half_offset, 0xff));
    CHECK(all_bytes(copy + end, map->total_bytes - end, 0));
    free(copy);
    CHECK(alg_scratch_control(scratch)->abort == 0 && alg_scratch_control(scratch)->status == 0);
    return 0;
}

/* Write a word to every peer, check the peers' words, release the scratch, and take it again, armed. */
static int build_twice(uint32_t rank, uint32_t nranks, void *argument)
{
    team_plan_t plan = *(const team_plan_t *)argument;
    int device = (int)rank % plan.devices;
    alg_scratch_t *scratch;
    bool reused;
    uint64_t words[ALG_MAX_RANKS];
    CUDA_CHECK(cudaSetDevice(device));
    CUDA_CHECK(cudaFree(NULL));
    CHECK(team_build(&plan, rank, nranks, &scratch, &reused) == 0);
    CHECK(!reused);
    CHECK(check_guest(device) == 0);
    CHECK(check_armed(scratch, &plan.map) == 0);
    CHECK(team_meet(&plan, "armed everywhere", rank, nranks) == 0);
    alg_team_t *team = alg_scratch_team(scratch);
    for (uint32_t peer = 0; peer < nranks; peer++) {
        uint64_t word = rank * 100 + peer;
        uint8_t *at = team->scratch[peer] + plan.map.half_offset + rank * sizeof word;
        CUDA_CHECK(cudaMemcpy(at, &word, sizeof word, cudaMemcpyHostToDevice));
    }
    CUDA_CHECK(cudaDeviceSynchronize());
    CHECK(team_meet(&plan, "written everywhere", rank, nranks) == 0);
    CUDA_CHECK(cudaMemcpy(words, team->scratch[rank] + plan.map.half_offset, sizeof words, cudaMemcpyDeviceToHost));
    for (uint32_t peer = 0; peer < nranks; peer++)
        CHECK(words[peer] == peer * 100 + rank);
    CHECK(team_meet(&plan, "read everywhere", rank, nranks) == 0);
    alg_scratch_release(scratch, true);
    CHECK(team_meet(&plan, "given back", rank, nranks) == 0);
    plan.key.word[0]++;
    plan.id++;
    CHECK(team_build(&plan, rank, nranks, &scratch, &reused) == 0);
    CHECK(reused);
    CHECK(check_armed(scratch, &plan.map) == 0);
    CHECK(team_meet(&plan, "checked", rank, nranks) == 0);
    alg_scratch_release(scratch, false);
    alg_scratch_reap();
    CHECK(check_guest(device) == 0);
    return 0;
}

/* The same with threads, in a process of their own, since the parent must not use CUDA. */
static int build_twice_in_threads(uint32_t rank, uint32_t nranks, void *argument)
{
    (void)rank;
    CHECK(run_threads(nranks, build_twice, argument) == 0);
    return 0;
}

/* Device memory and the number of descriptors are constant over many set-ups and releases of a scratch. */
static int live_often(uint32_t rank, uint32_t nranks, void *argument)
{
    team_plan_t plan = *(const team_plan_t *)argument;
    size_t first = 0, last = 0, total;
    int descriptors = 0;
    CUDA_CHECK(cudaSetDevice((int)rank % plan.devices));
    for (int cycle = 0; cycle < 60; cycle++) {
        alg_scratch_t *scratch;
        bool reused;
        plan.key.word[0]++;
        plan.id++;
        CHECK(team_build(&plan, rank, nranks, &scratch, &reused) == 0);
        CHECK(team_meet(&plan, "built", rank, nranks) == 0);
        alg_scratch_release(scratch, cycle % 3 != 0);
        alg_scratch_reap(); /* releases the peers' memory ... */
        CHECK(team_meet(&plan, "given back", rank, nranks) == 0);
        alg_scratch_reap(); /* ... and frees its own, which they have released */
        if (cycle != 15 && cycle != 57)
            continue; /* both multiples of 3: nothing is idle */
        CUDA_CHECK(cudaMemGetInfo(cycle == 15 ? &first : &last, &total));
        if (cycle == 15)
            descriptors = open_descriptors();
        else
            CHECK(open_descriptors() <= descriptors + 4); /* the driver uses some itself; 42 lives would leak more */
        CHECK(team_meet(&plan, "measured", rank, nranks) == 0);
    }
    alg_scratch_pool_trim();
    CHECK(last + SCRATCH_BYTES > first);
    return 0;
}

/* A set-up must not break another thread's capture in the strictest mode. */
static void *build_beside(void *argument)
{
    const team_plan_t *plan = argument;
    alg_scratch_t *scratch;
    bool reused;
    if (team_build(plan, 0, 1, &scratch, &reused) != 0)
        return argument;
    alg_scratch_release(scratch, false);
    alg_scratch_reap();
    return NULL;
}

static int capture_undisturbed(uint32_t rank, uint32_t nranks, void *argument)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    pthread_t thread;
    void *failed = argument;
    void *buffer;
    (void)rank, (void)nranks;
    CUDA_CHECK(cudaMalloc(&buffer, 4096));
    CUDA_CHECK(cudaStreamCreate(&stream));
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CUDA_CHECK(cudaMemsetAsync(buffer, 0, 4096, stream));
    CHECK(pthread_create(&thread, NULL, build_beside, argument) == 0);
    pthread_join(thread, &failed);
    CHECK(failed == NULL);
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    CUDA_CHECK(cudaGraphDestroy(graph));
    CUDA_CHECK(cudaStreamDestroy(stream));
    CUDA_CHECK(cudaFree(buffer));
    return 0;
}

static team_plan_t new_plan(net_memory_kind_t kind, int devices)
{
    team_plan_t plan = {.key = random_key(), .device = ALG_DEVICE_CUDA, .kind = kind, .devices = devices};
    if (!alg_map_init(&plan.map, SCRATCH_BYTES))
        abort();
    plan.id = plan.key.word[0] | 1;
    memcpy(plan.set.hash, plan.key.word, sizeof plan.set.hash);
    return plan;
}

static int report(const char *what, const char *kind, uint32_t nranks, int devices, int failed)
{
    printf("%s %s, %u ranks on %d GPUs: %s\n", kind, what, nranks, devices, failed ? "FAILED" : "ok");
    return failed != 0;
}

static const char *const names[NET_MEMORY_KINDS] = {
#define NET_CPU_MEMORY(kind, name, ...)
#define NET_CUDA_MEMORY(kind, name, ...) [NET_MEMORY_##kind] = #kind,
#include "transport/memory.def"
};

static int run_kind(net_memory_kind_t kind, uint32_t nranks, int devices)
{
    const char *name = names[kind];
    int failed = 0;
    team_plan_t plan = new_plan(kind, devices);
    failed += report("processes", name, nranks, devices, run_processes(nranks, build_twice, &plan));
    plan = new_plan(kind, devices);
    failed +=
        report("threads", name, nranks, devices, !wait_child(start_child(build_twice_in_threads, 0, nranks, &plan)));
    plan = new_plan(kind, devices);
    failed += report("many lives", name, nranks, devices, run_processes(nranks, live_often, &plan));
    plan = new_plan(kind, devices);
    failed += report("beside a capture", name, 1, 1, run_processes(1, capture_undisturbed, &plan));
    return failed;
}

int main(void)
{
    gpus_t *gpus = mmap(NULL, sizeof *gpus, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (gpus == MAP_FAILED || run_processes(1, count_gpus, gpus) != 0)
        return 1;
    if (gpus->count == 0) {
        printf("skipped: no GPU (%s)\n", gpus->reason);
        return 77;
    }
    int devices = gpus->count < MOST_GPUS ? gpus->count : MOST_GPUS;
    uint32_t nranks = devices > 1 ? (uint32_t)devices : 4;
    int failed = 0;
    for (net_memory_kind_t kind = NET_CPU_KINDS; kind < NET_MEMORY_KINDS; kind++) {
        if (net_memory_facts[kind].pinned)
            continue;
        failed += run_kind(kind, nranks, devices);
        /* Several ranks on one GPU, though there are more. */
        if (devices > 1)
            failed += run_kind(kind, 2, 1);
    }
    return failed ? 1 : 0;
}
