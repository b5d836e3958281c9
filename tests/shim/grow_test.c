/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grow_test.c - pieces of scratch in random orders: ranks ask for pieces at any time and in any order, or not at all,
 * end, suspend and resume; memory fails on some. A rank may use a piece only if every rank has armed and mapped it, and
 * all ranks must get the same answer. The ranks are threads of one process, with shared memory; the thread under
 * test is the library's.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "shim/comm/grow.h"
#include "shim/comm/reap.h"
#include "shim/cpu/cpu.h"
#include "tests/support/scaled.h"

#ifndef ROUNDS
#define ROUNDS 30
#endif
enum { MOST = 4, CUT_BYTES = 40 << 20 };
#define LEAST_LIMIT_NS ((SHIM_GROW_LIMIT_MS - 2000) * UINT64_C(1000000)) /* of a meeting; a call's is 2 s longer */

typedef struct world {
    uint32_t nranks;
    shim_comm_t *comm[MOST];
    const alg_scratch_t *scratch[MOST];
    _Atomic uint32_t armed[MOST], opened[MOST]; /* bits: pieces */
    uint32_t fails[MOST];                       /* bits: pieces that the rank cannot make; */
    uint32_t unopened[MOST];                    /* or cannot map */
    uint32_t asks[MOST];                        /* pieces in the order of its calls, a digit each, last first */
    _Atomic uint32_t yes[MOST], no[MOST];       /* bits: answers */
    _Atomic uint32_t early;                     /* uses of a piece that some rank had not yet */
    _Atomic uint32_t late;                      /* waits that a limit may have ended */
    bool resumes[MOST], leaves[MOST];
    uint64_t seed;
} world_t;

static world_t *world;

static uint32_t draw(uint32_t below)
{
    world->seed = world->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(world->seed >> 33) % below;
}

static void nap_us(uint32_t us)
{
    nanosleep(&(struct timespec){0, (long)us * 1000}, NULL);
}

/* ---- Memory that fails and is slow ------------------------------------------------------- */

static uint32_t rank_of(const alg_scratch_t *scratch)
{
    uint32_t rank = 0;
    while (world->scratch[rank] != scratch)
        rank++;
    return rank;
}

int __real_alg_scratch_piece_create(alg_scratch_t *scratch, uint32_t piece, uint8_t offer[NET_OFFER_BYTES]);
int __wrap_alg_scratch_piece_create(alg_scratch_t *scratch, uint32_t piece, uint8_t offer[NET_OFFER_BYTES]);
int __wrap_alg_scratch_piece_create(alg_scratch_t *scratch, uint32_t piece, uint8_t offer[NET_OFFER_BYTES])
{
    const uint32_t rank = rank_of(scratch);
    return world->fails[rank] >> piece & 1 ? -ENOMEM : __real_alg_scratch_piece_create(scratch, piece, offer);
}

int __real_alg_scratch_piece_armed(alg_scratch_t *scratch, uint32_t piece);
int __wrap_alg_scratch_piece_armed(alg_scratch_t *scratch, uint32_t piece);
int __wrap_alg_scratch_piece_armed(alg_scratch_t *scratch, uint32_t piece)
{
    static _Thread_local uint32_t polls;
    if (++polls % 3 != 0)
        return 0;
    atomic_fetch_or(&world->armed[rank_of(scratch)], 1u << piece);
    return __real_alg_scratch_piece_armed(scratch, piece);
}

int __real_alg_scratch_piece_open(alg_scratch_t *scratch, uint32_t piece, uint8_t offers[][NET_OFFER_BYTES]);
int __wrap_alg_scratch_piece_open(alg_scratch_t *scratch, uint32_t piece, uint8_t offers[][NET_OFFER_BYTES]);
int __wrap_alg_scratch_piece_open(alg_scratch_t *scratch, uint32_t piece, uint8_t offers[][NET_OFFER_BYTES])
{
    const uint32_t rank = rank_of(scratch);
    if (world->unopened[rank] >> piece & 1)
        return -ENOMEM;
    if (rank + 1 == world->nranks)
        nap_us(3000); /* time for the other ranks' calls, which must not begin */
    const int error = __real_alg_scratch_piece_open(scratch, piece, offers);
    if (!error)
        atomic_fetch_or(&world->opened[rank], 1u << piece);
    return error;
}

