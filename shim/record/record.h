/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - the record of this process's calls, for peers, the watcher and `shunt watch`. A call costs a coarse clock
 * reading and ten stores: no lock, no allocation. With SHUNT_RECORD=0 a record is NULL, which all functions accept. */
#ifndef SHUNT_SHIM_RECORD_H
#define SHUNT_SHIM_RECORD_H

#include <stdio.h>

#include "shim/record/layout.h"
#include "transport/transport.h"

typedef struct shim_record shim_record_t;

/* The name of experts' kernels in the record and the statistics. */
extern const char shim_record_experts[];

/* Where peers find a slot; exchanged by ranks. Descriptor -1: no record. */
typedef struct shim_record_offer {
    int64_t descriptor;
    net_mark_t mark;
    uint64_t life;
    uint32_t slot;
    uint32_t reserved;
} shim_record_offer_t;

/* What a finished set-up tells a record. */
typedef struct shim_record_about {
    uint64_t comm; /* equal on all ranks; does not reveal the key */
    uint32_t rank, nranks;
    int device;                   /* -1: the CPU device */
    bool attached;                /* false: everything is forwarded */
    const alg_control_t *control; /* of the scratch, in host addresses; NULL unless attached */
    const atomic_int *phase;      /* of the communicator ... */
    int living;                   /* ... and its value while calls are taken */
} shim_record_about_t;

/* Reserves a slot of the book; NULL: records are off, or no slot is free. */
shim_record_t *shim_record_new(void);
void shim_record_offer(const shim_record_t *record, shim_record_offer_t *offer);
/* Maps a rank's record, also this one's. A process that is not visible stays unknown. */
void shim_record_meet(shim_record_t *record, uint32_t rank, const net_process_t *process,
                      const shim_record_offer_t *offer);
/* Starts watching, once all ranks are met. */
void shim_record_begin(shim_record_t *record, const shim_record_about_t *about);
/* Call before the objects in `about` are freed. */
void shim_record_end(shim_record_t *record);

/* Records a call that begins, whose `sign` lacks kind and number; returns its id. */
typedef struct shim_record_call {
    record_sign_t sign;
    bool captured;
    uint32_t flags;
    uint32_t place; /* root or peer */
    const void *stream;
    const char *algorithm; /* static; NULL: the real NCCL's */
} shim_record_call_t;
uint64_t shim_record_call(shim_record_t *record, const shim_record_call_t *call);
/* To be called at the group's end: call `id` runs in one kernel with the taken collective before it, and that kernel
 * publishes `id`. */
void shim_record_listed(shim_record_t *record, uint64_t id);
/* A call failed, so its number may exist on this rank alone. */
void shim_record_doubt(shim_record_t *record);
/* CPU device: the collective has ended. */
void shim_record_ended(shim_record_t *record, uint64_t id);

/* True if ranks made different calls and SHUNT_MISMATCH_ERROR is set: the communicator must fail. */
bool shim_record_mismatched(const shim_record_t *record);
/* The watcher calls `fail`, without a lock, when one more communicator must fail. */
void shim_record_on_mismatch(void (*fail)(void));

/* For SHUNT_STATS: a line per communicator and rank for which this process waited (1 ms or more), the longest first. */
void shim_record_print_waits(FILE *out);

#endif
