/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares of a GPU's multiprocessors: whatever communicators request in any order,
 * their kernels and early successors fit together, and each can launch.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "shim/base/settings.h"
#include "shim/comm/capture.h"
#include "shim/comm/share.h"
#include "tests/support/data.h"

static uint32_t multiprocessors;
static shim_settings_t settings = {.early = true};

const shim_settings_t *shim_settings(void)
{
    return &settings;
}

uint32_t shim_share_multiprocessors(int device, void *stream)
{
    (void)device, (void)stream;
    return multiprocessors;
}

static alg_call_t grant(shim_comm_t *comm, uint32_t blocks)
{
    alg_call_t call = {.blocks = blocks, .aligned_blocks = blocks, .threads = 512};
    shim_share_grant(comm, &call, 0, NULL, 0, NULL);
    assert_in_range(call.most_blocks, 1, blocks);
    return call;
}

static alg_call_t grant_on(shim_comm_t *comm, uint32_t blocks, void *stream, uint32_t its_multiprocessors)
{
    alg_call_t call = {.blocks = blocks, .aligned_blocks = blocks, .threads = 512};
    multiprocessors = its_multiprocessors;
    shim_share_grant(comm, &call, 0, stream, (uintptr_t)stream, NULL);
    return call;
}

/* Streams of green contexts: a grid that is not placed as a whole can lock up with those of the peers. */
static void streams_with_fewer_multiprocessors(void **state)
{
    (void)state;
    int whole, green;
    for (int leads = 0; leads < 2; leads++) {
        shim_comm_t comm = {.handle = NULL};
        if (leads) {
            assert_true(shim_share_claim(&comm));
            shim_share_settle(&comm, true);
        }
        assert_int_equal(grant_on(&comm, 64, &green, 8).most_blocks, 4);
        assert_int_equal(grant_on(&comm, 64, &whole, 132).most_blocks, 64);
        for (uint32_t blocks = 1; blocks <= 64; blocks++) {
            const alg_call_t call = grant_on(&comm, blocks, &green, 16);
            assert_in_range(call.most_blocks, 1, 16);
            assert_true(!call.early || 2 * call.most_blocks <= 16);
        }
        assert_int_equal(grant_on(&comm, 64, &whole, 132).most_blocks, 64);
        alg_call_t one = {.blocks = 32, .aligned_blocks = 32};
        multiprocessors = 16;
        shim_share_grant(&comm, &one, 32, &green, (uintptr_t)&green, NULL); /* beside another one */
        assert_int_equal(one.most_blocks, 8);
        shim_share_release(&comm);
    }
}

/* The driver gives a new stream, here of a green context, the handle of a destroyed one. */
static void a_handle_is_used_again(void **state)
{
    (void)state;
    shim_comm_t comm = {.handle = NULL};
    int handle;
    assert_int_equal(grant_on(&comm, 64, &handle, 132).most_blocks, 64);
    alg_call_t call = {.blocks = 64, .aligned_blocks = 64};
    multiprocessors = 8;
    shim_share_grant(&comm, &call, 0, &handle, 1, NULL);
    assert_in_range(call.most_blocks, 1, 8);
    multiprocessors = 4; /* and without an id */
    for (int i = 0; i < 2; i++, multiprocessors = 2) {
        shim_share_grant(&comm, &call, 0, &handle, SHIM_STREAM_UNKNOWN, NULL);
        assert_in_range(call.most_blocks, 1, multiprocessors);
    }
    shim_share_release(&comm);
}

static bool may_come_early(shim_comm_t *comm, uint32_t blocks, shim_ahead_t *ahead)
{
    alg_call_t call = {.blocks = blocks, .aligned_blocks = blocks, .threads = 512};
    return shim_share_grant(comm, &call, 0, NULL, 0, ahead);
}

/* A call larger than its place beside a kernel that lets it in waits for that kernel's end. An eager one behind a
 * capture may follow any of the kernels. */
