/* SPDX-License-Identifier: Apache-2.0 */
/* act.c - an actor executes a program. Handles and operators are where the process's watcher sees them. */
#include "act.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

/* One table for each actor: it may reuse a slot while a slower actor still ends the slot's last communicator. */
static ncclComm_t handles[FUZZ_ACTORS][FUZZ_SLOTS][FUZZ_MEMBERS];
static ncclRedOp_t ops[FUZZ_ACTORS][FUZZ_SLOTS][FUZZ_OPS][FUZZ_MEMBERS];

uint64_t act_draw(actor_t *actor, uint64_t limit)
{
    return data_below(&actor->dice, limit);
}

bool act_owns(const actor_t *actor, int slot, int member)
{
    return actor->comm[slot].owner[member] == actor->me;
}

int act_owned(const actor_t *actor, int slot)
{
    int count = 0;
    for (int m = 0; m < actor->comm[slot].members; m++)
        count += act_owns(actor, slot, m);
    return count;
}

ncclComm_t *act_place(const actor_t *actor, int slot, int member)
{
    return &handles[actor->me][slot][member];
}

ncclComm_t act_handle(const actor_t *actor, int slot, int member)
{
    return __atomic_load_n(act_place(actor, slot, member), __ATOMIC_ACQUIRE);
}

void act_forget(const actor_t *actor, int slot, int member)
{
    __atomic_store_n(act_place(actor, slot, member), NULL, __ATOMIC_RELEASE);
}

ncclRedOp_t *act_op(const actor_t *actor, int slot, int op, int member)
{
    return &ops[actor->me][slot][op][member];
}

int act_open(actor_t *actor, int slot)
{
    int depth = act_draw(actor, 3) == 0 ? 1 + (int)act_draw(actor, 3) : 0;
    if (depth == 0 && act_owned(actor, slot) > 1)
        depth = 1;
    for (int i = 0; i < depth; i++)
        CHECK_NCCL(ncclGroupStart());
    return depth;
}

void act_close(int depth, ncclResult_t expected)
{
    for (int i = 1; i < depth; i++)
        CHECK_NCCL(ncclGroupEnd());
    if (depth > 0 && expected == ncclSuccess)
        CHECK_STARTED(ncclGroupEnd());
    else if (depth > 0)
        CHECK_RESULT(ncclGroupEnd(), expected);
}

/* ---- What is known of a communicator ------------------------------------------------- */

void act_wait_ready(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    CHECK(comm != NULL);
    for (int i = 0; state == ncclInProgress; i++) {
        if (i > 0)
            usleep(i < 100 ? 20 : 500);
        CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
    }
    CHECK_NCCL(state);
}

void act_ask(const actor_t *actor, int slot)
{
    const fuzz_comm_t *comm = &actor->comm[slot];
    for (int m = 0; m < comm->members; m++) {
        int count = -1, rank = -1, device = -1;
        ncclResult_t state = ncclInternalError;
        if (comm->state == STATE_NONE || !act_owns(actor, slot, m))
            continue;
        CHECK_NCCL(ncclCommCount(act_handle(actor, slot, m), &count));
        CHECK_NCCL(ncclCommUserRank(act_handle(actor, slot, m), &rank));
        CHECK_NCCL(ncclCommCuDevice(act_handle(actor, slot, m), &device));
        CHECK_NCCL(ncclCommGetAsyncError(act_handle(actor, slot, m), &state));
        CHECK_NCCL(state);
        CHECK(count == comm->members);
        CHECK(rank == m);
        CHECK(device >= 0);
    }
}

void act_settle(actor_t *actor, int slot)
{
    for (int m = 0; m < actor->comm[slot].members; m++)
        if (act_owns(actor, slot, m))
            act_wait_ready(act_handle(actor, slot, m));
    act_ask(actor, slot);
}

static void step_ask(actor_t *actor, const fuzz_step_t *step)
{
    act_ask(actor, (int)step->slot);
}

/* ---- Forks ---------------------------------------------------------------------------- */

