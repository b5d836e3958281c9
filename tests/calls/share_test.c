/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a GPU: whatever communicators ask for in any order, their kernels and early successors are placed, and a
 * lone communicator has grids as large as its rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "shim/base/settings.h"
#include "shim/comm/capture.h"
#include "shim/comm/share.h"
#include "tests/support/data.h"

static uint32_t multiprocessors = 132, asked;
static bool ended = true;
static bool (*ended_of)(void *event);
static shim_settings_t settings = {.early = true};

const shim_settings_t *shim_settings(void)
{
    return &settings;
}

uint32_t shim_share_multiprocessors(int device, void *stream)
{
    (void)device, (void)stream;
    asked++;
    return multiprocessors;
}

unsigned long long shim_share_place(void *stream, unsigned long long stream_id)
{
    return stream ? stream_id : multiprocessors;
}

int net_event_query(void *event)
{
    return (ended_of ? ended_of(event) : ended) ? 0 : NET_NOT_READY;
}

/* As kernels with 64 registers a lane, and with 128; and a block that fills a multiprocessor. */
static uint32_t room_of_lanes(uint32_t nranks, uint32_t threads)
{
    (void)nranks;
    return threads;
}

static uint32_t room_of_all(uint32_t nranks, uint32_t threads)
{
    (void)nranks, (void)threads;
    return ALG_ROOM;
}

static const alg_algorithm_t any_grid = {.any_grid = true, .block_room = room_of_lanes};
static const alg_algorithm_t fixed = {.block_room = room_of_lanes}, whole = {.block_room = room_of_all},
                             spare = {.block_room = room_of_all, .spare_blocks = true};

static uint32_t room_of_ranks(uint32_t nranks, uint32_t threads)
{
    return nranks * threads;
}

static alg_call_t call_of(uint32_t blocks, uint32_t threads)
{
    return (alg_call_t){.blocks = blocks, .aligned_blocks = blocks, .threads = threads};
}

/* What the granted grid takes. */
static uint32_t taken(const alg_algorithm_t *algorithm, const alg_call_t *call)
{
    const uint32_t blocks =
        call->most_blocks > 0 && call->most_blocks < call->blocks ? call->most_blocks : call->blocks;
    return blocks * algorithm->block_room(2, call->threads);
}

static bool grant_to(shim_comm_t *comm, const alg_algorithm_t *algorithm, alg_call_t *call, shim_ahead_t *ahead)
{
    const shim_ask_t ask = {.algorithm = algorithm, .ahead = ahead};
    return shim_share_grant(comm, call, &ask);
}

/* An eager call whose event is recorded. */
static alg_call_t grant(shim_comm_t *comm, const alg_algorithm_t *algorithm, uint32_t blocks, uint32_t threads)
{
    alg_call_t call = call_of(blocks, threads);
    grant_to(comm, algorithm, &call, NULL);
    shim_share_launched(comm, false);
    comm->order.event = comm;
    return call;
}

/* Others are there, and make no call. */
static shim_comm_t others[2];

static int crowd(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        shim_share_join(&others[i]);
    return 0;
}

static int leave(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        shim_share_release(&others[i]);
    return 0;
}

static int fresh(void **state)
{
    (void)state;
    multiprocessors = 132;
    ended = true;
    ended_of = NULL;
    settings.early = true;
    asked = 0;
    return 0;
}

/* ---- One communicator, and who is next ------------------------------------------------- */

/* A lone communicator's rows of up to 33 multiprocessors are launched unchanged, and all let successors in. The same
 * for one of two communicators of which the other makes no call, but only up to half of that lets successors in. */
static void alone(void **state)
{
    (void)state;
    static const struct {
        uint32_t blocks, threads, early;
    } rows[] = {{1, 64, 1},    {32, 128, 1}, {32, 256, 1}, {32, 512, 1},
                {128, 128, 1}, {64, 256, 1}, {64, 512, 0}, {128, 256, 0}};
    shim_comm_t comm = {.nranks = 2}, other = {.nranks = 2};
    shim_share_join(&comm);
    for (int lone = 1; lone >= 0; lone--) {
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            const alg_call_t call = grant(&comm, &any_grid, rows[i].blocks, rows[i].threads);
            assert_int_equal(call.blocks, rows[i].blocks);
            assert_int_equal(call.threads, rows[i].threads);
            assert_int_equal(call.early, lone || rows[i].early);
            assert_int_equal(call.most_blocks, 0);
        }
        if (lone)
            shim_share_join(&other);
    }
    assert_int_equal(grant(&comm, &whole, 26, 544).most_blocks, 0);
    assert_int_equal(grant(&comm, &whole, 64, 544).most_blocks, 33);
    alg_call_t message = call_of(64, 512);
    message.collective = ALG_SEND_RECV;
    grant_to(&comm, &whole, &message, NULL);
    assert_int_equal(message.most_blocks, 0);
    shim_share_release(&comm);
    shim_share_release(&other);
}

