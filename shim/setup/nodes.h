/* SPDX-License-Identifier: Apache-2.0 */
/* nodes.h - ranks of several nodes find each other, connect, and agree that all take part. */
#ifndef SHUNT_SHIM_NODES_H
#define SHUNT_SHIM_NODES_H

#include <nccl.h>

#include "algorithms/nodes/nodes.h"
#include "shim/setup/why.h"

/* Write an invitation to this process's listener into the id's unused end. If the ranks would not use it, write nothing
 * and open no port. */
void shim_nodes_invite(ncclUniqueId *id);
/* For ncclSetEncryption: from now on Shunt connects no nodes and opens no port. */
void shim_nodes_encrypt(void);
bool shim_nodes_encrypted(void);
/* The first invitation in these ids; zero: none. */
net_invitation_t shim_nodes_invitation(const ncclUniqueId *ids, int count);
/* True after ranks of other nodes were absent or unreachable: later set-ups do not wait for them. */
bool shim_nodes_alone(void);
/* Keys under which ranks of one node (by NCCL_HOSTID) meet; _team_key: ranks of node `node`, after the meeting. */
net_key_t shim_nodes_local_key(const net_key_t *key);
net_key_t shim_nodes_team_key(const net_key_t *key, uint32_t node);

typedef struct shim_nodes_request {
    net_invitation_t invitation;
    net_key_t key, place; /* place: identifies this node */
    uint32_t rank, nranks;
    uint64_t deadline_ns;
    uint32_t limit_ms; /* length of the wait that deadline_ns ends */
    bool blocking;
    alg_device_t kind;
    int device;   /* CUDA ordinal; -1: CPU mode */
    bool regroup; /* a split: rank and nranks are the parent's */
    int color, order;
} shim_nodes_request_t;

typedef struct shim_nodes_outcome {
    shim_why_t failure; /* SEL_TAKEN: the ranks have met */
    net_key_t key;
    uint32_t rank, nranks; /* nranks 0: a split without a colour */
    bool blocking;
    bool one_node; /* all ranks are on this node and meet under `key` */
    uint32_t node, nodes;
    uint32_t node_rank, node_ranks; /* this rank's number on its node; ranks per node */
    alg_relay_t *relay;             /* owned by the caller, as is `every` */
    alg_nodes_t *every;             /* CPU device */
} shim_nodes_outcome_t;

typedef struct shim_nodes shim_nodes_t;

/* NULL without memory or a thread. */
shim_nodes_t *shim_nodes_begin(const shim_nodes_request_t *request);
/* True once the meeting has ended; the caller then owns the outcome. */
bool shim_nodes_poll(shim_nodes_t *nodes, shim_nodes_outcome_t *outcome);
/* Report, once, that this rank is ready with this plan. */
void shim_nodes_agree(shim_nodes_t *nodes, const net_key_t *plan);
/* True once all have reported; why->reason is SEL_TAKEN if every rank takes part. There is no time limit: ranks that
 * die or give up are noticed. */
bool shim_nodes_agreed(const shim_nodes_t *nodes, shim_why_t *why);
/* End the meeting, and its thread, which checks every 20 ms. NULL is allowed. */
void shim_nodes_end(shim_nodes_t *nodes);

#endif
