/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that leave, on the CPU device: a rank that leaves after its part does not disturb the others, and calls that
 * still need it end. Ranks are threads; the test marks ranks as gone, as shim/cpu/watch.c does.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/collective.h"
#include "world.h"

enum { SCRATCH = 1 << 20, COUNT = 3000, RANKS = 4, LONG_BYTES = 600000 }; /* longer than a ring */

static void lose(world_t *w, uint32_t rank, uint32_t gone)
{
    __atomic_fetch_or(&w->control[rank].gone, 1u << gone, __ATOMIC_ACQ_REL);
}

/* ---- Collectives ---------------------------------------------------------------------------- */

typedef struct caller {
    world_t *world;
    const alg_algorithm_t *algorithm;
    uint32_t rank;
    uint32_t roots; /* calls of so many, which some ranks make in one */
    float in[RANKS * COUNT], out[RANKS * COUNT];
    int status;
} caller_t;

static void *call_once(void *argument)
{
    caller_t *c = argument;
    const alg_team_t team = world_team(c->world, c->rank);
    alg_call_t call = {.collective = c->algorithm->collective,
                       .root = 1,
                       .input = c->in,
                       .output = c->out,
                       .count = COUNT,
                       .type = ALG_FLOAT32,
                       .op = ALG_SUM,
                       .blocks = 2,
                       .threads = 1};
    if (c->rank == 0)
        usleep(3000); /* the others wait, and check who is gone */
    const bool together = c->roots > 1 && c->rank % 2 == 1;
    const alg_part_t parts[] = {{1, c->in, c->out, COUNT}, {2, c->in + COUNT, c->out + COUNT, COUNT}};
    if (together) {
        call.blocks = 3;
        call.part_count = 2;
        call.parts = parts;
    }
    c->status = c->algorithm->launch_cpu(&team, &call);
    if (c->roots > 1 && !together && c->status == ALG_STATUS_OK) {
        call.root = 2;
        call.input = c->in + COUNT;
        call.output = c->out + COUNT;
        c->status = c->algorithm->launch_cpu(&team, &call);
    }
    return NULL;
}

/* The ranks below `ranks` make a call. */
static void call_all(caller_t caller[RANKS], uint32_t ranks, pthread_t thread[RANKS])
{
    for (uint32_t r = 0; r < ranks; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, call_once, &caller[r]), 0);
}

static void join_all(uint32_t ranks, const pthread_t thread[RANKS])
{
    for (uint32_t r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
}

static uint64_t word_at(const world_t *w, uint32_t rank, size_t offset)
{
    return __atomic_load_n((uint64_t *)(void *)(w->scratch[rank] + offset), __ATOMIC_ACQUIRE);
}

typedef void (*try_t)(world_t *w, caller_t caller[RANKS]);

static void each_algorithm(try_t try)
{
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        const alg_algorithm_t *a = alg_registry[i];
        if (a->collective == ALG_SEND_RECV || a->memory == ALG_MEMORY_NETWORK)
            continue;
        static caller_t caller[RANKS];
        const size_t room = world_room(a, RANKS, SCRATCH);
        /* The CPU device makes a list of all-reduces one by one. */
        const bool together = a->part_bytes && alg_collective_rooted(a->collective);
        for (uint32_t roots = 1; roots <= (together ? 2 : 1); roots++) {
            world_t *w = world_make(RANKS, a->memory, room);
            for (uint32_t r = 0; r < RANKS; r++)
                caller[r] = (caller_t){.world = w, .algorithm = a, .rank = r, .roots = roots};
            try(w, caller);
            world_free(w);
        }
    }
}

/* Call number `call`, or its part: of root 1, or 2. */
static coll_t case_of(const caller_t *c, uint64_t call, uint32_t part)
{
    return (coll_t){.collective = c->algorithm->collective,
                    .root = 1 + part,
                    .c = {ncclFloat32, REF_SUM, DATA_RANDOM, 10 * call + part, COUNT, RANKS}};
}

static void fill_all(caller_t caller[RANKS], uint64_t call)
{
    for (uint32_t i = 0; i < RANKS * caller[0].roots; i++) {
        const coll_t k = case_of(&caller[0], call, i / RANKS);
        coll_fill(&k, i % RANKS, caller[i % RANKS].in + i / RANKS * COUNT);
    }
}

