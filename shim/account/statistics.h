/* SPDX-License-Identifier: Apache-2.0 */
/*
 * statistics.h - what happened to the calls: the last decision of each thread,
 * and counts of the process, printed at exit if SHUNT_STATS says so.
 *
 * Counting is two relaxed additions to a cell of a fixed hash table. A cell holds calls that agree in collective,
 * size class, place, algorithm and reason, so that their time can be looked up in what `shunt tune` measured. A forked
 * child starts at zero, and prints only if it made calls of its own.
 */
#ifndef SHUNT_SHIM_STATISTICS_H
#define SHUNT_SHIM_STATISTICS_H

#include <stdbool.h>
#include <stdint.h>

#include "selector/selector.h"
#include "shunt.h"

/* What a call is counted as: an alg_collective_t, or one of these. */
enum { SHIM_SEND = ALG_COLLECTIVE_COUNT, SHIM_RECV, SHIM_COLLECTIVE_COUNT };

/* Why a call was forwarded: besides the selector's reasons, those found before the selector is asked. */
typedef enum shim_reason {
    SHIM_REASON_ARGUMENTS = SEL_REASON_COUNT, /* empty, perhaps invalid, or unknown to the real NCCL */
    SHIM_REASON_NOT_READY,                    /* non-blocking, and the last call is in progress */
    SHIM_REASON_CONFIGURATION,                /* its configuration asks for a feature of the real NCCL */
    SHIM_REASON_STREAM,                       /* cudaSetDevice, or the query of the capture, failed */
    SHIM_REASON_MEMORY,                       /* the memory for it did not come (grow.h) */
    SHIM_REASON_COUNT
} shim_reason_t;

/* Where a call was made, packed; 0: not known. */
typedef uint32_t shim_place_t;
/* topology: of the attached communicator; type: any number that the program gave. */
shim_place_t shim_place(const sel_topology_t *topology, alg_type_t type, bool captured);

void shim_count_taken(uint32_t collective, shim_place_t place, uint64_t bytes, const sel_choice_t *choice);
/* reason: a sel_reason_t or a shim_reason_t. source: of the rule that was asked, static, or NULL. */
void shim_count_forwarded(uint32_t collective, shim_place_t place, uint64_t bytes, int reason, const char *source);

/* False if this thread has made no call. */
bool shim_statistics_last(shunt_decision_t *decision);
/* The same for this thread's present call: false if nothing was counted since this was last asked. */
bool shim_statistics_fresh(shunt_decision_t *decision);
/* Fills all but size and communicators_attached. */
void shim_statistics_totals(shunt_statistics_t *statistics);
/* The whole table as text, for the caller to free; NULL without calls, or without memory. */
char *shim_statistics_text(void);

#endif
