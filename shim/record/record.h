/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - the record of this process's communicators: who called what, for peers, the watcher and `shunt watch`.
 *
 * A call costs a reading of the coarse clock and some ten stores into memory of its communicator: no lock, no
 * allocation. Off with SHUNT_RECORD=0: then a communicator has no record (NULL), which all functions accept.
 */
#ifndef SHUNT_SHIM_RECORD_H
#define SHUNT_SHIM_RECORD_H

#include "shim/record/layout.h"
#include "transport/transport.h"

typedef struct shim_record shim_record_t;

/* By which peers find a slot; travels between the ranks. A descriptor of -1: this rank has no record. */
typedef struct shim_record_offer {
    int64_t descriptor;
    net_mark_t mark;
    uint64_t life;
    uint32_t slot;
    uint32_t reserved;
} shim_record_offer_t;

/* What a record is told at the end of its communicator's set-up. */
typedef struct shim_record_about {
    uint64_t comm; /* the same number on all ranks, from which no key follows */
    uint32_t rank, nranks;
    int device;                   /* -1: the host device */
    bool attached;                /* false: everything is forwarded */
    const alg_control_t *control; /* of its scratch, as the host addresses it; NULL unless attached */
    const atomic_int *phase;      /* of the communicator ... */
    int living;                   /* ... which takes calls while it is this */
} shim_record_about_t;

/* A slot of this process's book; NULL where records are off, or none can be had. */
shim_record_t *shim_record_new(void);
/* Fills an offer, also for NULL. */
void shim_record_offer(const shim_record_t *record, shim_record_offer_t *offer);
/* A rank's peer (or the rank itself): map its record. Of a process that is not seen nothing is known. */
void shim_record_meet(shim_record_t *record, uint32_t rank, const net_process_t *process,
                      const shim_record_offer_t *offer);
/* All peers have been met: from here on it is watched. */
void shim_record_begin(shim_record_t *record, const shim_record_about_t *about);
/* Before what `about` names is freed. NULL is allowed. */
void shim_record_end(shim_record_t *record);

/* A call begins. `sign` without kind and number. Returns the call's id. */
typedef struct shim_record_call {
    record_sign_t sign;
    bool captured;
    uint32_t flags;
    uint32_t place; /* root or peer */
    const void *stream;
    const char *algorithm; /* static; NULL: the real NCCL's */
} shim_record_call_t;
uint64_t shim_record_call(shim_record_t *record, const shim_record_call_t *call);
/* A call failed on this rank: it may have a number here that it has on no other rank. */
void shim_record_doubt(shim_record_t *record);
/* Host device: the collective of this id has ended. */
void shim_record_ended(shim_record_t *record, uint64_t id);

/* The watcher found that ranks called different things, and SHUNT_MISMATCH=error: the communicator is to fail. */
bool shim_record_mismatched(const shim_record_t *record);
/* What the watcher calls, without a lock, when that holds for a record that it did not hold for before. */
void shim_record_on_mismatch(void (*fail)(void));

#endif