/* The large part is given to the next communicator that asks after its holder's calls have ended. */
static void next(void **state)
{
    (void)state;
    shim_comm_t first = {.nranks = 2}, second = {.nranks = 2};
    for (int turn = 0; turn < 2; turn++) {
        ended = true;
        assert_int_equal(grant(&first, &any_grid, 64, 512).blocks, 64);
        ended = false;
        const alg_call_t call = grant(&second, &any_grid, 64, 512);
        assert_int_equal(call.threads, 128);
        assert_in_range(call.blocks, 112, 114);
        assert_int_equal(grant(&second, &whole, 22, 544).most_blocks, 14);
        const alg_call_t bulk = grant(&second, &spare, 22, 544);
        assert_int_equal(bulk.sure_blocks, 14);
        assert_int_equal(bulk.most_blocks, 0);
        assert_int_equal(grant(&first, &any_grid, 64, 512).blocks, 64);
        ended = true;
        assert_int_equal(grant(&second, &any_grid, 64, 512).blocks, 64);
        assert_int_equal(grant(&second, &whole, 22, 544).most_blocks, 0);
    }
    shim_share_release(&second);
    assert_int_equal(grant(&first, &any_grid, 64, 512).blocks, 64);
    shim_share_release(&first);
}

/* A launch does not count as ended before its event is recorded: until then the event is that of an earlier call. */
static void a_launch_is_not_through(void **state)
{
    (void)state;
    shim_comm_t first = {.nranks = 2}, second = {.nranks = 2};
    grant(&first, &any_grid, 64, 512);
    alg_call_t call = call_of(64, 512);
    grant_to(&first, &any_grid, &call, NULL);
    assert_int_equal(grant(&second, &any_grid, 64, 512).threads, 128);
    grant_to(&first, &any_grid, &call, NULL); /* two of a group */
    shim_share_launched(&first, false);
    assert_int_equal(grant(&second, &any_grid, 64, 512).threads, 128);
    shim_share_launched(&first, true);
    assert_int_equal(grant(&second, &any_grid, 64, 512).threads, 512);
    shim_share_release(&first);
    shim_share_release(&second);
}

static int child_status;

/* Asked under the GPU's lock. */
static bool forks(void *event)
{
    shim_comm_t comm = {.nranks = 2};
    (void)event;
    ended_of = NULL;
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        const bool lone = shim_share_is_lone(&comm);
        shim_share_join(&comm);
        shim_share_release(&comm);
        _exit(lone && shim_share_is_lone(&comm) ? 0 : 1);
    }
    child_status = waitpid(child, &child_status, 0) == child ? child_status : -1;
    return false;
}

/* A child that is forked while a thread holds a GPU's lock can make communicators, and counts none of its parent's. */
static void a_child_has_free_locks(void **state)
{
    (void)state;
    int event;
    shim_comm_t first = {.nranks = 2}, second = {.nranks = 2};
    shim_share_join(&first);
    shim_share_join(&second);
    grant(&first, &any_grid, 64, 512);
    first.order.event = &event;
    ended_of = forks;
    assert_int_equal(grant(&second, &any_grid, 64, 512).threads, 128);
    assert_null(ended_of);
    assert_int_equal(child_status, 0);
    first.order.event = NULL;
    shim_share_release(&first);
    shim_share_release(&second);
}

/* A graph keeps the large part as long as it exists, since a replay makes no call; a graph of small calls does not. */
static void graphs_keep_it(void **state)
{
    (void)state;
    shim_comm_t first = {.nranks = 2}, second = {.nranks = 2};
    for (uint32_t large = 0; large < 2; large++) {
        alg_call_t call = large ? call_of(64, 512) : call_of(32, 128);
        shim_ahead_t ahead = {0};
        grant_to(&first, &any_grid, &call, &ahead);
        shim_share_launched(&first, false);
        atomic_store(&first.order.graphs, 1);
        assert_int_equal(grant(&second, &any_grid, 64, 512).threads, large ? 128 : 512);
        atomic_store(&first.order.graphs, 0);
        assert_int_equal(grant(&second, &any_grid, 64, 512).threads, 512);
        shim_share_release(&second);
    }
    shim_share_release(&first);
}

