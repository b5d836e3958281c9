/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatch and combine on the CPU device: ranks are threads, and go through programs without meeting. All options,
 * against a count one by one; and ranks that do not come.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "experts_case.h"
#include "tests/support/data.h"
#include "world.h"

enum { ROUNDS = 60, MOST_BLOCKS = 3 };

static void *cpu_make(int rank, size_t bytes)
{
    (void)rank;
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, 256, bytes + 1), 0);
    return p;
}

static void cpu_put(int rank, void *to, const void *from, size_t bytes)
{
    (void)rank;
    memcpy(to, from, bytes);
}

static void cpu_drop(int rank, void *memory)
{
    (void)rank;
    free(memory);
}

static const experts_memory_t cpu_memory = {cpu_make, cpu_put, cpu_put, cpu_drop};

typedef struct actor {
    world_t *world;
    const alg_experts_shape_t *shape;
    const experts_program_t *program;
    experts_rank_t buffers[EXPERTS_CASES];
    uint32_t rank, blocks;
    int status;
} actor_t;

static void *actor_main(void *argument)
{
    actor_t *a = argument;
    const alg_team_t team = world_team(a->world, a->rank);
    for (uint32_t i = 0; i < a->program->steps && a->status == ALG_STATUS_OK; i++) {
        const alg_experts_call_t call = experts_step_call(&a->program->step[i], a->buffers, a->blocks);
        a->status = alg_experts_launch_cpu(&team, a->shape, &call);
        if (call.phases == ALG_EXPERTS_SEND)
            experts_step_spoil(&a->program->step[i], a->buffers);
    }
    return NULL;
}

/* All ranks go through a program. Returns the first fault, or NULL. */
static const char *play(world_t *w, const alg_experts_shape_t *shape, const experts_program_t *p, uint64_t *state)
{
    static char fault[200];
    const char *found = NULL;
    actor_t actor[ALG_MAX_RANKS];
    pthread_t thread[ALG_MAX_RANKS];
    for (uint32_t r = 0; r < shape->nranks; r++) {
        actor[r] = (actor_t){w, shape, p, {{0}}, r, 1 + (uint32_t)data_below(state, MOST_BLOCKS), ALG_STATUS_OK};
        for (uint32_t i = 0; i < EXPERTS_CASES; i++) {
            experts_rank_make(&actor[r].buffers[i], (int)r, &cpu_memory, shape);
            experts_rank_load(&actor[r].buffers[i], &p->cases[i]);
        }
    }
    for (uint32_t r = 0; r < shape->nranks; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, actor_main, &actor[r]), 0);
    for (uint32_t r = 0; r < shape->nranks; r++)
        pthread_join(thread[r], NULL);
    for (uint32_t r = 0; r < shape->nranks; r++) {
        if (!found && actor[r].status != ALG_STATUS_OK) {
            snprintf(fault, sizeof fault, "rank %u: status %d", r, actor[r].status);
            found = fault;
        }
        if (!found && !experts_program_right(p, actor[r].buffers, fault, sizeof fault))
            found = fault;
        for (uint32_t i = 0; i < EXPERTS_CASES; i++)
            experts_rank_free(&actor[r].buffers[i]);
    }
    return found;
}

static world_t *make(const alg_experts_shape_t *shape)
{
    alg_map_t map;
    assert_true(alg_experts_map(shape, &map));
    return world_make_map(shape->nranks, &map);
}

static void test_programs(void **unused)
{
    (void)unused;
    uint64_t state = 48;
    for (int round = 0; round < ROUNDS; round++) {
        const uint32_t nranks = 2 + (uint32_t)data_below(&state, 4) + (round % 8 == 0 ? 3 : 0);
        const alg_experts_shape_t shape =
            experts_draw_shape(nranks, round % 4 == 1 ? 30 : 9, round % 4 == 1 ? 300 : 1200, &state);
        world_t *w = make(&shape);
        experts_program_t p = {.sent = 0};
        for (int i = 0; i < 3; i++) { /* rooms are used again */
            experts_program_draw(&p, &shape, &state);
            const char *fault = play(w, &shape, &p, &state);
            experts_program_free(&p);
            if (fault)
                fail_msg("round %d.%d: %s", round, i, fault);
        }
        world_free(w);
    }
}

