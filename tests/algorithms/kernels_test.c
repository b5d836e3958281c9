/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every algorithm of every collective on the CPU device: ranks are threads, scratch is plain memory, and the shim is
 * not linked. So a failure here is one of a protocol, and the thread sanitizer sees every access.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "algorithms/algorithm.h"
#include "place.h"
#include "tests/support/collective.h"
#include "tests/support/scaled.h"
#include "world.h"

enum { MAX_BLOCKS = 3, SCRATCH = 8 << 20 };

/* One rank's way through a sequence of calls that all ranks draw from the same seed. */
typedef struct actor {
    world_t *world;
    uint32_t rank;
    uint64_t seed;
    uint32_t calls;
    size_t most_bytes;
    int algorithm; /* registry index, or -1: drawn anew for each call */
    uint32_t failures;
    char fault[300];
} actor_t;

static coll_t draw_case(uint64_t *state, const alg_algorithm_t *algorithm, uint32_t nranks)
{
    coll_t k = {.collective = algorithm->collective, .root = (uint32_t)data_below(state, nranks)};
    k.c = (data_case_t){.type = world_draw_type(state),
                        .op = (ref_op_t)data_below(state, REF_OPS),
                        .kind = (data_kind_t)data_below(state, DATA_KINDS),
                        .nranks = (int)nranks};
    return k;
}

/* messages_test.c has these. */
static bool is_of_messages(const alg_algorithm_t *algorithm)
{
    return algorithm->collective == ALG_SEND_RECV;
}

static void actor_call(actor_t *a, uint64_t *state)
{
    const alg_algorithm_t *algorithm;
    do
        algorithm = alg_registry[a->algorithm < 0 ? data_below(state, alg_registry_count) : (uint64_t)a->algorithm];
    while (algorithm->memory != a->world->map.memory);
    if (is_of_messages(algorithm))
        return;
    const uint32_t nranks = a->world->nranks;
    coll_t k = draw_case(state, algorithm, nranks);
    const size_t width = alg_type_bytes((alg_type_t)k.c.type);
    const uint32_t parts = alg_collective_blocks(k.collective, nranks);
    size_t most = algorithm->max_bytes(&a->world->map, nranks, (alg_type_t)k.c.type);
    most = (most < a->most_bytes ? most : a->most_bytes) / parts;
    if (most < width) {
        snprintf(a->fault, sizeof a->fault, "%s: the scratch is too small", algorithm->name);
        a->failures++;
        return;
    }
    k.c.count = place_draw_count(state, most / width);
    k.c.seed = data_random(state);
    const bool in_place = data_below(state, 2) && k.collective != ALG_ALL_TO_ALL;
    const uint32_t blocks = 1 + (uint32_t)data_below(state, MAX_BLOCKS);
    uint64_t local = k.c.seed + a->rank; /* may differ between ranks: alignment, the room for blocks */
    place_t b;
    if (!place_make(&b, &k, a->rank, in_place, &local)) {
        snprintf(a->fault, sizeof a->fault, "no memory");
        a->failures++;
        return;
    }
    alg_call_t call = {.collective = k.collective,
                       .root = k.root,
                       .input = b.from,
                       .output = b.to,
                       .count = k.c.count,
                       .type = (alg_type_t)k.c.type,
                       .op = (alg_op_t)k.c.op,
                       .blocks = blocks,
                       .threads = 1,
                       .most_blocks = (uint32_t)data_below(&local, MAX_BLOCKS + 1),
                       .sure_blocks = k.c.seed % 8 == 0 ? 1 + (uint32_t)(k.c.seed / 8 % 2) : 0};
    data_scalar(&k.c, (int)a->rank, &call.scalar_bits);
    if (data_below(&local, 8) == 0)
        usleep((useconds_t)data_below(&local, 400)); /* this rank comes late */
    if (algorithm->unaligned_blocks)
        call.blocks = 1 + (uint32_t)data_below(&local, MAX_BLOCKS);
    algorithm->shape(k.c.count * width * parts, nranks, &call.blocks, &call.threads);
    call.threads = 1;
    const alg_team_t team = world_team(a->world, a->rank);
    const int status = algorithm->launch_cpu(&team, &call);
    char fault[120] = "";
    const bool right = status == ALG_STATUS_OK && place_right(&b, &k, a->rank, fault, sizeof fault);
    if (!right && a->failures++ == 0)
        snprintf(a->fault, sizeof a->fault, "%s %s %s %s count %zu root %u in place %d blocks %u of %u: status %d %s",
                 alg_collective_name(k.collective), algorithm->name, ref_type_name(k.c.type), ref_op_name(k.c.op),
                 k.c.count, k.root, in_place, call.most_blocks, call.blocks, status, fault);
    place_free(&b);
}