/* A user's limit of blocks applies to slim grids, too. */
static void a_limit_of_blocks_holds(void **state)
{
    (void)state;
    sel_plan_t plan = {.settings = {.max_blocks = 20}};
    shim_comm_t first = {.nranks = 2}, second = {.nranks = 2, .plan = &plan};
    grant(&first, &any_grid, 64, 512);
    ended = false;
    const alg_call_t call = grant(&second, &any_grid, 20, 1024);
    assert_int_equal(call.threads, 1024);
    assert_int_equal(call.most_blocks, 14);
    shim_share_release(&first);
    shim_share_release(&second);
}

/* ---- Early successors --------------------------------------------------------------------- */

static void early(void **state)
{
    (void)state;
    shim_comm_t comm = {.nranks = 2};
    for (int on = 0; on < 2; on++) {
        settings.early = on;
        assert_int_equal(grant(&comm, &any_grid, 32, 512).early, on);
        assert_int_equal(grant(&comm, &any_grid, 1, 64).early, on);
        alg_call_t call = call_of(64, 512);
        assert_int_equal(grant_to(&comm, &any_grid, &call, NULL), 1);
        shim_share_launched(&comm, false);
    }
    alg_call_t small = call_of(32, 512), large = call_of(64, 512);
    grant_to(&comm, &any_grid, &small, NULL); /* 16 of 33, and lets its successor in */
    assert_true(grant_to(&comm, &any_grid, &small, NULL));
    assert_false(grant_to(&comm, &any_grid, &large, NULL));
    assert_true(grant_to(&comm, &any_grid, &small, NULL)); /* the large one let nobody in */
    shim_share_release(&comm);
}

/* A call that almost fits twice gets a smaller grid, so that its successor can start early. */
static void nearly_twice(void **state)
{
    (void)state;
    shim_comm_t first = {.nranks = 2}, second = {.nranks = 2};
    grant(&first, &any_grid, 64, 512);
    ended = false;
    const alg_call_t call = grant(&second, &any_grid, 32, 256);
    assert_int_equal(call.early, 1);
    assert_in_range(call.blocks, 54, 57);
    assert_int_equal(grant(&second, &any_grid, 64, 256).early, 0);
    shim_share_release(&first);
    shim_share_release(&second);
}

/* In a capture only the rows decide which calls are dependent, not other communicators' requests or the buffers'
 * alignment. */
static void captured_successors(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {64, 16, 16, 8, 32, 33, 33, 64};
    static const bool dependent[] = {true, true, true, true, false, false, true, false};
    for (uint32_t round = 0; round < 64; round++) {
        shim_comm_t comm = {.nranks = 2}, other = {.nranks = 2};
        shim_ahead_t ahead = {0};
        ended = round & 1;
        if (round & 2)
            grant(&other, &any_grid, 64, 512);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const uint32_t before = ahead.early;
            alg_call_t call = call_of(sizes[i], 512);
            if (round >> 2 & i & 1)
                call.blocks += 12;
            assert_int_equal(grant_to(&comm, &any_grid, &call, &ahead), dependent[i]);
            assert_true(!dependent[i] || before + taken(&any_grid, &call) <= 33 * ALG_ROOM);
            shim_share_launched(&comm, false);
        }
        alg_call_t one = call_of(8, 512);
        const shim_ask_t ask = {.algorithm = &any_grid, .beside = 8 * 512, .ahead = &ahead};
        assert_false(shim_share_grant(&comm, &one, &ask));
        shim_share_release(&comm);
        shim_share_release(&other);
    }
}

/* A long graph captured alone, on 59 multiprocessors and as many for the successor, leaves no part of 14 or more to
 * others. */
