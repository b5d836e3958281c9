/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bits of a result element depend only on the ranks' values for it: not on the algorithm, the message's size, the
 * element's index or neighbours, alignment, grid, or in-place calls. On the CPU device, with 2 to 8 ranks.
 *
 * For each type and operator there are TUPLES tuples of values over the full range, with one value a rank, and the
 * expected bits of each result. Every element of every call is one of these tuples.
 */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "place.h"
#include "tests/support/scaled.h"
#include "world.h"

enum { MAX_BLOCKS = 3, TUPLES = 211, SCRATCH = 8 << 20, SHORT = 3000, LARGE = 1 << 20, LONGEST = 16 << 20 };

/* Of one type and operator; elements are as wide as the type, and begin at the words. */
typedef struct table {
    data_case_t c;
    uint64_t value[ALG_MAX_RANKS][TUPLES], expected[TUPLES], scalar[ALG_MAX_RANKS];
} table_t;

/* ---- Values ---------------------------------------------------------------------------- */

static uint64_t ones(ncclDataType_t type)
{
    return ~UINT64_C(0) >> (64 - 8 * ref_bytes(type));
}

/* The bits of the type's infinity, or what comes instead in e4m3. */
static uint64_t infinity(ncclDataType_t type)
{
    uint64_t bits = 0;
    if (type == ncclFloat8e5m2)
        return 0x7c;
    ref_encode(type, INFINITY, &bits);
    return bits;
}

/* Zeros, subnormals, the largest, infinities, NaN of several patterns; either sign. */
static uint64_t special(ncclDataType_t type, uint64_t *state)
{
    const uint64_t all = ones(type), top = all ^ all >> 1, inf = infinity(type);
    const uint64_t some[] = {0, 1, 2, inf - 1, inf, inf + 1, all >> 1, inf | (all >> 1 & ~inf) >> 1, 3};
    return (some[data_below(state, sizeof some / sizeof some[0])] | (data_below(state, 2) ? top : 0)) & all;
}

static double unit(uint64_t *state)
{
    return 2 * (double)(data_random(state) >> 11) * 0x1p-53 - 1;
}

/* Draw a tuple: arbitrary bits, special values, numbers of similar size whose order affects the sum, numbers that
 * cancel, or a mixture. */
static void draw_tuple(table_t *t, int at, uint64_t *state)
{
    const ncclDataType_t type = t->c.type;
    const uint64_t kind = data_below(state, 5);
    const double scale = ldexp(1, (int)data_below(state, 9) - 4), first = unit(state);
    for (int r = 0; r < t->c.nranks; r++) {
        uint64_t *value = &t->value[r][at];
        const uint64_t mine = kind < 4 ? kind : data_below(state, 3);
        if (mine == 0 || !ref_is_float(type))
            *value = data_random(state) & ones(type);
        else if (mine == 1)
            *value = special(type, state);
        else
            ref_encode(type, mine == 2 || r % 3 == 2 ? unit(state) * scale : r % 3 == 0 ? first : -first, value);
    }
}

static void draw_table(table_t *t, int nranks, int type, int op, uint64_t *state)
{
    memset(t, 0, sizeof *t);
    t->c = (data_case_t){
        .type = (ncclDataType_t)type, .op = (ref_op_t)op, .kind = DATA_RANDOM, .seed = (uint64_t)op, .nranks = nranks};
    const size_t width = ref_bytes(t->c.type);
    uint8_t values[8 * ALG_MAX_RANKS], scalars[8 * ALG_MAX_RANKS];
    for (int r = 0; r < nranks; r++) {
        data_scalar(&t->c, r, &t->scalar[r]);
        memcpy(scalars + (size_t)r * width, &t->scalar[r], width);
    }
    for (int at = 0; at < TUPLES; at++) {
        draw_tuple(t, at, state);
        for (int r = 0; r < nranks; r++)
            memcpy(values + (size_t)r * width, &t->value[r][at], width);
        ref_reduce(t->c.type, t->c.op, nranks, values, scalars, &t->expected[at]);
    }
}

/* The tuple of an element of the collective's largest buffer. */
static uint32_t tuple_of(uint64_t seed, uint64_t element)
{
    uint64_t state = seed + element;
    return (uint32_t)data_below(&state, TUPLES);
}

/* ---- Calls ----------------------------------------------------------------------------- */

