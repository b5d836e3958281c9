/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake.h - fakes of the folders around a set-up: a real NCCL whose ranks are threads or one thread, GPUs, and scratch
 * that fails as a test requests.
 */
#ifndef SHUNT_TESTS_SHIM_FAKE_H
#define SHUNT_TESTS_SHIM_FAKE_H

#include <stdbool.h>

#include "selector/topology/topology.h"
#include "shim/setup/attach.h"

enum { FAKE_RANKS = 16, FAKE_NEVER = -1, FAKE_PRIORITY = -5 };

/* What the fake real NCCL makes. */
struct ncclComm {
    int rank, nranks, device;
    _Atomic int *joined; /* of its id */
    atomic_bool failed;
    atomic_int aborts, destroys, finalizes, revokes;
    bool waits;       /* our kernel, or NCCL's of a forwarded one, runs until it is stopped */
    ncclComm_t older; /* all of them, so that none counts as leaked */
};

typedef struct fake {
    bool same_gpu;                 /* two ranks on one GPU */
    bool multicast;                /* every GPU has it */
    uint32_t arch[FAKE_RANKS];     /* compute capability */
    sel_reach_t reach[FAKE_RANKS]; /* of shim_link_reach */
    uint64_t kind[FAKE_RANKS];     /* a GPU's fingerprint */
    int ipc_error[FAKE_RANKS];     /* of alg_scratch_create with IPC memory */
    int open_error[FAKE_RANKS];    /* of alg_scratch_open with VMM memory */
    int vmm_error[FAKE_RANKS];     /* of alg_scratch_create with VMM memory */
    int pinned_error[FAKE_RANKS];  /* of alg_scratch_create with pinned memory */
    int unopened[FAKE_RANKS];      /* of alg_scratch_open with pinned memory */
    int unsent[FAKE_RANKS];        /* of alg_scratch_send with pinned memory */
    bool unreached[FAKE_RANKS];    /* CUDA reports that a peer's memory cannot be reached */
    bool serves_nothing;           /* the plan leaves every size to the real NCCL */
    bool prefers_pinned;           /* the selector, of GPUs that reach each other over PCIe */
    sel_measurement_t measurement; /* of the plan */
    const char *const *sources;    /* of the plan's rules, up to NULL; NULL: the plan has no rules */
    int proof_error[FAKE_RANKS];   /* of alg_scratch_prove_read */
    uint64_t idle[FAKE_RANKS];     /* of alg_scratch_idle */
    alg_memory_t idle_in;          /* and what it is of */
    ncclResult_t destroy_result;   /* of ncclCommDestroy */
    ncclResult_t split_result;
    int split_rank[FAKE_RANKS], split_nranks[FAKE_RANKS]; /* by the parent's rank */
    bool split_late;                                      /* a split's communicator appears when the parent is polled */
    bool running;                                         /* our kernels, on every communicator */
    void (*_Atomic in_step)(void);                        /* called once, in a step */
    void (*_Atomic in_split)(void);                       /* called once, in the real NCCL's ncclCommSplit */
    ncclComm_t abort_in_drain;
    bool half_abort_in_drain; /* the other thread has only stopped the kernels yet */
    atomic_int created, taken, freed, pooled, sent, polls, drains;
    atomic_int left_idle;
    atomic_int retired;      /* released, not freed yet */
    atomic_int freed_before; /* freed when the real NCCL was last asked for a communicator */
    atomic_int stuck;        /* frees that would have waited for a kernel that never ends */
} fake_t;

extern fake_t fake;
extern _Thread_local unsigned fake_depth; /* of this thread's group, as group.c would report */
extern atomic_int fake_late_s;            /* seconds by which the monotonic clock is ahead */
extern atomic_int fake_day_s;             /* seconds by which the time of day is set forward after each reading */
extern atomic_bool fake_stopped;          /* the monotonic clock stands: no limit of time ends */
extern _Thread_local unsigned fake_ticks; /* this many readings of it in this thread find it 0.1 s later each */
extern _Thread_local unsigned fake_pids;  /* this thread's rank runs in a pid namespace of its own; 0: the test's */

/* Wait until the communicator is ready, as the real ncclGroupEnd does. */
void fake_wait_ready(ncclComm_t comm);

/* Set the initial state: no errors, one kind of GPU, 18 NVLinks over NVSwitch everywhere. */
void fake_reset(void);
/* Set the real NCCL's version as returned by ncclGetVersion. Call before other threads run. */
void fake_real_version(int version);

#endif
