/* SPDX-License-Identifier: Apache-2.0 */
/* judge.h - reads records, and determines what an awaited rank is doing. For the watcher and `shunt watch`; needs no
 * other part of the library. */
#ifndef SHUNT_RECORD_JUDGE_H
#define SHUNT_RECORD_JUDGE_H

#include <stddef.h>

#include "shim/record/layout.h"

/* A mapped book, and how many of its slots surely lie within the file. */
typedef struct record_mapped {
    const record_book_t *book;
    _Atomic uint32_t slots;
} record_mapped_t;

/* Maps an open book for reading and sets `slots`. NULL: none, or another version. */
const record_book_t *record_book_map(int fd, uint32_t *slots);
uint32_t record_book_slots(int fd);

typedef struct record_view {
    const record_mapped_t *mapped; /* NULL, like `slot`: not readable */
    const record_slot_t *slot;
    uint64_t life; /* of the slot, when the ranks met */
    int64_t pid;   /* 0, like start_ticks: unknown */
    uint64_t start_ticks;
    bool seen; /* the rank's process is in this pid namespace */
} record_view_t;

typedef struct record_made {
    record_sign_t sign;
    uint32_t flags, place;
    uint64_t stream, time_ns, algorithm;
} record_made_t;

/* Whether the slot still belongs to the view's communicator. */
bool record_view_lives(const record_view_t *view);
/* Finds a call by kind and number; false: not in the ring. */
bool record_find(const record_slot_t *slot, record_kind_t kind, uint64_t number, record_made_t *made);
/* False if there was none. */
bool record_last(const record_slot_t *slot, record_made_t *made);
/* The algorithm's name; "NCCL" for address 0, "" if unknown. */
void record_algorithm(const record_book_t *book, uint64_t address, char name[RECORD_NAME_BYTES]);

/* A rank's wait: in one call, or in a list (calls of a group in one kernel, which other ranks may make one by one). */
typedef struct record_waiting {
    record_sign_t sign; /* the first call; its count 0: unknown */
    uint64_t last;
    uint64_t epoch;  /* last epoch of the kernel ... */
    uint32_t epochs; /* ... and the number of its epochs */
    bool forwarded;  /* served by the real NCCL; inferred, since another rank has not made the call */
    bool staged;     /* RECORD_STAGED: later calls may end before it */
} record_waiting_t;

/* Finds the wait that a kernel published by `id`: of a list, its last call's id. Omits calls no longer in the ring. */
record_waiting_t record_waiting_of(const record_slot_t *slot, uint64_t id, uint64_t epoch);

/* Whether two ranks' collectives of equal number can be the same call: equal in all that NCCL requires. */
bool record_agree(const record_made_t *one, const record_made_t *other);

/* Whether equal numbers on two ranks mean the same collective: no call has failed, and both captured the same calls. */
bool record_comparable(const record_slot_t *one, const record_slot_t *other);

typedef enum record_process { RECORD_RUNS, RECORD_STOPPED, RECORD_GONE } record_process_t;
record_process_t record_process_state(int64_t pid, uint64_t start_ticks);

/* A rank's relation to an awaited call, in the order of blame. */
typedef enum record_cause {
    RECORD_DEAD,
    RECORD_LEFT,       /* it has ended or aborted the communicator */
    RECORD_HELD,       /* its process is stopped: SIGSTOP or a debugger */
    RECORD_OTHER_CALL, /* it has made another call instead of this one, or of one in this list */
    RECORD_NOT_CALLED,
    RECORD_NO_MESSAGE, /* the call is a message, and the rank waits in none */
    RECORD_NOT_BEGUN,  /* it has made the call, but its device may not have begun it */
    RECORD_UNSEEN,     /* unknown: another pid namespace, no record, or failed calls */
    RECORD_IN_IT,      /* it waits in the same call, or has ended it */
    RECORD_APART,      /* the call is a message whose peer is another rank */
    RECORD_CAUSES
} record_cause_t;

typedef struct record_rank {
    uint32_t rank;
    record_cause_t cause;
    uint64_t number; /* of the awaited call; in a list: the first that the rank has not made, or made differently */
    int64_t pid;
    int32_t device;
    bool unread;   /* its calls on this communicator cannot be read */
    bool has_last; /* `last`: its last call on this communicator */
    record_made_t last;
    uint64_t last_ago_ns;
    bool ended; /* CPU device: the last call has ended */
    uint64_t ended_ago_ns;
    bool has_other; /* RECORD_OTHER_CALL: `other` is the call made instead */
    record_made_t other;
    bool elsewhere; /* it waits in another call, `waits` */
    bool same_comm; /* `waits` is on this communicator */
    record_sign_t waits;
    uint32_t waits_ranks;
    uint64_t waits_ns;
} record_rank_t;

/* Whether the slot's rank waits in the same call, or in a list with one in common; perhaps still true after its end. */
bool record_waits_too(const record_waiting_t *waiting, const record_slot_t *slot);
/* Whether the wait that the slot's rank reported last has a call in common. False for messages: each rank numbers its
 * own. */
bool record_has_reported(const record_waiting_t *waiting, const record_slot_t *slot);
/* Whether the rank has ended the whole wait. On GPUs known only while it waits in a later call. */
bool record_has_ended(const record_waiting_t *waiting, const record_slot_t *slot);

/* Judges `rank` for a rank that waits. now_ns: CLOCK_MONOTONIC. */
record_rank_t record_judge(const record_waiting_t *waiting, const record_slot_t *waiter, const record_view_t *view,
                           uint32_t rank, uint64_t now_ns);

/* Order of blame: by cause, then by call. Ranks that wait themselves sort after those that may be the reason. */
bool record_blamed_before(const record_rank_t *one, const record_rank_t *other);
/* The awaited call; in a list, the one that the blamed rank has not made. `blamed` NULL: no rank. */
record_sign_t record_awaited(const record_slot_t *waiter, const record_waiting_t *waiting, const record_rank_t *blamed);

/* ---- Texts (text.c); each returns the length written, at most what fits ---- */

/* "all-reduce #1,234 of 4,194,304 bf16". */
size_t record_sign_text(const record_sign_t *sign, char *text, size_t capacity);
/* The same text with operator, and root or peer, to compare two calls. */
size_t record_made_text(const record_made_t *made, char *text, size_t capacity);
/* "rank 3 (pid 4711, GPU 3)". */
size_t record_who_text(const record_rank_t *rank, char *text, size_t capacity);
/* "it is stopped (SIGSTOP, or a debugger); its last call was ...". */
size_t record_cause_text(const record_rank_t *rank, char *text, size_t capacity);
/* One word: "dead", "not-called", ... */
const char *record_cause_name(record_cause_t cause);
size_t record_number_text(uint64_t number, char *text, size_t capacity);

#endif
