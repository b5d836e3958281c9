/* SPDX-License-Identifier: Apache-2.0 */
/* act_end.c - ends of communicators: in order, at once, during a call, by the death of a rank, with the program. */
#include "act.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

void act_finalize(actor_t *actor, const fuzz_step_t *step)
{
    int slot = (int)step->slot;
    fuzz_comm_t *comm = &actor->comm[slot];
    if (comm->state != STATE_LIVE)
        return;
    int depth = act_open(actor, slot);
    for (int m = 0; m < comm->members; m++)
        if (act_owns(actor, slot, m))
            CHECK_STARTED(ncclCommFinalize(act_handle(actor, slot, m)));
    act_close(depth, ncclSuccess);
    act_settle(actor, slot);
    comm->state = STATE_FINALIZED;
}

void act_revoke(actor_t *actor, const fuzz_step_t *step)
{
    int slot = (int)step->slot;
    fuzz_comm_t *comm = &actor->comm[slot];
    if (comm->state != STATE_LIVE)
        return;
    ranks_barrier(actor->ranks); /* else it would break a call of the slower ones */
    for (int m = 0; m < comm->members; m++)
        if (act_owns(actor, slot, m))
            CHECK_STARTED(ncclCommRevoke(act_handle(actor, slot, m), NCCL_REVOKE_DEFAULT));
    comm->state = STATE_REVOKED;
}

typedef ncclResult_t (*end_t)(ncclComm_t comm);

/* End a communicator. All actors wait before and after, so that no other thread's new communicator gets the handle's
 * address. */
static void end_comm(actor_t *actor, int slot, end_t end, bool meet)
{
    fuzz_comm_t *comm = &actor->comm[slot];
    ncclComm_t gone[FUZZ_MEMBERS];
    int depth = act_open(actor, slot), count;
    for (int m = 0; m < comm->members; m++) {
        if (!act_owns(actor, slot, m))
            continue;
        gone[m] = act_handle(actor, slot, m);
        act_forget(actor, slot, m);
        CHECK_STARTED(end(gone[m]));
    }
    act_close(depth, ncclSuccess);
    for (int m = 0; meet && m < comm->members; m++) {
        if (!act_owns(actor, slot, m))
            continue;
        CHECK_RESULT(ncclCommCount(gone[m], &count), ncclInvalidArgument);
        CHECK_RESULT(ncclCommDestroy(gone[m]), ncclInvalidArgument);
        CHECK_RESULT(ncclCommAbort(gone[m]), ncclInvalidArgument);
    }
    memset(comm, 0, sizeof(*comm));
}

static void end_step(actor_t *actor, int slot, end_t end)
{
    bool meet = act_draw(actor, 2) == 0;
    if (actor->comm[slot].state == STATE_NONE)
        return;
    /* An abort breaks calls of the slower ones. */
    if (meet || end == ncclCommAbort)
        ranks_barrier(actor->ranks);
    end_comm(actor, slot, end, meet);
    if (meet)
        ranks_barrier(actor->ranks);
}

void act_destroy(actor_t *actor, const fuzz_step_t *step)
{
    end_step(actor, (int)step->slot, ncclCommDestroy);
}

void act_abort(actor_t *actor, const fuzz_step_t *step)
{
    end_step(actor, (int)step->slot, ncclCommAbort);
}

void act_end(actor_t *actor)
{
    for (int slot = 0; slot < FUZZ_SLOTS; slot++)
        end_step(actor, slot, ncclCommDestroy);
}

/* ---- In mid-call ------------------------------------------------------------------------- */

typedef struct waiting {
    pthread_t thread;
    ncclComm_t comm;
    size_t count;
    bool group;
    ncclResult_t result;
} waiting_t;

static void *wait_main(void *argument)
{
    waiting_t *waiting = argument;
    float *data = calloc(waiting->count, sizeof(*data));
    CHECK(data != NULL);
    if (waiting->group)
        CHECK_NCCL(ncclGroupStart());
    waiting->result = ncclAllReduce(data, data, waiting->count, ncclFloat32, ncclSum, waiting->comm, NULL);
    if (waiting->group) {
        ncclResult_t end = ncclGroupEnd();
        waiting->result = waiting->result == ncclSuccess ? end : waiting->result;
    }
    free(data);
    return NULL;
}

static int own_member(const actor_t *actor, int slot)
{
    for (int m = 0; m < actor->comm[slot].members; m++)
        if (act_owns(actor, slot, m))
            return m;
    return -1;
}

