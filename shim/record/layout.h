/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h - the record of a process's communicators, in memory that peers and `shunt watch` map for reading. A process
 * has one book: a memfd named RECORD_FILE, mode 0600, with one slot per communicator and rank, which peers open through
 * /proc/<pid>/fd. A seal against shrinking keeps reads from faulting.
 * Each word has one writing process; readers take no lock. They discard what they read if the slot's life or the
 * entry's sequence has changed; an entry whose writer died half way never becomes valid. They check every number, since
 * the writer may be broken. */
#ifndef SHUNT_RECORD_LAYOUT_H
#define SHUNT_RECORD_LAYOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "algorithms/algorithm.h"

#define RECORD_FILE "shunt-record"
#define RECORD_MAGIC UINT64_C(0x53484e5452454331)
enum {
    RECORD_VERSION = 2, /* 2 has experts' calls, which readers of 1 mistake for messages */
    RECORD_CALLS = 256, /* entries of a ring; a power of two */
    RECORD_PAGE = 4096, /* bytes before the first slot and each slot's ring */
    RECORD_MOST_SLOTS = 1024,
    RECORD_ALGORITHMS = 48,
    RECORD_NAME_BYTES = 24,
    RECORD_EPOCH_BITS = 16
};

/* Each kind of call is numbered from 1. */
typedef enum record_kind {
    RECORD_COLLECTIVE, /* not captured; numbered equally on all ranks */
    RECORD_MESSAGE,    /* messages and one-sided calls, not captured; numbered by each rank */
    RECORD_CAPTURED,   /* captured; replays are not recorded */
    RECORD_KINDS
} record_kind_t;

/* RECORD_LISTED: the call runs in one kernel with the taken call before it. RECORD_STAGED: the call only sends; a later
 * kernel, which is no call, receives. */
enum { RECORD_FORWARDED = 1, RECORD_GROUPED = 2, RECORD_CAPTURE_UNKNOWN = 4, RECORD_LISTED = 8, RECORD_STAGED = 16 };

/* Continues alg_collective_t. The last two are calls of a group of experts, which has a slot of its own. Their counts
 * are tokens, which differ between ranks. */
enum { RECORD_SEND = ALG_COLLECTIVE_COUNT, RECORD_RECV, RECORD_DISPATCH, RECORD_COMBINE };

/* A call: 64 bytes, so a write takes one cache line. */
typedef struct record_entry {
    _Atomic uint64_t sequence; /* number among the slot's entries, from 1; 0 while being written */
    _Atomic uint64_t id;       /* record_id */
    _Atomic uint64_t number;   /* among calls of its kind */
    _Atomic uint64_t count;
    _Atomic uint64_t place; /* low half: root or peer; high half: flags */
    _Atomic uint64_t stream;
    _Atomic uint64_t time_ns;   /* CLOCK_MONOTONIC_COARSE */
    _Atomic uint64_t algorithm; /* its name's address, a key into the book's names; 0: real NCCL */
} record_entry_t;

/* Where `shunt watch` finds a peer. */
typedef struct record_peer {
    _Atomic int64_t pid; /* 0: unknown, or in another pid namespace */
    _Atomic uint64_t start_ticks;
    _Atomic uint32_t slot;
    _Atomic uint32_t reserved;
    _Atomic uint64_t life;
} record_peer_t;

typedef enum record_state { RECORD_SETTING_UP, RECORD_ATTACHED, RECORD_FORWARDS, RECORD_ENDED } record_state_t;

typedef struct record_slot {
    _Atomic uint64_t life; /* odd while in use; changes with each use */
    _Atomic uint64_t comm; /* equal on all ranks */
    _Atomic uint32_t rank, nranks;
    _Atomic int32_t device; /* -1: CPU device */
    _Atomic uint32_t state; /* record_state_t */
    record_peer_t peer[ALG_MAX_RANKS];
    /* Written by calls. */
    _Alignas(64) _Atomic uint64_t entries; /* number written to the ring */
    _Atomic uint64_t made[RECORD_KINDS];
    _Atomic uint64_t captured_hash; /* of the captured calls' signatures, in order */
    _Atomic uint64_t doubts;        /* failed calls: if any, numbers may differ from the peers' */
    /* CPU device: number and time of the last ended collective. */
    _Atomic uint64_t ended, ended_ns;
    /* Written by the watcher. */
    _Alignas(64) _Atomic uint64_t wait_id; /* call in which kernels wait; 0: none known */
    _Atomic uint64_t wait_epoch; /* bits above RECORD_EPOCH_BITS number the calls (algorithms/device/epoch.h) */
    _Atomic uint64_t wait_ns;    /* how long, without times when the process was stopped */
    _Atomic uint64_t mismatch;   /* not 0: this rank noted differing calls */
    _Atomic uint64_t reported_id, reported_epoch; /* the last wait that this rank has reported; 0: none */
} record_slot_t;

