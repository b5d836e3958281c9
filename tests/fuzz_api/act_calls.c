/* SPDX-License-Identifier: Apache-2.0 */
/* act_calls.c - collectives: alone, in groups, in groups that fail, from two threads; and the user's operators. */
#include "act.h"

#include <pthread.h>

#include "mix.h"

typedef struct issued {
    call_t call[FUZZ_MEMBERS];
    int op; /* the user's; -1: the call's own */
} issued_t;

/* ---- One call at a time --------------------------------------------------------------------- */

static data_case_t draw_case(actor_t *actor, int nranks)
{
    static const size_t least[4] = {1, 1, 30, 3000}, most[4] = {1, 40, 3000, 40000};
    data_case_t c = {.nranks = nranks};
    uint64_t range = act_draw(actor, 40) == 0 ? 3 : act_draw(actor, 3);
    c.count = least[range] + act_draw(actor, most[range]);
    c.type = (ncclDataType_t)act_draw(actor, REF_TYPES);
    c.op = (ref_op_t)act_draw(actor, REF_OPS);
    c.kind = (data_kind_t)act_draw(actor, DATA_KINDS);
    c.seed = act_draw(actor, 1u << 30);
    return c;
}

static call_shape_t draw_shape(actor_t *actor, ncclDataType_t type)
{
    size_t bytes = ref_bytes(type);
    call_shape_t shape = {bytes * act_draw(actor, 5), bytes * act_draw(actor, 5), act_draw(actor, 3) == 0};
    return shape;
}

/* Allocate the buffers of all of this actor's ranks. */
static void prepare(actor_t *actor, int slot, issued_t *issued)
{
    fuzz_comm_t *comm = &actor->comm[slot];
    coll_t k = {.collective = (alg_collective_t)act_draw(actor, COLL_COUNT),
                .root = (uint32_t)act_draw(actor, (uint64_t)comm->members),
                .c = draw_case(actor, comm->members)};
    if (coll_input_count(&k, k.root) + coll_output_count(&k, k.root) >
        2 * k.c.count) /* a block a rank; the scratch is small */
        k.c.count = k.c.count / (size_t)comm->members + 1;
    int op = (int)act_draw(actor, FUZZ_OPS);
    bool own = comm->op[op].made && act_draw(actor, 3) == 0;
    if (own) {
        size_t count = k.c.count;
        k.c = comm->op[op].c;
        k.c.count = count;
        k.c.op = REF_SUM; /* call_prepare_coll would make an operator */
    }
    issued->op = own ? op : -1;
    call_shape_t shape = draw_shape(actor, k.c.type);
    for (int m = 0; m < comm->members; m++) {
        if (!act_owns(actor, slot, m))
            continue;
        call_prepare_coll(&issued->call[m], act_handle(actor, slot, m), m, &k, shape);
        if (own)
            issued->call[m].k.c.op = REF_PREMUL;
    }
}

static ncclResult_t issue(const actor_t *actor, issued_t *issued, int slot, int member)
{
    call_t *call = &issued->call[member];
    return issued->op < 0 ? call_issue(call) : call_issue_with(call, *act_op(actor, slot, issued->op, member));
}

static void reduce(actor_t *actor, int slot)
{
    const fuzz_comm_t *comm = &actor->comm[slot];
    int calls = 1 + (int)act_draw(actor, 4);
    for (int i = 0; i < calls; i++) {
        issued_t issued;
        uint64_t hash = 0;
        prepare(actor, slot, &issued);
        int depth = act_open(actor, slot);
        for (int m = 0; m < comm->members; m++)
            if (act_owns(actor, slot, m))
                CHECK_STARTED(issue(actor, &issued, slot, m));
        act_close(depth, ncclSuccess);
        for (int m = 0; m < comm->members; m++) {
            if (!act_owns(actor, slot, m))
                continue;
            if (!comm->blocking)
                act_wait_ready(act_handle(actor, slot, m));
            call_finish(&issued.call[m], 0, 1, &hash);
        }
    }
}

void act_reduce(actor_t *actor, const fuzz_step_t *step)
{
    if (actor->comm[step->slot].state == STATE_LIVE)
        reduce(actor, (int)step->slot);
}

