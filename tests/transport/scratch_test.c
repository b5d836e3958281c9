/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch_test.c - scratch of the CPU device: steps, proof, pool.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

#include "algorithms/scratch_device.h"
#include "team.h"
#include "tests/support/scaled.h"

enum { SCRATCH_BYTES = 1 << 20 };

static team_plan_t new_plan(void)
{
    team_plan_t plan = {.key = random_key(), .device = ALG_DEVICE_CPU, .kind = NET_MEMORY_SHARED, .devices = 1};
    if (!alg_map_init(&plan.map, SCRATCH_BYTES))
        abort();
    plan.id = plan.key.word[0] | 1;
    memcpy(plan.set.hash, plan.key.word, sizeof plan.set.hash);
    return plan;
}

static bool all_bytes(const uint8_t *at, size_t size, int value)
{
    return at[0] == value && memcmp(at, at + 1, size - 1) == 0; /* the sanitizers look at it as a whole */
}

static int check_piece_armed(alg_scratch_t *scratch, const alg_map_t *map, uint32_t piece)
{
    const alg_team_t *team = alg_scratch_team(scratch);
    const uint8_t *own = team->scratch[team->rank];
    const alg_span_t whole = map->piece[piece];
    if (piece == ALG_PIECE_FIRST) {
        CHECK(all_bytes(own, map->short_offset, 0));
        CHECK(all_bytes(own + map->short_offset, 2 * map->short_bytes, 0xff));
    } else {
        CHECK(all_bytes(own + whole.offset, whole.bytes, piece == ALG_PIECE_STAGING ? 0 : 0xff));
    }
    return 0;
}

static int check_pieces_armed(alg_scratch_t *scratch, const alg_map_t *map)
{
    for (uint32_t piece = 0; piece < ALG_PIECES; piece++)
        CHECK(!alg_scratch_has(scratch, piece) || check_piece_armed(scratch, map, piece) == 0);
    return 0;
}

static int check_armed(alg_scratch_t *scratch, const alg_map_t *map)
{
    if (map->pieces > 1)
        return check_pieces_armed(scratch, map);
    const alg_team_t *team = alg_scratch_team(scratch);
    const uint8_t *own = team->scratch[team->rank];
    size_t end = map->flags_offset;
    CHECK(all_bytes(own, map->half_offset, 0));
    CHECK(all_bytes(own + map->half_offset, end - map->half_offset, 0xff));
    CHECK(all_bytes(own + end, map->total_bytes - end, 0));
    CHECK(alg_scratch_control(scratch)->abort == 0 && alg_scratch_control(scratch)->status == 0);
    return 0;
}

/* ---- Teams ------------------------------------------------------------------------------ */

/* Build, write into every peer's memory, check the peers' words in the own one, release, and build again from the
 * pool. */
static int build_twice(uint32_t rank, uint32_t nranks, void *argument)
{
    team_plan_t plan = *(const team_plan_t *)argument;
    alg_scratch_t *scratch;
    bool reused = true;
    CHECK(team_build(&plan, rank, nranks, &scratch, &reused) == 0);
    CHECK(!reused);
    CHECK(check_armed(scratch, &plan.map) == 0);
    alg_team_t *team = alg_scratch_team(scratch);
    CHECK(team->rank == rank && team->nranks == nranks && team->control == alg_scratch_control(scratch));
    CHECK(team->half_offset == plan.map.half_offset && team->staging_bytes == plan.map.staging_bytes);
    CHECK(team_meet(&plan, "armed everywhere", rank, nranks) == 0);
    for (uint32_t peer = 0; peer < nranks; peer++)
        team->scratch[peer][plan.map.half_offset + rank] = (uint8_t)(rank * 8 + peer);
    team->scratch[rank][ALG_EPOCH_OFFSET] = 9;
    CHECK(team_meet(&plan, "written everywhere", rank, nranks) == 0);
    for (uint32_t peer = 0; peer < nranks; peer++)
        CHECK(team->scratch[rank][plan.map.half_offset + peer] == peer * 8 + rank);
    CHECK(team_meet(&plan, "read everywhere", rank, nranks) == 0);
    team->limit = 5;
    alg_scratch_release(scratch, true);
    /* All have released theirs before any asks, as with ranks that destroy and create in order. */
    CHECK(team_meet(&plan, "given back", rank, nranks) == 0);
    plan.key.word[0]++;
    plan.id++;
    CHECK(team_build(&plan, rank, nranks, &scratch, &reused) == 0);
    CHECK(reused);
    CHECK(check_armed(scratch, &plan.map) == 0);
    CHECK(alg_scratch_team(scratch)->limit == 0);
    CHECK(team_meet(&plan, "checked", rank, nranks) == 0);
    alg_scratch_release(scratch, false);
    CHECK(alg_scratch_idle(&plan.set, rank, &plan.map) == 0);
    return 0;
}

