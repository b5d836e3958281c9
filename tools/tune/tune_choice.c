/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_choice.c - the choice by two prices.
 */
#include "tools/tune/tune.h"

#define LEAST_GAIN 1.02 /* beside products; less is noise */

uint32_t tune_choose(const tune_price_t *price, uint32_t count, uint32_t first)
{
    uint32_t best = first;
    for (uint32_t i = 0; i < count; i++) {
        const bool affordable = price[i].alone <= price[first].alone * TUNE_MOST_COST;
        if (affordable && price[i].beside > 0 && price[i].beside < price[best].beside) {
            best = i;
        }
    }
    return price[best].beside * LEAST_GAIN < price[first].beside ? best : first;
}
