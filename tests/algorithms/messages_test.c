/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends and receives on the CPU device: ranks are threads, scratch is plain memory. All ranks draw the same messages,
 * but list them in different orders.
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

#include "tests/support/data.h"
#include "tests/support/scaled.h"
#include "world.h"

enum { MOST_MESSAGES = 4000, SCRATCH = 1 << 20, LARGE_SCRATCH = 12 << 20, MEDIUM_BYTES = 20001, MEDIUM_ROUNDS = 150 };

/* What is under test: rings are in the receiver's device memory, or in pinned memory; or some messages of each call go
 * by bulk copies. */
static const struct kind {
    const char *name;
    alg_memory_t memory;
} kinds[] = {{"pairs", ALG_MEMORY_PEER}, {"shm-pairs", ALG_MEMORY_PINNED}, {"bulk", ALG_MEMORY_PEER}};
static const struct kind *kind;

static const alg_algorithm_t *algorithm(void)
{
    return alg_find(ALG_SEND_RECV, kind->name);
}

/* As both ends see it. */
static alg_message_t message_to(void *buffer, size_t bytes, uint32_t peer, bool send)
{
    return (alg_message_t){
        .buffer = buffer, .bytes = bytes, .peer = peer, .send = send, .bulk = algorithm()->bulk_messages && bytes % 3};
}

/* A round's messages, in the order that holds for each pair. */
typedef struct message {
    uint32_t from, to;
    size_t bytes;
    uint64_t seed;
} message_t;

/* Fill with random bytes and runs of words that need escapes; one message in eight has only such words. */
static void fill(uint8_t *at, size_t bytes, uint64_t seed)
{
    const bool all = seed % 8 == 0;
    uint64_t kind = 4;
    bool run = all;
    for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
        if (i % 64 == 0) {
            run = all || data_below(&seed, 4) == 0;
            kind = data_below(&seed, 5);
        }
        const uint64_t bits = data_random(&seed);
        const uint32_t word = !run ? (uint32_t)bits : data_escaped(kind == 4 ? bits : kind);
        memcpy(at + i, &word, bytes - i < sizeof word ? bytes - i : sizeof word);
    }
}

typedef enum habit {
    TOGETHER,  /* all messages of a round in one call */
    ONE_BY_ONE /* a call each, sends first; messages are short */
} habit_t;

typedef struct actor {
    world_t *world;
    uint32_t rank;
    uint64_t seed;
    uint32_t rounds, most; /* of messages in a round */
    size_t most_bytes;
    habit_t habit;
    char fault[200];
} actor_t;

static size_t draw_bytes(uint64_t *state, size_t most)
{
    if (most == MEDIUM_BYTES)
        return 1 + data_below(state, most);
    if (data_below(state, 3) == 0)
        return 1 + data_below(state, 64); /* a row in each channel */
    static const size_t awkward[] = {1, 2, 15, 16, 17, 63, 64, 65, 100, 1000, 4096, 5000};
    size_t bytes = awkward[data_below(state, sizeof awkward / sizeof awkward[0])];
    if (data_below(state, 4) == 0)
        bytes = 1 + data_below(state, most);
    return bytes < most ? bytes : most;
}

static int launch(const actor_t *a, alg_message_t *list, uint32_t count, uint64_t *local)
{
    const alg_team_t team = world_team(a->world, a->rank);
    const alg_call_t call = {.collective = ALG_SEND_RECV,
                             .blocks = 1 + (uint32_t)data_below(local, 8),
                             .threads = 1,
                             .most_blocks = data_below(local, 2) ? 0 : (uint32_t)data_below(local, 3),
                             .messages = list,
                             .message_count = count};
    return algorithm()->launch_cpu(&team, &call);
}

/* Shuffle a rank's list, keeping the order of each pair's messages. */
static void shuffle(alg_message_t *list, const uint32_t *at, uint32_t count, uint64_t *local, uint32_t *to)
{
    (void)list;
    for (uint32_t i = 0; i < count; i++)
        to[i] = at[i];
    for (uint32_t tries = 0; tries < 4 * count; tries++) {
        const uint32_t i = (uint32_t)data_below(local, count > 1 ? count - 1 : 1);
        if (i + 1 >= count)
            continue;
        const alg_message_t *x = &list[to[i]], *y = &list[to[i + 1]];
        if (x->peer != y->peer || x->send != y->send) {
            const uint32_t swap = to[i];
            to[i] = to[i + 1];
            to[i + 1] = swap;
        }
    }
}