static void test_processes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ALG_MAX_RANKS * NET_CPU_KINDS; i++) {
        team_plan_t plan = new_plan();
        plan.kind = (net_memory_kind_t)(i % NET_CPU_KINDS);
        assert_int_equal(run_processes(1 + i / NET_CPU_KINDS, build_twice, &plan), 0);
    }
}

static void test_threads(void **state)
{
    (void)state;
    for (uint32_t nranks = 1; nranks <= ALG_MAX_RANKS; nranks++) {
        team_plan_t plan = new_plan();
        assert_int_equal(run_threads(nranks, build_twice, &plan), 0);
    }
}

/* Build in one thread for all ranks: each step for all ranks before the next. */
static void build_alone(const team_plan_t *plan, uint32_t nranks, alg_scratch_t **scratch)
{
    uint8_t offers[ALG_MAX_RANKS][NET_OFFER_BYTES];
    for (uint32_t rank = 0; rank < nranks; rank++)
        assert_int_equal(alg_scratch_create(plan->device, (int)rank, plan->kind, &plan->set, plan->id, rank, nranks,
                                            &plan->map, &scratch[rank], offers[rank]),
                         0);
    for (uint32_t rank = 0; rank < nranks; rank++)
        assert_int_equal(alg_scratch_send(scratch[rank], offers), 0);
    for (uint32_t rank = 0; rank < nranks; rank++)
        assert_int_equal(alg_scratch_open(scratch[rank], offers), 0);
}

static void prove_alone(uint32_t nranks, alg_scratch_t **scratch, uint64_t token)
{
    for (uint32_t rank = 0; rank < nranks; rank++)
        assert_int_equal(alg_scratch_prove_write(scratch[rank], token), 0);
    for (uint32_t rank = 0; rank < nranks; rank++)
        assert_int_equal(alg_scratch_prove_read(scratch[rank], token), 0);
}

static void test_one_thread_for_all(void **state)
{
    (void)state;
    team_plan_t plan = new_plan();
    alg_scratch_t *scratch[ALG_MAX_RANKS];
    build_alone(&plan, ALG_MAX_RANKS, scratch);
    prove_alone(ALG_MAX_RANKS, scratch, 1);
    for (uint32_t rank = 0; rank < ALG_MAX_RANKS; rank++)
        assert_int_equal(check_armed(scratch[rank], &plan.map), 0); /* the mailboxes too */
    for (uint32_t rank = 0; rank < ALG_MAX_RANKS; rank++)
        alg_scratch_release(scratch[rank], false);
    alg_scratch_release(NULL, true);
}

/* ---- Pieces --------------------------------------------------------------------------------- */

enum { CUT_BYTES = 40 << 20 };

static team_plan_t new_cut_plan(uint32_t nranks)
{
    team_plan_t plan = new_plan();
    if (!alg_map_init(&plan.map, CUT_BYTES))
        abort();
    alg_map_cut(&plan.map, nranks, false);
    return plan;
}

/* Make a piece with all ranks; `meeting` names the exchange. */
static int make_piece(const team_plan_t *plan, alg_scratch_t *scratch, uint32_t rank, uint32_t nranks, uint32_t piece,
                      const char *meeting)
{
    uint8_t offers[ALG_MAX_RANKS][NET_OFFER_BYTES];
    uint8_t offer[NET_OFFER_BYTES];
    CHECK(alg_scratch_piece_create(scratch, piece, offer) == 0);
    CHECK(alg_scratch_piece_armed(scratch, piece) == 1);
    CHECK(team_exchange(plan, meeting, rank, nranks, offer, offers) == 0);
    CHECK(alg_scratch_piece_send(scratch, piece, offers) == 0);
    CHECK(team_meet(plan, meeting, rank, nranks) == 0);
    CHECK(alg_scratch_piece_open(scratch, piece, offers) == 0);
    alg_scratch_piece_end(scratch, piece, true);
    CHECK(team_meet(plan, "opened", rank, nranks) == 0);
    return 0;
}