/* ---- A broken peer that announces success at once -------------------------------------------- */

static atomic_bool lies;

net_verdict_t __real_net_verdict(const net_rendezvous_t *rendezvous);
net_verdict_t __wrap_net_verdict(const net_rendezvous_t *rendezvous);
net_verdict_t __wrap_net_verdict(const net_rendezvous_t *rendezvous)
{
    return atomic_load(&lies) ? NET_ATTACHED : __real_net_verdict(rendezvous);
}

/* ---- A look that is held up ----------------------------------------------------------------- */

enum { FREE, WANTED, HELD };
static atomic_int look = FREE; /* the thread's */
static atomic_uint looks;      /* keys that it has looked for */

bool __real_net_is_met(const net_key_t *key);
bool __wrap_net_is_met(const net_key_t *key);
bool __wrap_net_is_met(const net_key_t *key)
{
    if (atomic_load(&look) == WANTED && atomic_load(&world->comm[0]->asked) != 0) {
        atomic_store(&look, HELD);
        while (atomic_load(&look) == HELD)
            nap_us(100);
    }
    atomic_fetch_add(&looks, 1);
    return __real_net_is_met(key);
}

/* ---- A world of ranks ---------------------------------------------------------------------- */

static void make_scratches(world_t *w, alg_scratch_t **scratch)
{
    uint8_t offers[MOST][NET_OFFER_BYTES];
    alg_map_t map;
    const alg_set_t set = {{w->seed, 1}};
    assert_true(alg_map_init(&map, CUT_BYTES));
    alg_map_cut(&map, w->nranks, false);
    for (uint32_t r = 0; r < w->nranks; r++)
        assert_int_equal(alg_scratch_create(ALG_DEVICE_CPU, (int)r, NET_MEMORY_SHARED, &set, w->seed | 1, r, w->nranks,
                                            &map, &scratch[r], offers[r]),
                         0);
    for (uint32_t r = 0; r < w->nranks; r++)
        assert_int_equal(alg_scratch_open(scratch[r], offers), 0);
}

static void make_world(world_t *w, uint64_t seed)
{
    static uintptr_t handles = 0x1000;
    alg_scratch_t *scratch[MOST];
    *w = (world_t){.seed = seed * 77 + 5};
    world = w;
    w->nranks = 2 + draw(MOST - 1);
    make_scratches(w, scratch);
    const uint64_t own[2] = {w->seed, (uint64_t)getpid()}; /* this program may run several times at once */
    const net_key_t key = net_key_hash(own, sizeof own);
    for (uint32_t r = 0; r < w->nranks; r++) {
        shim_comm_t *comm = w->comm[r] = shim_comm_new(&shim_device_cpu);
        atomic_store(&comm->handle, (ncclComm_t)(handles += 64));
        comm->rank = r;
        comm->nranks = w->nranks;
        comm->key = key;
        comm->scratch = scratch[r];
        w->scratch[r] = scratch[r];
        assert_int_equal(shim_grow_start(&comm->bell[r]), 0);
        for (uint32_t peer = 0; peer < w->nranks; peer++)
            comm->bell[peer] = comm->bell[r];
        atomic_store(&comm->phase, SHIM_COMM_ATTACHED);
        assert_true(shim_comm_insert(comm));
        shim_grow_attached(comm);
    }
}

static void end_rank(shim_comm_t *comm)
{
    atomic_store(&comm->phase, SHIM_COMM_DEAD);
    shim_comm_drop(comm, atomic_load(&comm->handle));
    shim_comm_release(comm);
    shim_comm_collect();
}

/* End a world, whose job may still use the state. */
static void end_world(world_t *w)
{
    for (uint32_t r = 0; r < w->nranks; r++)
        if (w->comm[r] != NULL)
            end_rank(w->comm[r]);
    for (int i = 0; i < 2000 && alg_scratch_retired() + shim_comm_attached() > 0; i++)
        nap_us(1000);
    nap_us(3000);
    shim_comm_collect();
}

static bool all_have(const world_t *w, uint32_t piece)
{
    bool all = true;
    for (uint32_t r = 0; r < w->nranks; r++)
        all = all && atomic_load(&w->armed[r]) >> piece & 1 && atomic_load(&w->opened[r]) >> piece & 1;
    return all;
}