static void larger_successors_wait(void **state)
{
    (void)state;
    shim_comm_t comm = {.handle = NULL};
    multiprocessors = 132;
    assert_true(may_come_early(&comm, 64, NULL)); /* of a share of 66 */
    assert_true(may_come_early(&comm, 16, NULL));
    assert_true(may_come_early(&comm, 16, NULL));
    assert_false(may_come_early(&comm, 64, NULL));
    assert_true(may_come_early(&comm, 64, NULL)); /* behind one that lets nobody in */
    may_come_early(&comm, 64, &(shim_ahead_t){0});
    assert_true(may_come_early(&comm, 50, NULL));
    may_come_early(&comm, 64, &(shim_ahead_t){0});
    assert_false(may_come_early(&comm, 51, NULL));
    assert_true(may_come_early(&comm, 51, NULL));
    assert_true(may_come_early(&comm, 16, NULL));
    alg_call_t one = {.blocks = 32, .aligned_blocks = 32}, other = {.blocks = 20, .aligned_blocks = 20};
    assert_false(shim_share_grant(&comm, &one, 20, NULL, 0, NULL)); /* both come behind the 16 blocks */
    assert_false(shim_share_grant(&comm, &other, 32, NULL, 0, NULL));
    shim_share_release(&comm);
}

static void lead(shim_comm_t *comm)
{
    assert_true(shim_share_claim(comm));
    shim_share_settle(comm, true);
}

static void a_leader_has_all_and_early(void **state)
{
    (void)state;
    shim_comm_t comm = {.handle = NULL}, other = {.handle = NULL};
    multiprocessors = 132;
    lead(&comm);
    assert_false(shim_share_claim(&other)); /* one a GPU */
    shim_share_settle(&other, false);
    for (int i = 0; i < 3; i++) {
        const alg_call_t call = grant(&comm, 64);
        assert_int_equal(call.most_blocks, 64);
        assert_int_equal(call.early, 1);
    }
    assert_int_equal(grant(&other, 64).early, 0);
    assert_int_equal(grant(&comm, 64).early, 0); /* they would hold nearly all of the GPU */
    shim_share_release(&other);
    assert_int_equal(grant(&comm, 64).early, 1);
    shim_share_release(&comm);
    lead(&other);
    shim_share_release(&other);
}

/* In a capture the calls alone decide, and what is let in fits, whatever else has asked. */
static void captured_successors(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {64, 16, 16, 8, 32, 33, 33, 64};
    static const bool early_ones[] = {false, true, true, true, false, false, true, false};
    for (int leads = 0; leads < 2; leads++) {
        shim_comm_t comm = {.handle = NULL}, other = {.handle = NULL};
        multiprocessors = 132;
        if (leads)
            lead(&comm);
        for (int round = 0; round < 4; round++) {
            shim_ahead_t ahead = {0};
            for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
                assert_int_equal(may_come_early(&comm, sizes[i], &ahead), early_ones[i]);
            grant(round == 2 ? &other : &comm, round == 1 ? 8 : 64);
        }
        alg_call_t one = {.blocks = 8, .aligned_blocks = 8};
        shim_ahead_t ahead = {.blocks = 8};
        assert_false(shim_share_grant(&comm, &one, 8, NULL, 0, &ahead)); /* beside another one */
        shim_share_release(&comm);
        shim_share_release(&other);
    }
}

/* The one exception: the leader's large call let its successor in, and since then another communicator has asked. */
static void a_leader_that_is_not_alone_any_more(void **state)
{
    (void)state;
    shim_comm_t comm = {.handle = NULL}, other = {.handle = NULL};
    shim_ahead_t ahead = {0};
    multiprocessors = 132;
    lead(&comm);
    assert_false(may_come_early(&comm, 64, &ahead));
    assert_true(may_come_early(&comm, 64, &ahead));
    grant(&other, 64);
    assert_false(may_come_early(&comm, 64, &ahead));
    assert_true(may_come_early(&comm, 64, &ahead));
    shim_share_release(&comm);
    shim_share_release(&other);
}

/* The places of buffers, and so the blocks that their alignment adds, may differ when a program captures its calls
 * again; the edges may not. Whatever comes early fits beside the kernel ahead of it. */