static void *actor_main(void *argument)
{
    actor_t *a = argument;
    uint64_t state = a->seed;
    for (uint32_t i = 0; i < a->calls && a->failures == 0; i++)
        actor_call(a, &state);
    if (a->failures)
        world_stop(a->world);
    return NULL;
}

static void play(world_t *w, uint64_t seed, uint32_t calls, size_t most_bytes, int algorithm)
{
    actor_t actor[ALG_MAX_RANKS];
    pthread_t thread[ALG_MAX_RANKS];
    for (uint32_t r = 0; r < w->nranks; r++) {
        actor[r] = (actor_t){
            .world = w, .rank = r, .seed = seed, .calls = calls, .most_bytes = most_bytes, .algorithm = algorithm};
        assert_int_equal(pthread_create(&thread[r], NULL, actor_main, &actor[r]), 0);
    }
    uint32_t failures = 0;
    for (uint32_t r = 0; r < w->nranks; r++) {
        pthread_join(thread[r], NULL);
        if (actor[r].failures)
            print_error("seed %llu, %u ranks, rank %u: %s\n", (unsigned long long)seed, w->nranks, r, actor[r].fault);
        failures += actor[r].failures;
    }
    assert_int_equal(failures, 0);
}

/* Whether the build has algorithms of this memory; a mutant (broken.cmake) may have only one algorithm. */
static bool has_memory(alg_memory_t memory)
{
    bool any = false;
    for (uint32_t i = 0; i < alg_registry_count; i++)
        any = any || alg_registry[i]->memory == memory;
    return any;
}

/* An all-reduce algorithm, or this one. */
#define MOVING "all-gather by bulk"

static const alg_algorithm_t *find(const char *name)
{
    return strcmp(name, MOVING) == 0 ? alg_find(ALG_ALL_GATHER, "bulk") : alg_find(ALG_ALL_REDUCE, name);
}

static bool has(const char *algorithm)
{
#ifdef PART
    return find(algorithm) != NULL;
#else
    (void)algorithm;
    return true;
#endif
}

/* Of its names, since a build for one algorithm has it at another place of the registry. */
static uint64_t seed_of(const alg_algorithm_t *algorithm, uint32_t nranks)
{
    const char *collective = alg_collective_name(algorithm->collective);
    const uint64_t seed = data_hash(40 + nranks, collective, strlen(collective)); /* mutants fail with 40 */
    return data_hash(seed, algorithm->name, strlen(algorithm->name));
}

/* Each algorithm gives right results on a scratch of its own, so a failure names the algorithm. */
static void each_algorithm(void **state)
{
    (void)state;
    for (int algorithm = 0; algorithm < (int)alg_registry_count; algorithm++) {
        const alg_memory_t memory = alg_registry[algorithm]->memory;
        if (is_of_messages(alg_registry[algorithm]))
            continue;
        for (uint32_t n = 2; n <= ALG_MAX_RANKS && memory < ALG_MEMORY_COUNT; n++) { /* several nodes: relay_test.c */
            /* Under a sanitizer 5 and 8, under the thread sanitizer 5 stands for these: one kernel serves them. */
            if ((scaled(2) < 2 && (n == 6 || n == 7)) || (SEES_THREADS && (n == 3 || n == 8)))
                continue;
            world_t *w = world_make(n, memory, world_room(alg_registry[algorithm], n, SCRATCH));
            play(w, seed_of(alg_registry[algorithm], n), n <= 4 ? 4 + (uint32_t)scaled(20) : 2 + (uint32_t)scaled(4),
                 SEES_THREADS ? 20000 : 40000, algorithm);
            world_free(w);
        }
    }
}

/* Of all algorithms of a memory. */
static size_t room_of_all(alg_memory_t memory, uint32_t nranks)
{
    size_t most = SCRATCH;
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        const bool counts = alg_registry[i]->memory == memory && !is_of_messages(alg_registry[i]);
        const size_t room = counts ? world_room(alg_registry[i], nranks, SCRATCH) : SCRATCH;
        most = room > most ? room : most;
    }
    return most;
}

