/* SPDX-License-Identifier: Apache-2.0 */
/* setup.h - a set-up in progress, for this folder and cpu/. */
#ifndef SHUNT_SHIM_SETUP_H
#define SHUNT_SHIM_SETUP_H

#include "shim/setup/attach.h"
#include "shim/setup/link.h"

enum {
    SHIM_SETUP_LIMIT_MS = 10000,  /* limit of a state in which a rank is missing or makes no progress */
    SHIM_SETTLE_LIMIT_MS = 60000, /* longest wait of a call for the verdict */
    SHIM_AWAY_MS = 200,           /* longest wait of an init for a rank that is away (docs/design.md) */
    /* Longest wait of polls for a rank that is away. Its program may poll seldom, or only after this one is ready. */
    SHIM_POLLS_MS = 5000
};

/* Numbers of a rank's records. */
enum {
    STAGE_IDENTITY,
    STAGE_AGREE,
    STAGE_FIRST_TRY,  /* TRY_STAGES records for each kind of memory */
    STAGE_REGROUP = 0 /* in the segment of the parent's ranks */
};

enum { TRY_OFFER, TRY_SENT, TRY_OPENED, TRY_PROOF, TRY_STAGES };

/* In order; each set-up skips some (stages.c). */
typedef enum shim_state {
    STATE_REAL,
    STATE_REGROUP,
    STATE_MEET,
    STATE_EITHER,
    STATE_IDENTITY,
    STATE_AGREE,
    STATE_OFFER,
    STATE_SENT,
    STATE_OPENED,
    STATE_PROOF,
    STATE_NODES,
    STATE_DONE,
    STATES
} shim_state_t;

/* Which thread steps the set-up. */
typedef enum shim_finisher {
    FINISHER_NONE,  /* no thread: the set-up's call is being forwarded */
    FINISHER_GROUP, /* no thread until shim_attach_after_group */
    FINISHER_CALL,  /* the thread that waits in an init or a group's end */
    FINISHER_POLLS, /* any thread in shim_attach_poll; from here on no thread waits */
    FINISHER_LATER  /* later inits, polls and calls, after the program was told of success */
} shim_finisher_t;

/* A rank's first record, without padding; other processes' fields are checked before use. */
typedef struct shim_identity {
    uint32_t layout;  /* version of these records */
    uint32_t version; /* of Shunt; versions may have different tables */
    net_process_t process;
    net_key_t boot;    /* hash of the kernel's boot id */
    net_key_t node_id; /* hash of NCCL_HOSTID */
    shim_gpu_t gpu;    /* CPU mode: zero */
    uint64_t fresh_id; /* random; rank 0's names the scratch and is the proof's token */
    uint32_t blocking;
    uint32_t vmm;           /* VMM may be tried */
    uint32_t shared_memory; /* pinned memory may be tried */
    uint32_t farthest;      /* sel_link_t: greatest distance of peer access; SEL_LINK_CPU: none */
    uint32_t device;
    shim_record_offer_t record;
    sel_settings_t settings;
} shim_identity_t;

typedef enum shim_tell { SHIM_TELL_NOTHING, SHIM_TELL_REASON, SHIM_TELL_FAULT } shim_tell_t;

typedef struct shim_declined {
    const char *code, *why, *class;
    shim_tell_t tell;
    bool logs; /* this rank logs for its process */
} shim_declined_t;

/* What differs between devices in a set-up: cuda.c, and cpu/setup.c. */
struct shim_setup_ops {
    const shim_device_ops_t *comm;
    bool forwards;           /* to the real NCCL, if not attached */
    net_memory_kind_t kinds; /* first of kind_count (memory.def) */
    uint32_t kind_count;
    bool rings_first;     /* see alg_map_cut */
    bool share;           /* several ranks may be on one device */
    sel_link_t link;      /* assumed until the links are known */
    uint32_t meeting_ms;  /* limit of STATE_MEET */
    uint32_t nodes_ms;    /* wait in IDENTITY before STATE_EITHER; 0: none */
    const char *no_offer; /* log text of a failed OFFER */

