/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.c - measures the cost of a call without its launch: the account with everything off (the counters, the last
 * decision, the disabled trace and ranges), which should stay below 20 ns, and the record, below 50 ns. Not a test: a
 * time causes no failure.
 *
 * Takes the least of many short rounds, since a busy machine only adds time.
 */
#include <stdio.h>
#include <time.h>

#include "shim/account/ranges.h"
#include "shim/account/statistics.h"
#include "shim/account/trace.h"
#include "shim/record/record.h"

enum { ROUNDS = 2000, CALLS = 1000 };

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void range(const sel_choice_t *choice)
{
    if (shim_ranges_wanted() && shim_range_begin(choice->algorithm->name, 65536))
        shim_range_end();
}

/* Do the account's work for one call. */
static void account(const sel_choice_t *choice)
{
    uint64_t start_ns = shim_trace_begin();
    shim_count_taken(ALG_ALL_REDUCE, 0, 65536, choice);
    range(choice);
    if (start_ns != 0)
        shim_trace_end(&(shim_trace_call_t){.start_ns = start_ns});
}

static shim_record_t *g_record;

static void record(const sel_choice_t *choice)
{
    const shim_record_call_t call = {.sign = {.collective = ALG_ALL_REDUCE, .type = ALG_FLOAT32, .count = 16384},
                                     .algorithm = choice->algorithm->name};
    (void)shim_record_call(g_record, &call);
}

static double least_ns(void (*part)(const sel_choice_t *choice), const sel_choice_t *choice)
{
    double least = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now_ns();
        for (int i = 0; i < CALLS; i++)
            part(choice);
        double each = (now_ns() - start) / CALLS;
        least = each < least ? each : least;
    }
    return least;
}

int main(void)
{
    const sel_choice_t choice = {.algorithm = alg_registry[0], .blocks = 4, .threads = 256, .reason = SEL_TAKEN};
    g_record = shim_record_new();
    printf("the account of a call, all off: %.1f ns\n", least_ns(account, &choice));
    printf("of it, the range that no tool sees: %.1f ns\n", least_ns(range, &choice));
    printf("the record of a call: %.1f ns\n", least_ns(record, &choice));
    return 0;
}