typedef struct actor {
    world_t *world, *large; /* large: for algorithms that need more than SCRATCH */
    const table_t *tables;  /* of all types and operators */
    uint32_t rank, turns;
    uint64_t bytes; /* SHORT: at most, of every type and operator; else about so many, of a type and operator drawn */
    uint32_t failures;
    char fault[300];
} actor_t;

static void fill(const table_t *t, const coll_t *k, uint32_t rank, void *input)
{
    const size_t width = ref_bytes(t->c.type), count = coll_input_count(k, rank);
    for (size_t i = 0; i < count; i++)
        memcpy((uint8_t *)input + i * width, &t->value[rank][tuple_of(k->c.seed, i)], width);
}

/* The first wrong element, or the count. */
static size_t first_wrong(const table_t *t, const coll_t *k, uint32_t rank, const void *output)
{
    const size_t width = ref_bytes(t->c.type), count = coll_output_count(k, rank);
    const size_t begin = k->collective == ALG_REDUCE_SCATTER ? rank * k->c.count : 0;
    size_t i = 0;
    while (i < count &&
           memcmp((const uint8_t *)output + i * width, &t->expected[tuple_of(k->c.seed, begin + i)], width) == 0)
        i++;
    return i;
}

static void report(actor_t *a, const table_t *t, const coll_t *k, const alg_algorithm_t *algorithm, const void *output,
                   size_t at, int status)
{
    const size_t width = ref_bytes(t->c.type), count = coll_output_count(k, a->rank);
    const size_t begin = k->collective == ALG_REDUCE_SCATTER ? a->rank * k->c.count : 0;
    uint64_t got = 0;
    if (a->failures++ > 0)
        return;
    if (at < count)
        memcpy(&got, (const uint8_t *)output + at * width, width);
    snprintf(a->fault, sizeof a->fault, "%s %s %s %s: status %d, element %zu of %zu is %llx, not %llx",
             alg_collective_name(k->collective), algorithm->name, ref_type_name(t->c.type), ref_op_name(t->c.op),
             status, at, count, (unsigned long long)got,
             (unsigned long long)t->expected[tuple_of(k->c.seed, begin + at)]);
}

/* Run a call that all ranks draw from the same state. */
static void run(actor_t *a, const alg_algorithm_t *algorithm, const table_t *t, uint64_t *state)
{
    const uint32_t nranks = a->world->nranks, parts = alg_collective_blocks(algorithm->collective, nranks);
    const size_t width = ref_bytes(t->c.type);
    world_t *const w = world_room(algorithm, nranks, SCRATCH) > SCRATCH ? a->large : a->world;
    uint64_t most = algorithm->max_bytes(&w->map, nranks, (alg_type_t)t->c.type);
    const uint64_t wanted = a->bytes + data_below(state, 5) * width;
    most = (most < wanted ? most : wanted) / parts / width;
    coll_t k = {.collective = algorithm->collective, .root = (uint32_t)data_below(state, nranks), .c = t->c};
    k.c.count = a->bytes == SHORT ? place_draw_count(state, most) : most;
    k.c.seed = data_random(state);
    const bool in_place = data_below(state, 2);
    uint64_t local = k.c.seed + a->rank; /* may differ between ranks: alignment, the grid where it may */
    place_t b;
    alg_call_t call = {.collective = k.collective,
                       .root = k.root,
                       .count = k.c.count,
                       .type = (alg_type_t)t->c.type,
                       .op = (alg_op_t)t->c.op,
                       .blocks = 1 + (uint32_t)data_below(state, MAX_BLOCKS),
                       .threads = 1,
                       .scalar_bits = t->scalar[a->rank]};
    if (!place_make(&b, &k, a->rank, in_place, &local)) {
        a->failures++;
        return;
    }
    fill(t, &k, a->rank, (void *)b.from);
    call.input = b.from, call.output = b.to;
    if (algorithm->unaligned_blocks)
        call.blocks = 1 + (uint32_t)data_below(&local, MAX_BLOCKS);
    algorithm->shape(k.c.count * width * parts, nranks, &call.blocks, &call.threads);
    call.threads = 1;
    const alg_team_t team = world_team(w, a->rank);
    const int status = algorithm->launch_cpu(&team, &call);
    const size_t wrong = first_wrong(t, &k, a->rank, b.to);
    if (status != ALG_STATUS_OK || wrong < coll_output_count(&k, a->rank))
        report(a, t, &k, algorithm, b.to, wrong, status);
    place_free(&b);
}

