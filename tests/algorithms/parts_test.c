/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Broadcasts and reduces of several roots, as in groups: each rank independently makes them in one call or in several
 * (series.h), between other collectives on the same scratch.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define LANE_FN static inline
#define LANE_HOST_FN static inline
#include "algorithms/algorithm.h"
#include "algorithms/device/lane_limit.h"
#include "place.h"
#include "tests/support/scaled.h"
#include "world.h"

enum { LISTS = 400, SCRATCH = 8 << 20, MOST_CALLS = 2 * ALG_MAX_RANKS, MOST_BYTES = 6000 };

/* Calls that all ranks make in this order. */
typedef struct list {
    const alg_algorithm_t *algorithm;
    uint32_t count, blocks;
    coll_t k[MOST_CALLS];
} list_t;

typedef enum groups { ALONE, TOGETHER, DRAWN } groups_t;

typedef struct actor {
    world_t *world;
    uint32_t rank;
    uint64_t seed;
    uint32_t lists;
    groups_t groups;
    uint32_t failures;
    char fault[300];
} actor_t;

/* A build for one file of kernels (broken.cmake) lacks one of the two. */
static const alg_algorithm_t *draw_push(uint64_t *state)
{
    const bool moves = data_below(state, 2);
    const alg_algorithm_t *algorithm = alg_find(moves ? ALG_BROADCAST : ALG_REDUCE, "push");
    return algorithm ? algorithm : alg_find(moves ? ALG_REDUCE : ALG_BROADCAST, "push");
}

/* Mostly one of each root, in rising order, some of them empty, which nobody makes; or any. Sometimes one call of
 * another collective. */
static list_t draw_list(const world_t *w, uint64_t *state)
{
    const uint32_t n = w->nranks;
    list_t l = {.algorithm = draw_push(state), .blocks = 1 + (uint32_t)data_below(state, 3)};
    const bool any = data_below(state, 4) == 0;
    if (data_below(state, 3) == 0) {
        do
            l.algorithm = alg_registry[data_below(state, alg_registry_count)];
        while (l.algorithm->memory != ALG_MEMORY_PEER || l.algorithm->collective == ALG_SEND_RECV ||
               l.algorithm->max_bytes(&w->map, n, ALG_FLOAT32) == 0);
    }
    coll_t k = {.collective = l.algorithm->collective, .c = {.type = world_draw_type(state), .nranks = (int)n}};
    k.c.op = (ref_op_t)data_below(state, REF_OPS);
    k.c.kind = (data_kind_t)data_below(state, DATA_KINDS);
    k.c.seed = data_random(state);
    const size_t width = alg_type_bytes((alg_type_t)k.c.type);
    const uint32_t calls = !l.algorithm->part_bytes ? 1 : any ? 1 + (uint32_t)data_below(state, MOST_CALLS) : n;
    for (uint32_t i = 0; i < calls; i++) {
        k.root = any ? (uint32_t)data_below(state, n) : i % n;
        k.c.count = place_draw_count(state, MOST_BYTES / width / alg_collective_blocks(k.collective, n));
        if (k.c.op != REF_PREMUL)
            k.c.seed = data_random(state); /* the scalar, which parts have in common, comes from it */
        if (calls == 1 || data_below(state, 5))
            l.k[l.count++] = k;
    }
    return l;
}

/* How many calls from `at` on this rank makes in one. */
static uint32_t draw_parts(const list_t *l, uint32_t at, groups_t groups, uint64_t *local)
{
    uint32_t parts = 1;
    while (l->algorithm->part_bytes && at + parts < l->count && l->k[at + parts].root > l->k[at + parts - 1].root &&
           (groups == TOGETHER || (groups == DRAWN && data_below(local, 4))))
        parts++;
    return parts;
}