/* All algorithms share a scratch in random order: finds violations of the rule of halves and errors when the grid
 * changes. */
static void mixed(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ALG_MEMORY_COUNT * 3; i++) {
        const uint32_t n = 2 + i % 3;
        if (!has_memory((alg_memory_t)(i / 3)))
            continue;
        world_t *w = world_make(n, (alg_memory_t)(i / 3), room_of_all((alg_memory_t)(i / 3), n));
        play(w, 77u + n, 40 + (uint32_t)scaled(360), 3000, -1);
        world_free(w);
    }
}

/* Messages up to the limit of the scratch, and for staged algorithms far beyond it, are right. */
static void largest(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ALG_MEMORY_COUNT * 3; i++) {
        const uint32_t n = 2 + i % 3;
        if (scaled(2) < 2 && n != 3)
            continue; /* under a sanitizer three ranks suffice */
        world_t *w = world_make(n, (alg_memory_t)(i / 3), SCRATCH);
        const bool shorter = w->map.memory == ALG_MEMORY_PINNED; /* chunks, so there are more of them */
        for (int algorithm = 0; algorithm < (int)alg_registry_count; algorithm++) {
            const bool longer = alg_registry[algorithm]->collective == ALG_ALL_REDUCE;
            if (alg_registry[algorithm]->memory != w->map.memory || is_of_messages(alg_registry[algorithm]) ||
                (shorter && !longer && n != 3))
                continue;
            const size_t room = world_room(alg_registry[algorithm], n, SCRATCH);
            world_t *own = room > SCRATCH ? world_make(n, w->map.memory, room) : w;
            const uint32_t rounds = SEES_THREADS ? 1 : 2, most = longer ? 5u << 20 : shorter ? 1u << 20 : 3u << 20;
            play(own, 5u + n, rounds, SEES_THREADS && !longer ? most / 4 : most, algorithm);
            if (own != w)
                world_free(own);
        }
        world_free(w);
    }
}

/* One call of one rank, as a thread's main: its status. */
typedef struct turn {
    const char *algorithm;
    alg_team_t team;
    alg_call_t call;
} turn_t;

static void *turn_main(void *argument)
{
    const turn_t *t = argument;
    return (void *)(intptr_t)find(t->algorithm)->launch_cpu(&t->team, &t->call);
}

/* Rank 0's call, of `count` floats in place, which are few. */
static turn_t turn_of_floats(world_t *w, const char *algorithm, uint64_t count, uint64_t timeout_us)
{
    static float x[4096];
    turn_t t = {algorithm,
                world_team(w, 0),
                {.collective = find(algorithm)->collective,
                 .input = x,
                 .output = x,
                 .count = count,
                 .type = ALG_FLOAT32,
                 .blocks = 1,
                 .threads = 1}};
    t.team.limit = alg_limit(timeout_us * 1000, 0);
    assert_true(count <= sizeof x / sizeof x[0]);
    return t;
}

/* All-reduce algorithms, one for each way to wait. */
static const char *const waiting[] = {"oneshot", "staged", "bulk", "shm-oneshot", "shm-twoshot", "shm-staged"};
enum { WAITING = sizeof waiting / sizeof waiting[0] };

static world_t *world_for(const char *algorithm)
{
    return world_make(2, find(algorithm)->memory, SCRATCH);
}

/* If a rank never calls, the others leave at the time limit or on an abort instead of waiting forever. */
static void broken_wait(const char *algorithm)
{
    world_t *w = world_for(algorithm);
    turn_t turn = turn_of_floats(w, algorithm, 4, 50000);
    assert_int_equal((intptr_t)turn_main(&turn), ALG_STATUS_TIMEOUT);
    world_free(w);

    w = world_for(algorithm);
    turn = turn_of_floats(w, algorithm, 4, 0);
    pthread_t thread;
    void *status;
    assert_int_equal(pthread_create(&thread, NULL, turn_main, &turn), 0);
    __atomic_store_n(&w->control[0].abort, 1u, __ATOMIC_RELEASE);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, ALG_STATUS_ABORTED);
    world_free(w);
}

static void broken_waits(void **state)
{
    (void)state;
    for (int i = 0; i < WAITING; i++) {
        if (has(waiting[i]))
            broken_wait(waiting[i]);
    }
    if (has(MOVING))
        broken_wait(MOVING);
}

