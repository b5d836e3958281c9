/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts_case.h - random dispatches and combines of a group, what they must give, and a rank's buffers in memory of
 * any device. Expected places of rows are counted one by one in the order of ranks, tokens and choices.
 */
#ifndef TEST_EXPERTS_CASE_H
#define TEST_EXPERTS_CASE_H

#include "algorithms/experts/experts.h"

/* Memory of a rank's device. */
typedef struct experts_memory {
    void *(*make)(int rank, size_t bytes);
    void (*put)(int rank, void *to, const void *from, size_t bytes);
    void (*get)(int rank, void *to, const void *from, size_t bytes);
    void (*drop)(int rank, void *memory);
} experts_memory_t;

/* What all ranks know of one dispatch and the combine that follows it. */
typedef struct experts_case {
    alg_experts_shape_t shape;
    uint32_t top_k, token_bytes, scale_bytes;
    bool rank_major, wide, global_ids, round_scales, exact;
    bool nans; /* among the rows of combine, also words of ones */
    alg_experts_recipe_t recipe;
    alg_type_t type; /* of combine, whose rows have combine_bytes */
    uint32_t combine_bytes;
    uint32_t tokens[ALG_MAX_RANKS];
    int64_t *choices[ALG_MAX_RANKS]; /* [tokens][top_k] */
    float *weights[ALG_MAX_RANKS];
    uint8_t *rows[ALG_MAX_RANKS];
    uint8_t *scales[ALG_MAX_RANKS];
    int32_t *places[ALG_MAX_RANKS]; /* on a rank: [source][most_tokens][keys], or -1 */
    uint64_t seed;
} experts_case_t;

/* A rank's buffers, for the largest case of a shape. */
typedef struct experts_rank {
    int rank;
    const experts_memory_t *memory;
    alg_experts_call_t dispatch, combine;
    void *choices, *weights, *rows, *scales, *out, *out_scales, *out_weights, *out_choices, *counters, *routes;
    uint8_t *scales_at; /* in out_scales */
    void *combine_rows, *combine_out;
    size_t combine_bytes; /* of combine_rows */
} experts_rank_t;

/* A shape of up to `most_tokens` tokens a rank and rows of up to `most_bytes`. */
alg_experts_shape_t experts_draw_shape(uint32_t nranks, uint32_t most_tokens, uint32_t most_bytes, uint64_t *state);
void experts_case_draw(experts_case_t *c, const alg_experts_shape_t *shape, uint64_t *state);
void experts_case_free(experts_case_t *c);

void experts_rank_make(experts_rank_t *r, int rank, const experts_memory_t *memory, const alg_experts_shape_t *shape);
/* Fill in the buffers and both calls; outputs are poisoned. */
void experts_rank_load(experts_rank_t *r, const experts_case_t *c);
/* False: one line in `fault`. */
bool experts_dispatch_right(const experts_rank_t *r, const experts_case_t *c, char *fault, size_t fault_bytes);
bool experts_combine_right(const experts_rank_t *r, const experts_case_t *c, char *fault, size_t fault_bytes);
void experts_rank_free(experts_rank_t *r);

/* ---- Several of them at once ---- */

enum { EXPERTS_CASES = 3, EXPERTS_STEPS = 4 * EXPERTS_CASES };

/* A launch that all ranks make. */
typedef struct experts_step {
    uint32_t of; /* a case */
    bool combine;
    uint32_t phases;
} experts_step_t;

/* Cases in turn: of each its dispatch before its combine, some of them staged with others' steps in between. */
typedef struct experts_program {
    experts_case_t cases[EXPERTS_CASES];
    experts_step_t step[EXPERTS_STEPS];
    uint32_t steps, sent; /* sent: staged calls of the team's programs so far; zero at first */
} experts_program_t;

void experts_program_draw(experts_program_t *p, const alg_experts_shape_t *shape, uint64_t *state);
void experts_program_free(experts_program_t *p);
/* A rank's call of a step, on up to `blocks` blocks. */
alg_experts_call_t experts_step_call(const experts_step_t *step, const experts_rank_t *ranks, uint32_t blocks);
/* After a step that sends: its inputs change. Only for memory that `put` writes at once. */
void experts_step_spoil(const experts_step_t *step, const experts_rank_t *ranks);
/* Whether all results of a rank are right; ranks[i] has the buffers of case i. */
bool experts_program_right(const experts_program_t *p, const experts_rank_t *ranks, char *fault, size_t fault_bytes);

#endif