/* Make `parts` calls of the list, from `at` on, as one call. */
static bool make(actor_t *a, const list_t *l, uint32_t at, uint32_t parts, uint64_t *local, char *fault, size_t bytes)
{
    const coll_t *k = &l->k[at];
    const size_t width = alg_type_bytes((alg_type_t)k->c.type);
    place_t place[MOST_CALLS];
    alg_part_t part[MOST_CALLS];
    const uint32_t blocks =
        parts > 1 && data_below(local, 8) ? parts + (uint32_t)data_below(local, data_below(local, 8) ? 4 : 16) : 1;
    for (uint32_t i = 0; i < parts; i++) {
        const bool in_place = data_below(local, 2) && k->collective != ALG_ALL_TO_ALL;
        if (!place_make(&place[i], &k[i], a->rank, in_place, local))
            return false;
        part[i] = (alg_part_t){k[i].root, place[i].from, place[i].to, k[i].c.count};
    }
    alg_call_t call = {.collective = k->collective,
                       .root = k->root,
                       .input = place[0].from,
                       .output = place[0].to,
                       .count = k->c.count,
                       .type = (alg_type_t)k->c.type,
                       .op = (alg_op_t)k->c.op,
                       .blocks = blocks,
                       .threads = 1,
                       .part_count = parts > 1 ? parts : 0,
                       .parts = part};
    data_scalar(&k->c, (int)a->rank, &call.scalar_bits);
    if (parts == 1) {
        call.blocks = l->blocks;
        l->algorithm->shape(k->c.count * width * alg_collective_blocks(k->collective, a->world->nranks),
                            a->world->nranks, &call.blocks, &call.threads);
    }
    call.threads = 1;
    if (data_below(local, 8) == 0)
        usleep((useconds_t)data_below(local, 400)); /* a rank that comes late */
    const alg_team_t team = world_team(a->world, a->rank);
    const int status = l->algorithm->launch_cpu(&team, &call);
    bool right = status == ALG_STATUS_OK;
    if (!right)
        snprintf(fault, bytes, "status %d", status);
    for (uint32_t i = 0; i < parts; i++) {
        right = right && place_right(&place[i], &k[i], a->rank, fault, bytes);
        place_free(&place[i]);
    }
    return right;
}

static void *actor_main(void *argument)
{
    actor_t *a = argument;
    uint64_t state = a->seed, local = a->seed + 77 * a->rank;
    for (uint32_t i = 0; i < a->lists && a->failures == 0; i++) {
        const list_t l = draw_list(a->world, &state);
        uint32_t parts = 0;
        for (uint32_t at = 0; at < l.count && a->failures == 0; at += parts) {
            char fault[120] = "";
            parts = draw_parts(&l, at, a->groups, &local);
            if (!make(a, &l, at, parts, &local, fault, sizeof fault) && a->failures++ == 0)
                snprintf(a->fault, sizeof a->fault, "list %u, %s %s %s, calls %u to %u of %u, roots from %u: %s", i,
                         alg_collective_name(l.k[at].collective), l.algorithm->name, ref_type_name(l.k[at].c.type), at,
                         at + parts - 1, l.count, l.k[at].root, fault);
        }
    }
    if (a->failures)
        world_stop(a->world);
    return NULL;
}