/* Calls of a move after a call that failed send neither data nor flags. */
static void moves_behind(void **state)
{
    (void)state;
    if (!has(MOVING))
        return;
    world_t *w = world_for(MOVING);
    static uint8_t before[SCRATCH];
    turn_t turn = turn_of_floats(w, MOVING, 1000, 50000);
    assert_int_equal((intptr_t)turn_main(&turn), ALG_STATUS_TIMEOUT);
    memcpy(before, w->scratch[1], SCRATCH);
    assert_int_not_equal((intptr_t)turn_main(&turn), ALG_STATUS_OK);
    assert_memory_equal(before, w->scratch[1], SCRATCH);
    world_free(w);
}

/* Calls after a failed call send nothing: a late peer would add data of different calls. */
static void calls_behind(void **state)
{
    (void)state;
    enum { COUNT = 64, CALLS = 3 };
    for (int run = 0; run < 2 * WAITING; run++) {
        const int abort = run % 2;
        const char *algorithm = waiting[run / 2];
        if (!has(algorithm))
            continue;
        world_t *w = world_for(algorithm);
        float x[CALLS][COUNT], y[COUNT];
        turn_t turn = turn_of_floats(w, algorithm, COUNT, 50000);
        for (int i = 0; i < CALLS; i++) {
            for (int k = 0; k < COUNT; k++)
                x[i][k] = (float)(i + 1);
        }
        if (abort)
            w->control[0].abort = 1; /* found in the first wait */
        for (int i = 0; i < CALLS; i++) {
            turn.call.input = turn.call.output = x[i];
            assert_int_not_equal((intptr_t)turn_main(&turn), ALG_STATUS_OK);
        }
        for (int k = 0; k < COUNT; k++)
            y[k] = 10;
        turn.team = world_team(w, 1);
        turn.team.limit = alg_limit(1000000000, 0); /* an aborted rank tells no peer */
        turn.call.input = turn.call.output = y;
        if ((intptr_t)turn_main(&turn) == ALG_STATUS_OK) {
            for (int k = 0; k < COUNT; k++)
                assert_float_equal(y[k], 11, 0);
        }
        /* A rank whose wait ran out of time has told this one, so its next call does not wait for ever. */
        turn.team.limit = alg_limit(abort ? 50000000 : 0, 0);
        assert_int_equal((intptr_t)turn_main(&turn), abort ? ALG_STATUS_TIMEOUT : ALG_STATUS_PEER_LEFT);
        world_free(w);
    }
}

/* The counter of calls wraps around: flags that were not raised for half of its range must not count as new. */
static void wrapped_epochs(void **state)
{
    (void)state;
    const uint64_t begin[] = {UINT64_C(1) << 63, UINT64_C(0) - (UINT64_C(1) << 20), (UINT64_C(1) << 62) + (1 << 20)};
    enum { BEGINS = sizeof begin / sizeof begin[0] };
    for (size_t i = 0; i < ALG_MEMORY_COUNT * BEGINS; i++) {
        if (!has_memory((alg_memory_t)(i / BEGINS)))
            continue;
        world_t *w = world_make(3, (alg_memory_t)(i / BEGINS), SCRATCH);
        const uint64_t at = begin[i % BEGINS];
        for (uint32_t r = 0; r < 3; r++) {
            memcpy(w->scratch[r] + ALG_EPOCH_OFFSET, &at, sizeof at);
            /* Near the end of the range a flag from its beginning, 0, would look new: the last raise was later. */
            for (size_t f = 0; i % BEGINS == 1 && f < w->map.flags_bytes; f += sizeof at)
                memcpy(w->scratch[r] + w->map.flags_offset + f, &at, sizeof at);
        }
        play(w, 99u + i, 120, 20000, -1);
        world_free(w);
    }
}

/* The time limit holds for one wait: a call with many waits, each far within it, may take longer. The test plays rank
 * 1. */
enum { SLOW_STEPS = 16, SLOW_STEP_US = 400000, SLOW_LIMIT_US = 6000000 };

/* Store the vectors that rank 1 would put into the place of call 0 (slots.h). */
static void put_vector(world_t *w, uint64_t i)
{
    uint64_t *slot = (uint64_t *)(w->scratch[0] + w->map.places_offset);
    __atomic_store_n(&slot[2 * i], 0, __ATOMIC_RELEASE);
    __atomic_store_n(&slot[2 * i + 1], 0, __ATOMIC_RELEASE);
}

