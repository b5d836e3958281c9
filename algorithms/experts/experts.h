/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.h - dispatch and combine of a mixture of experts, between ranks of one node with peer access.
 *
 * Rank r has experts r * local to (r + 1) * local - 1, where local = experts / nranks. A token has top_k choices,
 * experts or -1. Dispatch copies its row to every expert chosen. Combine adds the experts' rows, each times its weight,
 * at the token's rank.
 *
 * A group has a scratch of its own (alg_experts_map), with rooms, each for one call. Staged calls launch SEND and
 * RECEIVE separately, with other calls in between. All ranks make the same calls of a group, in the same order.
 */
#ifndef SHUNT_EXPERTS_H
#define SHUNT_EXPERTS_H

#include "algorithms/algorithm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Types that combine always adds at the token's rank, in the order of choices (combine.cu), with a slot for each
 * choice. FP32: for tokens of up to 8 choices. */
typedef enum alg_experts_exact {
    ALG_EXPERTS_EXACT_NONE,
    ALG_EXPERTS_EXACT_FP32, /* fp32 rows alone: 16 bits hide the order of a sum more often */
    ALG_EXPERTS_EXACT_ALL
} alg_experts_exact_t;

/* Equal on all ranks of a group. */
typedef struct alg_experts_shape {
    uint32_t nranks;      /* 2 to ALG_MAX_RANKS */
    uint32_t experts;     /* a multiple of nranks, at most ALG_EXPERTS_MOST */
    uint32_t most_tokens; /* of a rank */
    uint32_t most_top_k;  /* at most ALG_EXPERTS_TOP_K */
    uint32_t row_bytes;   /* most bytes that a token sends, with its scales; a multiple of 16 */
    alg_experts_exact_t exact;
} alg_experts_shape_t;

enum {
    ALG_EXPERTS_MOST = 65534, /* choices travel as 16 bits */
    ALG_EXPERTS_TOP_K = 32,
    ALG_EXPERTS_STAGED = 4,            /* most staged rooms of a group */
    ALG_EXPERTS_CHOICES = 38 << 10,    /* of all ranks; two blocks' fit in the 164 KiB of sm_80 */
    ALG_EXPERTS_MOST_BYTES = 64 << 20, /* of a group, unless two rooms and one staged room need more */
    ALG_EXPERTS_BLOCK_ELEMENTS = 128,
    ALG_EXPERTS_THREADS = 512 /* of a block on a GPU; CPU device: 1 */
};

/* False: the shape cannot be served. */
bool alg_experts_map(const alg_experts_shape_t *shape, alg_map_t *map);
/* Number of the group's staged rooms, 1 to ALG_EXPERTS_STAGED. Staged calls take them in turn: a rank may send call n
 * after it has received call n - rooms, replays included. */
uint32_t alg_experts_staged(const alg_experts_shape_t *shape);
/* A handle's routes, from dispatch to combine: 256-byte aligned device memory, any content. */
size_t alg_experts_routes_bytes(const alg_experts_shape_t *shape, uint32_t top_k);

typedef enum alg_experts_phase {
    ALG_EXPERTS_SEND = 1,
    ALG_EXPERTS_RECEIVE = 2,
    ALG_EXPERTS_BOTH = 3
} alg_experts_phase_t;

typedef enum alg_experts_recipe {
    ALG_EXPERTS_BYTES = 0, /* rows and scales travel as they are */
    ALG_EXPERTS_E4M3 = 1   /* rows of bf16 travel as e4m3 with an fp32 scale per ALG_EXPERTS_BLOCK_ELEMENTS */
} alg_experts_recipe_t;

/*
 * A call. Buffers are device memory, aligned to 16 bytes unless said otherwise. Only SEND reads inputs (a combine's
 * weights: both phases). Only RECEIVE, which follows SEND, writes outputs.
 *
 * Received rows, of token_bytes. Rows beyond those received stay as they are.
 *   expert-major   [local expert][nranks * most_tokens]; an expert's rows by source rank and token
 *   rank-major     [source rank][most_tokens]; a rank's rows by token
 */
typedef struct alg_experts_call {
    bool combine;        /* false: dispatch */
    bool rank_major;     /* false: expert-major */
    uint32_t phases;     /* alg_experts_phase_t; BOTH unless staged */
    uint32_t tokens;     /* of this rank; 0: its buffers may be NULL */
    uint32_t top_k;      /* equal on all ranks */
    const void *choices; /* [tokens][top_k] int32_t or int64_t, aligned to the type */
    bool wide;           /* int64_t */
    /* fp32 [tokens][top_k], aligned to 4. Rank-major dispatch: sent with the tokens. Expert-major combine: multiplies
     * the rows. Else NULL. */
    const float *weights;
    uint32_t token_bytes; /* of a row of `rows` as sent (E4M3: elements); a multiple of 16 */
    uint32_t scale_bytes; /* of a row's scales as sent; a multiple of 16; combine: 0 */
    void *routes;         /* alg_experts_routes_bytes; dispatch writes, the handle's combine reads; SEND leaves the
                           * call's number */
    const void *rows;     /* dispatch: [tokens]; combine: received rows, processed by the experts */
    const void *scales;   /* dispatch, ALG_EXPERTS_BYTES with scale_bytes: [tokens] */
    void *out;            /* dispatch: received rows; combine: [tokens] */
    /* Only dispatch: */
    alg_experts_recipe_t recipe;
    bool round_scales;    /* E4M3: scales are powers of two */
    bool global_ids;      /* out_choices: numbers among all experts; else among this rank's */
    void *out_scales;     /* the scales of each row of `out`, E4M3: aligned to 4; NULL without scale_bytes */
    float *out_weights;   /* rank-major: [nranks][most_tokens][top_k], aligned to 4 */
    int32_t *out_choices; /* rank-major: the same; -1: another rank's expert, or no row */
    int32_t *counters;    /* rows received: of each local expert, or rank-major of each source rank, or NULL */
    /* Only combine: */
    alg_type_t type; /* ALG_BFLOAT16, ALG_FLOAT16, ALG_FLOAT32; sums are fp32 (combine.cu) */
    uint32_t blocks; /* must all be on the GPU at once (alg_experts_grid) */
    uint64_t id;     /* as in alg_call_t */
} alg_experts_call_t;

/* For a GPU of so many multiprocessors; `most`: limit, 0: none. CPU device: any. */
uint32_t alg_experts_grid(uint32_t multiprocessors, uint32_t most);
/* As alg_algorithm_t.launch_cuda, launch_cpu and preload_cuda; preload fails if the device's shared memory cannot
 * serve the shape. The team is that of the group's scratch, with its limit. A dispatch's SEND waits for a peer only if
 * its room's last call is still on its way; that of a combine that sends sums also for the peers' weights, which they
 * send in theirs. RECEIVE finds its call by the number that SEND left in the routes. */
int alg_experts_launch_cuda(const alg_team_t *team, const alg_experts_shape_t *shape, const alg_experts_call_t *call,
                            void *stream);
int alg_experts_launch_cpu(const alg_team_t *team, const alg_experts_shape_t *shape, const alg_experts_call_t *call);
int alg_experts_preload_cuda(const alg_experts_shape_t *shape);

#ifdef __cplusplus
}
#endif
#endif