static const table_t *table_at(const actor_t *a, uint32_t type, uint32_t op)
{
    return &a->tables[type * REF_OPS + op];
}

static void run_short(actor_t *a, const alg_algorithm_t *algorithm, uint64_t *state)
{
    for (uint32_t i = 0; i < ALG_TYPE_COUNT * REF_OPS * a->turns && a->failures == 0; i++) {
        const table_t *t = table_at(a, i / a->turns / REF_OPS, i / a->turns % REF_OPS);
        if (world_has_type(t->c.type))
            run(a, algorithm, t, state);
    }
}

static void run_long(actor_t *a, const alg_algorithm_t *algorithm, uint64_t *state)
{
    for (uint32_t i = 0; i < a->turns && a->failures == 0; i++) {
        const uint32_t type = a->bytes < LONGEST ? world_draw_type(state) : ncclFloat32;
        run(a, algorithm, table_at(a, type, (uint32_t)data_below(state, REF_OPS)), state);
    }
}

static void *actor_main(void *argument)
{
    actor_t *a = argument;
    uint64_t state = 1000 + a->world->nranks;
    for (uint32_t i = 0; i < alg_registry_count && a->failures == 0; i++) {
        if (alg_registry[i]->memory == a->world->map.memory && alg_collective_reduces(alg_registry[i]->collective))
            (a->bytes == SHORT ? run_short : run_long)(a, alg_registry[i], &state);
    }
    if (a->failures) {
        world_stop(a->world);
        world_stop(a->large);
    }
    return NULL;
}

static void play(uint32_t nranks, alg_memory_t memory, uint64_t bytes, uint32_t turns)
{
    table_t *tables = malloc(sizeof *tables * ALG_TYPE_COUNT * REF_OPS);
    uint64_t state = nranks;
    assert_non_null(tables);
    for (int i = 0; i < ALG_TYPE_COUNT * REF_OPS; i++)
        draw_table(&tables[i], (int)nranks, i / REF_OPS, i % REF_OPS, &state);
    size_t room = SCRATCH;
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        if (alg_registry[i]->memory == memory && alg_collective_reduces(alg_registry[i]->collective)) {
            const size_t needed = world_room(alg_registry[i], nranks, SCRATCH);
            room = needed > room ? needed : room;
        }
    }
    world_t *w = world_make(nranks, memory, SCRATCH), *large = world_make(nranks, memory, room);
    actor_t actor[ALG_MAX_RANKS];
    pthread_t thread[ALG_MAX_RANKS];
    uint32_t failures = 0;
    for (uint32_t r = 0; r < nranks; r++) {
        actor[r] = (actor_t){.world = w, .large = large, .tables = tables, .rank = r, .turns = turns, .bytes = bytes};
        assert_int_equal(pthread_create(&thread[r], NULL, actor_main, &actor[r]), 0);
    }
    for (uint32_t r = 0; r < nranks; r++) {
        pthread_join(thread[r], NULL);
        if (actor[r].failures)
            print_error("%u ranks, rank %u: %s\n", nranks, r, actor[r].fault);
        failures += actor[r].failures;
    }
    world_free(w);
    world_free(large);
    free(tables);
    assert_int_equal(failures, 0);
}

static void short_messages(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ALG_MEMORY_COUNT * (ALG_MAX_RANKS - 1u); i++) {
        const uint32_t n = 2 + i / ALG_MEMORY_COUNT;
        if (scaled(2) > 1 || n == 3 || n == 5) /* under a sanitizer two numbers of ranks suffice */
            play(n, (alg_memory_t)(i % ALG_MEMORY_COUNT), SHORT, scaled(2) > 1 && n <= 4 ? 2 : 1);
    }
}

/* The bits are the same in messages that an algorithm splits into several pieces. */
static void long_messages(void **state)
{
    (void)state;
    if (scaled(2) < 2) {
        play(3, ALG_MEMORY_PEER, LARGE / 4, 1);
        return; /* under a sanitizer */
    }
    for (uint32_t i = 0; i < ALG_MEMORY_COUNT * 3; i++)
        play(2 + 3 * (i / ALG_MEMORY_COUNT), (alg_memory_t)(i % ALG_MEMORY_COUNT), LARGE, 1);
    for (uint32_t i = 0; i < ALG_MEMORY_COUNT; i++)
        play(3, (alg_memory_t)i, LONGEST, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(short_messages), cmocka_unit_test(long_messages)};
    return world_run("bits", tests, sizeof tests / sizeof tests[0], argc, argv);
}