/* Store into every scratch at `offset`, and check the words that the others stored in this rank's. */
static int store_everywhere(const team_plan_t *plan, alg_scratch_t *scratch, uint32_t rank, uint32_t nranks,
                            size_t offset)
{
    const alg_team_t *team = alg_scratch_team(scratch);
    for (uint32_t peer = 0; peer < nranks; peer++)
        team->scratch[peer][offset + rank] = (uint8_t)(rank * 8 + peer);
    CHECK(team_meet(plan, "stored", rank, nranks) == 0);
    for (uint32_t peer = 0; peer < nranks; peer++)
        CHECK(team->scratch[rank][offset + peer] == peer * 8 + rank);
    CHECK(team_meet(plan, "read", rank, nranks) == 0);
    return 0;
}

static int grow_and_suspend(uint32_t rank, uint32_t nranks, void *argument)
{
    static const uint32_t order[] = {ALG_PIECE_STAGING, ALG_PIECE_HALVES};
    team_plan_t plan = *(const team_plan_t *)argument;
    alg_scratch_t *scratch;
    bool reused;
    CHECK(team_build(&plan, rank, nranks, &scratch, &reused) == 0);
    CHECK(check_armed(scratch, &plan.map) == 0);
    CHECK(alg_scratch_bytes(scratch) == plan.map.piece[ALG_PIECE_FIRST].bytes);
    CHECK(team_meet(&plan, "checked", rank, nranks) == 0);
    const alg_team_t before = *alg_scratch_team(scratch);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(!alg_scratch_has(scratch, order[i]));
        CHECK(make_piece(&plan, scratch, rank, nranks, order[i], i ? "two" : "one") == 0);
        CHECK(check_piece_armed(scratch, &plan.map, order[i]) == 0);
        CHECK(team_meet(&plan, "armed", rank, nranks) == 0);
        CHECK(store_everywhere(&plan, scratch, rank, nranks, plan.map.piece[order[i]].offset) == 0);
    }
    CHECK(!alg_scratch_has(scratch, ALG_PIECE_RINGS));
    for (int round = 0; round < 3; round++) {
        CHECK(alg_scratch_suspend(scratch) == 0);
        CHECK(team_meet(&plan, "suspended", rank, nranks) == 0);
        for (uint32_t piece = 0; piece < ALG_PIECES; piece++)
            if (alg_scratch_pieces(scratch) >> piece & 1)
                CHECK(make_piece(&plan, scratch, rank, nranks, piece, "again") == 0);
        alg_scratch_resumed(scratch);
        CHECK(memcmp(&before, alg_scratch_team(scratch), sizeof before) == 0); /* the same addresses */
        CHECK(check_armed(scratch, &plan.map) == 0);
        CHECK(team_meet(&plan, "resumed", rank, nranks) == 0);
        CHECK(store_everywhere(&plan, scratch, rank, nranks, plan.map.half_offset) == 0);
        CHECK(store_everywhere(&plan, scratch, rank, nranks, plan.map.short_offset) == 0);
    }
    alg_scratch_release(scratch, true);
    CHECK(team_meet(&plan, "given back", rank, nranks) == 0);
    plan.key.word[0]++;
    plan.id++;
    CHECK(team_build(&plan, rank, nranks, &scratch, &reused) == 0);
    CHECK(reused && alg_scratch_has(scratch, ALG_PIECE_HALVES) && check_armed(scratch, &plan.map) == 0);
    CHECK(team_meet(&plan, "checked again", rank, nranks) == 0);
    CHECK(alg_scratch_suspend(scratch) == 0);
    alg_scratch_release(scratch, true); /* without memory nobody wants it */
    CHECK(alg_scratch_idle(&plan.set, rank, &plan.map) == 0);
    return 0;
}

static void test_pieces(void **state)
{
    (void)state;
    for (uint32_t nranks = 1; nranks <= (SEES_THREADS ? 2 : 4); nranks++) {
        for (uint32_t kind = 0; kind < NET_CPU_KINDS; kind++) {
            team_plan_t plan = new_cut_plan(nranks);
            plan.kind = (net_memory_kind_t)kind;
            if (net_memory_facts[kind].ranges)
                assert_int_equal(run_processes(nranks, grow_and_suspend, &plan), 0);
        }
        team_plan_t plan = new_cut_plan(nranks);
        assert_int_equal(run_threads(nranks, grow_and_suspend, &plan), 0);
    }
}