/* Whether both communicators have the same actors' ranks, so that a call can be made on both. */
static bool same_ranks(const fuzz_comm_t *a, const fuzz_comm_t *b)
{
    bool same = b->state == STATE_LIVE && a->members == b->members;
    for (int m = 0; same && m < a->members; m++)
        same = a->owner[m] == b->owner[m];
    return same;
}

void act_messages(actor_t *actor, const fuzz_step_t *step)
{
    const int slots[MIX_COMMS] = {(int)step->slot, (int)step->other};
    const fuzz_comm_t *comm = &actor->comm[step->slot];
    mix_t mix = {.collectives = 5, .largest = 50000};
    mix.seed = act_draw(actor, 1u << 30);
    mix.events = 1 + (int)act_draw(actor, 40);
    mix.group = 1 + (int)act_draw(actor, 20);
    if (comm->state != STATE_LIVE || act_owned(actor, (int)step->slot) == 0)
        return;
    mix.comms = step->slot != step->other && same_ranks(comm, &actor->comm[step->other]) ? 2 : 1;
    ncclComm_t comms[MIX_COMMS * FUZZ_MEMBERS] = {0};
    for (int c = 0; c < mix.comms; c++)
        for (int m = 0; m < comm->members; m++)
            if (act_owns(actor, slots[c], m))
                comms[c * comm->members + m] = act_handle(actor, slots[c], m);
    mix_run(&mix, NULL, comms, comm->members, mix.seed + (uint64_t)actor->me);
}

/* ---- Operators ----------------------------------------------------------------------- */

void act_make_op(actor_t *actor, const fuzz_step_t *step)
{
    int slot = (int)step->slot, op = (int)act_draw(actor, FUZZ_OPS);
    fuzz_comm_t *comm = &actor->comm[slot];
    if (comm->state != STATE_LIVE || comm->op[op].made)
        return;
    comm->op[op].c = (data_case_t){.type = (ncclDataType_t)act_draw(actor, REF_TYPES),
                                   .op = REF_PREMUL,
                                   .kind = DATA_RANDOM,
                                   .seed = act_draw(actor, 1u << 30),
                                   .nranks = comm->members};
    comm->op[op].made = true;
    for (int m = 0; m < comm->members; m++) {
        uint64_t scalar = 0;
        if (!act_owns(actor, slot, m))
            continue;
        data_scalar(&comm->op[op].c, m, &scalar);
        CHECK_NCCL(ncclRedOpCreatePreMulSum(act_op(actor, slot, op, m), &scalar, comm->op[op].c.type,
                                            ncclScalarHostImmediate, act_handle(actor, slot, m)));
    }
}

void act_drop_op(actor_t *actor, const fuzz_step_t *step)
{
    int slot = (int)step->slot, op = (int)act_draw(actor, FUZZ_OPS);
    fuzz_comm_t *comm = &actor->comm[slot];
    if (comm->state != STATE_LIVE || !comm->op[op].made)
        return;
    comm->op[op].made = false;
    for (int m = 0; m < comm->members; m++) {
        if (!act_owns(actor, slot, m))
            continue;
        CHECK_NCCL(ncclRedOpDestroy(*act_op(actor, slot, op, m), act_handle(actor, slot, m)));
        CHECK_RESULT(ncclRedOpDestroy(*act_op(actor, slot, op, m), act_handle(actor, slot, m)), ncclInvalidArgument);
    }
}

/* ---- Groups ---------------------------------------------------------------------------- */

typedef enum ending { ENDS_WELL, ENDS_POISONED, ENDS_SIMULATED } ending_t;
enum { GROUP_CALLS = 6 };

/* One of several wrong calls; returns its result, which is also the group end's. */
static ncclResult_t wrong_call(uint64_t which)
{
    float value = 1;
    ncclComm_t comm = NULL;
    ncclUniqueId id = {{0}};
    switch (which) {
    case 0:
        CHECK_RESULT(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, NULL, NULL), ncclInvalidArgument);
        break;
    case 1:
        CHECK_RESULT(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
        break;
    default:
        CHECK_RESULT(ncclCommSplit(NULL, 0, 0, &comm, NULL), ncclInvalidArgument);
        CHECK_RESULT(ncclCommInitAll(&comm, 2, (const int[]){3, 3}), ncclInvalidUsage); /* fails no group */
    }
    return ncclInvalidArgument;
}

