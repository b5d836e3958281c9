/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_beside.c - a choice by two prices (--beside): the time of a call alone, and
 * of many calls beside matrix products until both have ended.
 *
 * A table does not depend on whether a program overlaps calls with computation. So a choice may be slightly slower
 * alone if it is faster beside products.
 */
#include "tools/tune/tune_rank.h"

enum { ROUNDS = 5 };

/* Time eager calls, as in training; every candidate makes the same number. */
static bool round_of(tuner_t *tuner, const bench_case_t *one, const entrant_t *entrant, uint32_t calls, double *seconds)
{
    const bench_run_t run = {.side = &tuner->rank.side[entrant->nccl ? 1 : 0], .calls = calls};
    return tune_set_policy(tuner, entrant) && bench_beside_round(&tuner->rank, one, &run, seconds);
}

bool tune_beside(tuner_t *tuner, const bench_case_t *one, const entrant_t **choice)
{
    const double slower = tuner->rank.sides == 2 && tuner->entrant[1].median > tuner->entrant[0].median
                              ? tuner->entrant[1].median
                              : tuner->entrant[0].median;
    const uint32_t calls = bench_beside_calls(tuner->rank.products, slower);
    double times[TUNE_MOST_ENTRANTS][ROUNDS];
    for (uint32_t i = 0; i < ROUNDS; i++) {
        for (uint32_t turn = 0; turn < tuner->entrants; turn++) {
            const uint32_t index = (turn + i) % tuner->entrants;
            if (!tuner->entrant[index].out && !round_of(tuner, one, &tuner->entrant[index], calls, &times[index][i])) {
                return false;
            }
        }
    }
    tune_price_t price[TUNE_MOST_ENTRANTS];
    for (uint32_t i = 0; i < tuner->entrants; i++) {
        entrant_t *entrant = &tuner->entrant[i];
        entrant->beside = entrant->out ? 0 : bench_median(times[i], ROUNDS);
        price[i] = (tune_price_t){entrant->median, entrant->beside};
    }
    *choice = &tuner->entrant[tune_choose(price, tuner->entrants, (uint32_t)(*choice - tuner->entrant))];
    return true;
}
