/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.h - the layout of a rendezvous segment, and how to open one. Private to
 * this folder.
 */
#ifndef SHUNT_TRANSPORT_SEGMENT_H
#define SHUNT_TRANSPORT_SEGMENT_H

#include <stdatomic.h>
#include <sys/stat.h>

#include "transport/transport.h"

enum {
    SEGMENT_NAME_BYTES = 64,
    SEGMENT_REASON_BYTES = 136, /* "rank 15: ", 120 bytes of text, NUL */
    SEGMENT_VERSION = 6         /* of the layout below */
};
#define SEGMENT_MAGIC UINT64_C(0x53484e5452445631)

typedef enum slot_state { SLOT_FREE = 0, SLOT_JOINED = 1, SLOT_LEFT = 2 } slot_state_t;

typedef struct net_record {
    _Atomic uint32_t posted; /* size + 1; 0: not posted. Stored last */
    uint32_t reserved;
    uint8_t bytes[]; /* net_record_bytes of them */
} net_record_t;

enum { SEGMENT_RECORDS_BYTES = 8 + NET_RECORD_BYTES + (NET_STAGES - 1) * (8 + NET_LATER_BYTES) };

/* One joiner. Only its owner writes here. */
typedef struct net_slot {
    _Atomic uint32_t state; /* slot_state_t; stored after process */
    uint32_t kept;          /* 1: the byte of the slot's number is locked while its joiner needs the name */
    net_process_t process;
    char reason[SEGMENT_REASON_BYTES];                  /* complete before the verdict names this slot */
    _Alignas(8) uint8_t records[SEGMENT_RECORDS_BYTES]; /* one net_record_t a stage, one behind the other */
} net_slot_t;

typedef struct net_segment {
    _Atomic uint64_t magic; /* stored last by the creator */
    uint32_t version;
    uint32_t bytes;
    net_key_t place;                         /* random: no other host has it, not even one cloned from this one */
    _Atomic uint32_t joined;                 /* slots in use; NET_MAX_SLOTS + 1 when overfull */
    _Atomic uint32_t nranks;                 /* from the first net_set_rank */
    _Atomic uint32_t verdict;                /* net_verdict_t in the low byte, then the deciding slot + 1 */
    _Atomic uint32_t slot_of[NET_MAX_SLOTS]; /* rank -> slot + 1 */
    _Atomic uint32_t away;                   /* net_set_away: one bit a slot, which its owner sets and clears */
    net_slot_t slot[NET_MAX_SLOTS];
} net_segment_t;

/* Ranks may be built by different compilers: the layout is part of the protocol. */
_Static_assert(sizeof(net_record_t) == 8, "net_record_t");
_Static_assert(sizeof(net_slot_t) == 8 + 24 + SEGMENT_REASON_BYTES + SEGMENT_RECORDS_BYTES, "net_slot_t");
_Static_assert(sizeof(net_segment_t) == 112 + 16 * sizeof(net_slot_t), "net_segment_t");

typedef struct net_named {
    char name[SEGMENT_NAME_BYTES];
    dev_t device; /* identify the mapped file: its name may be given to another */
    ino_t inode;
    net_segment_t *segment;
    int fd;   /* open and locked between open and unlock, else -1 */
    int life; /* holds the lock of the joiner's slot byte, else -1 */
} net_named_t;

/* Open or create the segment of a key, map it and hold its lock; a dead one is replaced. */
int net_segment_open(const net_key_t *key, net_named_t *named);
/* Take the lock again; -ENOENT if the name refers to another file now. */
int net_segment_lock(net_named_t *named);
/* While locked: remove the name. */
void net_segment_remove(const net_named_t *named);
void net_segment_unlock(net_named_t *named);
void net_segment_unmap(net_named_t *named);
/* Called with the segment locked: lock the slot's byte to show, in other pid namespaces too, that its joiner needs the
 * name. The kernel drops the lock with the process. False if the system has no such locks. */
bool net_segment_keep(net_named_t *named, uint32_t slot);
/* The joiner needs the name no more. `own`: this process joined; false in a forked child. */
void net_segment_release(net_named_t *named, bool own);
/* Whether the joiner of a slot in use has left or its process is gone. */
bool net_slot_gone(net_slot_t *slot);
/* Remove what crashed runs of this user have left. */
void net_segment_sweep(void);

#endif
