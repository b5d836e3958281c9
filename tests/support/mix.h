/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mix.h - random programs of messages and collectives, which each rank groups in
 * its own way.
 *
 * A program is a list of events that all ranks know. Each rank cuts the list into groups by itself (a group of one is a
 * call without a group), and within a group makes its calls in any order that keeps the order of each pair's messages,
 * and that of the collectives. Such a program must end: both ends of the first event that has not ended are always in
 * progress. Every event is checked.
 */
#ifndef TEST_MIX_H
#define TEST_MIX_H

#include "data.h"
#include "ranks.h"

enum { MIX_COMMS = 2, MIX_MOST_GROUP = 40 };

typedef struct mix {
    int events;
    int comms;        /* the events are spread over this many communicators of the same ranks */
    int collectives;  /* one event in this many is a collective; 0: none */
    int largest;      /* bytes of a message, at most; most are short */
    int group;        /* calls of a group, at most; 1: no groups */
    int stall_one_in; /* before a group, for up to 2 ms; 0: never */
    uint64_t seed;    /* of the program */
} mix_t;

/* Where the library's buffers are, if not in host memory (on GPUs). `context` is the caller's. */
typedef struct mix_place {
    void *context;
    /* A copy of the buffer, guards and all, for the next group; the address of its data. */
    uint8_t *(*put)(void *context, const data_buffer_t *buffer);
    /* The streams of a group's calls, one a communicator; all copies are there. */
    void (*begin)(void *context, uint64_t *own, cudaStream_t streams[MIX_COMMS]);
    /* Its work has ended. */
    void (*end)(void *context);
    /* The buffer gets what its copy holds. */
    void (*get)(void *context, const data_buffer_t *buffer, const uint8_t *data);
} mix_place_t;

/* Run a program for all ranks of this thread: comms[c * nranks + rank] is NULL for another thread's rank. `own` is the
 * thread's seed. place: NULL for host memory. */
void mix_run(const mix_t *mix, const mix_place_t *place, const ncclComm_t *comms, int nranks, uint64_t own);
/* That program, and in `seconds` by rank 0's clock others of further seeds; returns how many there were. */
uint64_t mix_run_for(int seconds, const mix_t *mix, const mix_place_t *place, ranks_t *ranks, const ncclComm_t *comms,
                     int nranks);

#endif
