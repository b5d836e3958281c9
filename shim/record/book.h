/* SPDX-License-Identifier: Apache-2.0 */
/*
 * book.h - this process's book and its peers' mapped ones, for this folder only.
 */
#ifndef SHUNT_RECORD_BOOK_H
#define SHUNT_RECORD_BOOK_H

#include "shim/record/judge.h"
#include "shim/record/record.h"

/* The watcher's memory of a wait. Its clock stands still while the process does. */
typedef struct record_wait {
    uint64_t id, epoch; /* id 0: none */
    uint64_t began_ns, seen_ns;
    bool reported;
    uint32_t arrived;                /* ranks (bits) that were seen in the call, ... */
    uint64_t late_ns[ALG_MAX_RANKS]; /* ... and how long each was not, since the wait began (waits.c) */
} record_wait_t;
/* In collectives, in messages beside them, in a forwarded call that a peer has not made. */
enum { RECORD_WAIT_COLLECTIVE, RECORD_WAIT_MESSAGE, RECORD_WAIT_FORWARDED, RECORD_WAITS };

struct shim_record {
    record_slot_t *slot;
    uint32_t number;
    bool used;
    shim_record_about_t about;
    record_view_t peer[ALG_MAX_RANKS]; /* the own one, too */
    /* The watcher's, under the lock. */
    bool watched;
    uint64_t beat;
    record_wait_t wait[RECORD_WAITS];
    uint64_t entries;                 /* at the last look */
    uint64_t compared[ALG_MAX_RANKS]; /* collectives */
    uint64_t differs_ns;              /* when ranks' calls were found to differ; 0: not found */
    atomic_bool mismatched;
};

extern net_lock_t record_lock;
/* Record number i; NULL past the last. Under the lock. */
shim_record_t *record_number(uint32_t i);
/* Also map the communicators that peers have made since they were met. */
void record_refresh(const shim_record_t *record);
/* The watcher's sign of life, in the book. */
void record_beat(uint64_t now_ns);
/* Start the watcher on need; false without a thread. Under the lock. */
bool record_watch_start(void);
/* In a forked child. */
void record_watch_forget(void);

/* Note who is late, if the wait was seen at this look: at clock_ns of the watcher, which is now_ns. Under the lock. */
void record_waits_look(const shim_record_t *record, record_wait_t *wait, uint64_t clock_ns, uint64_t now_ns);
/* The wait is over: add it to the sums. Under the lock. */
void record_waits_end(const shim_record_t *record, record_wait_t *wait);
/* In a forked child. */
void record_waits_forget(void);

#endif
