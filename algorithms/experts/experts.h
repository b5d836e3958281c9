/* SPDX-License-Identifier: Apache-2.0 */
/* experts.h - dispatch and combine of a mixture of experts, between ranks of one node with peer access.
 *
 * Rank r has experts r*local to (r+1)*local-1, local = experts/nranks. A token's top_k choices are experts or -1.
 * Dispatch copies its row to every expert chosen; combine adds those experts' rows, times weights, at the token's rank.
 *
 * A group has a scratch of its own, cut into rooms that calls use in turn (room.h). Staged calls launch SEND and
 * RECEIVE separately. All ranks make a group's calls in the same order. */
#ifndef SHUNT_EXPERTS_H
#define SHUNT_EXPERTS_H

#include "algorithms/algorithm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Types whose rows never cross the link as sums (combine.cu): the token's rank adds them in the order of choices. */
typedef enum alg_experts_exact {
    ALG_EXPERTS_EXACT_NONE,
    ALG_EXPERTS_EXACT_FP32, /* fp32 with up to 8 choices; results of 16 bits mostly hide the order */
    ALG_EXPERTS_EXACT_ALL
} alg_experts_exact_t;

/* Equal on all ranks of a group. */
typedef struct alg_experts_shape {
    uint32_t nranks;      /* 2 to ALG_MAX_RANKS */
    uint32_t experts;     /* a multiple of nranks, at most ALG_EXPERTS_MOST */
    uint32_t most_tokens; /* of a rank */
    uint32_t most_top_k;  /* at most ALG_EXPERTS_TOP_K */
    uint32_t row_bytes;   /* most bytes of a token's row, with scales; a multiple of 16 */
    alg_experts_exact_t exact;
} alg_experts_shape_t;

enum {
    ALG_EXPERTS_MOST = 65534, /* choices travel as 16 bits */
    ALG_EXPERTS_TOP_K = 32,
    ALG_EXPERTS_STAGED = 4,            /* most rooms for staged calls */
    ALG_EXPERTS_CHOICES = 38 << 10,    /* most of all ranks together; two blocks' copies fit sm_80's shared memory */
    ALG_EXPERTS_MOST_BYTES = 64 << 20, /* of a group, unless three rooms need more */
    ALG_EXPERTS_BLOCK_ELEMENTS = 128,
    ALG_EXPERTS_THREADS = 512 /* of a GPU's block */
};

/* False: the shape cannot be served. */
bool alg_experts_map(const alg_experts_shape_t *shape, alg_map_t *map);
/* Number of rooms for staged calls. A rank may send call n, replays included, after it has received call n - rooms. */
uint32_t alg_experts_staged(const alg_experts_shape_t *shape);
/* Bytes of a handle's device memory, from dispatch to combine; aligned to 256 bytes, any content. */
size_t alg_experts_routes_bytes(const alg_experts_shape_t *shape, uint32_t top_k);

typedef enum alg_experts_phase {
    ALG_EXPERTS_SEND = 1,
    ALG_EXPERTS_RECEIVE = 2,
    ALG_EXPERTS_BOTH = 3
} alg_experts_phase_t;

typedef enum alg_experts_recipe {
    ALG_EXPERTS_BYTES = 0,
    ALG_EXPERTS_E4M3 = 1 /* bf16 rows travel as e4m3; an fp32 scale per ALG_EXPERTS_BLOCK_ELEMENTS */
} alg_experts_recipe_t;

/*
 * A call. Buffers: device memory, aligned to 16 bytes unless noted. SEND alone reads inputs, except a combine's
 * weights. RECEIVE follows SEND and alone writes outputs. Received rows lie as follows; memory past the last one stays
 * unchanged:
 *
 *   expert-major   [local expert][nranks * most_tokens], by source rank and token
 *   rank-major     [source rank][most_tokens], by token
 */
typedef struct alg_experts_call {
    bool combine; /* false: dispatch */
    bool rank_major;
    uint32_t phases;     /* BOTH unless staged */
    uint32_t tokens;     /* of this rank; 0: its buffers may be NULL */
    uint32_t top_k;      /* equal on all ranks */
    const void *choices; /* [tokens][top_k] int32_t or int64_t, aligned to the type */
    bool wide;           /* int64_t */
    /* fp32 [tokens][top_k], aligned to 4: sent by rank-major dispatch, factors in expert-major combine; else NULL. */
    const float *weights;
    uint32_t token_bytes; /* of a row as sent (E4M3: elements); a multiple of 16 */
    uint32_t scale_bytes; /* of a row's scales as sent; combine: 0 */
    void *routes;         /* written by dispatch, read by combine; SEND leaves the call's number for RECEIVE */
    const void *rows;     /* dispatch: [tokens]; combine: as received */
    const void *scales;   /* [tokens], if scale_bytes */
    void *out;            /* dispatch: received rows; combine: [tokens] */
    /* Only dispatch: */
    alg_experts_recipe_t recipe;
    bool round_scales;    /* E4M3: scales are powers of two */
    bool global_ids;      /* out_choices number all experts, not only this rank's */
    void *out_scales;     /* E4M3: aligned to 4; NULL without scale_bytes */
    float *out_weights;   /* rank-major: [nranks][most_tokens][top_k], aligned to 4 */
    int32_t *out_choices; /* the same; -1: another rank's expert, or no row */
    int32_t *counters;    /* rows per local expert, rank-major per source rank; or NULL */
    /* Only combine: */
    alg_type_t type; /* ALG_BFLOAT16, ALG_FLOAT16, ALG_FLOAT32 */
    uint32_t blocks; /* all must be on the GPU at once (alg_experts_grid) */
    uint64_t id;     /* as in alg_call_t */
} alg_experts_call_t;

/* Blocks of a call, at most `most`; 0: no limit. CPU device: any number. */
uint32_t alg_experts_grid(uint32_t multiprocessors, uint32_t most);
/* As in alg_algorithm_t, with the team of the group's scratch; preload fails if the device has too little shared
 * memory. SEND waits only until peers have received the room's previous call and, for sums, sent their weights. */
int alg_experts_launch_cuda(const alg_team_t *team, const alg_experts_shape_t *shape, const alg_experts_call_t *call,
                            void *stream);
int alg_experts_launch_cpu(const alg_team_t *team, const alg_experts_shape_t *shape, const alg_experts_call_t *call);
int alg_experts_preload_cuda(const alg_experts_shape_t *shape);

#ifdef __cplusplus
}
#endif
#endif