static void alignment_changes_no_edge(void **state)
{
    (void)state;
    for (int leads = 0; leads < 2; leads++)
        for (uint32_t capture = 0; capture < 16; capture++) {
            shim_comm_t comm = {.handle = NULL}, other = {.handle = NULL};
            shim_ahead_t ahead = {0};
            multiprocessors = 132;
            if (leads)
                lead(&comm);
            grant(&other, 20);
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t before = ahead.early;
                alg_call_t call = {.blocks = capture >> i & 1 ? 32 : 20, .aligned_blocks = 20};
                assert_int_equal(shim_share_grant(&comm, &call, 0, NULL, 0, &ahead), i > 0);
                assert_true(i == 0 || before + call.most_blocks <= comm.share.blocks);
                assert_true(call.most_blocks >= 20);
            }
            shim_share_release(&comm);
            shim_share_release(&other);
        }
}

/* SHUNT_EARLY=0: never, for a leader or a small call. */
static void early(void **state)
{
    (void)state;
    shim_comm_t comm = {.handle = NULL};
    multiprocessors = 132;
    lead(&comm);
    for (int on = 0; on < 2; on++) {
        settings.early = on;
        assert_int_equal(grant(&comm, 64).early, on);
        assert_int_equal(grant(&comm, 1).early, on);
        assert_int_equal(may_come_early(&comm, 64, &(shim_ahead_t){.blocks = 1}), !on); /* nobody is let in */
    }
    shim_share_release(&comm);
}

/* A claim that some rank could not make is given up. */
static void claims_end(void **state)
{
    (void)state;
    shim_comm_t comm = {.handle = NULL}, other = {.handle = NULL};
    multiprocessors = 132;
    assert_true(shim_share_claim(&comm));
    assert_false(shim_share_claim(&other));
    shim_share_settle(&comm, false);
    assert_int_equal(grant(&comm, 64).early, 0);
    assert_int_equal(grant(&comm, 32).early, 1); /* it has room for two of these */
    lead(&other);
    shim_share_release(&comm);
    shim_share_release(&other);
}

/* Two calls of a communicator that need places at once get them within its share, and let no successor in early. */
static void calls_run_beside_each_other(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {200, 132, 64, 20, 3, 2};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int leads = 0; leads < 2; leads++) {
            shim_comm_t comm = {.handle = NULL};
            alg_call_t one = {.blocks = 64, .aligned_blocks = 64}, other = {.blocks = 32, .aligned_blocks = 32};
            multiprocessors = sizes[i];
            if (leads)
                lead(&comm);
            grant(&comm, 64);
            shim_share_grant(&comm, &one, 32, NULL, 0, NULL);
            shim_share_grant(&comm, &other, 64, NULL, 0, NULL);
            assert_true(one.most_blocks > 0 && other.most_blocks > 0 && !one.early && !other.early);
            assert_true(one.most_blocks + other.most_blocks <= (sizes[i] > 2 ? sizes[i] : 2));
            if (sizes[i] == 200)
                assert_true(one.most_blocks == 64 && other.most_blocks == 32);
            shim_share_release(&comm);
        }
}

/* The most that the communicators may hold at once, without the leader's successors. */
static void random_shares_fit(void **state)
{
    (void)state;
    enum { COMMS = 8 };
    uint64_t random = 7;
    for (int round = 0; round < 300; round++) {
        shim_comm_t comms[COMMS] = {{.handle = NULL}};
        uint32_t held[COMMS] = {0};
        multiprocessors = 20 + (uint32_t)data_below(&random, 130);
        lead(&comms[0]);
        for (int i = 0; i < 60; i++) {
            const size_t c = data_below(&random, COMMS);
            if (data_below(&random, 12) == 0) {
                shim_share_release(&comms[c]);
                held[c] = 0;
                if (shim_share_claim(&comms[c]))
                    shim_share_settle(&comms[c], data_below(&random, 2));
                continue;
            }
            const alg_call_t call = grant(&comms[c], 1 + (uint32_t)data_below(&random, 64));
            const uint32_t holds = call.most_blocks * (call.early && !comms[c].share.leads ? 2 : 1);
            held[c] = holds > held[c] ? holds : held[c];
            uint32_t all = 0, leaders = 0;
            for (int k = 0; k < COMMS; k++) {
                all += held[k];
                leaders += comms[k].share.leads;
                assert_true(held[k] <= comms[k].share.blocks);
            }
            assert_true(leaders <= 1);
            assert_true(all <= multiprocessors + COMMS);
        }
        for (int k = 0; k < COMMS; k++)
            shim_share_release(&comms[k]);
    }
}

