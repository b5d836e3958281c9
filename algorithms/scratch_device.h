/* SPDX-License-Identifier: Apache-2.0 */
/* scratch_device.h - a scratch, and its operations on CUDA and the CPU device. Private to scratch*.c and probe.cu. */
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
    int64_t pid; /* the creator's; a forked child must not free the driver's memory */
    alg_set_t set;
    uint64_t id;
    uint32_t rank;
    uint32_t nranks;
    alg_map_t map;
    uint64_t life;
    net_memory_t *memory[ALG_PIECES];                /* NULL: not made */
    net_mapping_t *peers[ALG_PIECES][ALG_MAX_RANKS]; /* NULL: self, or not opened */
    net_range_t *range[ALG_MAX_RANKS]; /* addresses for the pieces; NULL: one piece, or a peer of this process */
    uint32_t grown;                    /* bits, atomic: pieces that all ranks have */
    void *arming[ALG_PIECES];          /* NULL: not being armed */
    uint8_t *own;
    alg_control_t *control;
    alg_team_t team;
    bool suspended;
    bool proven; /* all peers' words arrived */
    alg_scratch_t *next;
    uint64_t birth;
    bool offered; /* reserved by alg_scratch_idle */
};

/* word[p] goes to target[p], unless NULL. */
typedef struct alg_probe {
    uint64_t *target[ALG_MAX_RANKS];
    uint64_t word[ALG_MAX_RANKS];
} alg_probe_t;

/* An int is 0 or a negative errno, unless noted. All but arm_piece are complete on return. */
struct alg_scratch_ops {
    int (*control_create)(int ordinal, alg_control_t **host, alg_control_t **device);
    void (*control_destroy)(int ordinal, alg_control_t *host);
    /* ALG_OWN_BYTES of device memory. */
    int (*own_create)(int ordinal, uint8_t **own);
    void (*own_destroy)(int ordinal, uint8_t *own);
    /* Whether kernels may use dependent launch. NULL: no. */
    bool (*dependent_launch)(int ordinal);
    /* The highest stream priority. NULL: none. */
    int (*priority)(int ordinal);
    /* Sets existing pieces: alg_map_armed's spans become all-ones, the rest and `own` zero. */
    int (*arm)(const alg_scratch_t *scratch);
    /* The same for one piece, without waiting. `armed` returns 1 (done), 0 (in progress) or an error. It sets *arming
     * to NULL unless in progress, and always with `forget`. */
    int (*arm_piece)(const alg_scratch_t *scratch, uint32_t piece, void **arming);
    int (*armed)(const alg_scratch_t *scratch, void **arming, bool forget);
    int (*store)(const alg_scratch_t *scratch, const alg_probe_t *probe);
    /* Reads this rank's mailboxes and zeroes them. */
    int (*collect)(const alg_scratch_t *scratch, uint64_t words[ALG_MAX_RANKS]);
};

extern const alg_scratch_ops_t alg_scratch_cuda;

int alg_control_create_cuda(int ordinal, alg_control_t **host, alg_control_t **device);
void alg_control_destroy_cuda(int ordinal, alg_control_t *host);

/* Enqueues on `stream` of the current device. Returns a cudaError_t. */
int alg_probe_launch(const alg_probe_t *probe, void *stream);
/* Whether the current device's kernels are for sm_90 or newer. Code made from older PTX lacks the wait of
 * lane_begin. */
bool alg_probe_dependent(void);

/* Frees now, or in alg_scratch_reap. */
void alg_scratch_free(alg_scratch_t *scratch);
void alg_pool_put(alg_scratch_t *scratch);
alg_scratch_t *alg_pool_get(uint64_t id, uint32_t rank);
/* Gives up idle scratches with dead peers. */
void alg_pool_sweep(void);

#ifdef __cplusplus
}
#endif
#endif
