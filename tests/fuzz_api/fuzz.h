/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz.h - random programs of NCCL calls, and NCCL's answers to them.
 *
 * A program is a list of steps. A step names an action, a communicator (a slot), and a number that seeds every further
 * choice. Each actor (a thread that owns some ranks) executes the whole list with a model of its own. All models agree,
 * so an actor knows its part of a step and the expected result of each call without exchanging anything. A step that
 * the model cannot execute (for example on an empty slot) does nothing, so any part of a program is a program, and a
 * failing one can be shortened by removing steps.
 */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include "data.h"
#include "ranks.h"

#ifndef NCCL_REVOKE_DEFAULT /* missing in nccl.h before 2.28.9, but the library exports it */
#define NCCL_REVOKE_DEFAULT 0
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);
#endif

/* Most programs have few slots, which their steps meet again; some have as many communicators at once as a GPU shares.
 */
enum {
    FUZZ_ACTORS = 5,
    FUZZ_FEW_SLOTS = 6,
    FUZZ_SLOTS = 16,
    FUZZ_MEMBERS = 6,
    FUZZ_STEPS = 60,
    FUZZ_OPS = 2,
    FUZZ_IDS = 3
};

/* name, relative frequency */
#define FUZZ_KINDS(X)                                                                                         \
    X(init, 8)      /* a communicator of some ranks, some of which may be one actor's */                      \
    X(init_all, 2)  /* ... of one actor's ranks alone */                                                      \
    X(twins, 3)     /* two of the same ranks, made in one group by some actors, singly by others */           \
    X(abandon, 1)   /* an init whose last rank never comes, aborted by the others */                          \
    X(split, 5)     /* into two colours and none, into the slots `other` and the next one */                  \
    X(shrink, 3)    /* into the slot `other` */                                                               \
    X(reduce, 12)   /* collectives in sequence */                                                             \
    X(messages, 8)  /* messages and collectives, on up to two communicators, in groups of each actor's own */ \
    X(group, 6)     /* collectives on several communicators, in nested groups */                              \
    X(poison, 4)    /* the same with a bad call: all is cancelled */                                          \
    X(simulate, 1)  /* the same, but nothing runs */                                                          \
    X(pair, 2)      /* two threads of each actor, each with its own communicator */                           \
    X(make_op, 3)   /* creates a user's operator */                                                           \
    X(drop_op, 1)   /* destroys it */                                                                         \
    X(ask, 3)       /* count, rank, device, state */                                                          \
    X(mistake, 6)   /* calls that are refused */                                                              \
    X(interrupt, 3) /* abort, revoke or shrink from another thread ends a call that could not end */          \
    X(finalize, 2)  /* */                                                                                     \
    X(revoke, 1)    /* */                                                                                     \
    X(destroy, 5)   /* */                                                                                     \
    X(abort, 3)     /* */                                                                                     \
    X(fork, 1)      /* a child that ends at once */                                                           \
    X(meet, 2)      /* all actors wait for each other */

typedef enum fuzz_kind {
#define FUZZ_NAME(name, weight) FUZZ_##name,
    FUZZ_KINDS(FUZZ_NAME)
#undef FUZZ_NAME
        FUZZ_KIND_COUNT
} fuzz_kind_t;

typedef struct fuzz_step {
    fuzz_kind_t kind;
    uint32_t slot, other;
    uint64_t seed;
} fuzz_step_t;

typedef struct fuzz_program {
    bool threads; /* actors are threads of one process; else a process each */
    int actors;
    uint32_t slots;
    int dies;   /* this actor (a process) is killed after the last step, during a call; -1: none */
    bool watch; /* a thread of each process queries the state of all communicators all the time */
    bool leave; /* exit with the remaining communicators, without destroying them */
    int count;
    fuzz_step_t step[FUZZ_STEPS];
} fuzz_program_t;

/* program.c */
void fuzz_make(fuzz_program_t *program, uint64_t seed);
void fuzz_write(const fuzz_program_t *program, FILE *file);
/* Read a program. False, after a line on stderr, if the file is no program. */
bool fuzz_read(fuzz_program_t *program, const char *path);

/* ---- The model ---------------------------------------------------------------- */

typedef enum fuzz_state {
    STATE_NONE, /* no communicator: the handle is NULL */
    STATE_LIVE,
    STATE_FINALIZED,
    STATE_REVOKED,
    STATE_STOPPED, /* shrunk with abort: may only be destroyed */
} fuzz_state_t;

typedef struct fuzz_op {
    bool made;
    data_case_t c; /* type, kind and seed of the scalar */
} fuzz_op_t;

typedef struct fuzz_comm {
    fuzz_state_t state;
    int members;
    int owner[FUZZ_MEMBERS]; /* actor of a rank */
    bool blocking;
    fuzz_op_t op[FUZZ_OPS];
} fuzz_comm_t;

/* The expected result of an all-reduce with these arguments. */
typedef struct fuzz_call {
    size_t count;
    int type;
    enum { OP_BUILTIN, OP_OWN, OP_OTHER_TYPE, OP_UNKNOWN } op;
    bool null_buffer;
} fuzz_call_t;
ncclResult_t fuzz_expect_call(fuzz_state_t state, const fuzz_call_t *call);
ncclResult_t fuzz_expect_finalize(fuzz_state_t state);
ncclResult_t fuzz_expect_revoke(fuzz_state_t state);

/* Whether each actor owns at most one rank. */
bool fuzz_apart(const fuzz_comm_t *comm);
/* Make a child's model: `order` has the parent's ranks in the child's order. */
void fuzz_child(const fuzz_comm_t *parent, const int *order, int members, bool blocking, fuzz_comm_t *child);

/* ---- Acting it out --------------------------------------------------------------- */

/* Memory that all actors see. */
typedef struct fuzz_shared {
    ncclUniqueId id[FUZZ_IDS];
    _Atomic int ready; /* after a death: the survivors' id is ready */
} fuzz_shared_t;

typedef struct fuzz_run {
    const fuzz_program_t *program;
    fuzz_shared_t *shared;
} fuzz_run_t;

/* The body of an actor: ranks->arg is a fuzz_run_t. Ends the process at the first wrong result. */
void fuzz_act(ranks_t *ranks);

#endif