/* Everything is armed again, whatever has passed: a rank that wrote too much, or armed too little, is found. */
static void test_armed(void **unused)
{
    (void)unused;
    uint64_t state = 4;
    for (int round = 0; round < 6; round++) {
        const alg_experts_shape_t shape = experts_draw_shape(3, 8, 800, &state);
        world_t *w = make(&shape);
        experts_program_t p = {.sent = 0};
        experts_program_draw(&p, &shape, &state);
        assert_null(play(w, &shape, &p, &state));
        experts_program_free(&p);
        /* Headers are not armed again; rows and escapes, behind them, are. */
        const size_t quads = (shape.most_top_k + 3) / 4, pairs = (shape.most_top_k + 1) / 2;
        const size_t header = (16 + shape.most_tokens * (quads + pairs) * 16 + 127) / 128 * 128;
        const size_t room = (w->map.total_bytes - ALG_CONTROL_BYTES) / (2 + alg_experts_staged(&shape));
        for (uint32_t r = 0; r < shape.nranks; r++) {
            for (size_t at = ALG_CONTROL_BYTES; at < w->map.total_bytes; at += room) {
                for (size_t i = shape.nranks * header; i < room; i++)
                    assert_int_equal(w->scratch[r][at + i], 0xff);
            }
        }
        world_free(w);
    }
}

static void test_bits_of_sums(void **unused)
{
    /* The same case on different grids: the same bits. */
    (void)unused;
    uint64_t state = 77;
    for (int round = 0; round < 8; round++) {
        const alg_experts_shape_t shape = experts_draw_shape(3, 7, 500, &state);
        world_t *w = make(&shape);
        experts_program_t p = {.sent = 0};
        experts_program_draw(&p, &shape, &state);
        uint8_t *first[3][EXPERTS_CASES] = {{NULL}};
        for (uint32_t blocks = 1; blocks <= MOST_BLOCKS; blocks++) {
            actor_t actor[3];
            pthread_t thread[3];
            for (uint32_t r = 0; r < 3; r++) {
                actor[r] = (actor_t){w, &shape, &p, {{0}}, r, (blocks + r) % MOST_BLOCKS + 1, ALG_STATUS_OK};
                for (uint32_t i = 0; i < EXPERTS_CASES; i++) {
                    experts_rank_make(&actor[r].buffers[i], (int)r, &cpu_memory, &shape);
                    experts_rank_load(&actor[r].buffers[i], &p.cases[i]);
                }
                assert_int_equal(pthread_create(&thread[r], NULL, actor_main, &actor[r]), 0);
            }
            for (uint32_t r = 0; r < 3; r++)
                pthread_join(thread[r], NULL);
            for (uint32_t r = 0; r < 3; r++) {
                assert_int_equal(actor[r].status, ALG_STATUS_OK);
                for (uint32_t i = 0; i < EXPERTS_CASES; i++) {
                    const size_t bytes = (size_t)p.cases[i].tokens[r] * p.cases[i].combine_bytes;
                    if (!first[r][i]) {
                        first[r][i] = malloc(bytes + 1);
                        assert_non_null(first[r][i]);
                        memcpy(first[r][i], actor[r].buffers[i].combine_out, bytes);
                    }
                    assert_int_equal(memcmp(first[r][i], actor[r].buffers[i].combine_out, bytes), 0);
                }
            }
            for (uint32_t r = 0; r < 3; r++) {
                for (uint32_t i = 0; i < EXPERTS_CASES; i++)
                    experts_rank_free(&actor[r].buffers[i]);
            }
        }
        for (uint32_t i = 0; i < 3 * EXPERTS_CASES; i++)
            free(first[i / EXPERTS_CASES][i % EXPERTS_CASES]);
        experts_program_free(&p);
        world_free(w);
    }
}

/* A rank that does not come: the others leave at their time limit, and no later call stores anything. */
static void test_missing_rank(void **unused)
{
    (void)unused;
    uint64_t state = 5;
    const alg_experts_shape_t shape = experts_draw_shape(3, 8, 400, &state);
    world_t *w = make(&shape);
    experts_program_t p = {.sent = 0};
    experts_program_draw(&p, &shape, &state);
    experts_rank_t buffers;
    experts_rank_make(&buffers, 0, &cpu_memory, &shape);
    experts_rank_load(&buffers, &p.cases[0]);
    alg_team_t team = world_team(w, 0);
    team.limit = alg_limit(50000000, 0);
    assert_int_equal(alg_experts_launch_cpu(&team, &shape, &buffers.dispatch), ALG_STATUS_TIMEOUT);
    w->control[0].abort = 0;
    uint8_t *before = malloc(w->map.total_bytes);
    assert_non_null(before);
    memcpy(before, w->scratch[1], w->map.total_bytes);
    alg_experts_launch_cpu(&team, &shape, &buffers.dispatch);
    alg_experts_launch_cpu(&team, &shape, &buffers.combine);
    assert_memory_equal(before, w->scratch[1], w->map.total_bytes);
    free(before);
    experts_rank_free(&buffers);
    experts_program_free(&p);
    world_free(w);
}