/* A piece that not all ranks could allocate is freed, and can be made later. */
static void test_declined_piece(void **state)
{
    (void)state;
    team_plan_t plan = new_cut_plan(2);
    alg_scratch_t *scratch[2];
    uint8_t offers[2][NET_OFFER_BYTES];
    build_alone(&plan, 2, scratch);
    prove_alone(2, scratch, 1);
    const int before = mappings_of("memfd:shunt");
    for (int round = 0; round < 2; round++) {
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(alg_scratch_piece_create(scratch[rank], ALG_PIECE_RINGS, offers[rank]), 0);
        assert_int_equal(alg_scratch_piece_create(scratch[0], ALG_PIECE_RINGS, offers[0]), -EINVAL);
        assert_int_equal(alg_scratch_piece_open(scratch[0], ALG_PIECE_RINGS, offers), 0);
        for (uint32_t rank = 0; rank < 2; rank++)
            alg_scratch_piece_end(scratch[rank], ALG_PIECE_RINGS, false);
        assert_false(alg_scratch_has(scratch[0], ALG_PIECE_RINGS));
        assert_int_equal(mappings_of("memfd:shunt"), before);
    }
    assert_int_equal(alg_scratch_piece_create(scratch[0], ALG_PIECES, offers[0]), -EINVAL);
    for (uint32_t rank = 0; rank < 2; rank++)
        alg_scratch_release(scratch[rank], false);
    assert_int_equal(mappings_of("memfd:shunt"), 0);
}

/* The first piece has room for the short calls that the map names, of any algorithm, type and number of ranks. */
static void test_short_calls_fit(void **state)
{
    (void)state;
    for (uint32_t nranks = 2; nranks <= ALG_MAX_RANKS; nranks++) {
        alg_map_t map, whole;
        assert_true(alg_map_init(&whole, (size_t)80 << 20));
        map = whole;
        alg_map_cut(&map, nranks, false);
        assert_int_equal(map.half_bytes, whole.half_bytes);
        assert_int_equal(map.piece[ALG_PIECE_FIRST].bytes, (nranks > 2 ? 8 : 4) << 20);
        assert_true(nranks > 4 || map.short_most >= 900 << 10);
        alg_map_t brief = map;
        brief.half_bytes = map.short_bytes;
        const alg_team_t team = {.nranks = nranks, .half_bytes = map.short_bytes, .half_offset = map.short_offset};
        for (uint32_t i = 0; i < alg_registry_count; i++) {
            const alg_algorithm_t *algorithm = alg_registry[i];
            if (algorithm->memory != ALG_MEMORY_PEER || alg_piece_of(&map, algorithm, map.short_most) != 0)
                continue;
            for (int type = 0; type < ALG_TYPE_COUNT; type++) {
                const uint64_t full = algorithm->max_bytes(&map, nranks, (alg_type_t)type);
                const uint64_t fits = algorithm->max_bytes(&brief, nranks, (alg_type_t)type);
                assert_true(fits >= map.short_most || fits == full);
                const alg_call_t call = {.collective = algorithm->collective, .type = (alg_type_t)type};
                if (algorithm->part_bytes != NULL && alg_collective_rooted(algorithm->collective))
                    assert_true(algorithm->part_bytes(&team, &call) >= map.short_most);
                assert_int_equal(algorithm->piece, ALG_PIECE_HALVES);
            }
        }
    }
    alg_map_t small;
    assert_true(alg_map_init(&small, (size_t)16 << 20));
    alg_map_cut(&small, 2, false);
    assert_int_equal(small.pieces, 1);
}

/* ---- The proof ----------------------------------------------------------------------------- */

