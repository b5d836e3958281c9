/* SPDX-License-Identifier: Apache-2.0 */
/* scratch_end.c - the end of a scratch: into the pool, or freed when no kernel can use it.
 *
 * The driver's frees and unmaps wait for every kernel of the device, and a kernel may wait for a dead peer until an
 * abort, maybe by this thread. So on CUDA a list owns released scratches until alg_scratch_reap. Mappings are closed
 * first; transport keeps this rank's memory until peers have closed theirs. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "algorithms/scratch_device.h"

static net_lock_t retired_lock = NET_LOCK_INITIALIZER;
static alg_scratch_t *retired;

/* After a fork the driver's memory belongs to the parent; after a device reset it is gone. */
static bool is_ours(const alg_scratch_t *scratch)
{
    return scratch->device == ALG_DEVICE_CPU ||
           (scratch->pid == getpid() && !net_device_lost(scratch->ordinal, scratch->life));
}

static void free_now(alg_scratch_t *scratch)
{
    const bool ours = is_ours(scratch);
    for (uint32_t piece = 0; piece < ALG_PIECES; piece++)
        for (uint32_t peer = 0; peer < scratch->nranks; peer++)
            net_mapping_close(scratch->peers[piece][peer]);
    if (scratch->control && ours)
        scratch->ops->control_destroy(scratch->ordinal, scratch->control);
    if (scratch->own && ours)
        scratch->ops->own_destroy(scratch->ordinal, scratch->own);
    for (uint32_t piece = 0; piece < ALG_PIECES; piece++)
        net_memory_destroy(scratch->memory[piece]);
    for (uint32_t rank = 0; rank < scratch->nranks; rank++)
        net_range_release(scratch->range[rank]);
    free(scratch);
}

static bool can_block(const alg_scratch_t *scratch)
{
    return scratch->device == ALG_DEVICE_CUDA && scratch->pid == getpid();
}

static void retire(alg_scratch_t *scratch)
{
    net_lock_take(&retired_lock);
    scratch->next = retired;
    retired = scratch;
    net_lock_give(&retired_lock);
}

void alg_scratch_free(alg_scratch_t *scratch)
{
    if (can_block(scratch))
        retire(scratch);
    else
        free_now(scratch);
}

uint32_t alg_scratch_retired(void)
{
    uint32_t count = 0;
    net_lock_take(&retired_lock);
    for (const alg_scratch_t *at = retired; at; at = at->next)
        count++;
    net_lock_give(&retired_lock);
    return count + net_memory_parked();
}

bool alg_scratch_any_retired(void)
{
    net_lock_take(&retired_lock);
    const bool any = retired != NULL;
    net_lock_give(&retired_lock);
    return any || net_memory_any_parked();
}

void alg_scratch_reap(void)
{
    net_lock_take(&retired_lock);
    alg_scratch_t *list = retired;
    retired = NULL;
    net_lock_give(&retired_lock);
    while (list) {
        alg_scratch_t *next = list->next;
        free_now(list);
        list = next;
    }
    net_memory_reap();
}

/* After an abort or a failed wait, kernels may have left half way. */
static bool ended_well(const alg_scratch_t *scratch)
{
    return __atomic_load_n(&scratch->control->abort, __ATOMIC_ACQUIRE) == 0 &&
           __atomic_load_n(&scratch->control->status, __ATOMIC_ACQUIRE) == ALG_STATUS_OK;
}

void alg_scratch_release(alg_scratch_t *scratch, bool reusable)
{
    if (!scratch)
        return;
    if (reusable && scratch->proven && !scratch->suspended && scratch->pid == getpid() && ended_well(scratch))
        alg_pool_put(scratch);
    else
        alg_scratch_free(scratch);
}