static void *run_rank(void *argument)
{
    const uint32_t rank = (uint32_t)(uintptr_t)argument;
    world_t *w = world;
    for (uint32_t asks = w->asks[rank]; asks > 0; asks /= 10) {
        const uint32_t piece = asks % 10;
        nap_us(rank * 700 * (piece == 2));
        const uint64_t begin_ns = net_now_ns();
        const bool there = shim_grow(w->comm[rank], piece);
        atomic_fetch_add(&w->late, net_now_ns() - begin_ns >= LEAST_LIMIT_NS);
        atomic_fetch_add(&w->early, there && !all_have(w, piece));
        atomic_fetch_or(there ? &w->yes[rank] : &w->no[rank], 1u << piece);
    }
    return NULL;
}

static void run_all(world_t *w, void *(*run)(void *))
{
    pthread_t thread[MOST];
    for (uint32_t r = 0; r < w->nranks; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, run, (void *)(uintptr_t)r), 0);
    for (uint32_t r = 0; r < w->nranks; r++)
        pthread_join(thread[r], NULL);
}

/* Check that in this world no rank has the answer yes and another one no. */
static void assert_alike(const world_t *w)
{
    uint32_t yes = 0, no = 0;
    for (uint32_t r = 0; r < w->nranks; r++) {
        yes |= atomic_load(&w->yes[r]);
        no |= atomic_load(&w->no[r]);
    }
    if (yes & no)
        print_error("a yes beside a no\n");
    assert_int_equal(yes & no, 0);
    if (atomic_load(&w->early))
        print_error("used before all had it\n");
    assert_int_equal(atomic_load(&w->early), 0);
    assert_int_equal(atomic_load(&w->late), 0);
    for (uint32_t r = 0; r < w->nranks; r++)
        assert_int_equal(yes & (w->fails[r] | w->unopened[r]), 0);
}

static void draw_asks(world_t *w)
{
    static const uint32_t orders[] = {123, 213, 312, 321, 31, 2, 0};
    for (uint32_t r = 0; r < w->nranks; r++)
        w->asks[r] = orders[draw(sizeof orders / sizeof orders[0])];
}

static void any_order(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)scaled(ROUNDS); round++) {
        world_t w;
        make_world(&w, round);
        draw_asks(&w);
        run_all(&w, run_rank);
        assert_alike(&w);
        for (uint32_t r = 0; r < w.nranks; r++)
            assert_int_equal(atomic_load(&w.no[r]), 0);
        end_world(&w);
    }
}

static void memory_fails(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)scaled(ROUNDS); round++) {
        world_t w;
        make_world(&w, round + 1000);
        draw_asks(&w);
        uint32_t *failing = draw(2) ? w.fails : w.unopened;
        const uint32_t rank = draw(w.nranks), piece = 1 + draw(3);
        failing[rank] = 1u << piece;
        run_all(&w, run_rank);
        for (uint32_t r = 0; r < w.nranks; r++)
            w.asks[r] = 10 * w.asks[r] + piece;
        run_all(&w, run_rank); /* the same answers again, also to ranks that have not asked for that piece */
        assert_alike(&w);
        end_world(&w);
    }
}

static void an_early_verdict_is_no_success(void **state)
{
    (void)state;
    world_t w;
    make_world(&w, 900);
    for (uint32_t r = 0; r < w.nranks; r++)
        w.asks[r] = 1;
    atomic_store(&lies, true);
    run_all(&w, run_rank);
    atomic_store(&lies, false);
    assert_alike(&w);
    for (uint32_t r = 0; r < w.nranks; r++)
        assert_int_equal(atomic_load(&w.yes[r]), 0);
    end_world(&w);
}

/* If a rank ends before or while the others ask, none waits until its time limit. */
static void a_rank_ends(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)scaled(ROUNDS / 2); round++) {
        world_t w;
        make_world(&w, round + 2000);
        draw_asks(&w);
        w.asks[0] = 0;
        pthread_t thread[MOST];
        for (uint32_t r = 1; r < w.nranks; r++)
            assert_int_equal(pthread_create(&thread[r], NULL, run_rank, (void *)(uintptr_t)r), 0);
        nap_us(draw(2000));
        end_rank(w.comm[0]);
        w.comm[0] = NULL;
        for (uint32_t r = 1; r < w.nranks; r++)
            pthread_join(thread[r], NULL);
        assert_alike(&w);
        end_world(&w);
    }
}