static void stop_call(actor_t *actor, const fuzz_step_t *step, uint64_t how, const bool *gone)
{
    int slot = (int)step->slot, member = own_member(actor, slot);
    fuzz_comm_t *comm = &actor->comm[slot];
    if (how == 0) {
        end_comm(actor, slot, ncclCommAbort, false);
    } else if (how == 1) {
        if (member >= 0)
            CHECK_STARTED(ncclCommRevoke(act_handle(actor, slot, member), NCCL_REVOKE_DEFAULT));
        comm->state = STATE_REVOKED;
    } else {
        comm->state = STATE_STOPPED;
        act_shrink_to(actor, slot, (int)step->other, gone, true, true);
    }
}

/* All ranks but one make the call, so only abort, revoke or shrink can end it. */
void act_interrupt(actor_t *actor, const fuzz_step_t *step)
{
    int slot = (int)step->slot, member = own_member(actor, slot);
    const fuzz_comm_t *comm = &actor->comm[slot];
    bool gone[FUZZ_MEMBERS] = {false}, calls;
    waiting_t waiting = {.count = act_draw(actor, 3) ? 4 : 100000, .group = act_draw(actor, 2) == 0};
    uint64_t how = act_draw(actor, 3);
    if (comm->state != STATE_LIVE || comm->members < 2 || !fuzz_apart(comm))
        return;
    if (how == 2 && actor->comm[step->other].state != STATE_NONE)
        how = 0;
    int absent = (int)act_draw(actor, (uint64_t)comm->members);
    gone[absent] = true;
    calls = member >= 0 && member != absent;
    ranks_barrier(actor->ranks);
    waiting.comm = member >= 0 ? act_handle(actor, slot, member) : NULL;
    if (calls)
        CHECK(pthread_create(&waiting.thread, NULL, wait_main, &waiting) == 0);
    if (data_below(&actor->own, 3) > 0)
        usleep((useconds_t)data_below(&actor->own, 2000));
    stop_call(actor, step, how, gone);
    if (calls) {
        CHECK(pthread_join(waiting.thread, NULL) == 0);
        CHECK(waiting.result != ncclSuccess && waiting.result != ncclInProgress);
    }
    ranks_barrier(actor->ranks); /* no handle's address is reused before */
}

/* ---- Death --------------------------------------------------------------------------------- */

/* Check that the survivors' calls fail, and that they continue without the dead rank. */
static void outlive(actor_t *actor, int slot)
{
    const fuzz_program_t *program = actor->run->program;
    ncclComm_t comm = act_handle(actor, slot, own_member(actor, slot)), next = NULL;
    ncclResult_t state = ncclSuccess;
    float in = 1, out = 0;
    for (ncclResult_t result = ncclSuccess; result == ncclSuccess;)
        result = ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL);
    CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclRemoteError);
    CHECK_NCCL(ncclCommAbort(comm));
    int rank = 0, count = 0;
    for (int m = 0; m < actor->comm[slot].members; m++) {
        int owner = actor->comm[slot].owner[m];
        rank += owner != program->dies && owner < actor->me;
        count += owner != program->dies;
    }
    if (rank == 0) {
        CHECK_NCCL(ncclGetUniqueId(&actor->run->shared->id[0]));
        atomic_store(&actor->run->shared->ready, 1);
    }
    while (!atomic_load(&actor->run->shared->ready))
        usleep(100);
    CHECK_NCCL(ncclCommInitRank(&next, count, actor->run->shared->id[0], rank));
    CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, next, NULL));
    CHECK(out == (float)count);
    CHECK_NCCL(ncclCommDestroy(next));
}

void act_die(actor_t *actor)
{
    int dies = actor->run->program->dies, slot = 0;
    for (; slot < FUZZ_SLOTS; slot++) {
        bool in = false;
        for (int m = 0; m < actor->comm[slot].members; m++)
            in |= actor->comm[slot].owner[m] == dies;
        if (in && actor->comm[slot].state == STATE_LIVE && fuzz_apart(&actor->comm[slot]))
            break;
    }
    ranks_barrier(actor->ranks);
    if (actor->me == dies)
        raise(SIGKILL);
    if (slot < FUZZ_SLOTS && actor->comm[slot].members > 1 && own_member(actor, slot) >= 0)
        outlive(actor, slot);
}