typedef struct lone_call {
    alg_team_t team;
    const alg_experts_shape_t *shape;
    experts_rank_t buffers;
    atomic_bool ended;
    int status;
} lone_call_t;

static void *dispatch_main(void *argument)
{
    lone_call_t *c = argument;
    c->status = alg_experts_launch_cpu(&c->team, c->shape, &c->buffers.dispatch);
    atomic_store(&c->ended, true);
    return NULL;
}

/* Waits until the call's kernel has waited for so many looks at who is gone, or has ended. */
static void await_looks(lone_call_t *c, uint64_t looks)
{
    while (__atomic_load_n(&c->team.control->wait_beat, __ATOMIC_ACQUIRE) < looks && !atomic_load(&c->ended))
        usleep(100);
}

/* A rank that has sent its part and gone is not missed while another one is waited for. */
static void test_gone_after_its_part(void **unused)
{
    (void)unused;
    uint64_t state = 6;
    const alg_experts_shape_t shape = experts_draw_shape(3, 8, 400, &state);
    world_t *w = make(&shape);
    experts_program_t p = {.sent = 0};
    experts_program_draw(&p, &shape, &state);
    lone_call_t call[3];
    pthread_t thread[3];
    static const int order[] = {1, 0, 2};
    for (int i = 0; i < 3; i++) {
        const int r = order[i];
        call[r] = (lone_call_t){.team = world_team(w, (uint32_t)r), .shape = &shape};
        experts_rank_make(&call[r].buffers, r, &cpu_memory, &shape);
        experts_rank_load(&call[r].buffers, &p.cases[0]);
        assert_int_equal(pthread_create(&thread[r], NULL, dispatch_main, &call[r]), 0);
        if (r == 1) {
            await_looks(&call[1], 1); /* a block sends all before it waits */
            __atomic_store_n(&w->control[0].gone, 1u << 1, __ATOMIC_RELEASE);
        } else if (r == 0) {
            await_looks(&call[0], 8);
            assert_false(atomic_load(&call[0].ended));
        }
    }
    for (int r = 0; r < 3; r++) {
        pthread_join(thread[r], NULL);
        assert_int_equal(call[r].status, ALG_STATUS_OK);
        experts_rank_free(&call[r].buffers);
    }
    experts_program_free(&p);
    world_free(w);
}

static void test_shapes(void **unused)
{
    (void)unused;
    alg_map_t map;
    const alg_experts_shape_t good = {2, 64, 128, 8, 14336, 0};
    assert_true(alg_experts_map(&good, &map));
    assert_true(map.total_bytes <= ALG_CONTROL_BYTES + ALG_EXPERTS_MOST_BYTES);
    assert_int_equal(alg_experts_staged(&good), ALG_EXPERTS_STAGED);
    for (uint32_t exact = ALG_EXPERTS_EXACT_NONE; exact <= ALG_EXPERTS_EXACT_ALL; exact++) {
        const alg_experts_shape_t eight = {8, 256, 128, 8, 14336, (alg_experts_exact_t)exact};
        assert_true(alg_experts_map(&eight, &map));
        assert_true(map.total_bytes <= ALG_CONTROL_BYTES + ALG_EXPERTS_MOST_BYTES);
    }
    /* Exact sums of two ranks take more memory, and fewer staged calls. */
    const alg_experts_shape_t exact = {2, 64, 128, 8, 14336, ALG_EXPERTS_EXACT_FP32};
    assert_true(alg_experts_map(&exact, &map));
    assert_true(map.total_bytes <= ALG_CONTROL_BYTES + ALG_EXPERTS_MOST_BYTES);
    assert_in_range(alg_experts_staged(&exact), 2, ALG_EXPERTS_STAGED - 1);
    const alg_experts_shape_t bad[] = {
        {1, 64, 128, 8, 14336, 0}, {9, 63, 128, 8, 14336, 0},    {2, 63, 128, 8, 14336, 0},
        {2, 0, 128, 8, 14336, 0},  {2, 65536, 128, 8, 14336, 0}, {2, 64, 0, 8, 14336, 0},
        {2, 64, 128, 0, 14336, 0}, {2, 64, 128, 33, 14336, 0},   {2, 64, 128, 8, 14340, 0},
        {2, 64, 128, 8, 0, 0},     {8, 64, 4096, 8, 14336, 0},   {2, 64, 1u << 31, 8, 14336, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(alg_experts_map(&bad[i], &map));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),       cmocka_unit_test(test_programs),
                                       cmocka_unit_test(test_armed),        cmocka_unit_test(test_bits_of_sums),
                                       cmocka_unit_test(test_missing_rank), cmocka_unit_test(test_gone_after_its_part)};
    return world_run("experts", tests, sizeof tests / sizeof *tests, argc, argv);
}