static void *suspend_and_resume(void *argument)
{
    const uint32_t rank = (uint32_t)(uintptr_t)argument;
    world_t *w = world;
    shim_grow_suspend(w->comm[rank]);
    nap_us(rank * 300);
    atomic_fetch_or(shim_grow_resume(w->comm[rank]) ? &w->yes[rank] : &w->no[rank], 1);
    return NULL;
}

/* After a suspend all pieces return on all ranks, or on none. */
static void suspends(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)scaled(ROUNDS); round++) {
        world_t w;
        make_world(&w, round + 3000);
        draw_asks(&w);
        run_all(&w, run_rank);
        const bool fails = draw(3) == 0;
        if (fails)
            w.fails[draw(w.nranks)] = 1;
        for (uint32_t r = 0; r < w.nranks; r++)
            atomic_store(&w.opened[r], 0);
        run_all(&w, suspend_and_resume);
        for (uint32_t r = 0; r < w.nranks; r++) {
            const uint32_t wanted = fails ? 0 : alg_scratch_pieces(w.comm[r]->scratch);
            assert_int_equal(atomic_load(&w.yes[r]) & 1, !fails);
            if (atomic_load(&w.opened[r]) != wanted)
                print_error("not all pieces have come again, or too many\n");
            assert_int_equal(atomic_load(&w.opened[r]), wanted);
            assert_int_equal(atomic_load(&w.comm[r]->phase), fails ? SHIM_COMM_FORWARD : SHIM_COMM_ATTACHED);
        }
        end_world(&w);
    }
}

/* The state that the next communicator gets, until it is this one. The others stay in use. */
static uint32_t make_until(const shim_comm_t *state, shim_comm_t *made[], uint32_t most)
{
    uint32_t count = 0;
    do
        made[count] = shim_comm_new(&shim_device_cpu);
    while (made[count++] != state && count < most);
    return count;
}

static void reuse_a_state(uint64_t round)
{
    enum { STATES = 256 };
    static shim_comm_t *made[STATES];
    world_t w;
    pthread_t thread;
    make_world(&w, round + 4000);
    shim_comm_t *comm = w.comm[0];
    const ncclComm_t handle = atomic_load(&comm->handle);
    w.asks[0] = 1;
    nap_us(3000); /* for the look that the ranks' beginning has caused */
    atomic_store(&look, WANTED);
    assert_int_equal(pthread_create(&thread, NULL, run_rank, NULL), 0);
    while (atomic_load(&look) != HELD)
        nap_us(100);
    atomic_store(&comm->phase, SHIM_COMM_DEAD);
    pthread_join(thread, NULL);
    end_rank(comm);
    const uint32_t count = make_until(comm, made, STATES);
    assert_ptr_equal(made[count - 1], comm);
    comm->nranks = w.nranks;
    atomic_store(&comm->handle, handle);
    assert_true(shim_comm_insert(comm));
    const unsigned before = atomic_load(&looks);
    atomic_store(&look, FREE);
    while (atomic_load(&looks) < before + 3 * w.nranks - 1)
        nap_us(100);
    nap_us(3000);
    assert_int_equal(atomic_load(&comm->declined), 0);
    for (uint32_t i = 0; i + 1 < count; i++)
        shim_comm_release(made[i]);
    end_world(&w);
}

/* A communicator that asks ends, and one that is being set up gets its state, and on the CPU device its handle with
 * it, while the thread is between the list and this rank. */
static void a_state_is_reused(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 10; round++)
        reuse_a_state(round);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order),         cmocka_unit_test(memory_fails),
        cmocka_unit_test(a_rank_ends),       cmocka_unit_test(suspends),
        cmocka_unit_test(a_state_is_reused), cmocka_unit_test(an_early_verdict_is_no_success),
    };
    alarm(600);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]); /* a mutant runs the one that must fail */
    return cmocka_run_group_tests_name("grow", tests, NULL, NULL);
}
