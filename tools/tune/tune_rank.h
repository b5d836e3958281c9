/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_rank.h - one rank's state in `shunt tune`: what tune_rank.c and tune_beside.c share.
 */
#ifndef SHUNT_TUNE_RANK_H
#define SHUNT_TUNE_RANK_H

#include "tools/tune/tune.h"

enum { TUNE_MOST_ENTRANTS = 64, TUNE_FINAL_ROUNDS = 21, TUNE_QUICK_ROUNDS = 8 };

typedef struct grid {
    uint32_t blocks, threads;
} grid_t;

/* A candidate: Shunt with a policy, or the real NCCL. */
typedef struct entrant {
    bool nccl;
    bool out;
    bool guessed; /* predicted by the cost model, without a row */
    char policy[48];
    char name[SEL_FILE_NAME_BYTES]; /* the launched algorithm, or nccl */
    grid_t asked, launched;
    bench_run_t run;
    double times[TUNE_FINAL_ROUNDS];
    double median;
    double beside; /* seconds beside products; 0: not measured */
} entrant_t;

typedef struct tuner {
    const tune_options_t *options;
    bench_options_t bench; /* options for the parts of shunt bench; change with the case */
    bench_rank_t rank;
    shunt_communicator_t facts;
    entrant_t entrant[TUNE_MOST_ENTRANTS];
    uint32_t entrants; /* the first is the built-in choice, the second the real NCCL where there is one */
    entrant_t winner;  /* winner of the size before; an empty policy: none */
    uint32_t final_rounds;
} tuner_t;

bool tune_set_policy(tuner_t *tuner, const entrant_t *entrant);
/* Measure the remaining candidates beside products; replace *choice, made by the time alone, by the choice by both
 * prices. */
bool tune_beside(tuner_t *tuner, const bench_case_t *one, const entrant_t **choice);

#endif
