/* SPDX-License-Identifier: Apache-2.0 */
/*
 * book.h - this process's book and the mapped books of peers, for this folder alone.
 */
#ifndef SHUNT_RECORD_BOOK_H
#define SHUNT_RECORD_BOOK_H

#include "shim/record/judge.h"
#include "shim/record/record.h"

/* What the watcher remembers of a wait. Times are of its own clock, which stands still while the process does. */
typedef struct record_wait {
    uint64_t id, epoch; /* id 0: none */
    uint64_t began_ns, seen_ns;
    bool reported;
} record_wait_t;
/* Of collectives; of messages, which run beside them; of a forwarded call that a peer has not made. */
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
    uint64_t differs_ns;              /* since when ranks are known to call different things; 0: not known */
    atomic_bool mismatched;
};

extern net_lock_t record_lock;
/* Under the lock: record number i; NULL past the last. */
shim_record_t *record_number(uint32_t i);
/* The peers may have made communicators since they were met: see those, too. */
void record_refresh(const shim_record_t *record);
/* The watcher's mark of life, in the book. */
void record_beat(uint64_t now_ns);
/* Start the watcher on need; false if there is no thread for it. Under the lock. */
bool record_watch_start(void);
/* In a forked child. */
void record_watch_forget(void);

#endif
