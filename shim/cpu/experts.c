/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - groups of experts on the CPU device. */
#include <stdlib.h>

#include "shim/experts/group.h"

enum { ALIGNMENT = 256 };

static int enter(net_scope_t *scope, int device)
{
    (void)scope, (void)device;
    return 0;
}

static int preload(const alg_experts_shape_t *shape)
{
    (void)shape;
    return 0;
}

static int memory(const shim_experts_group_t *group, void **memory, size_t bytes)
{
    if (group->alloc.alloc_fn)
        return shim_experts_callers_memory(group, memory, bytes);
    if (!bytes) {
        free(*memory);
        return 0;
    }
    *memory = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    return *memory ? 0 : 2; /* cudaErrorMemoryAllocation */
}

static ncclResult_t run(shim_experts_handle_t *handle, alg_team_t *team, alg_experts_call_t *call, cudaStream_t stream)
{
    shim_experts_group_t *group = handle->group;
    (void)stream;
    shim_experts_begin(handle, team, call, NULL);
    atomic_fetch_add(&group->extra->running, 1);
    const int status = alg_experts_launch_cpu(team, &group->shape, call);
    atomic_fetch_sub(&group->extra->running, 1);
    if (status != ALG_STATUS_OK)
        return shim_experts_fail_status(group, shim_experts_name(call), (uint32_t)status);
    if (call->phases == ALG_EXPERTS_BOTH)
        shim_record_ended(group->extra->record, call->id);
    return ncclSuccess;
}

static int32_t captured(const void *stream)
{
    (void)stream;
    return 0;
}

const shim_experts_ops_t shim_experts_cpu = {
    .threads = 1, .enter = enter, .preload = preload, .memory = memory, .run = run, .captured = captured};
