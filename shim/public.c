/*
 * public.c - the functions of shunt.h.
 *
 * Structures carry their size, so that a program built with an older header
 * runs with a newer library: fields beyond that size are not written.
 */
/* Before any other header: the names of shunt.h can be seen from outside. */
#pragma GCC visibility push(default)
#include "shunt.h"
#pragma GCC visibility pop

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/comm.h"
#include "shim/host.h"
#include "shim/real.h"
#include "shim/settings.h"
#include "shim/statistics.h"

/* A GPU to draw the table for: one that the built-in rows were measured on. */
enum { TABLE_ARCH = 90, TABLE_MULTIPROCESSORS = 132 };

int shunt_version(void)
{
    return SHUNT_VERSION_CODE;
}

int shunt_host_mode(void)
{
    return shim_host_mode();
}

const char *shunt_nccl_path(void)
{
    const shim_real_t *real = shim_real();
    return real != NULL ? real->path : NULL;
}

/* Copy what the caller's structure has room for; its own `size` stays. */
static void copy_out(void *to, const void *from, uint32_t size, size_t full)
{
    memcpy(to, from, size < full ? size : full);
}

int shunt_last_decision(shunt_decision_t *decision)
{
    if (decision == NULL || decision->size == 0)
        return -1;
    shunt_decision_t full = {.size = decision->size};
    if (!shim_statistics_last(&full))
        return -1;
    copy_out(decision, &full, full.size, sizeof(full));
    return 0;
}

int shunt_stats(shunt_statistics_t *statistics)
{
    if (statistics == NULL || statistics->size == 0)
        return -1;
    shunt_statistics_t full = {.size = statistics->size, .communicators_attached = shim_comm_attached()};
    shim_statistics_totals(&full);
    copy_out(statistics, &full, full.size, sizeof(full));
    return 0;
}

int shunt_setting(uint32_t index, shunt_setting_t *setting)
{
    return setting != NULL && shim_setting_row(index, setting) ? 0 : -1;
}

static sel_plan_t *made_up_plan(uint32_t nranks, sel_link_t link)
{
    sel_plan_t *plan = malloc(sizeof(*plan));
    if (plan == NULL)
        return NULL;
    const shim_settings_t *own = shim_settings();
    bool host = link == SEL_LINK_HOST;
    sel_topology_t topology = {.link = link,
                               .nranks = nranks,
                               .arch = host ? 0 : TABLE_ARCH,
                               .multiprocessors = host ? 0 : TABLE_MULTIPROCESSORS};
    sel_settings_t settings = {
        .scratch_bytes = own->scratch_bytes, .max_blocks = own->max_ctas, .deterministic = own->deterministic};
    snprintf(settings.policy, sizeof(settings.policy), "%s", own->algo);
    sel_plan_init(plan, &topology, &settings);
    return plan;
}

static void row_text(const sel_row_t *row, char *text, size_t capacity)
{
    char to[24] = "";
    if (row->to_bytes != UINT64_MAX)
        snprintf(to, sizeof(to), "%llu", (unsigned long long)row->to_bytes);
    if (row->algorithm == NULL) {
        snprintf(text, capacity, "%llu-%s nccl (%s)", (unsigned long long)row->from_bytes, to, row->source);
        return;
    }
    snprintf(text, capacity, "%llu-%s %s, at most %u blocks of %u threads (%s)", (unsigned long long)row->from_bytes,
             to, row->algorithm->name, row->blocks, row->threads, row->source);
}

int shunt_table_row(uint32_t nranks, uint32_t link, int captured, uint32_t index, char *text, size_t capacity)
{
    if (nranks == 0 || nranks > ALG_MAX_RANKS || link >= SEL_LINK_COUNT || text == NULL || capacity == 0)
        return -1;
    sel_plan_t *plan = made_up_plan(nranks, (sel_link_t)link);
    if (plan == NULL)
        return -1;
    bool found = index < plan->rows[captured != 0];
    if (found)
        row_text(&plan->row[captured != 0][index], text, capacity);
    free(plan);
    return found ? 0 : -1;
}
