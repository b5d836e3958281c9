/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_calls.h - random calls of collectives on the GPUs of a team: drawn, loaded, launched
 * and compared. Errors of CUDA end the program.
 */
#ifndef TEST_GPU_CALLS_H
#define TEST_GPU_CALLS_H

#include "tests/algorithms/gpu_team.h"
#include "tests/support/collective.h"

typedef struct gpu_buffers {
    uint8_t *input[ALG_MAX_RANKS], *output[ALG_MAX_RANKS]; /* device */
} gpu_buffers_t;

typedef struct gpu_call {
    const alg_algorithm_t *algorithm;
    coll_t k;
    alg_call_t call[ALG_MAX_RANKS];
    bool in_place;
} gpu_call_t;

void gpu_buffers_make(gpu_buffers_t *b, const gpu_team_t *g);
void gpu_buffers_free(const gpu_buffers_t *b, const gpu_team_t *g);
/* Whether calls of this algorithm are drawn: it supports the team's size and memory, and is not one of messages. */
bool gpu_call_drawn(const gpu_team_t *g, const alg_algorithm_t *algorithm);
/* only: index of an algorithm, or -1. */
gpu_call_t gpu_call_draw(const gpu_team_t *g, const gpu_buffers_t *b, uint64_t *state, int only, size_t most_bytes);
/* All bytes that a rank's call may touch, and a margin around them. */
size_t gpu_call_bytes(const gpu_call_t *d, int r);
/* Copy the inputs and poison to all ranks. */
void gpu_call_load(gpu_team_t *g, const gpu_buffers_t *b, const gpu_call_t *d);
void gpu_call_launch(const gpu_team_t *g, const gpu_call_t *d, int r);
/* Whether the rank's result is right and the bytes around it are unchanged; if not, prints a line. */
bool gpu_call_right(const gpu_team_t *g, const gpu_buffers_t *b, const gpu_call_t *d, int r);

#endif
