/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch_device.h - what a scratch holds, and the few things about it that
 * differ between CUDA and the host. Private to scratch*.c and probe.cu.
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
    int64_t pid; /* of the process that made it: a forked child must not free what is the driver's */
    alg_set_t set;
    uint64_t id;
    uint32_t rank;
    uint32_t nranks;
    alg_map_t map;
    net_memory_t *memory;                /* own */
    net_mapping_t *peers[ALG_MAX_RANKS]; /* NULL for the own rank */
    uint8_t *own;                        /* ALG_MEMORY_HOST: the team's, as the device addresses it; else NULL */
    alg_control_t *control;              /* as the host addresses it */
    alg_team_t team;
    bool proven;         /* all peers' tokens have arrived once: fit for the pool */
    alg_scratch_t *next; /* in the pool, or among those that wait for their end */
    /* The pool's. */
    uint64_t birth; /* order of creation in this process */
    bool offered;   /* to a caller of alg_scratch_idle, which has neither taken nor left it yet */
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
    /* ALG_OWN_BYTES in memory of the device, which `arm` fills. */
    int (*own_create)(int ordinal, uint8_t **own);
    void (*own_destroy)(int ordinal, uint8_t *own);
    /* Kernels of this device may be launched dependently (alg_team_t). NULL: no. */
    bool (*dependent_launch)(int ordinal);
    /* The highest priority of a launch, as cudaStreamCreateWithPriority takes it. NULL: there are none. */
    int (*priority)(int ordinal);
    /* Halves and rings all-ones (ALG_MEMORY_HOST: rings alone), the rest zero. */
    int (*arm)(const alg_scratch_t *scratch);
    /* Store as an algorithm's kernel would. */
    int (*store)(const alg_scratch_t *scratch, const alg_probe_t *probe);
    /* Copy the own mailboxes out and zero them. */
    int (*collect)(const alg_scratch_t *scratch, uint64_t words[ALG_MAX_RANKS]);
};

extern const alg_scratch_ops_t alg_scratch_cuda; /* only in builds with CUDA */

/* Launch the kernel of the proof on `stream` of the current device; a cudaError_t. */
int alg_probe_launch(const alg_probe_t *probe, void *stream);
/* The kernels were compiled for sm_90 or newer, so they have the wait that a dependent launch needs. Code for an older
 * one, compiled anew by the driver, has not. Of the current device. */
bool alg_probe_dependent(void);

/* Close, free, or leave it to alg_scratch_reap: the end of a scratch that no pool holds. */
void alg_scratch_free(alg_scratch_t *scratch);
/* Into the pool, which owns it from now on. */
void alg_pool_put(alg_scratch_t *scratch);
/* Out of the pool; NULL if it is not there. */
alg_scratch_t *alg_pool_get(uint64_t id, uint32_t rank);
/* Free idle scratches whose peers' processes are gone. */
void alg_pool_sweep(void);

#ifdef __cplusplus
}
#endif
#endif