/* The group end for this ending. Simulating without a structure is NCCL's other way to end a group. */
static ncclResult_t end_group(ending_t ending, bool null)
{
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    if (ending == ENDS_SIMULATED)
        return ncclGroupSimulateEnd(&info);
    return null ? ncclGroupSimulateEnd(NULL) : ncclGroupEnd();
}

static void run_group(actor_t *actor, ending_t ending)
{
    static _Thread_local issued_t issued[GROUP_CALLS];
    int slots[GROUP_CALLS], calls = 0, bad, wrong = (int)act_draw(actor, 3),
                            tries = 1 + (int)act_draw(actor, GROUP_CALLS);
    bool null = act_draw(actor, 8) == 0, nested = act_draw(actor, 2) == 0;
    ncclResult_t expected = ncclSuccess;
    uint64_t hash = 0;
    for (int i = 0; i < tries; i++) {
        int slot = (int)act_draw(actor, actor->run->program->slots);
        if (actor->comm[slot].state != STATE_LIVE)
            continue;
        prepare(actor, slot, &issued[calls]);
        slots[calls++] = slot;
    }
    bad = (int)act_draw(actor, (uint64_t)calls + 1);
    CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i <= calls; i++) {
        if (ending == ENDS_POISONED && i == bad)
            expected = wrong_call((uint64_t)wrong);
        if (i == calls)
            break;
        if (nested)
            CHECK_NCCL(ncclGroupStart());
        for (int m = 0; m < actor->comm[slots[i]].members; m++)
            if (act_owns(actor, slots[i], m))
                CHECK_STARTED(issue(actor, &issued[i], slots[i], m));
        if (nested)
            CHECK_NCCL(ncclGroupEnd());
    }
    ncclResult_t result = end_group(ending, null);
    CHECK(expected == ncclSuccess ? result == ncclSuccess || result == ncclInProgress : result == expected);
    for (int i = 0; i < calls; i++)
        for (int m = 0; m < actor->comm[slots[i]].members; m++) {
            const fuzz_comm_t *comm = &actor->comm[slots[i]];
            if (!act_owns(actor, slots[i], m))
                continue;
            if (!comm->blocking)
                act_wait_ready(act_handle(actor, slots[i], m));
            if (ending == ENDS_WELL || comm->members == 1) /* one rank's calls run at once */
                call_finish(&issued[i].call[m], 0, 1, &hash);
            else
                call_cancelled(&issued[i].call[m]);
        }
}

void act_group(actor_t *actor, const fuzz_step_t *step)
{
    (void)step;
    run_group(actor, ENDS_WELL);
}

void act_poison(actor_t *actor, const fuzz_step_t *step)
{
    (void)step;
    run_group(actor, ENDS_POISONED);
}

void act_simulate(actor_t *actor, const fuzz_step_t *step)
{
    (void)step;
    run_group(actor, ENDS_SIMULATED);
}

/* ---- Two threads ------------------------------------------------------------------------- */

typedef struct lane {
    actor_t actor; /* a copy: the threads draw independently, but alike in all actors */
    int slot;
} lane_t;

static void *lane_main(void *argument)
{
    lane_t *lane = argument;
    for (int i = 0; i < 4; i++)
        reduce(&lane->actor, lane->slot);
    return NULL;
}

void act_pair(actor_t *actor, const fuzz_step_t *step)
{
    lane_t lane[2] = {{*actor, (int)step->slot}, {*actor, (int)step->other}};
    pthread_t thread;
    lane[1].actor.dice += 1;
    for (int i = 0; i < 2; i++)
        if (actor->comm[lane[i].slot].state != STATE_LIVE || step->slot == step->other)
            return;
    CHECK(pthread_create(&thread, NULL, lane_main, &lane[0]) == 0);
    lane_main(&lane[1]);
    CHECK(pthread_join(thread, NULL) == 0);
}
