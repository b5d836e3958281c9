/* SPDX-License-Identifier: Apache-2.0 */
/*
 * setup.h - one set-up under way: what attach.c (who steps it, and when),
 * stages.c (what a step does), begin.c, verdict.c (its beginning and its end)
 * and identity.c (who the ranks are) share. Nobody else includes it.
 */
#ifndef SHUNT_SHIM_SETUP_H
#define SHUNT_SHIM_SETUP_H

#include "shim/setup/attach.h"
#include "shim/setup/hosts.h"
#include "shim/setup/link.h"

enum {
    SHIM_SETUP_LIMIT_MS = 10000,  /* of a stage, for a rank that is not seen, or does not come on */
    SHIM_SETTLE_LIMIT_MS = 60000, /* of a call that waits for the verdict */
    SHIM_AWAY_MS = 200,           /* that an init waits for a rank which comes when its program calls again */
    SHIM_HOSTS_MS = 100,          /* host mode: that ranks wait for each other here before they look on other hosts */
    SHIM_HOSTS_LIMIT_MS = 3000    /* on GPUs: of the meeting with other hosts, which may not run Shunt */
};

/* The stages; stages.c says what is done in each. */
enum {
    STAGE_IDENTITY,
    STAGE_AGREE,
    STAGE_FIRST_TRY,  /* at a kind of memory */
    STAGE_REGROUP = 0 /* in a segment of its own */
};

/* Of each try. */
enum { TRY_OFFER, TRY_SENT, TRY_OPENED, TRY_PROOF, TRY_STAGES };

/* What a rank posts first: who it is, where, and what it wants. Plain data without padding; every
 * field that comes from another process is checked before use. */
typedef struct shim_identity {
    uint32_t layout;  /* of these records */
    uint32_t version; /* of Shunt: another version may have another table */
    net_process_t process;
    net_key_t boot;    /* hash of the kernel's boot id */
    net_key_t host_id; /* hash of NCCL_HOSTID */
    shim_gpu_t gpu;    /* host mode: zero */
    uint64_t fresh_id; /* random; rank 0's names the scratch, and is the token of the proof */
    uint32_t blocking;
    uint32_t vmm;           /* VMM memory may be tried */
    uint32_t shared_memory; /* the host's may */
    uint32_t farthest;      /* a sel_link_t: GPUs farther apart are not to reach each other; SEL_LINK_HOST: none are */
    uint32_t device;
    uint32_t leads; /* its GPU has no leader (room.h) */
    sel_settings_t settings;
} shim_identity_t;

struct shim_setup {
    shim_setup_t *next;         /* attach.c's list */
    shim_setup_t *claimed_next; /* of one pass */
    shim_setup_request_t request;
    shim_comm_t *comm; /* a reference */

    /* Who steps it; under attach.c's lock, but for `ready`, which the one that holds `busy` changes. */
    const void *owner; /* the thread that began it */
    uint64_t batch;    /* set-ups that one call waits for */
    bool grouped;      /* waits for shim_attach_after_group */
    bool lingering;    /* waits for shim_attach_poll */
    bool busy;         /* a thread is stepping it */
    bool poll_real;    /* that thread may ask the real NCCL if it is ready */
    bool patient;      /* no thread waits for it: `lingering` at this step */
    bool postpone;     /* set by a step: do not wait any longer, it goes on when the program calls again */
    bool told;         /* the program was told that it is ready, and is to find it so */
    bool done;
    atomic_bool ready;          /* the real call has succeeded */
    atomic_bool cancel;         /* decline at the next step */
    _Atomic uint64_t needed_ns; /* since when a call waits for it; 0: none does */
    bool begun;                 /* host mode: the group's set-up may start */

    /* The stages. */
    net_rendezvous_t *rendezvous;
    net_rendezvous_t *parents;    /* host mode's split: where the parent's ranks met, until the new ones have */
    bool regrouping;              /* host mode's split: still among the parent's ranks */
    shim_hosts_t *hosts;          /* the meeting with ranks of other hosts, while it is under way */
    shim_hosts_outcome_t *across; /* what came of it: `comm` has rank and number of this host's ranks meanwhile */
    bool agreeing;                /* this host's ranks are ready, and wait for the others */
    uint32_t stage;               /* posted, and waited for */
    uint64_t since_ns;            /* waits for the stage */
    uint64_t deadline_ns;
    uint32_t limit_ms;
    int join_error;            /* of publishing: nobody else will see this rank */
    shim_identity_t *identity; /* one a rank */
    alg_set_t set;
    alg_map_t map;
    uint64_t pooled;        /* id of the idle scratch that this rank could take */
    uint64_t offered;       /* the same, as long as it is neither taken nor left */
    sel_reach_t reach;      /* the ranks', joined */
    bool sees_peers;        /* every rank does */
    alg_memory_t memory;    /* of the plan */
    alg_memory_t pooled_in; /* of the idle scratch */
    uint32_t attempt;       /* at a kind of memory */
    alg_scratch_t *scratch;
    sel_plan_t *plan;
    bool classed;        /* the plan has the class that the ranks agreed on */
    bool quiet;          /* nothing to tell: too many ranks, or one */
    bool fault;          /* something failed, and the verdict is this rank's word for it */
    ncclResult_t result; /* host mode: what the call returns */
};