static bool round_right(actor_t *a, const message_t *all, uint32_t count, uint64_t *local)
{
    static _Thread_local data_buffer_t buffer[2 * MOST_MESSAGES];
    static _Thread_local alg_message_t list[2 * MOST_MESSAGES], sorted[2 * MOST_MESSAGES];
    static _Thread_local uint32_t of[2 * MOST_MESSAGES], at[2 * MOST_MESSAGES], order[2 * MOST_MESSAGES];
    uint32_t mine = 0;
    const uint32_t places = data_below(local, 2) ? 16 : 1; /* whole buffers have kernels of their own */
    for (uint32_t i = 0; i < count; i++) {
        for (int send = 1; send >= 0; send--) {
            if ((send ? all[i].from : all[i].to) != a->rank)
                continue;
            if (!data_buffer_make(&buffer[mine], all[i].bytes, data_below(local, places)))
                return false;
            if (send)
                fill(buffer[mine].data, all[i].bytes, all[i].seed);
            list[mine] = message_to(buffer[mine].data, all[i].bytes, send ? all[i].to : all[i].from, send);
            of[mine] = i;
            at[mine] = mine;
            mine++;
        }
    }
    int status = ALG_STATUS_OK;
    if (a->habit == TOGETHER) {
        shuffle(list, at, mine, local, order);
        for (uint32_t i = 0; i < mine; i++)
            sorted[i] = list[order[i]];
        status = mine == 0 ? ALG_STATUS_OK : launch(a, sorted, mine, local);
    } else {
        for (int send = 1; send >= 0; send--) {
            for (uint32_t i = 0; i < mine; i++) {
                if (list[i].send == (send == 1) && status == ALG_STATUS_OK)
                    status = launch(a, &list[i], 1, local);
            }
        }
    }
    if (status != ALG_STATUS_OK)
        snprintf(a->fault, sizeof a->fault, "status %d", status);
    bool right = status == ALG_STATUS_OK;
    for (uint32_t i = 0; i < mine; i++) {
        uint8_t *wanted = malloc(all[of[i]].bytes);
        fill(wanted, all[of[i]].bytes, all[of[i]].seed);
        if (right && (!data_buffer_guarded(&buffer[i]) || memcmp(wanted, buffer[i].data, all[of[i]].bytes) != 0)) {
            right = false;
            snprintf(a->fault, sizeof a->fault, "message %u from %u to %u, %zu bytes, is wrong", of[i], all[of[i]].from,
                     all[of[i]].to, all[of[i]].bytes);
        }
        free(wanted);
        data_buffer_free(&buffer[i]);
    }
    return right;
}

static void *actor_main(void *argument)
{
    actor_t *a = argument;
    static _Thread_local message_t all[MOST_MESSAGES];
    uint64_t shared = a->seed, local = a->seed * 31 + a->rank;
    for (uint32_t round = 0; round < a->rounds; round++) {
        const uint32_t count = 1 + (uint32_t)data_below(&shared, a->most);
        for (uint32_t i = 0; i < count; i++) {
            all[i] = (message_t){(uint32_t)data_below(&shared, a->world->nranks),
                                 (uint32_t)data_below(&shared, a->world->nranks), draw_bytes(&shared, a->most_bytes),
                                 data_random(&shared)};
            if (a->habit == ONE_BY_ONE && all[i].from == all[i].to)
                all[i].to = (all[i].to + 1) % a->world->nranks;
        }
        if (data_below(&local, 4) == 0)
            usleep((useconds_t)data_below(&local, 400)); /* this rank comes late */
        if (!round_right(a, all, count, &local)) {
            world_stop(a->world);
            return a->fault;
        }
    }
    return NULL;
}

static void play(uint32_t nranks, uint32_t rounds, uint32_t most, size_t most_bytes, habit_t habit)
{
    actor_t actor[ALG_MAX_RANKS];
    pthread_t thread[ALG_MAX_RANKS];
    world_t *w = world_make(nranks, kind->memory, SCRATCH);
    bool right = true;
    for (uint32_t r = 0; r < nranks; r++) {
        actor[r] = (actor_t){.world = w,
                             .rank = r,
                             .seed = 1000 * nranks + most,
                             .rounds = rounds,
                             .most = most,
                             .most_bytes = most_bytes,
                             .habit = habit};
        assert_int_equal(pthread_create(&thread[r], NULL, actor_main, &actor[r]), 0);
    }
    for (uint32_t r = 0; r < nranks; r++) {
        void *fault;
        pthread_join(thread[r], &fault);
        if (fault)
            print_error("%u ranks, rank %u: %s\n", nranks, r, (const char *)fault);
        right = right && !fault;
    }
    assert_true(right);
    world_free(w);
}

