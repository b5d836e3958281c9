/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hosts.h - how the ranks of several hosts find each other, connect, and agree that all
 * of them take part.
 */
#ifndef SHUNT_SHIM_HOSTS_H
#define SHUNT_SHIM_HOSTS_H

#include <nccl.h>

#include "algorithms/multihost/multihost.h"

/* Lay an invitation to this process's listener into the end of an id, if that is empty. Not on GPUs where NCCL has more
 * than sockets: then no port is opened. */
void shim_hosts_invite(ncclUniqueId *id);
/* The first one that these ids carry; all zero if none does. */
net_invitation_t shim_hosts_invitation(const ncclUniqueId *ids, int count);
/* Ranks of other hosts have not come to a meeting of this process once: no other one waits for them. */
bool shim_hosts_alone(void);
/* The name under which ranks of one host meet: those that NCCL_HOSTID sets apart do not. */
net_key_t shim_hosts_local_key(const net_key_t *key);
/* The same once it is known who is on which host. */
net_key_t shim_hosts_team_key(const net_key_t *key, uint32_t host);

/* ---- A meeting under way, in a thread of its own -------------------------------- */

typedef struct shim_hosts_request {
    net_invitation_t invitation;
    net_key_t key;
    uint32_t rank, nranks;
    uint64_t deadline_ns;
    uint32_t limit_ms; /* of which that is the end */
    bool blocking;
    bool host_device;
    int device;   /* of the relay */
    bool regroup; /* a split: rank and nranks are the parent's, and who has the same colour stays together */
    int color, order;
} shim_hosts_request_t;

typedef struct shim_hosts_outcome {
    const char *failure; /* NULL: they have met; else why not, valid until shim_hosts_end */
    net_key_t key;
    uint32_t rank, nranks; /* nranks 0: a split without a colour */
    bool blocking;         /* every rank */
    bool one_host;         /* all are on this one, to meet under `key`; the rest is not set */
    uint32_t host, hosts;
    uint32_t host_rank, host_ranks; /* this rank among those of its host, and how many each host has */
    alg_relay_t *relay;             /* the taker's, as is: */
    alg_hosts_t *every;             /* host device */
} shim_hosts_outcome_t;

typedef struct shim_hosts shim_hosts_t;

/* NULL without memory or a thread. */
shim_hosts_t *shim_hosts_begin(const shim_hosts_request_t *request);
/* True once they have met; the outcome is given out once. */
bool shim_hosts_poll(shim_hosts_t *hosts, shim_hosts_outcome_t *outcome);
/* This rank's host is ready, with this plan: tell the others. Once. */
void shim_hosts_agree(shim_hosts_t *hosts, const net_key_t *plan);
/* True once all have said so; *failure: NULL if every rank takes part, else why none does, valid until shim_hosts_end.
 * It has no limit, and needs none: a rank that dies or gives up is noticed. */
bool shim_hosts_agreed(shim_hosts_t *hosts, const char **failure);
/* Stop it, if it is not over. Waits for its thread, which looks every 20 ms. NULL is fine. */
void shim_hosts_end(shim_hosts_t *hosts);

#endif