static void a_long_lone_graph_leaves_a_part(void **state)
{
    (void)state;
    const alg_algorithm_t wide = {.block_room = room_of_ranks};
    shim_comm_t comm = {.nranks = 2};
    shim_share_join(&comm);
    for (int is_long = 0; is_long < 2; is_long++) {
        for (int captured = 0; captured < 2; captured++) {
            for (uint32_t blocks = 58; blocks <= 59; blocks++) {
                shim_ahead_t ahead = {0};
                alg_call_t call = call_of(blocks, 512);
                call.type = ALG_FLOAT32;
                call.count = is_long ? 1 << 20 : (1 << 20) - 1;
                grant_to(&comm, &wide, &call, captured ? &ahead : NULL);
                shim_share_launched(&comm, false);
                assert_int_equal(call.early, !(is_long && captured && blocks == 59));
                assert_int_equal(call.most_blocks, 0);
            }
        }
    }
    shim_share_release(&comm);
}

/* Two concurrent calls of a communicator both get places, and let no successor in early. */
static void calls_run_beside_each_other(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {200, 132, 64, 20, 3};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        shim_comm_t comm = {.nranks = 2};
        alg_call_t one = call_of(64, 512), other = call_of(32, 512);
        multiprocessors = sizes[i];
        const shim_ask_t first = {.algorithm = &fixed, .beside = 32 * 512},
                         second = {.algorithm = &fixed, .beside = 64 * 512};
        shim_share_grant(&comm, &one, &first);
        shim_share_grant(&comm, &other, &second);
        assert_true(!one.early && !other.early);
        assert_true(taken(&fixed, &one) + taken(&fixed, &other) <= sizes[i] * ALG_ROOM / 2 + 2 * 512);
        shim_share_release(&comm);
    }
}

/* ---- Where kernels can be placed -------------------------------------------------------------- */

static alg_call_t grant_on(shim_comm_t *comm, void *stream, unsigned long long id, uint32_t its_multiprocessors)
{
    alg_call_t call = call_of(64, 512);
    const shim_ask_t ask = {.algorithm = &fixed, .stream = stream, .stream_id = id};
    multiprocessors = its_multiprocessors;
    shim_share_grant(comm, &call, &ask);
    shim_share_launched(comm, false);
    return call;
}

/* Grids fit the fewer multiprocessors of green contexts' streams: a grid that is not placed as a whole could deadlock
 * with those of the peers. */
static void streams_with_fewer_multiprocessors(void **state)
{
    (void)state;
    int one;
    shim_comm_t comm = {.nranks = 2};
    assert_int_equal(grant_on(&comm, &one, 1, 8).most_blocks, 8); /* half of them, two a multiprocessor */
    assert_int_equal(grant_on(&comm, &one, 2, 132).most_blocks, 0);
    assert_int_equal(asked, 2);
    for (int i = 0; i < 10; i++) /* streams in turn are not asked again */
        assert_int_equal(grant_on(&comm, &one, 1 + i % 2, 0).most_blocks, i % 2 ? 0 : 8);
    assert_int_equal(asked, 2);
    shim_share_release(&comm);
}

/* Communicators from before a device reset count neither as neighbours nor as holders, and get nothing. */
static void after_a_reset(void **state)
{
    (void)state;
    shim_comm_t lost = {.nranks = 2, .device = 5, .life = 1}, first = {.nranks = 2, .device = 5, .life = 2},
                second = first;
    shim_share_join(&lost);
    assert_int_equal(grant(&lost, &whole, 64, 544).most_blocks, 0);
    ended = false; /* whose event nobody may ask */
    shim_share_join(&first);
    assert_int_equal(grant(&first, &whole, 132, 544).most_blocks, 0);
    shim_share_release(&lost);
    assert_int_equal(grant(&first, &whole, 132, 544).most_blocks, 0);
    shim_share_join(&second);
    assert_int_equal(grant(&first, &whole, 132, 544).most_blocks, 33);
    shim_share_join(&lost);
    shim_share_release(&first);
    assert_int_equal(grant(&lost, &whole, 64, 544).most_blocks, 14);
    assert_int_equal(grant(&second, &whole, 132, 544).most_blocks, 0);
    shim_share_release(&lost);
    shim_share_release(&second);
}

/* If the driver does not report a GPU's multiprocessors, a call gets its row's grid. */
static void unknown(void **state)
{
    (void)state;
    shim_comm_t comm = {.nranks = 2};
    multiprocessors = 0;
    assert_int_equal(grant(&comm, &any_grid, 64, 512).blocks, 64);
    shim_share_release(&comm);
}