/* 4 communicators with the largest calls, on a whole GPU and on 40% of one. */
static void four_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        shim_comm_t comms[4] = {{.handle = NULL}};
        uint32_t all = 0;
        multiprocessors = i == 0 ? 132 : 52;
        lead(&comms[0]);
        for (int c = 0; c < 4; c++) {
            const alg_call_t call = grant(&comms[c], 64);
            all += call.most_blocks * (call.early && c > 0 ? 2 : 1);
        }
        assert_in_range(all, multiprocessors * 3 / 4, multiprocessors);
        for (int c = 0; c < 4; c++)
            shim_share_release(&comms[c]);
    }
}

/*
 * GPUs whose blocks are placed in any order. Each communicator has calls on all of
 * them, one after the other; a call ends when all its blocks on all GPUs are
 * placed; its successor may be placed before that if the call allows it. True if
 * all calls end.
 */
enum { SIM_GPUS = 2, SIM_COMMS = 4, SIM_CALLS = 4 };
typedef struct sim {
    uint32_t blocks[SIM_GPUS][SIM_COMMS][SIM_CALLS];
    bool early[SIM_GPUS][SIM_COMMS][SIM_CALLS]; /* the call lets its successor in ... */
    bool waits[SIM_GPUS][SIM_COMMS][SIM_CALLS]; /* ... which does not come early itself */
    uint32_t placed[SIM_GPUS][SIM_COMMS][SIM_CALLS];
    uint32_t through[SIM_COMMS]; /* calls */
    bool ordered;                /* a stream of GPU 1 orders the calls: of each round the last communicator's first */
    uint32_t places[SIM_GPUS];
} sim_t;

static bool sim_may_place(const sim_t *s, uint32_t g, uint32_t c, uint32_t call)
{
    if (call >= SIM_CALLS || s->placed[g][c][call] == s->blocks[g][c][call] || s->places[g] == 0)
        return false;
    for (uint32_t other = c + 1; other < SIM_COMMS && s->ordered && g == 1; other++) {
        if (s->through[other] <= call)
            return false;
    }
    const bool next = call == s->through[c] + 1 && s->early[g][c][call - 1] && !s->waits[g][c][call] &&
                      s->placed[g][c][call - 1] == s->blocks[g][c][call - 1];
    return call == s->through[c] || next;
}

static bool sim_end_calls(sim_t *s)
{
    bool ended = false;
    for (uint32_t c = 0; c < SIM_COMMS; c++) {
        const uint32_t call = s->through[c];
        bool whole = call < SIM_CALLS;
        for (uint32_t g = 0; g < SIM_GPUS && whole; g++)
            whole = s->placed[g][c][call] == s->blocks[g][c][call];
        for (uint32_t g = 0; g < SIM_GPUS && whole; g++)
            s->places[g] += s->blocks[g][c][call];
        s->through[c] += whole;
        ended = ended || whole;
    }
    return ended;
}

static bool sim_gets_through(sim_t *s, uint64_t *random)
{
    for (;;) {
        uint32_t choices[SIM_GPUS * SIM_COMMS * 2][3], count = 0, through = 0;
        while (sim_end_calls(s))
            ;
        for (uint32_t g = 0; g < SIM_GPUS; g++) {
            for (uint32_t c = 0; c < SIM_COMMS; c++) {
                for (uint32_t call = s->through[c]; call < s->through[c] + 2; call++) {
                    if (sim_may_place(s, g, c, call))
                        memcpy(choices[count++], (uint32_t[]){g, c, call}, sizeof choices[0]);
                }
            }
        }
        for (uint32_t c = 0; c < SIM_COMMS; c++)
            through += s->through[c] == SIM_CALLS;
        if (through == SIM_COMMS || count == 0)
            return through == SIM_COMMS;
        const uint32_t *one = choices[data_below(random, count)];
        uint32_t room = s->blocks[one[0]][one[1]][one[2]] - s->placed[one[0]][one[1]][one[2]];
        room = room < s->places[one[0]] ? room : s->places[one[0]];
        s->placed[one[0]][one[1]][one[2]] += room;
        s->places[one[0]] -= room;
    }
}

