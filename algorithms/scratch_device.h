/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch_device.h - a scratch, and its operations on CUDA and the CPU device. Private to scratch*.c and probe.cu.
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
    int64_t pid; /* creator's: a forked child must not free the driver's memory */
    alg_set_t set;
    uint64_t id;
    uint32_t rank;
    uint32_t nranks;
    alg_map_t map;
    uint64_t life;                                   /* net_device_life; CPU device: 0 */
    net_memory_t *memory[ALG_PIECES];                /* this rank's; NULL: not made */
    net_mapping_t *peers[ALG_PIECES][ALG_MAX_RANKS]; /* NULL: self, or not opened */
    net_range_t *range[ALG_MAX_RANKS];               /* holds the pieces; NULL: one piece, or a peer of this process */
    uint32_t grown;                                  /* bits, atomic: pieces that all ranks have */
    void *arming[ALG_PIECES];                        /* of a piece, in progress; or NULL */
    uint8_t *own;                                    /* alg_team_t.own of ALG_MEMORY_PINNED, or NULL */
    alg_control_t *control;
    alg_team_t team;
    bool suspended;
    bool proven; /* all peers' tokens arrived: fit for the pool */
    alg_scratch_t *next;
    uint64_t birth; /* order of creation in this process */
    bool offered;   /* reserved by alg_scratch_idle */
};

/* The proof stores word[p] at target[p], unless that is NULL. */
typedef struct alg_probe {
    uint64_t *target[ALG_MAX_RANKS];
    uint64_t word[ALG_MAX_RANKS];
} alg_probe_t;

/* Functions that return int: 0 or a negative errno, unless noted; complete on return. */
struct alg_scratch_ops {
    /* Zeroed, as the host and as the device address them. */
    int (*control_create)(int ordinal, alg_control_t **host, alg_control_t **device);
    void (*control_destroy)(int ordinal, alg_control_t *host);
    /* ALG_OWN_BYTES of device memory; `arm` sets it. */
    int (*own_create)(int ordinal, uint8_t **own);
    void (*own_destroy)(int ordinal, uint8_t *own);
    /* Whether kernels may use dependent launch. NULL: no. */
    bool (*dependent_launch)(int ordinal);
    /* The highest (cudaStreamCreateWithPriority). NULL: none. */
    int (*priority)(int ordinal);
    /* Sets alg_map_armed's spans of existing pieces to all-ones, the rest to zero. */
    int (*arm)(const alg_scratch_t *scratch);
    /* The same for one piece, without waiting. `armed` returns 1 (done), 0 (in progress; *arming is not NULL) or an
     * error. `forget` clears *arming. */
    int (*arm_piece)(const alg_scratch_t *scratch, uint32_t piece, void **arming);
    int (*armed)(const alg_scratch_t *scratch, void **arming, bool forget);
    /* Stores as an algorithm's kernel would. */
    int (*store)(const alg_scratch_t *scratch, const alg_probe_t *probe);
    /* Copies own mailboxes out and zeroes them. */
    int (*collect)(const alg_scratch_t *scratch, uint64_t words[ALG_MAX_RANKS]);
};

extern const alg_scratch_ops_t alg_scratch_cuda;

int alg_control_create_cuda(int ordinal, alg_control_t **host, alg_control_t **device);
void alg_control_destroy_cuda(int ordinal, alg_control_t *host);

/* On `stream` of the current device; a cudaError_t. */
int alg_probe_launch(const alg_probe_t *probe, void *stream);
/* The current device's kernels were compiled for sm_90 or newer: the driver's code from older PTX lacks the wait of a
 * dependent launch. */
bool alg_probe_dependent(void);

/* Ends a scratch outside the pool: frees it now, or retires it for alg_scratch_reap. */
void alg_scratch_free(alg_scratch_t *scratch);
void alg_pool_put(alg_scratch_t *scratch);
/* NULL: not there. */
alg_scratch_t *alg_pool_get(uint64_t id, uint32_t rank);
/* Gives up idle scratches whose peers' processes are gone. */
void alg_pool_sweep(void);

#ifdef __cplusplus
}
#endif
#endif