static void test_proof_finds_faults(void **state)
{
    (void)state;
    team_plan_t plan = new_plan();
    alg_scratch_t *scratch[3];
    build_alone(&plan, 3, scratch);
    alg_team_t *team = alg_scratch_team(scratch[0]);
    /* No rank has written. */
    assert_int_equal(alg_scratch_prove_read(scratch[0], 5), -EIO);
    /* One is missing. */
    assert_int_equal(alg_scratch_prove_write(scratch[1], 5), 0);
    assert_int_equal(alg_scratch_prove_read(scratch[0], 5), -EIO);
    /* Another token. */
    assert_int_equal(alg_scratch_prove_write(scratch[1], 5), 0);
    assert_int_equal(alg_scratch_prove_write(scratch[2], 6), 0);
    assert_int_equal(alg_scratch_prove_read(scratch[0], 5), -EIO);
    /* The peers' mappings are swapped: the words arrive, but at the wrong rank. */
    team = alg_scratch_team(scratch[2]);
    uint8_t *kept = team->scratch[0];
    team->scratch[0] = team->scratch[1];
    team->scratch[1] = kept;
    assert_int_equal(alg_scratch_prove_write(scratch[1], 5), 0);
    assert_int_equal(alg_scratch_prove_write(scratch[2], 5), 0);
    assert_int_equal(alg_scratch_prove_read(scratch[0], 5), -EIO);
    team->scratch[1] = team->scratch[0];
    team->scratch[0] = kept;
    /* Unproven, it is not kept. */
    alg_scratch_release(scratch[0], true);
    assert_int_equal(alg_scratch_idle(&plan.set, 0, &plan.map), 0);
    alg_scratch_release(scratch[1], false);
    alg_scratch_release(scratch[2], false);
}

static void test_arguments(void **state)
{
    (void)state;
    team_plan_t plan = new_plan();
    uint8_t offers[2][NET_OFFER_BYTES];
    alg_scratch_t *a = NULL, *b = NULL;
    alg_map_t bad = plan.map;
    bad.half_bytes = bad.total_bytes;
#define CREATE(device, kind, id, rank, nranks, map) \
    alg_scratch_create(device, 0, kind, &plan.set, id, rank, nranks, map, &a, offers[0])
    assert_int_equal(CREATE(ALG_DEVICE_CPU, NET_MEMORY_SHARED, 1, 2, 2, &plan.map), -EINVAL);
    assert_int_equal(CREATE(ALG_DEVICE_CPU, NET_MEMORY_SHARED, 1, 0, ALG_MAX_RANKS + 1, &plan.map), -EINVAL);
    assert_int_equal(CREATE(ALG_DEVICE_CPU, NET_MEMORY_SHARED, 0, 0, 2, &plan.map), -EINVAL);
    assert_int_equal(CREATE(ALG_DEVICE_CPU, NET_MEMORY_SHARED, 1, 0, 2, &bad), -EINVAL);
    assert_int_equal(CREATE(ALG_DEVICE_CPU, NET_MEMORY_CUDA_IPC, 1, 0, 2, &plan.map), -ENOSYS);
    assert_int_equal(CREATE(ALG_DEVICE_CUDA, NET_MEMORY_SHARED, 1, 0, 2, &plan.map), -ENOSYS);
    if (access("/dev/nvidiactl", F_OK) != 0) {
        for (net_memory_kind_t kind = NET_CPU_KINDS; kind < NET_MEMORY_KINDS; kind++)
            assert_int_equal(CREATE(ALG_DEVICE_CUDA, kind, 1, 0, 2, &plan.map), -ENOSYS);
    }
    assert_null(a);
    alg_map_t pinned; /* its layout differs */
    assert_true(alg_map_init_shm(&pinned, SCRATCH_BYTES));
    assert_int_equal(CREATE(ALG_DEVICE_CPU, NET_MEMORY_SHARED, 1, 0, 2, &pinned), 0);
    alg_scratch_release(a, false);
    assert_int_equal(CREATE(ALG_DEVICE_CPU, NET_MEMORY_SHARED, 1, 0, 2, &plan.map), 0);
#undef CREATE
    assert_int_equal(alg_scratch_prove_write(a, 1), -EINVAL); /* not open yet */
    /* A peer whose scratch is smaller than agreed. */
    alg_map_t larger;
    assert_true(alg_map_init(&larger, 2 * SCRATCH_BYTES));
    assert_int_equal(
        alg_scratch_create(ALG_DEVICE_CPU, 1, NET_MEMORY_SHARED, &plan.set, 1, 1, 2, &larger, &b, offers[1]), 0);
    assert_int_equal(alg_scratch_open(b, offers), -EPROTO);
    assert_int_equal(alg_scratch_open(a, offers), 0);
    memset(offers[0], 0xab, NET_OFFER_BYTES);
    assert_int_equal(alg_scratch_open(b, offers), -EPROTO);
    alg_scratch_release(b, false);
    alg_scratch_release(a, false);
}