/* A forked child cannot use its parent's communicators, but can make its own. */
static void child_main(ncclComm_t parents)
{
    alarm(60);
/* The sanitizers' own locks stay locked in the child of a process with several threads. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    float in = 3, out = 0;
    int count;
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    if (parents)
        CHECK_RESULT(ncclCommCount(parents, &count), ncclInvalidArgument);
    CHECK_NCCL(ncclGetUniqueId(&id));
    CHECK_NCCL(ncclCommInitRank(&comm, 1, id, 0));
    CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK(out == 3);
    CHECK_NCCL(ncclCommDestroy(comm));
#else
    (void)parents;
#endif
    _exit(0);
}

static void step_fork(actor_t *actor, const fuzz_step_t *step)
{
    const fuzz_comm_t *comm = &actor->comm[step->slot];
    bool busy = act_draw(actor, 2) == 0; /* between the fork and the child's end the parent continues */
    ncclComm_t known = NULL;
    int status = -1;
    if ((int)act_draw(actor, (uint64_t)actor->run->program->actors) != actor->me)
        return;
    for (int m = 0; m < comm->members; m++)
        if (comm->state != STATE_NONE && act_owns(actor, (int)step->slot, m))
            known = act_handle(actor, (int)step->slot, m);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        child_main(known);
    CHECK(child > 0);
    if (busy)
        act_ask(actor, (int)step->slot);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* ---- The walk -------------------------------------------------------------------------- */

static void step_meet(actor_t *actor, const fuzz_step_t *step)
{
    (void)step;
    ranks_barrier(actor->ranks);
}

/* A program's watchdog: it queries the state of every communicator it sees, as long as it exists. */
static void *watcher_main(void *unused)
{
    (void)unused;
    ncclComm_t *first = &handles[0][0][0], *end = first + sizeof(handles) / sizeof(*first);
    for (;;) {
        for (ncclComm_t *at = first; at < end; at++) {
            ncclResult_t state;
            ncclComm_t comm = __atomic_load_n(at, __ATOMIC_ACQUIRE);
            ncclResult_t result = comm ? ncclCommGetAsyncError(comm, &state) : ncclSuccess;
            CHECK(result == ncclSuccess || result == ncclInvalidArgument);
        }
        usleep(300);
    }
    return NULL;
}

/* Start a watching thread, which ends with the process. */
static void watch(void)
{
    static _Atomic int started;
    pthread_t thread;
    if (atomic_exchange(&started, 1))
        return;
    CHECK(pthread_create(&thread, NULL, watcher_main, NULL) == 0);
    CHECK(pthread_detach(thread) == 0);
}

void fuzz_act(ranks_t *ranks)
{
    static void (*const act[FUZZ_KIND_COUNT])(actor_t *, const fuzz_step_t *) = {
        [FUZZ_init] = act_init,       [FUZZ_init_all] = act_init_all,   [FUZZ_twins] = act_twins,
        [FUZZ_abandon] = act_abandon, [FUZZ_split] = act_split,         [FUZZ_shrink] = act_shrink,
        [FUZZ_reduce] = act_reduce,   [FUZZ_messages] = act_messages,   [FUZZ_group] = act_group,
        [FUZZ_poison] = act_poison,   [FUZZ_simulate] = act_simulate,   [FUZZ_pair] = act_pair,
        [FUZZ_make_op] = act_make_op, [FUZZ_drop_op] = act_drop_op,     [FUZZ_ask] = step_ask,
        [FUZZ_mistake] = act_mistake, [FUZZ_interrupt] = act_interrupt, [FUZZ_finalize] = act_finalize,
        [FUZZ_revoke] = act_revoke,   [FUZZ_destroy] = act_destroy,     [FUZZ_abort] = act_abort,
        [FUZZ_fork] = step_fork,      [FUZZ_meet] = step_meet};
    const fuzz_run_t *run = ranks->arg;
    actor_t actor = {.ranks = ranks, .run = run, .me = ranks->rank, .own = 77 + (uint64_t)ranks->rank};
    if (run->program->watch)
        watch();
    for (int i = 0; i < run->program->count; i++) {
        const fuzz_step_t *step = &run->program->step[i];
        actor.dice = step->seed;
        act[step->kind](&actor, step);
    }
    actor.dice = 5;
    if (run->program->dies >= 0)
        act_die(&actor);
    else if (!run->program->leave)
        act_end(&actor);
}
