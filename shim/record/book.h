/* SPDX-License-Identifier: Apache-2.0 */
/* book.h - this process's book, and its peers' mapped books. Only for this folder. */
#ifndef SHUNT_RECORD_BOOK_H
#define SHUNT_RECORD_BOOK_H

#include "shim/record/judge.h"
#include "shim/record/record.h"

/* A wait that the watcher has noticed; times are by the watcher's clock. */
typedef struct record_wait {
    uint64_t id, epoch; /* id 0: none */
    uint64_t began_ns, seen_ns;
    bool reported;
    uint32_t seen_since_left;        /* rounds that saw the wait after an awaited rank left */
    uint32_t arrived;                /* ranks (bits) seen in the call, ... */
    uint64_t late_ns[ALG_MAX_RANKS]; /* ... and how long each was absent since the wait began (waits.c) */
} record_wait_t;
/* A rank waits in a collective, in a message beside it, or for peers that have not made a forwarded call. */
enum { RECORD_WAIT_COLLECTIVE, RECORD_WAIT_MESSAGE, RECORD_WAIT_FORWARDED, RECORD_WAITS };

struct shim_record {
    record_slot_t *slot;
    uint32_t number;
    bool used;
    shim_record_about_t about;
    record_view_t peer[ALG_MAX_RANKS]; /* including this rank */
    /* Guarded by the lock, except `mismatched`. */
    bool watched;
    uint64_t beat;
    record_wait_t wait[RECORD_WAITS];
    uint64_t entries;
    uint64_t compared[ALG_MAX_RANKS]; /* collectives compared with each rank */
    uint64_t differs_ns;              /* when differing calls were found; 0: none were */
    atomic_bool mismatched;
};

extern net_lock_t record_lock;
/* Record number i; NULL past the last. Under the lock. */
shim_record_t *record_number(uint32_t i);
/* Reads anew how large the peers' books are: they may have new communicators. */
void record_refresh(const shim_record_t *record);
void record_beat(uint64_t now_ns);
/* Starts the watcher unless it runs; false: no thread can start. Under the lock. */
bool record_watch_start(void);
/* Call in a forked child. */
void record_watch_forget(void);

/* Updates which ranks are late, if this round saw the wait. clock_ns: the watcher's clock; now_ns: net_now_ns. Under
 * the lock. */
void record_waits_look(const shim_record_t *record, record_wait_t *wait, uint64_t clock_ns, uint64_t now_ns);
/* Whether a wait for a rank that has left is real: three rounds saw it (docs/lab/proofs.md). Call once a round, under
 * the lock. */
bool record_waits_for_left(record_wait_t *wait, uint64_t clock_ns);
/* Adds an ended wait to the sums. Under the lock. */
void record_waits_end(const shim_record_t *record, record_wait_t *wait);
void record_waits_forget(void);

#endif