static void assert_right(const caller_t caller[RANKS], uint64_t call)
{
    char fault[160] = "";
    bool right = true;
    for (uint32_t i = 0; i < RANKS * caller[0].roots && right; i++) {
        const coll_t k = case_of(&caller[0], call, i / RANKS);
        right = coll_output_count(&k, i % RANKS) == 0 ||
                coll_right(&k, i % RANKS, caller[i % RANKS].out + i / RANKS * COUNT, fault, sizeof fault);
    }
    if (!right)
        print_error("%s by %s: %s\n", alg_collective_name(caller[0].algorithm->collective), caller[0].algorithm->name,
                    fault);
    assert_true(right);
}

/* Set the last rank's word of ended calls and mark the rank as gone before each call: the others must rely on the
 * word. Not an all-reduce by bulk copies: the end of its first kernel would overwrite the word. Two other algorithms
 * have its two kernels. */
static void end_early(world_t *w, caller_t caller[RANKS])
{
    pthread_t thread[RANKS];
    if (caller[0].algorithm == alg_find(ALG_ALL_REDUCE, "bulk"))
        return;
    for (uint64_t call = 1; call <= 3; call++) {
        const uint64_t ended = call * caller[0].roots;
        __atomic_store_n((uint64_t *)(void *)(w->scratch[RANKS - 1] + ALG_ENDED_OFFSET), ended, __ATOMIC_RELEASE);
        for (uint32_t r = 0; r + 1 < RANKS; r++)
            lose(w, r, RANKS - 1);
        fill_all(caller, call);
        call_all(caller, RANKS, thread);
        join_all(RANKS, thread);
        for (uint32_t r = 0; r < RANKS; r++) {
            assert_int_equal(caller[r].status, ALG_STATUS_OK);
            assert_int_equal(word_at(w, r, ALG_ENDED_OFFSET), ended);
        }
        assert_right(caller, call);
    }
}

static void a_rank_that_ended_a_call_is_not_missed(void **state)
{
    (void)state;
    each_algorithm(end_early);
}

static void stay_away(world_t *w, caller_t caller[RANKS])
{
    pthread_t thread[RANKS];
    call_all(caller, RANKS, thread);
    join_all(RANKS, thread);
    call_all(caller, RANKS - 1, thread);
    usleep(1000);
    for (uint32_t r = 0; r + 1 < RANKS; r++)
        lose(w, r, RANKS - 1);
    join_all(RANKS - 1, thread);
    for (uint32_t r = 0; r + 1 < RANKS; r++)
        assert_true(caller[r].status == ALG_STATUS_PEER_DEAD || caller[r].status == ALG_STATUS_PEER_LEFT);
}

static void a_rank_that_never_comes_is_missed(void **state)
{
    (void)state;
    each_algorithm(stay_away);
}

/* ---- Messages ------------------------------------------------------------------------------- */

typedef struct turn {
    alg_team_t team;
    alg_message_t list[4];
    uint32_t count;
    int status;
} turn_t;

static void *turn_main(void *argument)
{
    turn_t *t = argument;
    const alg_call_t call = {
        .collective = ALG_SEND_RECV, .blocks = 2, .threads = 1, .messages = t->list, .message_count = t->count};
    t->status = alg_find(ALG_SEND_RECV, "pairs")->launch_cpu(&t->team, &call);
    return NULL;
}

static int turn_of(world_t *w, uint32_t rank, void *buffer, uint64_t bytes, uint32_t peer, bool send)
{
    turn_t t = {.team = world_team(w, rank), .list = {{buffer, bytes, peer, send}}, .count = 1};
    turn_main(&t);
    return t.status;
}

/* Rank 0 receives from rank 2, which is gone, and from rank 1, which sends only after rank 0 has waited long: a missing
 * peer must not end the wait for another. Two messages of a pair, so one warp serves several items. */
static void messages_of_others_go_on(void **state)
{
    (void)state;
    static uint8_t sent[LONG_BYTES], got[LONG_BYTES];
    uint8_t small[100], other[100];
    world_t *w = world_make(3, ALG_MEMORY_PEER, SCRATCH);
    memset(sent, 7, sizeof sent);
    memset(small, 8, sizeof small);
    assert_int_equal(turn_of(w, 2, small, sizeof small, 0, true), ALG_STATUS_OK);
    lose(w, 0, 2);
    lose(w, 1, 2);
    turn_t t = {
        .team = world_team(w, 0),
        .list = {{other, sizeof other, 2, false}, {got, 100, 1, false}, {got + 100, LONG_BYTES - 100, 1, false}},
        .count = 3};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, turn_main, &t), 0);
    usleep(5000);
    assert_int_equal(turn_of(w, 1, sent, 100, 0, true), ALG_STATUS_OK);
    assert_int_equal(turn_of(w, 1, sent + 100, LONG_BYTES - 100, 0, true), ALG_STATUS_OK);
    pthread_join(thread, NULL);
    assert_int_equal(t.status, ALG_STATUS_OK);
    assert_memory_equal(sent, got, sizeof sent);
    assert_memory_equal(small, other, sizeof small);
    world_free(w);
}