    /* Set the program's variable: `show` once attached, `hide` after a failure. */
    void (*show)(shim_setup_t *setup);
    void (*hide)(shim_setup_t *setup);
    /* At a group's end: whether polls finish the set-up. */
    bool (*lingers)(const shim_setup_t *setup, bool in_progress);
    /* Leave STATE_REAL; true if there was progress. */
    bool (*begin)(shim_setup_t *setup, bool own);
    /* STATE_REGROUP. take_colors computes the new ranks from all colours, and joins those of this colour; false: this
     * rank has no colour, or declined. parents_present: whether all ranks of this colour live. */
    void (*post_color)(shim_setup_t *setup);
    bool (*take_colors)(shim_setup_t *setup);
    bool (*parents_present)(const shim_setup_t *setup);
    /* Fills in the device's part of the identity; 0 or a negative errno. */
    int (*look)(const shim_comm_t *comm, shim_identity_t *identity);
    uint64_t (*fingerprint)(const uint64_t *kind, uint32_t count);
    /* Returns the worst link to a peer. *peers: whether access to all is allowed. */
    sel_reach_t (*reach)(const shim_setup_t *setup, uint32_t *peers);
    bool (*usable)(const shim_setup_t *setup, net_memory_kind_t kind);
    uint64_t (*find_idle)(shim_setup_t *setup);
    bool (*serves)(const sel_plan_t *plan);
    /* offer_first enters OFFER or declines. make makes the plan's scratch and loads its kernels. */
    void (*offer_first)(shim_setup_t *setup);
    int (*make)(shim_setup_t *setup, uint8_t offer[NET_OFFER_BYTES]);
    /* Decline. lack: no kind of memory is left; miss: ranks are missing. */
    void (*lack)(shim_setup_t *setup, uint32_t rank, const char *what);
    void (*miss)(shim_setup_t *setup, uint32_t came, uint32_t nranks, uint32_t limit_ms);
    void (*adopt)(shim_setup_t *setup);
    void (*declined)(shim_setup_t *setup, const shim_declined_t *how);
};

struct shim_setup {
    shim_setup_t *next;         /* next in attach.c's list */
    shim_setup_t *claimed_next; /* next set-up of the same claim */
    shim_setup_request_t request;
    const shim_setup_ops_t *ops;
    shim_comm_t *comm; /* a reference */

    /* attach.c's lock guards these. A step, which does not hold it, uses only the atomic ones and `postpone`. */
    uint64_t owner; /* net_thread_number of the thread that began the set-up */
    _Atomic shim_finisher_t finisher;
    uint64_t batch;             /* FINISHER_CALL: identifies the set-ups that one call finishes; else 0 */
    bool busy;                  /* a thread is stepping the set-up */
    bool postpone;              /* a step asks for FINISHER_LATER */
    atomic_bool ready;          /* the real call has succeeded */
    atomic_bool cancel;         /* the next step declines */
    _Atomic uint64_t needed_ns; /* since when a call waits for the set-up; 0: none */

    shim_state_t state;
    uint64_t since_ns; /* when this state was entered; in MEET and EITHER: when the state before was */
    net_rendezvous_t *rendezvous;
    net_rendezvous_t *parents; /* a split in CPU mode: segment of the parent's ranks, until the new ranks have met */
    shim_meeting_t *nodes;
    /* Outcome of `nodes`; NULL: one node. Until the attach comm->rank and nranks count this node's ranks. */
    const shim_nodes_outcome_t *across;
    int join_error;            /* errno of the join; if not 0, no other rank sees this one */
    shim_identity_t *identity; /* one of each rank */
    alg_set_t set;
    uint64_t pooled;     /* id of the idle scratch to use; 0: none */
    uint64_t offered;    /* `pooled`; 0 once this rank uses the scratch or leaves it */
    sel_reach_t reach;   /* worst over all ranks */
    bool sees_peers;     /* no rank is denied access to a peer */
    uint32_t first_kind; /* number of the kind that is tried first */
    alg_memory_t memory;
    net_memory_kind_t pooled_kind;  /* the idle scratch's, or one with the same map */
    net_bell_t bell[ALG_MAX_RANKS]; /* of the ranks' processes (grow.h) */
    uint32_t attempt;               /* number of the kind of memory being tried */
    alg_scratch_t *scratch;
    sel_plan_t *plan;
    ncclResult_t result; /* CPU mode: the call's result */
};

/* ---- stages.c ---- */

/* Do one step, without waiting for another rank. True if there was progress. own: this thread began the set-up. */
bool shim_setup_step(shim_setup_t *setup, bool own);
void shim_setup_enter(shim_setup_t *setup, shim_state_t state);
uint64_t shim_setup_limit_ms(const shim_setup_t *setup);
/* Whether a step must set `postpone`: it has waited too long for a rank that is away, whose program may in turn wait
 * for this rank. */
