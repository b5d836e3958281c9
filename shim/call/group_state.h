/* SPDX-License-Identifier: Apache-2.0 */
/* group_state.h - a thread's group, and the steps of its end. For group*.c, make.c and cpu/ only. */
#ifndef SHUNT_SHIM_GROUP_STATE_H
#define SHUNT_SHIM_GROUP_STATE_H

#include "shim/call/call.h"
#include "shim/comm/order.h"

/* One kind of work of one communicator. */
typedef struct shim_track {
    bool used;
    bool branched; /* on `branch`; else on the lead's stream */
    uint32_t room; /* room (share.c) of its largest grid */
    shim_branch_t branch;
} shim_track_t;

/* A communicator's stream. The first is the lead; it alone has `calls` and `track`. */
typedef struct shim_stream_use {
    shim_comm_t *comm; /* retained */
    void *stream;
    shim_capture_t capture;
    uint32_t calls; /* how many calls have a `round` */
    shim_track_t track[SHIM_USES];
} shim_stream_use_t;

typedef struct shim_queued {
    shim_comm_t *comm; /* retained */
    shim_call_t call;
    uint32_t round; /* number among the communicator's collectives */
    uint32_t index; /* number in the group */
} shim_queued_t;

typedef struct shim_group {
    unsigned depth;
    ncclResult_t error; /* the last that Shunt found */
    shim_stream_use_t *uses;
    shim_queued_t *calls;
    alg_message_t *messages;  /* of merged calls */
    alg_part_t *parts;        /* ALG_MOST_PARTS for each call with parts */
    shim_comm_t **finalized;  /* retained */
    shim_comm_t **unattached; /* retained; non-blocking, with forwarded calls */
    uint32_t use_count, use_room;
    uint32_t call_count, call_room;
    uint32_t message_room;
    uint32_t part_count, part_room;
    uint32_t finalized_count, finalized_room;
    uint32_t unattached_count, unattached_room;
} shim_group_t;

extern _Thread_local shim_group_t shim_group;

/* Empties the group: releases communicators, keeps buffers. */
void shim_group_drop(shim_group_t *g);

bool shim_group_grow(void **buffer, uint32_t count, uint32_t *room, size_t size);

/* The communicator's lead; NULL: not in the group. */
shim_stream_use_t *shim_group_lead(const shim_group_t *g, const shim_comm_t *comm);

static inline bool shim_group_is_message(const shim_queued_t *queued)
{
    return shim_call_is_message(&queued->call);
}

/* Ends the communicator (_comms: those of all calls from `first` on): peers launch these calls, but this rank does
 * not. */
void shim_group_end_comm(shim_comm_t *comm, ncclResult_t result);
void shim_group_end_comms(const shim_group_t *g, uint32_t first, ncclResult_t result);
ncclResult_t shim_group_out_of_memory(shim_comm_t *comm);

/* Sleeps between polls: 10 us, after 100 rounds 200 us. */
void shim_group_nap(unsigned round);

/* Merges collectives (group_parts.c). */
ncclResult_t shim_group_join_parts(shim_group_t *g);
/* Merges messages (group_join.c). */
ncclResult_t shim_group_join(shim_group_t *g);

/* On CUDA (group_launch.c), before the real end: joins the streams. */
ncclResult_t shim_group_gather(shim_group_t *g);
/* After the real end: launches, and lets the streams continue. */
ncclResult_t shim_group_launch(shim_group_t *g, const shim_real_t *real, bool in_progress);

ncclResult_t shim_group_end_cuda(ncclSimInfo_t *info);
/* The record has numbered the group's calls, but not all were made. */
void shim_group_note_failure(const shim_group_t *g);

#endif
