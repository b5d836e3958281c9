/* SPDX-License-Identifier: Apache-2.0 */
/* rendezvous.c - slots, stages and the verdict, in a segment that ranks share. A joiner writes only its own slot; one
 * release store (slot state, record size or verdict) publishes the contents: a reader sees complete records or none,
 * and a joiner may be killed at any point. The verdict names the slot with its reason: one compare-and-swap sets both.
 * Peers may be broken: the segment's numbers are checked. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/segment.h"

enum { REASON_TEXT_BYTES = 136, NO_RANK = -1 };

struct net_rendezvous {
    net_named_t named;
    bool has_slot;
    uint32_t slot;
    int rank;
    uint32_t nranks;
    bool unlinked;
    pid_t pid;    /* a forked child must not post or leave */
    char *reason; /* reason_copy, which net_reason fills through a const handle */
    char reason_copy[SEGMENT_REASON_BYTES];
};

static pthread_once_t sweep_once = PTHREAD_ONCE_INIT;

static net_segment_t *segment_of(const net_rendezvous_t *rendezvous)
{
    return rendezvous->named.segment;
}

/* Called with the segment locked. The slot is complete before `joined` counts it: others may check whether its joiner
 * lives. */
static void take_slot(net_rendezvous_t *rendezvous)
{
    net_segment_t *segment = segment_of(rendezvous);
    uint32_t slot = atomic_load_explicit(&segment->joined, memory_order_relaxed);
    rendezvous->has_slot = slot < NET_MAX_SLOTS;
    if (rendezvous->has_slot) {
        rendezvous->slot = slot;
        segment->slot[slot].process = net_process_self();
        segment->slot[slot].kept = net_segment_keep(&rendezvous->named, slot);
        atomic_store_explicit(&segment->slot[slot].state, SLOT_JOINED, memory_order_release);
        atomic_store_explicit(&segment->joined, slot + 1, memory_order_release);
    } else {
        atomic_store_explicit(&segment->joined, NET_MAX_SLOTS + 1, memory_order_release);
    }
}

int net_join(const net_key_t *key, net_rendezvous_t **rendezvous)
{
    pthread_once(&sweep_once, net_segment_sweep);
    net_rendezvous_t *joined = calloc(1, sizeof *joined);
    if (!joined)
        return -ENOMEM;
    int error = net_segment_open(key, &joined->named);
    if (error) {
        free(joined);
        return error;
    }
    joined->rank = NO_RANK;
    joined->pid = getpid();
    joined->reason = joined->reason_copy;
    take_slot(joined);
    net_segment_unlock(&joined->named);
    *rendezvous = joined;
    return 0;
}

net_key_t net_place(const net_rendezvous_t *rendezvous)
{
    return segment_of(rendezvous)->place;
}

uint32_t net_count(const net_rendezvous_t *rendezvous)
{
    uint32_t joined = atomic_load_explicit(&segment_of(rendezvous)->joined, memory_order_acquire);
    return joined <= NET_MAX_SLOTS ? joined : NET_MAX_SLOTS + 1;
}

int net_set_rank(net_rendezvous_t *rendezvous, uint32_t rank, uint32_t nranks)
{
    net_segment_t *segment = segment_of(rendezvous);
    if (nranks > NET_MAX_SLOTS || rank >= nranks || !rendezvous->has_slot)
        return -ERANGE;
    if (rendezvous->nranks != 0)
        return -EEXIST;
    uint32_t agreed = 0;
    if (!atomic_compare_exchange_strong(&segment->nranks, &agreed, nranks) && agreed != nranks)
        return -EPROTO;
    uint32_t nobody = 0;
    if (!atomic_compare_exchange_strong(&segment->slot_of[rank], &nobody, rendezvous->slot + 1))
        return -EEXIST;
    rendezvous->rank = (int)rank;
    rendezvous->nranks = nranks;
    return 0;
}

/* NULL: the rank is invalid, or has no slot yet. */
static net_slot_t *slot_of_rank(const net_rendezvous_t *rendezvous, uint32_t rank)
{
    net_segment_t *segment = segment_of(rendezvous);
    if (rank >= rendezvous->nranks)
        return NULL;
    uint32_t slot = atomic_load_explicit(&segment->slot_of[rank], memory_order_acquire);
    return slot >= 1 && slot <= NET_MAX_SLOTS ? &segment->slot[slot - 1] : NULL;
}

static net_record_t *record_of(net_slot_t *slot, uint32_t stage)
{
    const size_t first = sizeof(net_record_t) + NET_RECORD_BYTES, later = sizeof(net_record_t) + NET_LATER_BYTES;
    return (net_record_t *)(void *)(slot->records + (stage == 0 ? 0 : first + (stage - 1) * later));
}