/* Groups of random messages, also to the own rank, arrive with a different order and grid on each rank. */
static void groups(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= ALG_MAX_RANKS; n++)
        play(n, n <= 4 ? 60 : 15, 8, 20000, TOGETHER);
}

/* Groups of more messages than a kernel's arguments hold arrive. */
static void many(void **state)
{
    (void)state;
    play(3, 4, MOST_MESSAGES, 300, TOGETHER);
}

/* Messages so long that rings wrap around many times arrive. */
static void long_messages(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++)
        play(n, 3, 4, 3 << 20, TOGETHER);
}

/* Messages of a few rows and chunks arrive; draw_bytes mostly draws shorter ones. */
static void medium_messages(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 3; n++)
        play(n, MEDIUM_ROUNDS, 4, MEDIUM_BYTES, TOGETHER);
}

/* A short send ends before its receive is made, and later launches continue at the right place of the ring. */
static void deposits(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++)
        play(n, (uint32_t)scaled(400), 4, 300, ONE_BY_ONE);
}

/* One rank's call, as a thread's main: its status. */
typedef struct turn {
    alg_team_t team;
    alg_message_t message;
} turn_t;

static void *turn_main(void *argument)
{
    const turn_t *t = argument;
    const alg_call_t call = {
        .collective = ALG_SEND_RECV, .blocks = 2, .threads = 1, .messages = &t->message, .message_count = 1};
    return (void *)(intptr_t)algorithm()->launch_cpu(&t->team, &call);
}

/* Short messages one by one, many more than a ring holds: the sender runs ahead of a receiver that comes late, and no
 * further. */
enum { RUN_MESSAGES = 300, RUN_BYTES = 64, RUN_SHORT_BYTES = 5, RING_ROWS = 64 };

typedef struct run {
    alg_team_t team;
    bool sends;
    size_t bytes;
    _Alignas(16) uint8_t data[RUN_MESSAGES][RUN_BYTES];
} run_t;

static _Atomic uint32_t run_sent;

static void wait_for_stillness(void)
{
    for (uint32_t before = ~0u; before == 0 || before != run_sent; usleep(5000))
        before = run_sent;
}

static void *run_main(void *argument)
{
    run_t *r = argument;
    intptr_t status = ALG_STATUS_OK;
    if (!r->sends)
        wait_for_stillness();
    for (uint32_t i = 0; i < RUN_MESSAGES && status == ALG_STATUS_OK; i++) {
        const alg_message_t message = message_to(r->data[i], r->bytes, r->sends ? 1 : 0, r->sends);
        const alg_call_t call = {
            .collective = ALG_SEND_RECV, .blocks = 8, .threads = 1, .messages = &message, .message_count = 1};
        status = algorithm()->launch_cpu(&r->team, &call);
        run_sent += r->sends;
    }
    return (void *)status;
}

/* A word of the rank's own counts, of channel 0 and rank 1 (sendrecv/messages.h). */
static uint64_t count_of(const alg_team_t *team, uint32_t kind)
{
    uint64_t count;
    memcpy(&count, team->own_counts + (size_t)(kind * ALG_MAX_RANKS + 1) * ALG_PAIR_CHANNELS * 8, sizeof count);
    return count;
}

static void run_ahead(size_t bytes)
{
    static run_t run[2];
    pthread_t thread[2];
    world_t *w = world_make(2, kind->memory, SCRATCH);
    run_sent = 0;
    for (uint32_t r = 0; r < 2; r++) {
        run[r].team = world_team(w, r);
        run[r].sends = r == 0;
        run[r].bytes = bytes;
        for (uint32_t i = 0; i < RUN_MESSAGES; i++)
            memset(run[r].data[i], r == 0 ? (int)(i % 251) : 0xee, bytes);
        assert_int_equal(pthread_create(&thread[r], NULL, run_main, &run[r]), 0);
    }
    for (uint32_t r = 0; r < 2; r++) {
        void *status;
        pthread_join(thread[r], &status);
        assert_int_equal((intptr_t)status, ALG_STATUS_OK);
    }
    assert_memory_equal(run[0].data, run[1].data, sizeof run[0].data);
    /* What the sender has seen of its credit lasts until the next launch, which need not ask at once. */
    if (!algorithm()->bulk_messages)
        assert_true(count_of(&run[0].team, 0) - count_of(&run[0].team, 3) <= RING_ROWS);
    world_free(w);
}

static void running_ahead(void **state)
{
    (void)state;
    run_ahead(RUN_BYTES);
    run_ahead(RUN_SHORT_BYTES);
}

