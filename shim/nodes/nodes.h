/* SPDX-License-Identifier: Apache-2.0 */
/* nodes.h - all that other folders use of several nodes. A meeting lives as long as its communicator. */
#ifndef SHUNT_SHIM_NODES_H
#define SHUNT_SHIM_NODES_H
#include <nccl.h>

#include "algorithms/algorithm.h"
#include "shim/base/why.h"
#include "transport/transport.h"

enum { SHIM_NODES_RANKS = NET_MAX_SLOTS, SHIM_INVITATION_BYTES = 56 };
typedef struct shim_invitation {
    bool given;
    uint8_t bytes[SHIM_INVITATION_BYTES];
} shim_invitation_t; /* where ranks meet; the end of an id */

/* Write an invitation to this process's listener into the id's unused end, if the ranks would use it. */
void shim_nodes_invite(ncclUniqueId *id);
shim_invitation_t shim_nodes_invitation(const ncclUniqueId *ids, int count);
/* For ncclSetEncryption: from now on Shunt connects no nodes and opens no port. */
void shim_nodes_encrypt(void);
/* GPUs, after the real init: whether this process's communicators of several nodes are forwarded. */
bool shim_nodes_refuses(shim_why_t *why);
/* The key under which ranks of one node (by NCCL_HOSTID) meet. */
net_key_t shim_nodes_local_key(const net_key_t *key);

typedef struct shim_nodes_request {
    shim_invitation_t invitation;
    net_key_t key, child, place, nccl_node; /* keys of meeting and communicator; this node for Shunt, for NCCL */
    uint32_t rank, nranks;                  /* of a split (`regroup`): the parent's */
    uint64_t began_ns;
    uint32_t limit_ms;
    int device, color, order; /* device: a CUDA ordinal; -1: CPU mode */
    bool blocking, regroup;
} shim_nodes_request_t;

typedef struct shim_nodes_outcome {
    shim_why_t failure;                   /* SEL_TAKEN: the ranks have met */
    uint32_t rank, nranks, nodes;         /* nranks 0: a split without a colour */
    uint32_t node, node_rank, node_ranks; /* this node; this rank's number on it; ranks per node */
    net_key_t team;                       /* under which this node's ranks meet */
    bool blocking, one_node;              /* of all ranks */
} shim_nodes_outcome_t;

typedef struct shim_meeting shim_meeting_t;
shim_meeting_t *shim_nodes_begin(const shim_nodes_request_t *request);     /* NULL without memory or a thread */
const shim_nodes_outcome_t *shim_nodes_met(const shim_meeting_t *meeting); /* NULL: not yet */
/* Report, once, that this rank is ready with this plan. */
void shim_nodes_agree(shim_meeting_t *meeting, const net_key_t *plan);
/* True once all have reported; reason SEL_TAKEN: all take part. No time limit: dead ranks are noticed. */
bool shim_nodes_agreed(const shim_meeting_t *meeting, shim_why_t *why);
/* After the agreement: serve the team's calls. `control` must outlive the meeting. */
void shim_nodes_serve(shim_meeting_t *meeting, alg_team_t *team, alg_control_t *control);
/* NULL is allowed from here on. _call: before a launch or capture. _flush: wait until all posted data is sent. _fault:
 * why RDMA lost a node, or NULL. _end: no call may be in flight. */
void shim_nodes_call(shim_meeting_t *meeting, const alg_team_t *team, const alg_call_t *call, bool captured);
void shim_nodes_flush(shim_meeting_t *meeting);
const char *shim_nodes_fault(const shim_meeting_t *meeting);
void shim_nodes_end(shim_meeting_t *meeting);
#endif
