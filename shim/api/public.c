/* SPDX-License-Identifier: Apache-2.0 */
/* public.c - functions of shunt.h. Structures carry their size: an older program gets the fields that it knows. */
/* Before other headers, so that shunt.h's functions are exported. */
#pragma GCC visibility push(default)
#include "shunt.h"
#pragma GCC visibility pop

#include <string.h>

#include "shim/account/statistics.h"
#include "shim/base/device.h"
#include "shim/base/settings.h"
#include "shim/comm/comm.h"
#include "shim/real/real.h"

int shunt_version(void)
{
    return SHUNT_VERSION_CODE;
}

int shunt_host_mode(void)
{
    return shim_cpu_mode();
}

const char *shunt_nccl_path(void)
{
    const shim_real_t *real = shim_real();
    return real != NULL ? real->path : NULL;
}

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