/* ---- A model -------------------------------------------------------------------------------------
 *
 * GPUs whose blocks are placed anywhere, in any order. Each communicator has calls on all of them, one after the other;
 * a call ends when all its blocks on all GPUs are placed; its successor may be placed before that if the call allows
 * it. Each host makes the calls of different communicators in an order of its own.
 *
 * Where a stream of one GPU alone orders the calls, blocks go to the multiprocessor with the most room, as GPUs do it,
 * and none fills a multiprocessor (docs/limits.md).
 */
enum { SIM_GPUS = 3, SIM_COMMS = 8, SIM_CALLS = 4, SIM_MULTIPROCESSORS = 132 };

typedef struct sim_kernel {
    uint32_t blocks, unit, placed;
    bool issued, early, dependent;
    uint8_t at[256]; /* multiprocessor of each block placed */
} sim_kernel_t;

typedef struct sim {
    uint32_t gpus, comms, sizes;
    uint64_t seed;
    bool graphs; /* the first communicator's calls are captured */
    bool all_captured;
    bool ordered; /* a stream of GPU 1 orders the calls there */
    sim_kernel_t kernel[SIM_GPUS][SIM_COMMS][SIM_CALLS];
    uint32_t issued[SIM_GPUS][SIM_COMMS], through[SIM_COMMS];
    uint32_t room[SIM_GPUS][SIM_MULTIPROCESSORS];
    shim_comm_t comm[SIM_GPUS][SIM_COMMS];
    shim_ahead_t ahead[SIM_GPUS][SIM_COMMS];
    uint32_t order[SIM_GPUS][SIM_COMMS * SIM_CALLS]; /* communicators, as the host calls them */
} sim_t;

static sim_t sim;
typedef enum sim_break { SIM_WHOLE, SIM_NO_PARTS, SIM_EARLY, SIM_TAKEN } sim_break_t;
static sim_break_t sim_break;

static bool sim_ended(void *event)
{
    const ptrdiff_t at = (shim_comm_t *)event - &sim.comm[0][0];
    return sim_break == SIM_TAKEN || sim.issued[at / SIM_COMMS][at % SIM_COMMS] <= sim.through[at % SIM_COMMS];
}

static void sim_issue(uint32_t g, uint32_t c, bool captured)
{
    static const uint32_t shapes[][2] = {{64, 512}, {128, 256}, {128, 128}, {32, 512}, {32, 128}, {1, 64}};
    static const alg_algorithm_t *const algorithms[] = {&any_grid, &any_grid, &fixed, &whole};
    shim_comm_t *comm = &sim.comm[g][c];
    sim_kernel_t *kernel = &sim.kernel[g][c][sim.issued[g][c]];
    uint64_t same = sim.seed + 1000003 * (c + 1) + sim.issued[g][c]; /* the same call on all GPUs */
    const alg_algorithm_t *algorithm = algorithms[data_below(&same, sim.ordered ? 3 : 4)];
    const uint32_t *shape = shapes[data_below(&same, sim.sizes)];
    alg_call_t call = call_of(shape[0], shape[1]);
    if (algorithm == &whole)
        call.blocks = 26;
    comm->nranks = 2;
    comm->order.event = comm;
    kernel->dependent = grant_to(comm, algorithm, &call, captured ? &sim.ahead[g][c] : NULL);
    shim_share_launched(comm, false);
    if (sim_break == SIM_NO_PARTS)
        call = call_of(shape[0], shape[1]);
    kernel->early = call.early || sim_break == SIM_EARLY;
    kernel->dependent = kernel->dependent || sim_break == SIM_EARLY;
    kernel->unit = algorithm->block_room(2, call.threads);
    kernel->blocks = taken(algorithm, &call) / kernel->unit;
    kernel->issued = !captured;
    sim.issued[g][c]++;
}

static bool sim_may_place(uint32_t g, uint32_t c, uint32_t k)
{
    if (k >= SIM_CALLS)
        return false;
    const sim_kernel_t *kernel = &sim.kernel[g][c][k];
    if (!kernel->issued || kernel->placed == kernel->blocks)
        return false;
    for (uint32_t other = 0; other < sim.comms && sim.ordered && g == 1; other++)
        if (other < c && sim.through[other] <= k)
            return false;
    const sim_kernel_t *before = k > 0 ? &sim.kernel[g][c][k - 1] : NULL;
    return k == sim.through[c] ||
           (k == sim.through[c] + 1 && before->early && kernel->dependent && before->placed == before->blocks);
}

static uint32_t sim_emptiest(uint32_t g)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < SIM_MULTIPROCESSORS; i++)
        best = sim.room[g][i] > sim.room[g][best] ? i : best;
    return best;
}