/* Raise the flags of rank 1, alternating between two phases (staged.cu). */
static void raise_flag(world_t *w, uint64_t i)
{
    uint64_t *flags = (uint64_t *)(w->scratch[0] + w->map.flags_offset);
    __atomic_store_n(&flags[i % 2 * ALG_STAGED_CHANNELS * ALG_MAX_RANKS + 1], i / 2 + 1, __ATOMIC_RELEASE);
}

/* Post rank 1's units of three vectors (outbox.h). */
static void post_units(world_t *w, uint64_t i)
{
    uint64_t *outbox = (uint64_t *)(w->scratch[1] + w->map.half_offset);
    for (int k = 0; k < 4; k++)
        __atomic_store_n(&outbox[2 * (4 * i + k) + 1], UINT64_C(1) << 63, __ATOMIC_RELEASE);
}

/* Raise rank 1's flags of a step (shm_staged.cu). */
static void raise_step(world_t *w, uint64_t i)
{
    uint64_t *flags = (uint64_t *)(w->scratch[0] + w->map.flags_offset);
    __atomic_store_n(&flags[1], i + 1, __ATOMIC_RELEASE);
}

/* Raise rank 1's flags for chunks of 512 bytes in five slots: one may be sent, one has arrived (bulk/walk.h). */
static void raise_slot(world_t *w, uint64_t i)
{
    enum { SLOTS = 5, ENTRY = ALG_STAGED_CHANNELS - 1 };
    uint64_t *flags = (uint64_t *)(w->scratch[0] + w->map.flags_offset);
    __atomic_store_n(&flags[ENTRY * ALG_MAX_RANKS + 1], 1, __ATOMIC_RELEASE);
    __atomic_store_n(&flags[i % SLOTS * ALG_MAX_RANKS + 1], i + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&flags[(ALG_STAGED_CHANNELS + i % SLOTS) * ALG_MAX_RANKS + 1], i + 1, __ATOMIC_RELEASE);
}

/* A peer that makes progress within each time limit does not end a call, however slow it is. The cases run
 * concurrently, since all of them only wait. */
static void slow_peers(void **state)
{
    (void)state;
    enum { PEERS = 6 };
    static const struct {
        const char *algorithm;
        uint64_t count;
        void (*step)(world_t *, uint64_t);
    } peer[PEERS] = {
        {"oneshot", SLOW_STEPS * 4, put_vector},      {"staged", SLOW_STEPS / 2 * 192, raise_flag},
        {"shm-oneshot", SLOW_STEPS * 12, post_units}, {"shm-staged", (SLOW_STEPS - 1) * 32 * 2 * 4, raise_step},
        {"bulk", SLOW_STEPS * 128, raise_slot},       {MOVING, SLOW_STEPS * 128, raise_slot},
    };
    static float x[PEERS][4096];
    world_t *w[PEERS] = {NULL};
    turn_t turn[PEERS];
    pthread_t thread[PEERS];
    for (int k = 0; k < PEERS; k++) {
        if (!has(peer[k].algorithm))
            continue;
        w[k] = world_for(peer[k].algorithm);
        turn[k] = turn_of_floats(w[k], peer[k].algorithm, peer[k].count, SLOW_LIMIT_US);
        turn[k].call.input = turn[k].call.output = x[k];
        assert_int_equal(pthread_create(&thread[k], NULL, turn_main, &turn[k]), 0);
    }
    for (uint64_t i = 0; i < SLOW_STEPS; i++) {
        usleep(SLOW_STEP_US);
        for (int k = 0; k < PEERS; k++) {
            if (w[k])
                peer[k].step(w[k], i);
        }
    }
    for (int k = 0; k < PEERS; k++) {
        if (!w[k])
            continue;
        void *status;
        pthread_join(thread[k], &status);
        assert_int_equal((intptr_t)status, ALG_STATUS_OK);
        world_free(w[k]);
    }
}

/* A mark comes again after 2^31 calls. Units left by a longer message do not look new then: the calls between have
 * cleared them (outbox.h). */
enum { STALE_UNITS = 64, STALE_COUNT = 24 };

