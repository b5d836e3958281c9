/* SPDX-License-Identifier: Apache-2.0 */
/* segment.h - the layout of a rendezvous segment. */
#ifndef SHUNT_TRANSPORT_SEGMENT_H
#define SHUNT_TRANSPORT_SEGMENT_H

#include <stdatomic.h>
#include <sys/stat.h>

#include "transport/transport.h"

enum {
    SEGMENT_NAME_BYTES = 64,
    SEGMENT_REASON_BYTES = 152, /* "rank 15: ", 136 bytes of text (a code of 16, 120), NUL */
    SEGMENT_VERSION = 7
};
#define SEGMENT_MAGIC UINT64_C(0x53484e5452445631)

typedef enum slot_state { SLOT_FREE = 0, SLOT_JOINED = 1, SLOT_LEFT = 2 } slot_state_t;

typedef struct net_record {
    _Atomic uint32_t posted; /* size + 1; 0: not posted. Stored last */
    uint32_t reserved;
    uint8_t bytes[];
} net_record_t;

enum { SEGMENT_RECORDS_BYTES = 8 + NET_RECORD_BYTES + (NET_STAGES - 1) * (8 + NET_LATER_BYTES) };

typedef struct net_slot {
    _Atomic uint32_t state; /* stored after process */
    uint32_t kept;          /* 1: the slot's byte is locked while its joiner needs the name */
    net_process_t process;
    char reason[SEGMENT_REASON_BYTES];                  /* stored before the verdict names this slot */
    _Alignas(8) uint8_t records[SEGMENT_RECORDS_BYTES]; /* one net_record_t per stage, without gaps */
} net_slot_t;

typedef struct net_segment {
    _Atomic uint64_t magic; /* stored last */
    uint32_t version;
    uint32_t bytes;
    net_key_t place;         /* random: also differs on a cloned machine */
    _Atomic uint32_t joined; /* NET_MAX_SLOTS + 1: overfull */
    _Atomic uint32_t nranks;
    _Atomic uint32_t verdict;                /* net_verdict_t in the low byte, then the deciding slot + 1 */
    _Atomic uint32_t slot_of[NET_MAX_SLOTS]; /* rank -> slot + 1 */
    _Atomic uint32_t away;                   /* one bit per slot, set by its owner */
    net_slot_t slot[NET_MAX_SLOTS];
} net_segment_t;

/* Part of the protocol; compilers may differ. */
_Static_assert(sizeof(net_record_t) == 8, "net_record_t");
_Static_assert(sizeof(net_slot_t) == 8 + 24 + SEGMENT_REASON_BYTES + SEGMENT_RECORDS_BYTES, "net_slot_t");
_Static_assert(sizeof(net_segment_t) == 112 + 16 * sizeof(net_slot_t), "net_segment_t");

typedef struct net_named {
    char name[SEGMENT_NAME_BYTES];
    dev_t device; /* of the file, whose name may be reused */
    ino_t inode;
    net_segment_t *segment;
    int fd;   /* locked between open and unlock, else -1 */
    int life; /* holds the lock of the slot's byte, else -1 */
} net_named_t;

/* Opens or creates the segment, maps and locks it; replaces a dead one. */
int net_segment_open(const net_key_t *key, net_named_t *named);
/* -ENOENT: the name refers to another file. */
int net_segment_lock(net_named_t *named);
/* Called with the segment locked. */
void net_segment_remove(const net_named_t *named);
void net_segment_unlock(net_named_t *named);
void net_segment_unmap(net_named_t *named);
/* Called with the segment locked. Locks the slot's byte while its joiner needs the name. False: the system cannot. */
bool net_segment_keep(net_named_t *named, uint32_t slot);
/* `own`: this process joined; false in a forked child. */
void net_segment_release(net_named_t *named, bool own);
/* Whether the slot's joiner has left or died. */
bool net_slot_gone(net_slot_t *slot);
void net_segment_sweep(void);

#endif