static bool has_posted(net_slot_t *slot, uint32_t stage)
{
    return atomic_load_explicit(&record_of(slot, stage)->posted, memory_order_acquire) != 0;
}

int net_post(net_rendezvous_t *rendezvous, uint32_t stage, const void *record, size_t size)
{
    if (stage >= NET_STAGES || rendezvous->nranks == 0)
        return -EINVAL;
    if (size > net_record_bytes(stage))
        return -EMSGSIZE;
    net_slot_t *slot = &segment_of(rendezvous)->slot[rendezvous->slot];
    if (has_posted(slot, stage))
        return -EEXIST;
    net_record_t *own = record_of(slot, stage);
    if (size > 0)
        memcpy(own->bytes, record, size);
    atomic_store_explicit(&own->posted, (uint32_t)size + 1, memory_order_release);
    return 0;
}

static bool all_posted(const net_rendezvous_t *rendezvous, uint32_t stage)
{
    for (uint32_t rank = 0; rank < rendezvous->nranks; rank++) {
        net_slot_t *slot = slot_of_rank(rendezvous, rank);
        if (!slot || !has_posted(slot, stage))
            return false;
    }
    return true;
}

/* Whether all joiners have posted; then each has its rank. */
static bool all_slots_posted(const net_rendezvous_t *rendezvous, uint32_t stage)
{
    net_segment_t *segment = segment_of(rendezvous);
    bool all = net_count(rendezvous) == rendezvous->nranks;
    for (uint32_t i = 0; all && i < rendezvous->nranks; i++)
        all = has_posted(&segment->slot[i], stage);
    return all;
}

static bool has_lost_joiner(const net_rendezvous_t *rendezvous, uint32_t stage)
{
    net_segment_t *segment = segment_of(rendezvous);
    uint32_t joined = net_count(rendezvous);
    for (uint32_t i = 0; i < joined && i < NET_MAX_SLOTS; i++) {
        net_slot_t *slot = &segment->slot[i];
        /* the record is checked last: the joiner may have posted before it left */
        if (i != rendezvous->slot && net_slot_gone(slot) && !has_posted(slot, stage))
            return true;
    }
    return false;
}

int net_poll(const net_rendezvous_t *rendezvous, uint32_t stage)
{
    if (stage >= NET_STAGES || rendezvous->nranks == 0)
        return -EINVAL;
    if (net_verdict(rendezvous) == NET_DECLINED)
        return -ECANCELED;
    const bool whole = all_slots_posted(rendezvous, stage); /* read before the ranks are checked */
    if (all_posted(rendezvous, stage))
        return 1;
    if (whole)
        return -EPROTO;
    return has_lost_joiner(rendezvous, stage) ? -ESRCH : 0;
}

void net_set_away(net_rendezvous_t *rendezvous, bool away)
{
    const uint32_t bit = UINT32_C(1) << rendezvous->slot;
    if (!rendezvous->has_slot)
        return;
    if (away)
        atomic_fetch_or(&segment_of(rendezvous)->away, bit);
    else
        atomic_fetch_and(&segment_of(rendezvous)->away, ~bit);
}

static bool is_seen(net_slot_t *slot)
{
    const uint32_t here = net_process_self().pid_namespace;
    return slot && slot->process.pid_namespace == here && !net_slot_gone(slot);
}

uint32_t net_missing(const net_rendezvous_t *rendezvous, uint32_t stage)
{
    net_segment_t *segment = segment_of(rendezvous);
    uint32_t joined = net_count(rendezvous);
    if (joined < rendezvous->nranks || joined > NET_MAX_SLOTS)
        return NET_MISSING_UNSEEN;
    uint32_t missing = NET_MISSING_WAITING;
    for (uint32_t i = 0; i < joined; i++) {
        net_slot_t *slot = &segment->slot[i];
        if (has_posted(slot, stage))
            continue;
        if (!is_seen(slot))
            missing |= NET_MISSING_UNSEEN;
        if (atomic_load(&segment->away) >> i & 1)
            missing |= NET_MISSING_AWAY;
    }
    return missing;
}

bool net_present(const net_rendezvous_t *rendezvous, uint32_t rank)
{
    return is_seen(slot_of_rank(rendezvous, rank));
}

int net_read(const net_rendezvous_t *rendezvous, uint32_t stage, uint32_t rank, void *record, size_t capacity,
             size_t *size)
{
    if (stage >= NET_STAGES || rank >= rendezvous->nranks)
        return -EINVAL;
    net_slot_t *slot = slot_of_rank(rendezvous, rank);
    if (!slot)
        return -EAGAIN;
    net_record_t *theirs = record_of(slot, stage);
    uint32_t posted = atomic_load_explicit(&theirs->posted, memory_order_acquire);
    if (posted == 0)
        return -EAGAIN;
    if (posted - 1 > net_record_bytes(stage))
        return -EPROTO;
    if (posted - 1 > capacity)
        return -EMSGSIZE;
    memcpy(record, theirs->bytes, posted - 1);
    *size = posted - 1;
    return 0;
}