static bool sim_place(uint32_t g, sim_kernel_t *kernel, uint64_t *random)
{
    uint32_t begin = (uint32_t)data_below(random, SIM_MULTIPROCESSORS);
    bool any = false;
    for (uint32_t i = 0; i < SIM_MULTIPROCESSORS && kernel->placed < kernel->blocks; i++) {
        if (sim.ordered)
            begin = sim_emptiest(g) + SIM_MULTIPROCESSORS - i;
        uint32_t *room = &sim.room[g][(begin + i) % SIM_MULTIPROCESSORS];
        if (*room < kernel->unit)
            continue;
        *room -= kernel->unit;
        kernel->at[kernel->placed++] = (uint8_t)((begin + i) % SIM_MULTIPROCESSORS);
        any = true;
        if (data_below(random, 4) == 0)
            break;
    }
    return any;
}

static bool sim_end_calls(void)
{
    bool any = false;
    for (uint32_t c = 0; c < sim.comms; c++) {
        const uint32_t k = sim.through[c];
        bool all = k < SIM_CALLS;
        for (uint32_t g = 0; g < sim.gpus && all; g++)
            all = sim.kernel[g][c][k].issued && sim.kernel[g][c][k].placed == sim.kernel[g][c][k].blocks;
        for (uint32_t g = 0; g < sim.gpus && all; g++)
            for (uint32_t b = 0; b < sim.kernel[g][c][k].blocks; b++)
                sim.room[g][sim.kernel[g][c][k].at[b]] += sim.kernel[g][c][k].unit;
        sim.through[c] += all;
        any = any || all;
    }
    return any;
}

/* Simulate one random possible event; false: none is possible. */
static bool sim_step(uint32_t *next, uint64_t *random)
{
    while (sim_end_calls())
        ;
    const uint32_t tries = sim.gpus * sim.comms * 3, begin = (uint32_t)data_below(random, tries);
    for (uint32_t i = 0; i < tries; i++) {
        const uint32_t at = (begin + i) % tries, g = at / 3 / sim.comms, c = at / 3 % sim.comms;
        if (at % 3 == 0) { /* the host's next call */
            while (next[g] < sim.comms * SIM_CALLS && sim.order[g][next[g]] == UINT32_MAX)
                next[g]++;
            if (next[g] == sim.comms * SIM_CALLS)
                continue;
            sim_issue(g, sim.order[g][next[g]++], false);
            return true;
        }
        const uint32_t k = sim.through[c] + at % 3 - 1;
        if (sim_may_place(g, c, k) && sim_place(g, &sim.kernel[g][c][k], random))
            return true;
    }
    return false;
}

static void sim_begin(uint32_t round)
{
    for (uint32_t g = 0; g < sim.gpus; g++) {
        for (uint32_t i = 0; i < SIM_MULTIPROCESSORS; i++)
            sim.room[g][i] = ALG_ROOM;
        const uint32_t captured = sim.all_captured ? sim.comms : sim.graphs;
        for (uint32_t c = 0; c < captured; c++) {
            for (uint32_t k = 0; k < SIM_CALLS; k++)
                sim_issue(g, c, true);
            atomic_store(&sim.comm[g][c].order.graphs, 1);
            for (uint32_t k = 0; k < SIM_CALLS; k++)
                sim.kernel[g][c][k].issued = true; /* replayed at any time */
        }
        for (uint32_t i = 0; i < sim.comms * SIM_CALLS; i++) {
            const uint32_t c = sim.ordered ? i % sim.comms : round % 2 ? i / SIM_CALLS : i % sim.comms;
            const uint32_t crossed = g % 2 && !sim.ordered ? sim.comms - 1 - c : c;
            sim.order[g][i] = crossed < captured ? UINT32_MAX : crossed;
        }
    }
}

