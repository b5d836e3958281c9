/* SPDX-License-Identifier: Apache-2.0 */
/*
 * setup.h - a set-up in progress. Shared by attach.c (which thread steps it, and when), stages.c (a step), begin.c,
 * verdict.c (beginning and end) and identity.c (the ranks); no other file includes it.
 */
#ifndef SHUNT_SHIM_SETUP_H
#define SHUNT_SHIM_SETUP_H

#include "shim/setup/attach.h"
#include "shim/setup/hosts.h"
#include "shim/setup/link.h"

enum {
    SHIM_SETUP_LIMIT_MS = 10000,  /* limit of a stage, for a rank that is missing or makes no progress */
    SHIM_SETTLE_LIMIT_MS = 60000, /* limit of a call that waits for the verdict */
    SHIM_AWAY_MS = 200,           /* an init's wait for a rank that continues only when its program calls again */
    SHIM_POLLS_MS = 5000,      /* the same of polls: the other program may poll seldom, or never while this one polls */
    SHIM_HOSTS_MS = 100,       /* host mode: the wait for ranks on this host before looking on other hosts */
    SHIM_HOSTS_LIMIT_MS = 3000 /* on GPUs: limit of the meeting with other hosts, which may not run Shunt */
};

/* The stages; described in stages.c. */
enum {
    STAGE_IDENTITY,
    STAGE_AGREE,
    STAGE_FIRST_TRY,  /* at a kind of memory */
    STAGE_REGROUP = 0 /* in a segment of its own */
};

/* Of each try. */
enum { TRY_OFFER, TRY_SENT, TRY_OPENED, TRY_PROOF, TRY_STAGES };

/* A rank's first record: its identity, place and settings. Plain data without padding; fields from other processes
 * are checked before use. */
typedef struct shim_identity {
    uint32_t layout;  /* version of these records */
    uint32_t version; /* Shunt's version: another one may have another table */
    net_process_t process;
    net_key_t boot;    /* hash of the kernel's boot id */
    net_key_t host_id; /* hash of NCCL_HOSTID */
    shim_gpu_t gpu;    /* host mode: zero */
    uint64_t fresh_id; /* random; rank 0's names the scratch, and is the token of the proof */
    uint32_t blocking;
    uint32_t vmm;           /* VMM memory may be tried */
    uint32_t shared_memory; /* host memory may be tried */
    uint32_t farthest; /* a sel_link_t: the largest distance allowed for peer access; SEL_LINK_HOST: no peer access */
    uint32_t device;
    shim_record_offer_t record; /* of its calls */
    sel_settings_t settings;
} shim_identity_t;

struct shim_setup {
    shim_setup_t *next;         /* attach.c's list */
    shim_setup_t *claimed_next; /* of one claim */
    shim_setup_request_t request;
    shim_comm_t *comm; /* a reference */

    /* Stepping; guarded by attach.c's lock, except `ready`, which the holder of `busy` changes. */
    const void *owner; /* address that names the thread that began it */
    uint64_t batch;    /* set-ups that one call waits for */
    bool grouped;      /* waits for shim_attach_after_group */
    bool lingering;    /* waits for shim_attach_poll */
    bool busy;         /* a thread is stepping it */
    bool poll_real;    /* that thread may poll the real NCCL */
    bool patient;      /* no thread waits for it (`lingering` at this step) */
    bool postpone;     /* set by a step: stop waiting; it continues when the program calls again */
    bool told;         /* the program was told that the communicator is ready */
    bool done;
    atomic_bool ready;          /* the real call has succeeded */
    atomic_bool cancel;         /* decline at the next step */
    _Atomic uint64_t needed_ns; /* start of a call's wait for it; 0: no call waits */
    bool begun;                 /* host mode: the group's set-up may start */

    /* The stages. */
    net_rendezvous_t *rendezvous;
    net_rendezvous_t *parents;    /* host mode's split: the parent's rendezvous, until the new ranks have met */
    bool met;                     /* host mode: the ranks of a split or a shrink have; its number is used up */
    bool regrouping;              /* host mode's split: still among the parent's ranks */
    shim_hosts_t *hosts;          /* the meeting with ranks of other hosts, in progress */
    shim_hosts_outcome_t *across; /* its outcome; meanwhile `comm` has rank and number of this host's ranks */
    bool agreeing;                /* this host's ranks are ready and wait for the other hosts */
    uint32_t stage;               /* the stage that was posted and is waited for */
    uint64_t since_ns;            /* polls of the stage */
    uint64_t deadline_ns;
    uint32_t limit_ms;
    int join_error;            /* publishing failed: no other rank will see this one */
    shim_identity_t *identity; /* one a rank */
    alg_set_t set;
    alg_map_t map;
    uint64_t pooled;                /* id of the idle scratch that this rank could take */
    uint64_t offered;               /* the same, until it is taken or given up */
    sel_reach_t reach;              /* the worst over all ranks */
    bool sees_peers;                /* every rank does */
    bool host_first;                /* the host's memory serves better than peer access */
    alg_memory_t memory;            /* of the plan */
    net_memory_kind_t pooled_kind;  /* of the idle scratch: the first of its kind's tries */
    net_bell_t bell[ALG_MAX_RANKS]; /* of the ranks' processes (grow.h) */
    uint32_t attempt;               /* at a kind of memory */
    alg_scratch_t *scratch;
    sel_plan_t *plan;
    bool classed;        /* the plan has the class that the ranks agreed on */
    bool quiet;          /* decline silently: too many ranks, or one */
    bool fault;          /* a fault, and this rank recorded the verdict */
    ncclResult_t result; /* host mode: what the call returns */
};