static void write_reason(net_rendezvous_t *rendezvous, const char *reason)
{
    char *text = segment_of(rendezvous)->slot[rendezvous->slot].reason;
    if (rendezvous->rank == NO_RANK)
        snprintf(text, SEGMENT_REASON_BYTES, "%.*s", REASON_TEXT_BYTES, reason);
    else
        snprintf(text, SEGMENT_REASON_BYTES, "rank %d: %.*s", rendezvous->rank, REASON_TEXT_BYTES, reason);
}

net_verdict_t net_decide(net_rendezvous_t *rendezvous, net_verdict_t verdict, const char *reason)
{
    net_verdict_t holds = net_verdict(rendezvous);
    if (holds != NET_PENDING || verdict == NET_PENDING)
        return holds;
    uint32_t word = verdict;
    if (rendezvous->has_slot) {
        write_reason(rendezvous, verdict == NET_DECLINED && reason ? reason : "");
        word |= (rendezvous->slot + 1) << 8;
    }
    uint32_t pending = NET_PENDING;
    atomic_compare_exchange_strong(&segment_of(rendezvous)->verdict, &pending, word);
    return net_verdict(rendezvous);
}

/* An invalid word counts as declined: net_decide cannot change it, and ranks would wait for ever. */
static net_verdict_t verdict_in(uint32_t word)
{
    return word == 0 ? NET_PENDING : (word & 0xff) == NET_ATTACHED ? NET_ATTACHED : NET_DECLINED;
}

net_verdict_t net_verdict(const net_rendezvous_t *rendezvous)
{
    return verdict_in(atomic_load_explicit(&segment_of(rendezvous)->verdict, memory_order_acquire));
}

bool net_decided(const net_rendezvous_t *rendezvous)
{
    uint32_t word = atomic_load_explicit(&segment_of(rendezvous)->verdict, memory_order_acquire);
    return rendezvous->has_slot && word >> 8 == rendezvous->slot + 1;
}

const char *net_reason(const net_rendezvous_t *rendezvous)
{
    net_segment_t *segment = segment_of(rendezvous);
    uint32_t word = atomic_load_explicit(&segment->verdict, memory_order_acquire);
    uint32_t slot = word >> 8;
    if (verdict_in(word) != NET_DECLINED)
        return "";
    if (slot < 1 || slot > NET_MAX_SLOTS)
        return "more joiners than a communicator can have";
    char *text = rendezvous->reason;
    memcpy(text, segment->slot[slot - 1].reason, SEGMENT_REASON_BYTES);
    text[SEGMENT_REASON_BYTES - 1] = '\0';
    for (char *at = text; *at; at++)
        if (*at < ' ' || *at > '~')
            *at = '?'; /* the text is logged */
    return text;
}

bool net_rank_gone(const net_rendezvous_t *rendezvous, uint32_t rank)
{
    net_slot_t *slot = rank < rendezvous->nranks ? slot_of_rank(rendezvous, rank) : NULL;
    return slot ? net_slot_gone(slot) : rank >= rendezvous->nranks;
}

void net_unlink(net_rendezvous_t *rendezvous)
{
    if (rendezvous->unlinked || rendezvous->pid != getpid())
        return;
    rendezvous->unlinked = true;
    if (net_segment_lock(&rendezvous->named) == 0) {
        net_segment_remove(&rendezvous->named);
        net_segment_unlock(&rendezvous->named);
    }
    net_segment_release(&rendezvous->named, true);
}

static bool is_alone(const net_rendezvous_t *rendezvous)
{
    net_segment_t *segment = segment_of(rendezvous);
    uint32_t joined = net_count(rendezvous);
    for (uint32_t i = 0; i < joined && i < NET_MAX_SLOTS; i++)
        if (!net_slot_gone(&segment->slot[i]))
            return false;
    return true;
}

void net_leave(net_rendezvous_t *rendezvous)
{
    if (!rendezvous)
        return;
    if (rendezvous->pid == getpid()) {
        net_segment_t *segment = segment_of(rendezvous);
        if (rendezvous->has_slot)
            atomic_store_explicit(&segment->slot[rendezvous->slot].state, SLOT_LEFT, memory_order_release);
        if (!rendezvous->unlinked && net_segment_lock(&rendezvous->named) == 0) {
            if (is_alone(rendezvous))
                net_segment_remove(&rendezvous->named);
            net_segment_unlock(&rendezvous->named);
        }
    }
    net_segment_release(&rendezvous->named, rendezvous->pid == getpid());
    net_segment_unmap(&rendezvous->named);
    free(rendezvous);
}
