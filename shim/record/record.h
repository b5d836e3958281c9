/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - the record of this process's calls, for peers, the watcher and `shunt watch`. A call costs a coarse clock
 * reading and some ten stores: no lock, no allocation. With SHUNT_RECORD=0 communicators have no record (NULL), which
 * all functions accept.
 */
#ifndef SHUNT_SHIM_RECORD_H
#define SHUNT_SHIM_RECORD_H

#include <stdio.h>

#include "shim/record/layout.h"
#include "transport/transport.h"

typedef struct shim_record shim_record_t;

/* Where peers find a slot; sent between ranks. Descriptor -1: no record. */
typedef struct shim_record_offer {
    int64_t descriptor;
    net_mark_t mark;
    uint64_t life;
    uint32_t slot;
    uint32_t reserved;
} shim_record_offer_t;

/* What a set-up's end tells the record. */
typedef struct shim_record_about {
    uint64_t comm; /* equal on all ranks; reveals no key */
    uint32_t rank, nranks;
    int device;                   /* -1: the host device */
    bool attached;                /* false: everything is forwarded */
    const alg_control_t *control; /* the scratch's, in host addresses; NULL unless attached */
    const atomic_int *phase;      /* of the communicator ... */
    int living;                   /* ... and its value while calls are taken */
} shim_record_about_t;

/* A slot of the book; NULL if records are off, or none is free. */
shim_record_t *shim_record_new(void);
/* Fills an offer, also for NULL. */
void shim_record_offer(const shim_record_t *record, shim_record_offer_t *offer);
/* Map the record of a rank's peer, or of the rank itself. Unseen processes stay unknown. */
void shim_record_meet(shim_record_t *record, uint32_t rank, const net_process_t *process,
                      const shim_record_offer_t *offer);
/* All peers are met: the watcher begins. */
void shim_record_begin(shim_record_t *record, const shim_record_about_t *about);
/* Before what `about` names is freed. NULL is allowed. */
void shim_record_end(shim_record_t *record);

/* A call begins; `sign` has no kind and number yet. Returns the call's id. */
typedef struct shim_record_call {
    record_sign_t sign;
    bool captured;
    uint32_t flags;
    uint32_t place; /* root or peer */
    const void *stream;
    const char *algorithm; /* static; NULL: the real NCCL's */
} shim_record_call_t;
uint64_t shim_record_call(shim_record_t *record, const shim_record_call_t *call);
/* At the group's end: the call is in one kernel with the taken collective before it, and the kernel tells this id. */
void shim_record_listed(shim_record_t *record, uint64_t id);
/* A call failed here, so its number may exist on this rank alone. */
void shim_record_doubt(shim_record_t *record);
/* Host device: the collective has ended. */
void shim_record_ended(shim_record_t *record, uint64_t id);

/* Ranks made different calls and SHUNT_MISMATCH_ERROR is set: the communicator must fail. */
bool shim_record_mismatched(const shim_record_t *record);
/* Called by the watcher, without a lock, when that becomes true of a record. */
void shim_record_on_mismatch(void (*fail)(void));

/* For SHUNT_STATS: a line for each rank of a communicator that this process's ranks waited for, 1 ms or more at a time,
 * the one that was waited for the longest first. Nothing where none was. */
void shim_record_print_waits(FILE *out);

#endif