/* ---- stages.c ---- */

/* Do what can be done without waiting for another rank; true if something was done. Sets `done` at
 * the end. */
bool shim_setup_step(shim_setup_t *setup);

/* The number of a stage (TRY_OFFER ..) of the try under way. */
uint32_t shim_setup_try_stage(const shim_setup_t *setup, uint32_t stage);
/* For the log: the kind of memory, unless it is the usual one. */
const char *shim_setup_memory_text(const shim_setup_t *setup);

/* ---- begin.c ---- */

/* False while the real call has not succeeded yet. */
bool shim_setup_begin(shim_setup_t *setup);
/* Put the handle into the state and the table, if the application has it already. */
void shim_setup_adopt(shim_setup_t *setup);
/* Host mode's split: the key of those of the parent's ranks who have this colour. */
net_key_t shim_setup_key_of_color(const net_key_t *parent, int color);
/* The communicator has another rank now, and its ranks are on this host: meet them. */
void shim_setup_rejoin(shim_setup_t *setup, const net_key_t *key);
/* Host mode's split: colours are in, so which of the parent's ranks are with us, and in which order? */
void shim_setup_regroup(shim_setup_t *setup);
/* The others of this colour, which have met this rank before, live and have yet to come. */
bool shim_setup_parents_present(const shim_setup_t *setup);
/* Every stage has its own limit. The user's is for ranks that do not come; once all are here, one that
 * is slow (arming memory takes its time) is still alive, and a dead one is noticed at once. */
void shim_setup_start_clock(shim_setup_t *setup, bool all_here);
/* What a rank posted; 0 or a negative errno. */
int shim_setup_read(shim_setup_t *setup, uint32_t stage, uint32_t rank, void *record, size_t size);

/* ---- across.c: ranks of other hosts ---- */

void shim_setup_begin_hosts(shim_setup_t *setup);
/* True if there is nothing else to step; *moved: something was done. */
bool shim_setup_step_hosts(shim_setup_t *setup, bool *moved);
/* Nothing comes of it: `comm` is what it was. */
void shim_setup_forget_across(shim_setup_t *setup);

/* ---- verdict.c ---- */

/* All hosts are ready. */
void shim_setup_attach(shim_setup_t *setup);
/* Obey the verdict, if there is one. */
bool shim_setup_obey(shim_setup_t *setup);
/* End it as declined, with a text for the log. */
void shim_setup_decline(shim_setup_t *setup, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Declined for what should not be. All ranks may find it; the one whose word holds warns of it. */
void shim_setup_fail(shim_setup_t *setup, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Another may have the idle scratch that was offered to this one. */
void shim_setup_leave_idle(shim_setup_t *setup);

/* ---- identity.c: of this rank alone, and of the records of all in setup->identity ---- */

/* What the user asked of NCCL that Shunt must leave to it; NULL if nothing. Read after the real init,
 * which has put NCCL's configuration files into the environment. */
const char *shim_identity_refusal(char *text, size_t capacity);
/* Whether communicators of several hosts are Shunt's: where the real NCCL reaches other hosts by sockets, or the user
 * wants the exchange (SHUNT_ALGO). By RDMA nothing was measured, and a plugin's ways may be faster. Read after the real
 * init. */
bool shim_identity_takes_hosts(void);
/* Which host this is: its kernel's boot id, NCCL_HOSTID, and the file system of shared memory, which containers have
 * for themselves. */
net_key_t shim_identity_host(void);
/* The same as the real NCCL has it. */
net_key_t shim_identity_nccl_host(void);
/* This rank's own. 0, or a negative errno where its GPU does not answer. */
int shim_identity_fill(const shim_setup_t *setup, shim_identity_t *identity);
/* Why these ranks cannot form a team, in `text`; NULL if they can. */
const char *shim_identity_mismatch(const shim_setup_t *setup, char *text, size_t capacity);
/* Rank 0's settings hold for all; it says so, once, with the variables and the ranks that had asked for
 * something else. */
void shim_identity_tell_differences(const shim_setup_t *setup);
/* Who shares this scratch: the same processes on the same devices, in this order. */
alg_set_t shim_identity_set(const shim_setup_t *setup);
/* What the GPUs have in common. */
sel_topology_t shim_identity_topology(const shim_setup_t *setup, sel_link_t link, alg_memory_t memory);
/* NCCL's variables let GPUs at that distance reach each other; let ranks share the host's memory. */
bool shim_identity_peers(const shim_setup_t *setup, sel_link_t link);
bool shim_identity_shared_memory(const shim_setup_t *setup);
/* As far as anyone says before it is tried, this rank's GPU reaches the memory of all others. */
bool shim_identity_sees_peers(const shim_setup_t *setup);
/* How this rank's GPU reaches the others. */
sel_reach_t shim_identity_reach(const shim_setup_t *setup);

#endif