/* Play lists on all ranks; `groups` is indexed by rank. */
static void play(world_t *w, uint64_t seed, uint32_t lists, const groups_t groups[ALG_MAX_RANKS])
{
    actor_t actor[ALG_MAX_RANKS];
    pthread_t thread[ALG_MAX_RANKS];
    for (uint32_t r = 0; r < w->nranks; r++) {
        actor[r] = (actor_t){.world = w, .rank = r, .seed = seed, .lists = lists, .groups = groups[r]};
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

static void each_number_of_ranks(uint64_t seed, uint32_t lists, const groups_t groups[ALG_MAX_RANKS])
{
    for (uint32_t n = 2; n <= ALG_MAX_RANKS; n++) {
        world_t *w = world_make(n, ALG_MEMORY_PEER, SCRATCH);
        play(w, seed + n, n <= 4 ? lists : 1 + lists / 8, groups);
        world_free(w);
    }
}

static void all_together(void **state)
{
    (void)state;
    static const groups_t groups[ALG_MAX_RANKS] = {TOGETHER, TOGETHER, TOGETHER, TOGETHER,
                                                   TOGETHER, TOGETHER, TOGETHER, TOGETHER};
    each_number_of_ranks(10, 10 + (uint32_t)scaled(LISTS), groups);
}

static void some_together(void **state)
{
    (void)state;
    static const groups_t groups[ALG_MAX_RANKS] = {TOGETHER, ALONE, DRAWN, ALONE, DRAWN, TOGETHER, ALONE, DRAWN};
    each_number_of_ranks(30, 10 + (uint32_t)scaled(LISTS), groups);
}

static void as_they_like(void **state)
{
    (void)state;
    static const groups_t groups[ALG_MAX_RANKS] = {DRAWN, DRAWN, DRAWN, DRAWN, DRAWN, DRAWN, DRAWN, DRAWN};
    each_number_of_ranks(50, 10 + (uint32_t)scaled(LISTS), groups);
}

/* Results are right if the counter of calls wraps around within a series. */
static void wrapped_epochs(void **state)
{
    (void)state;
    static const groups_t groups[ALG_MAX_RANKS] = {DRAWN, TOGETHER, ALONE};
    const uint64_t at = UINT64_C(0) - (UINT64_C(1) << 18);
    world_t *w = world_make(3, ALG_MEMORY_PEER, SCRATCH);
    for (uint32_t r = 0; r < 3; r++) {
        memcpy(w->scratch[r] + ALG_EPOCH_OFFSET, &at, sizeof at);
        for (size_t f = 0; f < w->map.flags_bytes; f += sizeof at)
            memcpy(w->scratch[r] + w->map.flags_offset + f, &at, sizeof at);
    }
    play(w, 70, 10, groups);
    world_free(w);
}

#ifndef PART /* the clock is not wrapped there */

/* The kernels' clock (--wrap): `skipped` later than the real one. */
static _Atomic int64_t skipped;
static atomic_uint looks;

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    const int error = __real_clock_gettime(clock, now);
    now->tv_sec += skipped;
    looks++;
    return error;
}

typedef struct merged {
    alg_team_t team;
    atomic_int status; /* -1: under way */
} merged_t;

static const alg_algorithm_t *broadcast(void)
{
    return alg_find(ALG_BROADCAST, "push");
}

static void *broadcast_two(void *argument)
{
    merged_t *m = argument;
    uint8_t data[2][64] = {{0}};
    const alg_part_t part[2] = {{0, data[0], data[0], 64}, {1, data[1], data[1], 64}};
    const alg_call_t call = {
        .collective = ALG_BROADCAST, .type = ALG_INT8, .blocks = 2, .threads = 1, .part_count = 2, .parts = part};
    m->status = broadcast()->launch_cpu(&m->team, &call);
    return NULL;
}

/* Wait until the kernel polls: the time limit of a wait runs from its begin. */
static void let_it_look(const merged_t *m)
{
    const unsigned before = looks;
    while (m->status < 0 && looks < before + 8)
        usleep(100);
}

/* Time limits count for each call: the peer makes each of two calls later than two thirds of the limit after the last,
 * and neither single nor joined waits may end. */
static void a_limit_is_for_each_call(void **state)
{
    (void)state;
    enum { LIMIT_S = 900 };
    world_t *w = world_make(2, ALG_MEMORY_PEER, SCRATCH);
    merged_t m = {.team = world_team(w, 0), .status = -1};
    alg_team_t other = world_team(w, 1);
    m.team.limit = alg_limit((uint64_t)LIMIT_S * 1000000000u, 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, broadcast_two, &m), 0);
    for (uint32_t root = 0; root < 2; root++) {
        let_it_look(&m);
        skipped += LIMIT_S * 2 / 3;
        let_it_look(&m);
        uint8_t data[64] = {0};
        const alg_call_t call = {.collective = ALG_BROADCAST,
                                 .root = root,
                                 .input = data,
                                 .output = data,
                                 .count = sizeof data,
                                 .type = ALG_INT8,
                                 .blocks = 1,
                                 .threads = 1};
        assert_int_equal(broadcast()->launch_cpu(&other, &call), ALG_STATUS_OK);
    }
    pthread_join(thread, NULL);
    skipped = 0;
    assert_int_equal(m.status, ALG_STATUS_OK);
    world_free(w);
}

#endif

/* The time limit of a kernel that joins several calls is the sum of theirs, up to the largest limit. */
static void limits_of_several_calls(void **state)
{
    (void)state;
    const uint64_t ms = 1000000, most_ms = (UINT64_C(1) << (63 - ALG_LIMIT_BITS)) - 1;
    const uint64_t given_ms[] = {10000, 16777215, 16777216, 33554433, 86400000};
    for (size_t i = 0; i < sizeof given_ms / sizeof given_ms[0]; i++) {
        for (uint32_t calls = 1; calls <= 16; calls++) {
            const uint64_t all = lane_limit_times(alg_limit(given_ms[i] * ms, 77), calls);
            const uint64_t wanted = given_ms[i] * calls < most_ms ? given_ms[i] * calls : most_ms;
            assert_int_equal(lane_limit_ns(all), wanted * ms);
            assert_int_equal(lane_limit_id(all), 77);
        }
    }
    assert_int_equal(lane_limit_times(alg_limit(0, 77), 16), alg_limit(0, 77));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#ifndef PART
        cmocka_unit_test(a_limit_is_for_each_call),
        cmocka_unit_test(limits_of_several_calls),
#endif
        cmocka_unit_test(all_together),
        cmocka_unit_test(some_together),
        cmocka_unit_test(as_they_like),
        cmocka_unit_test(wrapped_epochs)};
    return world_run("parts", tests, sizeof tests / sizeof tests[0], argc, argv);
}