/* In page 0. */
typedef struct record_book {
    _Atomic uint64_t magic;
    _Atomic uint32_t version, slots;
    _Atomic int64_t pid;
    _Atomic uint64_t start_ticks;
    _Atomic uint64_t beat_ns; /* the watcher's last round (net_now_ns), stored after its results */
    struct {
        _Atomic uint64_t address;
        char name[RECORD_NAME_BYTES];
    } algorithm[RECORD_ALGORITHMS]; /* complete before `magic` */
} record_book_t;

enum { RECORD_SLOT_BYTES = RECORD_PAGE + RECORD_CALLS * sizeof(record_entry_t) };
#define RECORD_BOOK_BYTES(slots) (RECORD_PAGE + (size_t)(slots)*RECORD_SLOT_BYTES)

_Static_assert(sizeof(record_entry_t) == 64, "record_entry_t");
_Static_assert(sizeof(record_slot_t) <= RECORD_PAGE && sizeof(record_book_t) <= RECORD_PAGE, "a head is one page");
_Static_assert(ALG_MAX_RANKS *RECORD_SLOT_BYTES <= 256 * 1024, "what a communicator may take");
_Static_assert((int)RECORD_COMBINE < 16 && (int)ALG_TYPE_COUNT <= 16 && (int)ALG_PREMUL_SUM < 8, "fields of an id");

/* `id`: a call's id, or a collective. */
static inline bool record_is_message(uint64_t id)
{
    return (id & 15) >= ALG_SEND_RECV && (id & 15) <= RECORD_RECV;
}

static inline bool record_is_experts(uint32_t collective)
{
    return collective == RECORD_DISPATCH || collective == RECORD_COMBINE;
}

static inline record_slot_t *record_slot_at(const record_book_t *book, uint32_t slot)
{
    return (record_slot_t *)((uintptr_t)book + RECORD_BOOK_BYTES(slot));
}

static inline record_entry_t *record_ring(const record_slot_t *slot)
{
    return (record_entry_t *)((uintptr_t)slot + RECORD_PAGE);
}

/* Guesses the index of a call's entry: exact if all later calls are of this kind, else a later index. */
static inline uint64_t record_guess(const record_slot_t *slot, record_kind_t kind, uint64_t number)
{
    return atomic_load_explicit(&slot->entries, memory_order_relaxed) -
           (atomic_load_explicit(&slot->made[kind], memory_order_relaxed) - number);
}

/* ---- A call in one word -------------------------------------------------------
 * A waiting kernel publishes this word, which names its call even when the entry is gone: collective, type, operator
 * and kind exactly, the number's last bits, and the count's first bits, which a wait with a limit omits (alg_limit). */
enum { RECORD_NUMBER_BITS = 22, RECORD_MANTISSA_BITS = 22 };

_Static_assert(13 + (int)RECORD_NUMBER_BITS == (int)ALG_LIMIT_BITS, "a count begins where alg_limit cuts an id");

typedef struct record_sign {
    uint32_t collective; /* alg_collective_t, or RECORD_SEND to RECORD_COMBINE */
    uint32_t type, op;   /* op: ALG_SUM if the call has none */
    record_kind_t kind;
    uint64_t count, number;
} record_sign_t;

/* The exponent is the number of bits that the mantissa drops. */
static inline uint64_t record_count_pack(uint64_t count)
{
    uint64_t exponent = 0;
    while (count >> exponent >> RECORD_MANTISSA_BITS != 0)
        exponent++;
    return exponent << RECORD_MANTISSA_BITS | count >> exponent;
}

static inline uint64_t record_count_unpack(uint64_t packed)
{
    return (packed & ((UINT64_C(1) << RECORD_MANTISSA_BITS) - 1)) << (packed >> RECORD_MANTISSA_BITS & 63);
}

/* 63 bits, never 0. */
static inline uint64_t record_id(const record_sign_t *sign)
{
    const uint64_t number = sign->number & ((UINT64_C(1) << RECORD_NUMBER_BITS) - 1);
    return (uint64_t)(sign->collective & 15) | (uint64_t)(sign->type & 15) << 4 | (uint64_t)(sign->op & 7) << 8 |
           (uint64_t)((uint32_t)sign->kind + 1) << 11 | number << 13 | record_count_pack(sign->count) << ALG_LIMIT_BITS;
}

/* `made`: how many calls of each kind exist; gives the upper bits of the number. */
static inline record_sign_t record_unpack(uint64_t id, const _Atomic uint64_t made[RECORD_KINDS])
{
    const uint64_t most = UINT64_C(1) << RECORD_NUMBER_BITS;
    const uint32_t kind = (uint32_t)(id >> 11 & 3);
    record_sign_t sign = {.collective = id & 15,
                          .type = id >> 4 & 15,
                          .op = id >> 8 & 7,
                          .kind = kind == 0 ? RECORD_COLLECTIVE : (record_kind_t)(kind - 1),
                          .count = record_count_unpack(id >> ALG_LIMIT_BITS),
                          .number = id >> 13 & (most - 1)};
    const uint64_t last = atomic_load_explicit(&made[sign.kind], memory_order_relaxed);
    if (last >= sign.number)
        sign.number += (last - sign.number) / most * most;
    return sign;
}

#endif
