/* SPDX-License-Identifier: Apache-2.0 */
/* setup.h - a set-up in progress, for this folder only. */
#ifndef SHUNT_SHIM_SETUP_H
#define SHUNT_SHIM_SETUP_H

#include "shim/setup/attach.h"
#include "shim/setup/link.h"
#include "shim/setup/nodes.h"

enum {
    SHIM_SETUP_LIMIT_MS = 10000,  /* of a stage, if a rank is missing or makes no progress */
    SHIM_SETTLE_LIMIT_MS = 60000, /* of a call's wait for the verdict */
    SHIM_AWAY_MS = 200,           /* of an init's wait for a rank that is away (docs/design.md) */
    SHIM_POLLS_MS = 5000,         /* of polls for it: its program may poll seldom, or after this one */
    SHIM_NODES_MS = 100,          /* CPU mode: for this node's ranks, before other nodes are tried */
    SHIM_NODES_LIMIT_MS = 3000    /* on GPUs: for other nodes, which may not run Shunt */
};

/* Numbers of the ranks' records. */
enum {
    STAGE_IDENTITY,
    STAGE_AGREE,
    STAGE_FIRST_TRY,  /* with the first kind of memory */
    STAGE_REGROUP = 0 /* in its own segment */
};

enum { TRY_OFFER, TRY_SENT, TRY_OPENED, TRY_PROOF, TRY_STAGES };

/* In their order; each set-up skips some. The head of stages.c says what they do. */
typedef enum shim_state {
    STATE_REAL,
    STATE_REGROUP,
    STATE_MEET,
    STATE_EITHER,
    STATE_IDENTITY,
    STATE_AGREE,
    STATE_OFFER, /* this and the next three: with one kind of memory */
    STATE_SENT,
    STATE_OPENED,
    STATE_PROOF,
    STATE_NODES,
    STATE_DONE,
    STATES
} shim_state_t;

/* Who steps the set-up. */
typedef enum shim_finisher {
    FINISHER_NONE,  /* its call is being forwarded */
    FINISHER_GROUP, /* nobody, until shim_attach_after_group */
    FINISHER_CALL,  /* a thread that waits in an init or a group's end */
    FINISHER_POLLS, /* shim_attach_poll; from here on no thread waits */
    FINISHER_LATER  /* later inits, polls and calls; reported ready to the program */
} shim_finisher_t;

/* A rank's first record, without padding; other processes' fields are checked before use. */
typedef struct shim_identity {
    uint32_t layout;  /* version of these records */
    uint32_t version; /* Shunt's: another one may have another table */
    net_process_t process;
    net_key_t boot;    /* hash of the kernel's boot id */
    net_key_t node_id; /* hash of NCCL_HOSTID */
    shim_gpu_t gpu;    /* CPU mode: zero */
    uint64_t fresh_id; /* random; rank 0's names the scratch and is the proof's token */
    uint32_t blocking;
    uint32_t vmm;           /* may be tried */
    uint32_t shared_memory; /* may be tried */
    uint32_t farthest;      /* sel_link_t: greatest distance of peer access; SEL_LINK_CPU: none */
    uint32_t device;
    shim_record_offer_t record;
    sel_settings_t settings;
} shim_identity_t;

struct shim_setup {
    shim_setup_t *next;         /* in attach.c's list */
    shim_setup_t *claimed_next; /* in one claim */
    shim_setup_request_t request;
    shim_comm_t *comm; /* a reference */

    /* Under attach.c's lock; steps use what is atomic, and `postpone`, without it. */
    const void *owner; /* the thread that began it */
    _Atomic shim_finisher_t finisher;
    uint64_t batch;             /* FINISHER_CALL: set-ups that one call finishes; else 0 */
    bool busy;                  /* being stepped */
    bool postpone;              /* set by a step: FINISHER_LATER from now on */
    atomic_bool ready;          /* the real call has succeeded */
    atomic_bool cancel;         /* decline at the next step */
    _Atomic uint64_t needed_ns; /* since when a call waits for the set-up; 0: none */

    shim_state_t state;
    uint64_t since_ns; /* when the state was entered; MEET, EITHER: the one before */
    net_rendezvous_t *rendezvous;
    net_rendezvous_t *parents; /* CPU mode's split: the parent's, until the new ranks have met */
    shim_nodes_t *nodes;
    shim_nodes_outcome_t *across; /* if set, comm->rank and ->nranks count this node's ranks until the attach */
    int join_error;               /* if not 0, no other rank sees this one */
    shim_identity_t *identity;    /* of every rank */
    alg_set_t set;
    uint64_t pooled;   /* id of an idle scratch for this rank */
    uint64_t offered;  /* `pooled`, until the scratch is taken or given up */
    sel_reach_t reach; /* worst over all ranks */
    bool sees_peers;   /* no rank is denied access to a peer */
    bool pinned_first; /* pinned memory is better than peer access */
    alg_memory_t memory;
    net_memory_kind_t pooled_kind;  /* the first kind of the idle scratch's memory */
    net_bell_t bell[ALG_MAX_RANKS]; /* of the ranks' processes (grow.h) */
    uint32_t attempt;               /* number of the kind of memory */
    alg_scratch_t *scratch;
    sel_plan_t *plan;
    ncclResult_t result; /* CPU mode: the call's result */
};