/* ---- The pool --------------------------------------------------------------------------------- */

/* A proven scratch of one rank, not given back. */
static alg_scratch_t *single(const team_plan_t *plan)
{
    alg_scratch_t *scratch;
    build_alone(plan, 1, &scratch);
    prove_alone(1, &scratch, 1);
    return scratch;
}

static void test_pool_offers_the_newest_once(void **state)
{
    (void)state;
    team_plan_t plan = new_plan(), other = new_plan();
    alg_scratch_t *first, *second, *taken;
    plan.id = 1000;
    first = single(&plan);
    plan.id = 500;
    second = single(&plan);
    alg_scratch_release(second, true);
    alg_scratch_release(first, true);
    assert_int_equal(alg_scratch_idle(&other.set, 0, &plan.map), 0);
    assert_int_equal(alg_scratch_idle(&plan.set, 1, &plan.map), 0);
    other.map.half_bytes--;
    assert_int_equal(alg_scratch_idle(&plan.set, 0, &other.map), 0);
    assert_int_equal(alg_scratch_idle(&plan.set, 0, &plan.map), 500);
    assert_int_equal(alg_scratch_idle(&plan.set, 0, &plan.map), 1000);
    assert_int_equal(alg_scratch_idle(&plan.set, 0, &plan.map), 0);
    assert_int_equal(alg_scratch_take(500, 1, &taken), -ENOENT);
    assert_int_equal(alg_scratch_take(7, 0, &taken), -ENOENT);
    assert_int_equal(alg_scratch_take(500, 0, &taken), 0);
    assert_int_equal(alg_scratch_take(500, 0, &taken), -ENOENT);
    alg_scratch_release(taken, true);
    assert_int_equal(alg_scratch_idle(&plan.set, 0, &plan.map), 500);
    alg_scratch_leave_idle(1000, 0);
    alg_scratch_pool_trim(); /* 500 was offered */
    assert_int_equal(alg_scratch_take(1000, 0, &taken), -ENOENT);
    alg_scratch_leave_idle(500, 1); /* another rank's */
    assert_int_equal(alg_scratch_idle(&plan.set, 0, &plan.map), 0);
    alg_scratch_leave_idle(500, 0);
    assert_int_equal(alg_scratch_idle(&plan.set, 0, &plan.map), 500);
    alg_scratch_leave_idle(500, 0);
    alg_scratch_pool_trim();
    assert_int_equal(alg_scratch_take(500, 0, &taken), -ENOENT);
}

static void test_pool_is_bounded(void **state)
{
    (void)state;
    team_plan_t plan = new_plan();
    alg_scratch_t *scratch[10], *taken;
    int before = open_descriptors();
    for (uint64_t i = 0; i < 10; i++) {
        plan.id = i + 1;
        scratch[i] = single(&plan);
    }
    for (uint64_t i = 0; i < 10; i++)
        alg_scratch_release(scratch[i], true);
    assert_int_equal(open_descriptors(), before + 4);
    assert_int_equal(alg_scratch_take(6, 0, &taken), -ENOENT);
    assert_int_equal(alg_scratch_take(7, 0, &taken), 0);
    alg_scratch_release(taken, false);
    alg_scratch_pool_trim();
    assert_int_equal(open_descriptors(), before);
}

static void test_aborted_is_not_kept(void **state)
{
    (void)state;
    team_plan_t plan = new_plan();
    alg_scratch_t *scratch = single(&plan);
    alg_scratch_control(scratch)->abort = 1;
    alg_scratch_release(scratch, true);
    assert_int_equal(alg_scratch_idle(&plan.set, 0, &plan.map), 0);
    scratch = single(&plan);
    alg_scratch_control(scratch)->status = ALG_STATUS_TIMEOUT;
    alg_scratch_release(scratch, true);
    assert_int_equal(alg_scratch_idle(&plan.set, 0, &plan.map), 0);
}

static int build_and_die(uint32_t rank, uint32_t nranks, void *argument)
{
    alg_scratch_t *scratch;
    bool reused;
    CHECK(team_build(argument, rank, nranks, &scratch, &reused) == 0);
    return 0;
}

