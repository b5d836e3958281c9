/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_choice.c - the gain that a choice needs, and the choice by two prices.
 */
#include "tools/tune/tune.h"

#define LEAST_GAIN 1.02 /* beside products; smaller gains are noise */
#define LEAD 1.02
/* The speed of short eager calls depends on the processor, which drifts by this much within minutes. */
#define EAGER_LEAD 1.10
#define QUICK_LEAD 1.03
#define QUICK_BUILTIN_LEAD 1.10 /* built-in rows rest on more sizes */

tune_leads_t tune_leads(bool quick, bool captured, bool guessed)
{
    const double lead = captured ? LEAD : EAGER_LEAD;
    if (!quick) {
        return (tune_leads_t){lead, lead, 1};
    }
    return guessed ? (tune_leads_t){QUICK_LEAD, QUICK_LEAD, 1 / QUICK_LEAD}
                   : (tune_leads_t){QUICK_LEAD, QUICK_BUILTIN_LEAD, QUICK_LEAD};
}

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