/* ---- stages.c ---- */

/* Make progress without waiting for another rank; true if there was any. Sets `done` at the end. */
bool shim_setup_step(shim_setup_t *setup);

/* The number of a stage (TRY_OFFER ..) of the current try. */
uint32_t shim_setup_try_stage(const shim_setup_t *setup, uint32_t stage);
/* For the log: the kind of memory, unless it is the usual one. */
const char *shim_setup_memory_text(const shim_setup_t *setup);

/* ---- begin.c ---- */

/* False while the real call has not succeeded yet. */
bool shim_setup_begin(shim_setup_t *setup);
/* Store the handle in the state and the table once the application has it. */
void shim_setup_adopt(shim_setup_t *setup);
/* Host mode's split: the key of the parent's ranks of this colour. */
net_key_t shim_setup_key_of_color(const net_key_t *parent, int color);
/* The communicator's rank has changed and all its ranks are on this host: meet them. */
void shim_setup_rejoin(shim_setup_t *setup, const net_key_t *key);
/* Host mode's split: all colours are posted; compute the new ranks and their order. */
void shim_setup_regroup(shim_setup_t *setup);
/* Whether other ranks of this colour, which have met this rank before, are alive and still missing. */
bool shim_setup_parents_present(const shim_setup_t *setup);
/* Every stage has its own limit. The user's limit is for missing ranks; once all are here, a slow one (arming memory
 * takes time) is alive, and a dead one is noticed at once. */
void shim_setup_start_clock(shim_setup_t *setup, bool all_here);
/* A rank's record; 0 or a negative errno. */
int shim_setup_read(shim_setup_t *setup, uint32_t stage, uint32_t rank, void *record, size_t size);

/* ---- across.c: ranks of other hosts ---- */

void shim_setup_begin_hosts(shim_setup_t *setup);
/* True if there is nothing else to step; *moved: something was done. */
bool shim_setup_step_hosts(shim_setup_t *setup, bool *moved);
/* The meeting failed: restore `comm`. */
void shim_setup_forget_across(shim_setup_t *setup);

/* ---- verdict.c ---- */

/* All hosts are ready. */
void shim_setup_attach(shim_setup_t *setup);
/* Apply the verdict, if there is one. */
bool shim_setup_apply_verdict(shim_setup_t *setup);
/* End it as declined, with a text for the log. */
void shim_setup_decline(shim_setup_t *setup, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Declined because of a fault. All ranks may find it; the rank that recorded the verdict logs it. */
void shim_setup_fail(shim_setup_t *setup, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Release the offered idle scratch for other communicators. */
void shim_setup_leave_idle(shim_setup_t *setup);

/* ---- identity.c: this rank's identity, and the comparison of all in setup->identity ---- */

/* The user's NCCL setting that forces forwarding; NULL if none. Call it after the real init, which copies NCCL's
 * configuration files into the environment. */
const char *shim_identity_refusal(char *text, size_t capacity);
/* Log, once a process, what plugins that NCCL opened by their default names do not do for calls that Shunt takes. Call
 * it after the real init. */
void shim_identity_tell_plugins(void);
/* Whether communicators of several hosts are Shunt's: where the real NCCL reaches other hosts by sockets, or the user
 * wants the exchange (SHUNT_ALGO). By RDMA nothing was measured, and a plugin's ways may be faster. Read after the real
 * init. */
bool shim_identity_takes_hosts(void);
/* The host's identity as the real NCCL sees it. */
net_key_t shim_identity_nccl_host(void);
/* This rank's own. 0, or a negative errno if its GPU does not answer. */
int shim_identity_fill(const shim_setup_t *setup, shim_identity_t *identity);
/* The reason why these ranks cannot form a team, in `text`; NULL if they can. */
const char *shim_identity_mismatch(const shim_setup_t *setup, char *text, size_t capacity);
/* Rank 0's settings apply to all ranks; it warns once, with the variables and the ranks that differ. */
void shim_identity_log_differences(const shim_setup_t *setup);
/* Identifies the team of a scratch: the same processes on the same devices, in this order. */
alg_set_t shim_identity_set(const shim_setup_t *setup);
/* The common facts of the GPUs. */
sel_topology_t shim_identity_topology(const shim_setup_t *setup, sel_link_t link, alg_memory_t memory);
/* Whether NCCL's variables allow peer access at the GPUs' distance; shared host memory. */
bool shim_identity_peers(const shim_setup_t *setup, sel_link_t link);
bool shim_identity_shared_memory(const shim_setup_t *setup);
/* Whether this rank's GPU should reach the memory of all others, as far as queries tell. */
bool shim_identity_sees_peers(const shim_setup_t *setup);
/* How this rank's GPU reaches the others. */
sel_reach_t shim_identity_reach(const shim_setup_t *setup);

#endif
