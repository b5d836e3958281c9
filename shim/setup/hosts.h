/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.h - ranks of several hosts find each other, connect, and agree that all take part. */
#ifndef SHUNT_SHIM_HOSTS_H
#define SHUNT_SHIM_HOSTS_H

#include <nccl.h>

#include "algorithms/multihost/multihost.h"
#include "shim/setup/why.h"

/* Write an invitation to this process's listener into the id's unused end; nothing, and no port is opened, if ranks
 * would not use it. */
void shim_hosts_invite(ncclUniqueId *id);
/* ncclSetEncryption: from now on Shunt connects no hosts and opens no port. */
void shim_hosts_encrypt(void);
bool shim_hosts_encrypted(void);
/* The first invitation in these ids; zero: none. */
net_invitation_t shim_hosts_invitation(const ncclUniqueId *ids, int count);
/* True after ranks of other hosts were absent or unreachable: later set-ups do not wait for them. */
bool shim_hosts_alone(void);
/* The key under which ranks of one host (by NCCL_HOSTID) meet. */
net_key_t shim_hosts_local_key(const net_key_t *key);
/* The same for host number `host`, after the meeting. */
net_key_t shim_hosts_team_key(const net_key_t *key, uint32_t host);

/* ---- A meeting in progress, in its own thread -------------------------------- */

typedef struct shim_hosts_request {
    net_invitation_t invitation;
    net_key_t key, place; /* place: identifies this host */
    uint32_t rank, nranks;
    uint64_t deadline_ns;
    uint32_t limit_ms; /* of the wait that deadline_ns ends */
    bool blocking;
    bool host_device;
    int device;
    bool regroup; /* a split: rank and nranks are the parent's */
    int color, order;
} shim_hosts_request_t;

typedef struct shim_hosts_outcome {
    shim_why_t failure; /* SEL_TAKEN: the ranks have met */
    net_key_t key;
    uint32_t rank, nranks; /* nranks 0: a split without a colour */
    bool blocking;
    bool one_host; /* all ranks are here and meet under `key` */
    uint32_t host, hosts;
    uint32_t host_rank, host_ranks; /* number of ranks on each host */
    alg_relay_t *relay;             /* owned by the caller, as is `every` */
    alg_hosts_t *every;             /* host device */
} shim_hosts_outcome_t;

typedef struct shim_hosts shim_hosts_t;

/* NULL without memory or a thread. */
shim_hosts_t *shim_hosts_begin(const shim_hosts_request_t *request);
/* True once the meeting has ended; the caller then owns the outcome. */
bool shim_hosts_poll(shim_hosts_t *hosts, shim_hosts_outcome_t *outcome);
/* Report, once, that this rank is ready with this plan. */
void shim_hosts_agree(shim_hosts_t *hosts, const net_key_t *plan);
/* True once all have reported; why->reason is SEL_TAKEN if every rank takes part. There is no time limit: ranks that
 * die or give up are noticed. */
bool shim_hosts_agreed(const shim_hosts_t *hosts, shim_why_t *why);
/* End the meeting, and its thread, which checks every 20 ms. NULL is allowed. */
void shim_hosts_end(shim_hosts_t *hosts);

#endif
