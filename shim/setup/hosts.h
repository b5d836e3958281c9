/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hosts.h - how the ranks of several hosts find each other and connect (host
 * device). For stages.c, attach.c and host.c.
 */
#ifndef SHUNT_SHIM_HOSTS_H
#define SHUNT_SHIM_HOSTS_H

#include <nccl.h>

#include "algorithms/multihost/multihost.h"

/* Lay an invitation to this process's listener into the end of an id of the host device. */
void shim_hosts_invite(ncclUniqueId *id);
/* The first one that these ids carry; all zero if none does. */
net_invitation_t shim_hosts_invitation(const ncclUniqueId *ids, int count);
/* The name under which ranks of one host meet: those that NCCL_HOSTID sets apart do not. */
net_key_t shim_hosts_local_key(const net_key_t *key);

/* ---- A meeting under way, in a thread of its own -------------------------------- */

typedef struct shim_hosts_request {
    net_invitation_t invitation;
    net_key_t key;
    uint32_t rank, nranks;
    uint64_t deadline_ns;
    uint32_t limit_ms; /* of which that is the end */
    bool blocking;
    bool regroup; /* a split: rank and nranks are the parent's, and who has the same colour stays together */
    int color, order;
} shim_hosts_request_t;

typedef struct shim_hosts_outcome {
    const char *failure; /* NULL: they have met; else why not, valid until shim_hosts_end */
    net_key_t key;
    uint32_t rank, nranks; /* nranks 0: a split without a colour */
    bool blocking;         /* every rank */
    alg_hosts_t *team;     /* the taker's; NULL: all are on this host, to meet under `key` */
} shim_hosts_outcome_t;

typedef struct shim_hosts shim_hosts_t;

/* NULL without memory or a thread. */
shim_hosts_t *shim_hosts_begin(const shim_hosts_request_t *request);
/* True once it is over; the outcome is given out once. */
bool shim_hosts_poll(shim_hosts_t *hosts, shim_hosts_outcome_t *outcome);
/* Stop it, if it is not over. Waits for its thread, which looks every 20 ms. NULL is fine. */
void shim_hosts_end(shim_hosts_t *hosts);

#endif