/* ---- stages.c ---- */

/* Waits for no other rank; true if there was progress. own: this thread began the set-up. */
bool shim_setup_step(shim_setup_t *setup, bool own);
/* Enter a state: act, and post this rank's record. */
void shim_setup_enter(shim_setup_t *setup, shim_state_t state);
uint64_t shim_setup_limit_ms(const shim_setup_t *setup);
/* Whether to `postpone`, if the wait depends on another rank's program, which may wait for this one. */
bool shim_setup_waits_too_long(const shim_setup_t *setup);
/* For the log; "": the usual kind. */
const char *shim_setup_memory_text(const shim_setup_t *setup);

/* ---- begin.c ---- */

/* Leave STATE_REAL. False until the real call has succeeded. */
bool shim_setup_begin(shim_setup_t *setup, bool own);
/* Store the program's handle in the state and the table. */
void shim_setup_adopt(shim_setup_t *setup);
/* CPU mode's split: the key of this colour's ranks. */
net_key_t shim_setup_key_of_color(const net_key_t *parent, int color);
/* `comm` has its new rank: join the others, on this node, under `key`. False: declined. */
bool shim_setup_rejoin(shim_setup_t *setup, const net_key_t *key);
/* CPU mode: the child's ranks have met, so the parent's count stays. So does the reference until the set-up's end: the
 * parent's address is its handle, and must not be used again. */
void shim_setup_keep_count(shim_setup_t *setup);
void shim_setup_post_color(shim_setup_t *setup);
/* Compute the new ranks from all colours, and join them. False: no colour, or declined. */
bool shim_setup_take_colors(shim_setup_t *setup);
void shim_setup_post_identity(shim_setup_t *setup);
/* Whether all ranks of this colour still live, as the parent's segment shows. */
bool shim_setup_parents_present(const shim_setup_t *setup);
/* 0 or a negative errno. */
int shim_setup_read(shim_setup_t *setup, uint32_t stage, uint32_t rank, void *record, size_t size);

/* ---- across.c ---- */

void shim_setup_begin_nodes(shim_setup_t *setup);
/* CPU mode: ranks are missing on this node after SHIM_NODES_MS. */
bool shim_setup_nodes_due(const shim_setup_t *setup);
/* True if there was progress. */
bool shim_setup_step_meeting(shim_setup_t *setup);
bool shim_setup_step_agreement(shim_setup_t *setup);
/* Restore comm's rank and nranks; free the outcome. */
void shim_setup_forget_across(shim_setup_t *setup);

/* ---- verdict.c ---- */

/* Send the other nodes the plan's hash. */
void shim_setup_post_plan(shim_setup_t *setup);
void shim_setup_attach(shim_setup_t *setup);
bool shim_setup_apply_verdict(shim_setup_t *setup);
/* (setup, SHIM_WHY(code), arguments). Of the ranks that find a fault, the one whose verdict counts logs it. */
void shim_setup_decline(shim_setup_t *setup, sel_reason_t reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Leave the offered scratch to other communicators. */
void shim_setup_leave_idle(shim_setup_t *setup);

/* ---- identity.c. Call the first three after the real init, which copies NCCL's files into the environment. ---- */

/* Whether NCCL's variables force forwarding. */
bool shim_identity_refuses(shim_why_t *why);
/* Log, once a process, what taken calls lose by plugins that NCCL opens by default. */
void shim_identity_tell_plugins(void);
/* Whether Shunt takes communicators of several nodes (docs/nodes.md): RDMA is not measured, a plugin may be faster. */
bool shim_identity_takes_nodes(void);
/* The node, as NCCL tells nodes apart. */
net_key_t shim_identity_nccl_node(void);
/* 0, or a negative errno if the GPU does not answer. */
int shim_identity_fill(const shim_setup_t *setup, shim_identity_t *identity);
/* Whether these ranks cannot form a team. */
bool shim_identity_mismatches(const shim_setup_t *setup, shim_why_t *why);
/* Rank 0, whose settings apply to all, warns once of variables that differ. */
void shim_identity_log_differences(const shim_setup_t *setup);
/* A scratch's team: processes and devices, in order. */
alg_set_t shim_identity_set(const shim_setup_t *setup);
/* What the GPUs have in common. */
sel_topology_t shim_identity_topology(const shim_setup_t *setup, sel_link_t link, alg_memory_t memory);
/* Whether all ranks' variables allow peer access over `link`; pinned memory. */
bool shim_identity_peers(const shim_setup_t *setup, sel_link_t link);
bool shim_identity_shared_memory(const shim_setup_t *setup);
/* Whether CUDA's queries allow this GPU access to all peers. */
bool shim_identity_sees_peers(const shim_setup_t *setup);
sel_reach_t shim_identity_reach(const shim_setup_t *setup);

#endif
