/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_policy.c - SHUNT_ALGO's parser: any text is a policy or has a fault,
 * reported in one line with its column; and a policy makes a plan that answers
 * every size.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "selector/selector.h"

static void expect(int so)
{
    if (!so)
        abort();
}

static void try_plan(const char *policy)
{
    static sel_plan_t plan;
    const sel_topology_t topology = {.link = SEL_LINK_NVSWITCH, .nranks = 4, .arch = 90, .multiprocessors = 132};
    sel_settings_t settings = {.scratch_bytes = UINT64_C(64) << 20};
    strcpy(settings.policy, policy);
    sel_plan_init(&plan, &topology, &settings);
    expect(plan.bands > 0 && plan.bands <= SEL_BANDS && plan.rules <= SEL_RULES);
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        for (int power = 0; power < 40; power++) {
            const sel_query_t query = {(alg_collective_t)c, ALG_INT8, ALG_SUM, (UINT64_C(1) << power) + 1, false};
            const sel_choice_t choice = sel_choose(&plan, &query);
            expect((choice.algorithm != NULL) == (choice.reason == SEL_TAKEN));
            expect(choice.algorithm == NULL || (choice.blocks > 0 && choice.threads > 0));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), fault[80] = "";
    memcpy(text, data, size);
    text[size] = '\0';
    if (sel_policy_check(text, fault, sizeof(fault)))
        try_plan(text);
    else
        expect(strncmp(fault, "column ", 7) == 0 && strchr(fault, '\n') == NULL);
    free(text);
    return 0;
}