static void *shorter_and_shorter(void *argument)
{
    turn_t *t = argument;
    float x[STALE_COUNT] = {0};
    t->call =
        (alg_call_t){.input = x, .output = x, .count = STALE_COUNT, .type = ALG_FLOAT32, .blocks = 1, .threads = 1};
    intptr_t status = (intptr_t)turn_main(t);
    t->call.count = 1;
    for (int i = 0; i < 2 * STALE_UNITS && status == ALG_STATUS_OK; i++)
        status = (intptr_t)turn_main(t);
    return (void *)status;
}

static void stale_marks(void **state)
{
    (void)state;
    if (!has("shm-oneshot"))
        return;
    const uint64_t again = UINT64_C(1) << (31 + 16); /* EPOCH_UNIT is 2^16 */
    world_t *w = world_for("shm-oneshot");
    w->map.half_bytes = STALE_UNITS * 16;
    pthread_t thread[2];
    turn_t turn[2];
    for (uint32_t r = 0; r < 2; r++) {
        turn[r] = (turn_t){.algorithm = "shm-oneshot", .team = world_team(w, r)};
        assert_int_equal(pthread_create(&thread[r], NULL, shorter_and_shorter, &turn[r]), 0);
    }
    for (uint32_t r = 0; r < 2; r++) {
        void *status;
        pthread_join(thread[r], &status);
        assert_int_equal((intptr_t)status, ALG_STATUS_OK);
        memcpy(w->scratch[r] + ALG_EPOCH_OFFSET, &again, sizeof again);
    }
    post_units(w, 0); /* the first of two tiles */
    turn[0] = turn_of_floats(w, "shm-oneshot", STALE_COUNT, 50000);
    assert_int_equal((intptr_t)turn_main(&turn[0]), ALG_STATUS_TIMEOUT);
    world_free(w);
}

#ifndef PART
/* Reduce every pair of bytes. The input begins with `place` zero bytes, which shift the pairs within their words. */
static void join_pairs(world_t *w, ncclDataType_t type, ref_op_t op, uint32_t place)
{
    enum { PAIRS = 256 * 256 };
    static uint8_t input[2][PAIRS + 3], output[2][PAIRS + 3];
    turn_t turn[2];
    pthread_t thread[2];
    for (uint32_t r = 0; r < 2; r++) {
        for (uint32_t pair = 0; pair < PAIRS; pair++)
            input[r][place + pair] = (uint8_t)(r ? pair : pair >> 8);
        turn[r] = (turn_t){"oneshot",
                           world_team(w, r),
                           {.input = input[r],
                            .output = output[r],
                            .count = place + PAIRS,
                            .type = (alg_type_t)type,
                            .op = (alg_op_t)op,
                            .blocks = 1,
                            .threads = 1}};
        assert_int_equal(pthread_create(&thread[r], NULL, turn_main, &turn[r]), 0);
    }
    for (uint32_t r = 0; r < 2; r++) {
        void *status;
        pthread_join(thread[r], &status);
        assert_int_equal((intptr_t)status, ALG_STATUS_OK);
    }
    for (uint32_t i = 0; i < place + PAIRS; i++) {
        const uint8_t pair[2] = {input[0][i], input[1][i]};
        uint8_t right;
        ref_reduce(type, op, 2, pair, NULL, &right);
        assert_int_equal(output[0][i], right);
        assert_int_equal(output[1][i], right);
    }
}

/* Every pair of 8-bit integers is reduced right, at every position in a word: the kernels reduce four at a time. */
static void pairs_of_bytes(void **state)
{
    (void)state;
    world_t *w = world_for("oneshot");
    for (ref_op_t op = REF_SUM; op < REF_PREMUL; op++) {
        for (uint32_t place = 0; place < 4; place++) {
            join_pairs(w, ncclInt8, op, place);
            join_pairs(w, ncclUint8, op, place);
        }
    }
    world_free(w);
}
#endif

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_algorithm), cmocka_unit_test(mixed),        cmocka_unit_test(largest),
        cmocka_unit_test(broken_waits),   cmocka_unit_test(calls_behind), cmocka_unit_test(moves_behind),
        cmocka_unit_test(wrapped_epochs), cmocka_unit_test(slow_peers),   cmocka_unit_test(stale_marks),
#ifndef PART
        cmocka_unit_test(pairs_of_bytes),
#endif
    };
    return world_run("kernels", tests, sizeof tests / sizeof tests[0], argc, argv);
}