static void test_dead_peers_are_swept(void **state)
{
    (void)state;
    team_plan_t plan = new_plan();
    alg_scratch_t *scratch;
    bool reused;
    int before = open_descriptors();
    pid_t child = start_child(build_and_die, 1, 2, &plan);
    assert_int_equal(team_build(&plan, 0, 2, &scratch, &reused), 0);
    assert_true(wait_child(child));
    alg_scratch_release(scratch, true);
    assert_int_equal(alg_scratch_idle(&plan.set, 0, &plan.map), 0);
    assert_int_equal(open_descriptors(), before);
}

/* A child forked while the pool is full neither uses nor damages the inherited scratches. */
static int use_after_fork(uint32_t rank, uint32_t nranks, void *argument)
{
    team_plan_t plan = new_plan();
    (void)rank, (void)nranks;
    alg_scratch_release(argument, true);
    alg_scratch_t *own = single(&plan);
    alg_scratch_release(own, true);
    alg_scratch_pool_trim();
    return 0;
}

static void test_fork(void **state)
{
    (void)state;
    team_plan_t plan = new_plan();
    alg_scratch_t *idle = single(&plan);
    plan.id++;
    alg_scratch_t *used = single(&plan);
    alg_scratch_release(idle, true);
    assert_int_equal(run_processes(1, use_after_fork, used), 0);
    assert_int_equal(check_armed(used, &plan.map), 0);
    alg_scratch_release(used, true);
    assert_int_equal(alg_scratch_idle(&plan.set, 0, &plan.map), plan.id);
    alg_scratch_leave_idle(plan.id, 0);
    alg_scratch_pool_trim();
}

/* ---- Leaks --------------------------------------------------------------------------------------- */

typedef struct counts {
    int descriptors, mappings;
} counts_t;

static counts_t count_now(void)
{
    return (counts_t){open_descriptors(), mappings_of("memfd:shunt")};
}

static void test_no_leak(void **state)
{
    (void)state;
    counts_t first = {0}, last;
    for (int cycle = 0; cycle < 200; cycle++) {
        team_plan_t plan = new_plan();
        alg_scratch_t *scratch[3];
        build_alone(&plan, 3, scratch);
        if (cycle % 2)
            prove_alone(3, scratch, 2);
        for (uint32_t rank = 0; rank < 3; rank++)
            alg_scratch_release(scratch[rank], true);
        if (cycle == 19)
            first = count_now();
    }
    last = count_now();
    assert_int_equal(last.descriptors, first.descriptors);
    assert_int_equal(last.mappings, first.mappings);
    alg_scratch_pool_trim();
    assert_int_equal(count_now().mappings, 0);
}

static int cycle_in_processes(uint32_t rank, uint32_t nranks, void *argument)
{
    counts_t first = {0}, last;
    team_plan_t plan = *(const team_plan_t *)argument;
    for (int cycle = 0; cycle < 100; cycle++) {
        alg_scratch_t *scratch;
        bool reused;
        plan.key.word[0]++;
        plan.id++;
        CHECK(team_build(&plan, rank, nranks, &scratch, &reused) == 0);
        CHECK(team_meet(&plan, "built", rank, nranks) == 0);
        alg_scratch_release(scratch, cycle % 4 != 0);
        CHECK(team_meet(&plan, "given back", rank, nranks) == 0);
        if (cycle == 20)
            first = count_now();
    }
    last = count_now();
    CHECK(last.descriptors == first.descriptors || last.descriptors == first.descriptors + 1);
    CHECK(last.mappings <= first.mappings + (int)nranks);
    alg_scratch_pool_trim();
    CHECK(count_now().mappings == 0);
    return 0;
}

static void test_no_leak_in_processes(void **state)
{
    (void)state;
    team_plan_t plan = new_plan();
    assert_int_equal(run_processes(2, cycle_in_processes, &plan), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_one_thread_for_all),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_declined_piece),
        cmocka_unit_test(test_short_calls_fit),
        cmocka_unit_test(test_proof_finds_faults),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_pool_offers_the_newest_once),
        cmocka_unit_test(test_pool_is_bounded),
        cmocka_unit_test(test_aborted_is_not_kept),
        cmocka_unit_test(test_dead_peers_are_swept),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_no_leak),
        cmocka_unit_test(test_no_leak_in_processes),
    };
    return cmocka_run_group_tests_name("scratch", tests, NULL, NULL);
}
