/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mix.h - random programs of messages and collectives, which each rank groups in
 * its own way.
 *
 * A program is a list of events that all ranks know. Each rank cuts the list into
 * groups by itself (a group of one is a call without a group), and within a group
 * makes its calls in any order that keeps the order of each pair's messages, and
 * that of the collectives. Such a program must end: of the events that have not
 * ended, both ends of the first one are always under way. Every event is checked.
 */
#ifndef TEST_MIX_H
#define TEST_MIX_H

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

/* For all ranks of this thread: comms[c * nranks + rank], NULL for another thread's. `own` is its own seed. */
void mix_run(const mix_t *mix, const ncclComm_t *comms, int nranks, uint64_t own);

#endif
