/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.h - one collective on host memory with all checks: the result, the guards
 * around the buffers, the unchanged input.
 */
#ifndef TEST_CALL_H
#define TEST_CALL_H

#include "collective.h"
#include "data.h"
#include "ranks.h"

typedef struct call_shape {
    size_t input_offset;  /* bytes from a 64-byte boundary, a multiple of the element's size */
    size_t output_offset; /* in place: of the one buffer */
    bool in_place;        /* if the collective has it, and this rank uses both buffers */
} call_shape_t;

/* A call that has been issued and is not yet checked. */
typedef struct call {
    coll_t k;
    int rank;
    ncclComm_t comm;
    ncclRedOp_t op;
    data_buffer_t input;  /* unused in place */
    data_buffer_t output; /* in place: the larger one, with the other inside */
    const void *send;     /* the call's arguments. An unused one is NULL or never touched, */
    void *recv;           /* alternately */
    uint64_t input_hash;  /* in place: the bytes other than the output */
    bool in_place;
    cudaStream_t stream;
} call_t;

/* Make buffers and operator. call_issue then makes the call, which in a group does not run yet. */
void call_prepare_coll(call_t *call, ncclComm_t comm, int rank, const coll_t *k, call_shape_t shape);
ncclResult_t call_issue(call_t *call);
/* The same with another operator, which is not destroyed. */
ncclResult_t call_issue_with(const call_t *call, ncclRedOp_t op);
/* Check the output, and add it to *hash if all ranks get the same. Of an all-reduce every `shards`-th element from
 * `shard` on is compared with the reference; other ranks, whose outputs must have the same hash, compare the rest.
 * Frees the call. */
void call_finish(call_t *call, int shard, int shards, uint64_t *hash);
/* Check that the output is untouched, as the call never ran. Frees the call. */
void call_cancelled(call_t *call);

/* Prepare, issue, wait and finish. */
void call_run_coll(ncclComm_t comm, int rank, const coll_t *k, call_shape_t shape, uint64_t *hash);
/* The same for all ranks in one thread, in one group. */
void call_run_solo_coll(const ncclComm_t *comms, const coll_t *k, call_shape_t shape);

/* The same for an all-reduce. */
void call_prepare(call_t *call, ncclComm_t comm, int rank, const data_case_t *c, call_shape_t shape);
void call_run(ncclComm_t comm, int rank, const data_case_t *c, call_shape_t shape, uint64_t *hash);
void call_run_solo(const ncclComm_t *comms, const data_case_t *c, call_shape_t shape);

/* Check that the hashes of all ranks are equal. A barrier. */
void call_agree(ranks_t *ranks, uint64_t hash);
/* The same among ranks of a subset: `leader` is the world rank of one of them. */
void call_agree_with(ranks_t *ranks, int leader, uint64_t hash);

#endif