typedef struct sim_rule {
    bool agreed;  /* one communicator leads on both GPUs, else the first that asks */
    bool ordered; /* all ranks make the calls in one order, which a stream of GPU 1 keeps */
    bool graphs;  /* calls have the share granted when their communicator first asked; else that after all have asked */
    bool mixed;   /* large and small calls */
    bool captured; /* a communicator's calls are one graph */
    bool larger;   /* a small one lets a large one in, whatever the share */
} sim_rule_t;

/* Shares requested in another order on every GPU. */
static uint32_t lock_ups(sim_rule_t rule, uint32_t rounds)
{
    static const uint32_t sizes[] = {64, 48, 32, 16, 4};
    uint64_t random = 3;
    uint32_t stuck = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        sim_t s = {.ordered = rule.ordered};
        uint32_t size[SIM_COMMS][SIM_CALLS];
        for (uint32_t i = 0; i < SIM_COMMS * SIM_CALLS; i++)
            size[i / SIM_CALLS][i % SIM_CALLS] = rule.mixed ? sizes[data_below(&random, 5)] : 64;
        for (uint32_t g = 0; g < SIM_GPUS; g++) {
            shim_comm_t comms[SIM_COMMS] = {{.handle = NULL}};
            shim_ahead_t ahead[SIM_COMMS] = {{0}};
            s.places[g] = multiprocessors = round % 2 ? 132 : 52;
            const bool downwards = g % 2 && !rule.ordered;
            lead(&comms[rule.agreed ? round % SIM_COMMS : downwards ? SIM_COMMS - 1 : 0]);
            for (uint32_t i = 0; i < SIM_COMMS && !rule.graphs; i++)
                grant(&comms[downwards ? SIM_COMMS - 1 - i : i], 64);
            for (uint32_t i = 0; i < SIM_COMMS * SIM_CALLS; i++) {
                const uint32_t c = downwards ? SIM_COMMS - 1 - i / SIM_CALLS : i / SIM_CALLS, k = i % SIM_CALLS;
                alg_call_t call = {.blocks = size[c][k], .aligned_blocks = size[c][k], .threads = 512};
                s.waits[g][c][k] =
                    !shim_share_grant(&comms[c], &call, 0, NULL, 0, rule.captured ? &ahead[c] : NULL) && !rule.larger;
                s.blocks[g][c][k] = call.most_blocks;
                s.early[g][c][k] = call.early;
            }
            for (uint32_t c = 0; c < SIM_COMMS; c++)
                shim_share_release(&comms[c]);
        }
        stuck += !sim_gets_through(&s, &random);
    }
    return stuck;
}

/* With a different leader on every GPU, communicators block each other. So do the graphs of a leader that was alone,
 * where a stream orders the calls (docs/limits.md), and large calls that small ones let in. */
static void no_communicator_is_blocked(void **state)
{
    (void)state;
    enum { ROUNDS = 2000 };
    for (int i = 0; i < 4; i++) {
        const sim_rule_t rule = {.agreed = true, .mixed = i % 2, .captured = i / 2};
        sim_rule_t graphs = rule, ordered = rule;
        graphs.graphs = ordered.ordered = true;
        assert_int_equal(lock_ups(rule, ROUNDS), 0);
        assert_int_equal(lock_ups(graphs, ROUNDS), 0);
        assert_int_equal(lock_ups(ordered, ROUNDS), 0);
    }
    assert_int_not_equal(lock_ups((sim_rule_t){.graphs = true}, ROUNDS), 0);
    assert_int_not_equal(lock_ups((sim_rule_t){.agreed = true, .ordered = true, .graphs = true}, ROUNDS), 0);
    assert_int_not_equal(lock_ups((sim_rule_t){.agreed = true, .ordered = true, .mixed = true, .larger = true}, ROUNDS),
                         0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_with_fewer_multiprocessors),
        cmocka_unit_test(a_handle_is_used_again),
        cmocka_unit_test(alignment_changes_no_edge),
        cmocka_unit_test(a_leader_has_all_and_early),
        cmocka_unit_test(early),
        cmocka_unit_test(claims_end),
        cmocka_unit_test(larger_successors_wait),
        cmocka_unit_test(captured_successors),
        cmocka_unit_test(a_leader_that_is_not_alone_any_more),
        cmocka_unit_test(calls_run_beside_each_other),
        cmocka_unit_test(random_shares_fit),
        cmocka_unit_test(four_at_once),
        cmocka_unit_test(no_communicator_is_blocked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
