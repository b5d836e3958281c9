/* SPDX-License-Identifier: Apache-2.0 */
/*
 * act.h - shared by the steps of an actor; only for act*.c.
 *
 * All decisions are drawn with act_draw, which gives every actor the same numbers
 * as long as all draw equally often in a step. Values that may differ (how long to
 * wait) come from the actor's own generator.
 */
#ifndef TEST_FUZZ_ACT_H
#define TEST_FUZZ_ACT_H

#include "call.h"
#include "fuzz.h"

typedef struct actor {
    ranks_t *ranks;
    const fuzz_run_t *run;
    int me;
    fuzz_comm_t comm[FUZZ_SLOTS];
    uint64_t dice; /* the same in all actors */
    uint64_t own;  /* this actor's */
} actor_t;

uint64_t act_draw(actor_t *actor, uint64_t limit);
bool act_owns(const actor_t *actor, int slot, int member);
int act_owned(const actor_t *actor, int slot);
/* The handle of a rank of this process. The library may fill in its target from another thread. */
ncclComm_t *act_place(const actor_t *actor, int slot, int member);
ncclComm_t act_handle(const actor_t *actor, int slot, int member);
void act_forget(const actor_t *actor, int slot, int member);
/* A user's operator, as this rank holds it. */
ncclRedOp_t *act_op(const actor_t *actor, int slot, int op, int member);

/* Open groups around a step: a random number, at least one if this actor has several ranks. */
int act_open(actor_t *actor, int slot);
/* Close the groups. `expected` is the result of the outermost end; in progress counts as success. */
void act_close(int depth, ncclResult_t expected);
#define CHECK_STARTED(call)                     \
    do {                                        \
        ncclResult_t started = (call);          \
        if (started != ncclInProgress)          \
            CHECK_RESULT(started, ncclSuccess); \
    } while (0)

/* Poll this actor's ranks until they are ready, then query them. */
void act_settle(actor_t *actor, int slot);
void act_ask(const actor_t *actor, int slot);
void act_wait_ready(ncclComm_t comm);

/* act_make.c */
void act_init(actor_t *actor, const fuzz_step_t *step);
void act_init_all(actor_t *actor, const fuzz_step_t *step);
void act_twins(actor_t *actor, const fuzz_step_t *step);
void act_abandon(actor_t *actor, const fuzz_step_t *step);
void act_split(actor_t *actor, const fuzz_step_t *step);
void act_shrink(actor_t *actor, const fuzz_step_t *step);
/* Shrink without the ranks whose `gone` is set; the child goes into an empty slot. */
void act_shrink_to(actor_t *actor, int slot, int other, const bool *gone, bool abort, bool blocking);
/* act_calls.c */
void act_reduce(actor_t *actor, const fuzz_step_t *step);
void act_messages(actor_t *actor, const fuzz_step_t *step);
void act_make_op(actor_t *actor, const fuzz_step_t *step);
void act_drop_op(actor_t *actor, const fuzz_step_t *step);
void act_group(actor_t *actor, const fuzz_step_t *step);
void act_poison(actor_t *actor, const fuzz_step_t *step);
void act_simulate(actor_t *actor, const fuzz_step_t *step);
void act_pair(actor_t *actor, const fuzz_step_t *step);
/* act_wrong.c */
void act_mistake(actor_t *actor, const fuzz_step_t *step);
/* act_end.c */
void act_finalize(actor_t *actor, const fuzz_step_t *step);
void act_revoke(actor_t *actor, const fuzz_step_t *step);
void act_destroy(actor_t *actor, const fuzz_step_t *step);
void act_abort(actor_t *actor, const fuzz_step_t *step);
void act_interrupt(actor_t *actor, const fuzz_step_t *step);
void act_end(actor_t *actor);
void act_die(actor_t *actor);

#endif
