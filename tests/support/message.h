/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.h - one end of a message, on host memory, with all checks: the received
 * data, the guards around the buffer, the unchanged sent data.
 */
#ifndef TEST_MESSAGE_H
#define TEST_MESSAGE_H

#include "data.h"
#include "ranks.h"

/* The same on every rank. */
typedef struct message {
    int from, to;
    size_t count; /* of the sender's type */
    ncclDataType_t type;
    bool as_bytes; /* the receiver gives that many bytes as its type */
    uint64_t seed; /* of its data: random bits with runs of all-ones */
} message_t;

typedef struct message_end {
    message_t m;
    bool sends;
    ncclComm_t comm;
    data_buffer_t buffer;
    uint64_t hash; /* of sent data */
} message_end_t;

/* Make a buffer at `offset` (a multiple of the type's size, up to 64); below: make the call, then check and free. An
 * empty message has a NULL buffer. */
void message_prepare(message_end_t *end, const message_t *m, bool sends, ncclComm_t comm, size_t offset);
ncclResult_t message_issue(const message_end_t *end);
/* The same with a copy of the buffer elsewhere, such as on a GPU. */
ncclResult_t message_issue_at(const message_end_t *end, void *data, cudaStream_t stream);
void message_finish(message_end_t *end);

/* All three steps, blocking. */
void message_run(const message_t *m, bool sends, ncclComm_t comm, size_t offset);

#endif
