/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch_device.h - the contents of a scratch, and its operations that differ between CUDA and the host. Private to
 * scratch*.c and probe.cu.
 */
#ifndef SHUNT_SCRATCH_DEVICE_H
#define SHUNT_SCRATCH_DEVICE_H

#include "algorithms/scratch.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct alg_scratch_ops alg_scratch_ops_t;

struct alg_scratch {
    const alg_scratch_ops_t *ops;
    alg_device_t device;
    int ordinal;
    net_memory_kind_t kind;
    int64_t pid; /* of the process that made it: a forked child must not free the driver's memory */
    alg_set_t set;
    uint64_t id;
    uint32_t rank;
    uint32_t nranks;
    alg_map_t map;
    uint64_t life;                                   /* of the device (net_device_life); on the host 0 */
    net_memory_t *memory[ALG_PIECES];                /* own; NULL: not made yet */
    net_mapping_t *peers[ALG_PIECES][ALG_MAX_RANKS]; /* NULL for the own rank, and what is not open yet */
    net_range_t
        *range[ALG_MAX_RANKS]; /* in which the pieces lie; NULL for a whole one, and for peers of this process */
    uint32_t grown;            /* bits, atomic: pieces that all ranks have */
    void *arming[ALG_PIECES];  /* a piece's arming in progress; NULL: none */
    uint8_t *own;              /* ALG_MEMORY_SHM: the team's, as the device addresses it; else NULL */
    alg_control_t *control;    /* as the host addresses it */
    alg_team_t team;
    bool suspended;      /* without memory */
    bool proven;         /* all peers' tokens have arrived once: fit for the pool */
    alg_scratch_t *next; /* in the pool, or in the list of retired scratches */
    /* For the pool. */
    uint64_t birth; /* order of creation in this process */
    bool offered;   /* to a caller of alg_scratch_idle, which has not taken or left it yet */
};

/* Tokens of the proof: word p goes to target p; a NULL target is skipped. */
typedef struct alg_probe {
    uint64_t *target[ALG_MAX_RANKS];
    uint64_t word[ALG_MAX_RANKS];
} alg_probe_t;

/* All return 0 or a negative errno, and are complete on return. */
struct alg_scratch_ops {
    /* Control words, zeroed: as the host and as the device addresses them. */
    int (*control_create)(int ordinal, alg_control_t **host, alg_control_t **device);
    void (*control_destroy)(int ordinal, alg_control_t *host);
    /* ALG_OWN_BYTES of device memory; `arm` fills them. */
    int (*own_create)(int ordinal, uint8_t **own);
    void (*own_destroy)(int ordinal, uint8_t *own);
    /* Whether kernels of this device support dependent launch (alg_team_t). NULL: no. */
    bool (*dependent_launch)(int ordinal);
    /* The highest priority of a launch, as for cudaStreamCreateWithPriority. NULL: no priorities. */
    int (*priority)(int ordinal);
    /* alg_map_armed's spans all-ones, the rest zero, of all pieces that are there. */
    int (*arm)(const alg_scratch_t *scratch);
    /* The same for one piece, without waiting. `armed`: 1: done, 0: not yet, or an error. *arming is set while it is 0;
     * `forget` clears it. */
    int (*arm_piece)(const alg_scratch_t *scratch, uint32_t piece, void **arming);
    int (*armed)(const alg_scratch_t *scratch, void **arming, bool forget);
    /* Store as an algorithm's kernel would. */
    int (*store)(const alg_scratch_t *scratch, const alg_probe_t *probe);
    /* Copy the own mailboxes out and zero them. */
    int (*collect)(const alg_scratch_t *scratch, uint64_t words[ALG_MAX_RANKS]);
};

extern const alg_scratch_ops_t alg_scratch_cuda; /* only in builds with CUDA */

/* control_cuda.c */
int alg_control_create_cuda(int ordinal, alg_control_t **host, alg_control_t **device);
void alg_control_destroy_cuda(int ordinal, alg_control_t *host);

/* On `stream` of the current device; a cudaError_t. */
int alg_probe_launch(const alg_probe_t *probe, void *stream);
/* Whether the current device's kernels were compiled for sm_90 or newer: code that the driver makes from older PTX
 * lacks the wait of a dependent launch. */
bool alg_probe_dependent(void);

/* End a scratch that no pool holds: close and free, or leave that to alg_scratch_reap. */
void alg_scratch_free(alg_scratch_t *scratch);
/* The pool then owns it. */
void alg_pool_put(alg_scratch_t *scratch);
/* NULL: not there. */
alg_scratch_t *alg_pool_get(uint64_t id, uint32_t rank);
/* Free idle scratches whose peers' processes are gone. */
void alg_pool_sweep(void);

#ifdef __cplusplus
}
#endif
#endif
