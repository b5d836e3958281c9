/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.h - reads records, and says what a rank that others wait for is doing. For the watcher and for `shunt watch`:
 * nothing here needs the rest of the library.
 */
#ifndef SHUNT_RECORD_JUDGE_H
#define SHUNT_RECORD_JUDGE_H

#include <stddef.h>

#include "shim/record/layout.h"

/* A mapped book, and how many of its slots are known to lie within its file. */
typedef struct record_mapped {
    const record_book_t *book;
    _Atomic uint32_t slots;
} record_mapped_t;

/* Map an open book to read it; NULL if it is none, or of another version. Sets `slots`. */
const record_book_t *record_book_map(int fd, uint32_t *slots);
/* The number of slots within the file now. */
uint32_t record_book_slots(int fd);

/* The record of one rank, as another process sees it. */
typedef struct record_view {
    const record_mapped_t *mapped; /* NULL: its record cannot be read */
    const record_slot_t *slot;     /* NULL: likewise */
    uint64_t life;                 /* of the slot when it was met */
    int64_t pid;                   /* 0: not known */
    uint64_t start_ticks;          /* 0: not known */
    bool seen;                     /* its process is visible here */
} record_view_t;

/* An entry, read whole. */
typedef struct record_made {
    record_sign_t sign;
    uint32_t flags, place;
    uint64_t stream, time_ns, algorithm;
} record_made_t;

/* Whether the slot is still that of the view. */
bool record_view_lives(const record_view_t *view);
/* A call by its kind and number; false if the ring does not have it (any more). */
bool record_find(const record_slot_t *slot, record_kind_t kind, uint64_t number, record_made_t *made);
/* The last call of a rank; false if there was none. */
bool record_last(const record_slot_t *slot, record_made_t *made);
/* The name of an algorithm, into `name`; "NCCL" for 0, "" if it is unknown. */
void record_algorithm(const record_book_t *book, uint64_t address, char name[RECORD_NAME_BYTES]);

/* What a rank waits in: a call; or a list, several calls of a group in one kernel, which other ranks may make one by
 * one (shim/call/group_parts.c). */
typedef struct record_waiting {
    record_sign_t sign; /* the first call; a count of 0 is unknown */
    uint64_t last;      /* number of the last call */
    uint64_t epoch;     /* the kernel's last one ... */
    uint32_t epochs;    /* ... and how many it has */
    bool forwarded;     /* the real NCCL's: that it waits follows from the other rank's not having called it */
} record_waiting_t;

/* Of an id that a kernel of this rank told, which is that of a list's last call. Calls that the ring has no more are
 * left out. */
record_waiting_t record_waiting_of(const record_slot_t *slot, uint64_t id, uint64_t epoch);

/* Whether two ranks' collectives of one number can be the same call: what NCCL wants to be equal is. */
bool record_agree(const record_made_t *one, const record_made_t *other);

/* Whether equal numbers of two ranks' collectives mean the same call: no call has failed, and both have captured the
 * same. (One rank may capture a call that another makes eagerly.) */
bool record_comparable(const record_slot_t *one, const record_slot_t *other);

/* What a process does, by /proc. */
typedef enum record_process { RECORD_RUNS, RECORD_STOPPED, RECORD_GONE } record_process_t;
record_process_t record_process_state(int64_t pid, uint64_t start_ticks);

/* What a rank is to a call that another rank waits in. In the order in which they are blamed. */
typedef enum record_cause {
    RECORD_DEAD,       /* its process is gone */
    RECORD_LEFT,       /* it has ended or aborted the communicator */
    RECORD_HELD,       /* its process is stopped: SIGSTOP, or a debugger */
    RECORD_OTHER_CALL, /* it has called something else in place of this, or of one of the list */
    RECORD_NOT_CALLED,
    RECORD_NO_MESSAGE, /* the call is a message, and it waits in none */
    RECORD_NOT_BEGUN,  /* it has called it, and nothing says that its device has begun it */
    RECORD_UNSEEN,     /* nothing is known: another pid namespace, no record, or calls that failed */
    RECORD_IN_IT,      /* it waits in the same call, or has ended it */
    RECORD_APART,      /* the call is a message, and not with it */
    RECORD_CAUSES
} record_cause_t;

typedef struct record_rank {
    uint32_t rank;
    record_cause_t cause;
    uint64_t number; /* of the awaited call: which one of a list it has not made, or not alike; else the first */
    int64_t pid;
    int32_t device;
    bool has_last; /* its last call on this communicator, and how long ago */
    record_made_t last;
    uint64_t last_ago_ns;
    bool ended; /* host device: the last call has ended ... */
    uint64_t ended_ago_ns;
    bool has_other; /* RECORD_OTHER_CALL: what it called */
    record_made_t other;
    bool elsewhere; /* it waits in this call, of a communicator of so many ranks, for so long */
    bool same_comm; /* of this communicator */
    record_sign_t waits;
    uint32_t waits_ranks;
    uint64_t waits_ns;
} record_rank_t;

/* Whether the slot's rank waits in it, too, or in a list that has a call of it; or did until just now. */
bool record_waits_too(const record_waiting_t *waiting, const record_slot_t *slot);
/* Whether the rank has ended all of it. On GPUs this is known only when it waits in a later call. */
bool record_has_ended(const record_waiting_t *waiting, const record_slot_t *slot);

/* What `rank` does, for one that waits. now_ns: CLOCK_MONOTONIC. */
record_rank_t record_judge(const record_waiting_t *waiting, const record_slot_t *waiter, const record_view_t *view,
                           uint32_t rank, uint64_t now_ns);

/* The order of blame: by cause, then by call. A rank that itself waits comes behind those that may be the reason. */
bool record_blamed_before(const record_rank_t *one, const record_rank_t *other);
/* The call of a list that the rank to blame lacks; NULL: none is to blame. */
record_sign_t record_awaited(const record_slot_t *waiter, const record_waiting_t *waiting, const record_rank_t *blamed);

/* ---- Words (text.c). Each returns the length, and writes no more than fits. ---- */

/* "all-reduce #1,234 of 4,194,304 bf16". */
size_t record_sign_text(const record_sign_t *sign, char *text, size_t capacity);
/* The same with operator and root, for calls to be compared. */
size_t record_made_text(const record_made_t *made, char *text, size_t capacity);
/* "rank 3 (pid 4711, GPU 3)". */
size_t record_who_text(const record_rank_t *rank, char *text, size_t capacity);
/* "it is stopped (SIGSTOP, or a debugger); its last call was ...". */
size_t record_cause_text(const record_rank_t *rank, char *text, size_t capacity);
/* One word: "dead", "not-called", ... */
const char *record_cause_name(record_cause_t cause);
/* "1,234,567". */
size_t record_number_text(uint64_t number, char *text, size_t capacity);

#endif