/* If rank 2 is gone without sending, rank 1 detects it and tells rank 0, which waits for rank 1; other ranks are not
 * disturbed. */
static void a_rank_that_never_sends_is_missed(void **state)
{
    (void)state;
    uint8_t data[4][100];
    turn_t t[2];
    pthread_t thread[2];
    world_t *w = world_make(5, ALG_MEMORY_PEER, SCRATCH);
    for (uint32_t r = 0; r < 2; r++) {
        t[r] = (turn_t){.team = world_team(w, r), .list = {{data[r], sizeof data[r], r + 1, false}}, .count = 1};
        assert_int_equal(pthread_create(&thread[r], NULL, turn_main, &t[r]), 0);
    }
    lose(w, 0, 2);
    lose(w, 1, 2);
    for (uint32_t r = 0; r < 2; r++)
        pthread_join(thread[r], NULL);
    assert_int_equal(t[1].status, ALG_STATUS_PEER_DEAD);
    assert_int_equal(t[0].status, ALG_STATUS_PEER_LEFT);
    lose(w, 3, 2);
    lose(w, 4, 2);
    turn_t last = {.team = world_team(w, 3), .list = {{data[3], sizeof data[3], 4, false}}, .count = 1};
    assert_int_equal(pthread_create(&thread[0], NULL, turn_main, &last), 0);
    usleep(3000);
    assert_int_equal(turn_of(w, 4, data[2], sizeof data[2], 3, true), ALG_STATUS_OK);
    pthread_join(thread[0], NULL);
    assert_int_equal(last.status, ALG_STATUS_OK);
    world_free(w);
}

/* ---- Between a look at the data and a look at the peers -------------------------------------- */

static world_t *world_of_two;
static alg_control_t *shut; /* rank 0's, in an unreadable page */
static uint8_t sent_late[32];

/* Runs between rank 0's check for data and its check for gone ranks: the messages arrive and their sender leaves. */
static void open_control(int signal)
{
    (void)signal;
    mprotect(shut, sizeof *shut, PROT_READ | PROT_WRITE);
    for (size_t i = 0; i < sizeof sent_late; i += 16)
        (void)turn_of(world_of_two, 1, sent_late + i, 16, 0, true);
    shut->gone = 1u << 1;
}

static void what_was_sent_before_arrives(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = open_control}, before;
    for (uint32_t count = 1; count <= 2; count++) { /* a kernel of its own serves one message a pair */
        uint8_t got[2][16] = {{0}};
        world_of_two = world_make(2, ALG_MEMORY_PEER, SCRATCH);
        shut = mmap(NULL, sizeof *shut, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(shut != MAP_FAILED);
        *shut = world_of_two->control[0];
        turn_t t = {.team = world_team(world_of_two, 0),
                    .list = {{got[0], sizeof got[0], 1, false}, {got[1], sizeof got[1], 1, false}},
                    .count = count};
        t.team.control = shut;
        memset(sent_late, 5, sizeof sent_late);
        assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
        assert_int_equal(mprotect(shut, sizeof *shut, PROT_NONE), 0);
        turn_main(&t);
        sigaction(SIGSEGV, &before, NULL);
        assert_int_equal(shut->gone, 1u << 1);
        assert_int_equal(t.status, ALG_STATUS_OK);
        assert_memory_equal(got, sent_late, count * sizeof got[0]);
        munmap(shut, sizeof *shut);
        world_free(world_of_two);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_ended_a_call_is_not_missed),
        cmocka_unit_test(a_rank_that_never_comes_is_missed),
        cmocka_unit_test(messages_of_others_go_on),
        cmocka_unit_test(a_rank_that_never_sends_is_missed),
        cmocka_unit_test(what_was_sent_before_arrives),
    };
    return world_run("gone", tests, sizeof tests / sizeof tests[0], argc, argv);
}
