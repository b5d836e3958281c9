/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - `shunt watch`: the state of the communicators of running processes, the rank to blame first. It only maps
 * the processes' records (shim/record/layout.h), so it works on a job that hangs.
 */
#ifndef SHUNT_TOOL_WATCH_H
#define SHUNT_TOOL_WATCH_H

#include <stdio.h>
#include <sys/types.h>

#include "shim/record/judge.h"

/* A snapshot of a rank of a communicator. */
typedef struct watch_rank {
    uint64_t comm;
    uint32_t rank, nranks, state;
    int32_t device;
    record_view_t view;
    uint64_t calls;
    bool has_last;
    record_made_t last;
    char algorithm[RECORD_NAME_BYTES];
    uint64_t wait_id, wait_ns;
    record_waiting_t waits;
} watch_rank_t;

enum { WATCH_MOST_RANKS = 4096 };

/* The records that were found. They stay mapped until watch_free. */
typedef struct watch_sight {
    watch_rank_t *rank; /* sorted by communicator and rank */
    uint32_t ranks, books;
    record_mapped_t **book;
} watch_sight_t;

/* Read the records of a process, or of all readable processes if `pid` is 0. False: out of memory. */
bool watch_read(pid_t pid, watch_sight_t *sight);
void watch_free(watch_sight_t *sight);

/* A communicator: ranks [from, to) of sight->rank. */
typedef struct watch_comm {
    uint32_t from, to;
    const watch_rank_t *waiter; /* the rank that has waited longest; NULL: no rank waits */
    uint32_t judged;
    record_rank_t rank[ALG_MAX_RANKS]; /* all ranks except the waiter; the rank to blame is first */
} watch_comm_t;

/* Judge the communicators, longest waits first. Returns their number, or -1 if out of memory; the caller frees
 * *comm. */
int watch_judge(const watch_sight_t *sight, watch_comm_t **comm);

void watch_print(const watch_sight_t *sight, const watch_comm_t *comm, int comms, FILE *to);
void watch_print_json(const watch_sight_t *sight, const watch_comm_t *comm, int comms, FILE *to);

int tool_watch(int argc, char **argv);

/* CLOCK_MONOTONIC. */
uint64_t watch_now_ns(void);

#endif
