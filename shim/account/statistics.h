/* SPDX-License-Identifier: Apache-2.0 */
/* statistics.h - each thread's last decision, and the process's counts, printed at exit if SHUNT_STATS is set. A call
 * costs two relaxed additions to a cell of a fixed hash table. A cell's calls agree in the reason, and in all that a
 * time of `shunt tune` depends on. A forked child starts at zero, and prints only if it made calls. */
#ifndef SHUNT_SHIM_STATISTICS_H
#define SHUNT_SHIM_STATISTICS_H

#include <stdbool.h>
#include <stdint.h>

#include "selector/selector.h"
#include "shim/record/layout.h"
#include "shunt.h"

/* An alg_collective_t, or one of these, as in the record. */
enum { SHIM_SEND = RECORD_SEND, SHIM_RECV = RECORD_RECV };

/* Where a call runs (ranks, link, GPU, type, capture), packed; 0: unknown. */
typedef uint32_t shim_place_t;
/* `topology`: of an attached communicator. `type`: any number, unchecked. */
shim_place_t shim_place(const sel_topology_t *topology, alg_type_t type, bool captured);

void shim_count_taken(uint32_t collective, shim_place_t place, uint64_t bytes, const sel_choice_t *choice);
/* `source`: that of the consulted rule, static; or NULL. */
void shim_count_forwarded(uint32_t collective, shim_place_t place, uint64_t bytes, sel_reason_t reason,
                          const char *source);

/* False: this thread has made no call. */
bool shim_statistics_last(shunt_decision_t *decision);
/* The same; also false if no call was counted since the last shim_statistics_fresh. */
bool shim_statistics_fresh(shunt_decision_t *decision);
/* Sets all fields but size and communicators_attached. */
void shim_statistics_totals(shunt_statistics_t *statistics);
/* The table as text, which the caller frees; NULL: no calls, or no memory. */
char *shim_statistics_text(void);

#endif