/* Of so many rounds those that do not end. */
static uint32_t lock_ups(uint32_t gpus, uint32_t comms, bool graphs, bool all_captured, bool ordered, uint32_t rounds)
{
    uint64_t random = 3;
    uint32_t stuck = 0;
    ended_of = sim_ended;
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t next[SIM_GPUS] = {0}, through = 0;
        memset(&sim, 0, sizeof sim);
        for (uint32_t i = 0; i < SIM_GPUS * SIM_COMMS; i++) {
            sim.comm[i / SIM_COMMS][i % SIM_COMMS].device = (int)(i / SIM_COMMS);
            shim_share_join(&sim.comm[i / SIM_COMMS][i % SIM_COMMS]);
        }
        sim.gpus = gpus;
        sim.comms = comms;
        sim.graphs = graphs;
        sim.all_captured = all_captured;
        sim.ordered = ordered;
        sim.sizes = round % 3 == 0 ? 2 : 6;
        sim.seed = 7919 * round;
        sim_begin(round);
        while (sim_step(next, &random))
            ;
        for (uint32_t c = 0; c < comms; c++)
            through += sim.through[c] == SIM_CALLS;
        stuck += through < comms;
        for (uint32_t i = 0; i < SIM_GPUS * SIM_COMMS; i++)
            shim_share_release(&sim.comm[i / SIM_COMMS][i % SIM_COMMS]);
    }
    return stuck;
}

/* No communicator is blocked by eight in opposite orders, eager and captured, on two and three GPUs; and without each
 * part of the rule one is. */
static void no_communicator_is_blocked(void **state)
{
    (void)state;
    enum { ROUNDS = 40 };
    sim_break = SIM_WHOLE;
    for (uint32_t gpus = 2; gpus <= SIM_GPUS; gpus++)
        for (uint32_t comms = 2; comms <= SIM_COMMS; comms *= 2) {
            assert_int_equal(lock_ups(gpus, comms, false, false, false, ROUNDS), 0);
            assert_int_equal(lock_ups(gpus, comms, true, false, false, ROUNDS), 0);
            assert_int_equal(lock_ups(gpus, comms, false, true, false, ROUNDS), 0);
        }
    for (uint32_t comms = 2; comms <= 5; comms++) { /* more: docs/limits.md */
        assert_int_equal(lock_ups(2, comms, false, false, true, ROUNDS), 0);
        assert_int_equal(lock_ups(2, comms, true, false, true, ROUNDS), 0);
    }
    for (sim_break = SIM_NO_PARTS; sim_break <= SIM_TAKEN; sim_break++)
        assert_int_not_equal(lock_ups(2, SIM_COMMS, false, false, false, 10 * ROUNDS), 0);
    sim_break = SIM_WHOLE;
}

/* With 3 ranks and more, several reductions in one kernel use the kernels for 8 ranks. */
static void several_reductions(void **state)
{
    (void)state;
    const alg_algorithm_t algorithm = {.block_room = room_of_ranks};
    alg_call_t call = call_of(2, 64);
    assert_int_equal(shim_share_room(&algorithm, &call, 3), 2 * 3 * 64);
    call.part_count = 2;
    assert_int_equal(shim_share_room(&algorithm, &call, 2), 2 * 2 * 64);
    assert_int_equal(shim_share_room(&algorithm, &call, 3), 2 * ALG_MAX_RANKS * 64);
    call.collective = ALG_ALL_GATHER;
    assert_int_equal(shim_share_room(&algorithm, &call, 3), 2 * 3 * 64);
}

int main(void)
{
    const struct CMUnitTest first[] = {cmocka_unit_test_setup(alone, fresh),
                                       cmocka_unit_test_setup(a_long_lone_graph_leaves_a_part, fresh)};
    const struct CMUnitTest tests[] = {cmocka_unit_test(several_reductions),
                                       cmocka_unit_test_setup(next, fresh),
                                       cmocka_unit_test_setup(a_launch_is_not_through, fresh),
                                       cmocka_unit_test_setup(a_child_has_free_locks, fresh),
                                       cmocka_unit_test_setup(graphs_keep_it, fresh),
                                       cmocka_unit_test_setup(a_limit_of_blocks_holds, fresh),
                                       cmocka_unit_test_setup(early, fresh),
                                       cmocka_unit_test_setup(nearly_twice, fresh),
                                       cmocka_unit_test_setup(captured_successors, fresh),
                                       cmocka_unit_test_setup(calls_run_beside_each_other, fresh),
                                       cmocka_unit_test_setup(streams_with_fewer_multiprocessors, fresh),
                                       cmocka_unit_test_setup(after_a_reset, fresh),
                                       cmocka_unit_test_setup(unknown, fresh),
                                       cmocka_unit_test_setup(no_communicator_is_blocked, fresh)};
    const int failed = cmocka_run_group_tests(first, NULL, NULL);
    return failed + cmocka_run_group_tests(tests, crowd, leave);
}