/* One rank groups messages for which its peers make two calls each; their second call waits for the other peer. So all
 * messages of the group must progress together. They are more than the arguments of any kernel hold. */
enum { TOGETHER_MESSAGES = 1100 };

typedef struct chain {
    alg_team_t team;
    alg_message_t list[2 * TOGETHER_MESSAGES];
    uint32_t first, second; /* messages of its calls */
} chain_t;

static void *chain_main(void *argument)
{
    const chain_t *c = argument;
    alg_call_t call = {
        .collective = ALG_SEND_RECV, .blocks = 2, .threads = 1, .messages = c->list, .message_count = c->first};
    int status = algorithm()->launch_cpu(&c->team, &call);
    call.messages += c->first;
    call.message_count = c->second;
    if (status == ALG_STATUS_OK && c->second > 0)
        status = algorithm()->launch_cpu(&c->team, &call);
    return (void *)(intptr_t)status;
}

static void one_group_of_many(void **state)
{
    (void)state;
    static chain_t chain[3];
    static uint8_t data[3][2 * TOGETHER_MESSAGES];
    pthread_t thread[3];
    world_t *w = world_make(3, kind->memory, LARGE_SCRATCH);
    const uint32_t n = TOGETHER_MESSAGES;
    for (uint32_t r = 0; r < 3; r++) {
        chain[r].team = world_team(w, r);
        chain[r].team.limit = alg_limit(60000000000, 0); /* long: on a busy machine the ranks' threads wait for turns */
        memset(data[r], (int)r + 1, sizeof data[r]);
    }
    for (uint32_t i = 0; i < n; i++) {
        chain[0].list[i] = message_to(&data[0][i], 1, 1, true);
        chain[0].list[n + i] = message_to(&data[0][n + i], 1, 2, false);
        chain[1].list[i] = message_to(&data[1][i], 1, 0, false);
        chain[2].list[1 + i] = message_to(&data[2][1 + i], 1, 0, true);
    }
    chain[0].first = 2 * n;
    chain[1].first = n;
    chain[1].list[n] = message_to(&data[1][n], 1, 2, true);
    chain[1].second = 1;
    chain[2].list[0] = message_to(&data[2][0], 1, 1, false);
    chain[2].first = 1;
    chain[2].second = n;
    for (uint32_t r = 0; r < 3; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, chain_main, &chain[r]), 0);
    for (uint32_t r = 0; r < 3; r++) {
        void *status;
        pthread_join(thread[r], &status);
        assert_int_equal((intptr_t)status, ALG_STATUS_OK);
    }
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(data[0][n + i], 3);
        assert_int_equal(data[1][i], 1);
    }
    assert_int_equal(data[2][0], 2);
    world_free(w);
}

/* If a message is never sent, the receiver leaves at the time limit or on an abort, and sends nothing afterwards. */
static void broken_waits(void **state)
{
    (void)state;
    for (int abort = 0; abort < 2; abort++) {
        world_t *w = world_make(2, kind->memory, SCRATCH);
        uint8_t data[100] = {0};
        turn_t turn = {world_team(w, 0), message_to(data, sizeof data, 1, false)};
        turn.team.limit = alg_limit(abort ? 0 : 50000000, 0);
        pthread_t thread;
        void *status;
        assert_int_equal(pthread_create(&thread, NULL, turn_main, &turn), 0);
        if (abort)
            __atomic_store_n(&w->control[0].abort, 1u, __ATOMIC_RELEASE);
        pthread_join(thread, &status);
        assert_int_equal((intptr_t)status, abort ? ALG_STATUS_ABORTED : ALG_STATUS_TIMEOUT);
        turn.message.send = true;
        assert_int_not_equal((intptr_t)turn_main(&turn), ALG_STATUS_OK);
        for (size_t i = w->map.rings_offset; i < w->map.flags_offset; i++)
            assert_int_equal(w->scratch[1][i], 0xff);
        world_free(w);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups),
        cmocka_unit_test(many),
        cmocka_unit_test(long_messages),
        cmocka_unit_test(medium_messages),
        cmocka_unit_test(deposits),
        cmocka_unit_test(running_ahead),
        cmocka_unit_test(one_group_of_many),
        cmocka_unit_test(broken_waits),
    };
    int failed = 0;
    for (kind = kinds; kind < kinds + sizeof kinds / sizeof kinds[0] && !failed; kind++) {
        if (algorithm())
            failed = world_run(kind->name, tests, sizeof tests / sizeof tests[0], argc, argv);
    }
    return failed;
}