bool shim_setup_waits_too_long(const shim_setup_t *setup);
net_memory_kind_t shim_setup_kind(const shim_setup_t *setup, uint32_t attempt);
/* Whether an idle scratch of `setup->pooled_kind` serves instead of `kind`, since their maps are the same. */
bool shim_setup_takes_idle(const shim_setup_t *setup, net_memory_kind_t kind);
bool shim_setup_make_plan(shim_setup_t *setup);
/* Whether all pairs of GPUs have peer access, and may use it. */
bool shim_setup_has_peers(const shim_setup_t *setup);
uint64_t shim_setup_find_idle(shim_setup_t *setup, net_memory_kind_t kind, alg_map_t map);
/* Enter OFFER with the first usable kind from `attempt` on; false: there is none. Declines if no call would use it. */
bool shim_setup_try_from(shim_setup_t *setup, uint32_t attempt);
/* 0 or a negative errno. */
int shim_setup_make_scratch(shim_setup_t *setup, uint8_t offer[NET_OFFER_BYTES]);

/* ---- begin.c ---- */

/* Store the program's handle in setup->comm, and setup->comm in the table of communicators. */
void shim_setup_store_handle(shim_setup_t *setup);
net_key_t shim_setup_key_of_color(const net_key_t *parent, int color);
/* Join this node's ranks under `key`. The caller has set comm->rank and nranks. False: declined. */
bool shim_setup_rejoin(shim_setup_t *setup, const net_key_t *key);
/* CPU mode: the child's ranks have met, so the parent's count of children stays. The reference stays until the set-up
 * ends: the parent's address is its handle, which must not be reused. */
void shim_setup_keep_count(shim_setup_t *setup);
void shim_setup_post_identity(shim_setup_t *setup);
/* Read a record of exactly `size` bytes. 0 or a negative errno. */
int shim_setup_read(shim_setup_t *setup, uint32_t stage, uint32_t rank, void *record, size_t size);

/* ---- across.c ---- */

void shim_setup_begin_nodes(shim_setup_t *setup);
/* Whether ranks are missing on this node after `nodes_ms`. */
bool shim_setup_nodes_due(const shim_setup_t *setup);
/* True if there was progress. */
bool shim_setup_step_meeting(shim_setup_t *setup);
bool shim_setup_step_agreement(shim_setup_t *setup);
/* Restore comm's rank and nranks. */
void shim_setup_forget_across(shim_setup_t *setup);

/* ---- verdict.c ---- */

void shim_setup_post_plan(shim_setup_t *setup);
void shim_setup_attach(shim_setup_t *setup);
bool shim_setup_apply_verdict(shim_setup_t *setup);
/* Arguments: (setup, SHIM_WHY(code), values). Of ranks that find a fault, only the one whose decline becomes the
 * verdict logs it. */
void shim_setup_decline(shim_setup_t *setup, sel_reason_t reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void shim_setup_leave_idle(shim_setup_t *setup);

/* ---- identity.c. Call the first three after the real init, which copies NCCL's files into the environment. ---- */

/* Whether NCCL's variables force forwarding. */
bool shim_identity_refuses(shim_why_t *why);
/* Log, once a process, what does not work with plugins that NCCL has opened by default. */
void shim_identity_tell_plugins(void);
net_key_t shim_identity_nccl_node(void);
/* 0 or a negative errno. */
int shim_identity_fill(const shim_setup_t *setup, shim_identity_t *identity);
bool shim_identity_mismatches(const shim_setup_t *setup, shim_why_t *why);
/* Rank 0, whose settings apply to all, warns once of variables that differ. */
void shim_identity_log_differences(const shim_setup_t *setup);
/* Identifies a team: processes and devices, in rank order. */
alg_set_t shim_identity_set(const shim_setup_t *setup);
/* What the GPUs have in common. */
sel_topology_t shim_identity_topology(const shim_setup_t *setup, sel_link_t link, alg_memory_t memory);
/* The greatest distance of peer access that this rank's variables allow. */
sel_link_t shim_identity_farthest(void);
/* Whether all ranks' variables allow peer access over `link`; _shared_memory: pinned memory. */
bool shim_identity_peers(const shim_setup_t *setup, sel_link_t link);
bool shim_identity_shared_memory(const shim_setup_t *setup);
/* On GPUs, by CUDA's queries. */
sel_reach_t shim_identity_reach(const shim_setup_t *setup, uint32_t *peers);

#endif
