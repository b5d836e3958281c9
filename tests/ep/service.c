/* SPDX-License-Identifier: Apache-2.0 */
/* service.c - see service.h. */
#include "service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shim_experts_group {
    service_t *mine;
    int handles;
};

struct shim_experts_handle {
    shim_experts_group_t *group;
};

service_t g_service;

static void note(record_t *record, const uint64_t word[RECORD_WORDS])
{
    record->calls++;
    memcpy(record->word, word, sizeof(record->word));
}

#define NOTE(field, ...) note(&g_service.field, (const uint64_t[RECORD_WORDS]){__VA_ARGS__})

static void check(bool mine)
{
    if (!mine) {
        fprintf(stderr, "the service got a group or handle that is not its own\n");
        abort();
    }
}

static ncclResult_t create(ncclComm_t comm, const ncclEpGroupConfig_t *config, shim_experts_group_t **group,
                           const char **why)
{
    NOTE(create, WORD(comm));
    g_service.config = *config;
    *group = NULL;
    *why = "the fake declines";
    if (g_service.result != ncclSuccess || g_service.declines)
        return g_service.result;
    *group = calloc(1, sizeof(**group));
    (*group)->mine = &g_service;
    g_service.groups++;
    return ncclSuccess;
}

static ncclResult_t destroy(shim_experts_group_t *group)
{
    check(group->mine == &g_service && group->handles == 0);
    free(group);
    g_service.groups--;
    return g_service.result;
}

static ncclResult_t handle_bytes(shim_experts_group_t *group, int top_k, size_t *bytes)
{
    check(group->mine == &g_service);
    NOTE(handle_bytes, (uint64_t)top_k);
    *bytes = SERVICE_HANDLE_BYTES;
    return g_service.result;
}

static ncclResult_t handle_create(shim_experts_group_t *group, ncclEpLayout_t layout, int top_k,
                                  const ncclEpTensor_t *memory, shim_experts_handle_t **handle)
{
    check(group->mine == &g_service);
    NOTE(handle_create, layout, (uint64_t)top_k, WORD(memory));
    if (g_service.result != ncclSuccess)
        return g_service.result;
    *handle = calloc(1, sizeof(**handle));
    (*handle)->group = group;
    group->handles++;
    g_service.handles++;
    return ncclSuccess;
}

static ncclResult_t handle_update(shim_experts_handle_t *handle, const ncclEpTensor_t *choices)
{
    check(handle->group->mine == &g_service);
    NOTE(handle_update, WORD(choices));
    return g_service.update;
}

static ncclResult_t handle_destroy(shim_experts_handle_t *handle)
{
    check(handle->group->mine == &g_service);
    handle->group->handles--;
    free(handle);
    g_service.handles--;
    return g_service.result;
}

static ncclResult_t dispatch(shim_experts_handle_t *handle, const ncclEpDispatchInputs_t *inputs,
                             const ncclEpDispatchOutputs_t *outputs, const ncclEpLayoutInfo_t *layout,
                             const ncclEpDispatchConfig_t *config, cudaStream_t stream)
{
    check(handle->group->mine == &g_service);
    NOTE(dispatch, WORD(stream));
    g_service.dispatch_inputs = *inputs;
    g_service.dispatch_outputs = *outputs;
    g_service.layout = *layout;
    g_service.dispatch_config = *config;
    return g_service.result;
}

static ncclResult_t combine(shim_experts_handle_t *handle, const ncclEpCombineInputs_t *inputs,
                            const ncclEpCombineOutputs_t *outputs, const ncclEpCombineConfig_t *config,
                            cudaStream_t stream)
{
    check(handle->group->mine == &g_service);
    NOTE(combine, WORD(stream));
    g_service.combine_inputs = *inputs;
    g_service.combine_outputs = *outputs;
    g_service.combine_config = *config;
    return g_service.result;
}

static ncclResult_t complete(shim_experts_handle_t *handle, cudaStream_t stream)
{
    check(handle->group->mine == &g_service);
    NOTE(complete, WORD(stream));
    return g_service.result;
}

__attribute__((visibility("default"))) const shim_experts_service_t *shuntExperts(uint32_t version)
{
    static const shim_experts_service_t table = {
        .version = SHIM_EXPERTS_VERSION,
        .create = create,
        .destroy = destroy,
        .handle_bytes = handle_bytes,
        .handle_create = handle_create,
        .handle_update = handle_update,
        .handle_destroy = handle_destroy,
        .dispatch = dispatch,
        .combine = combine,
        .complete = complete,
    };
    return version == SHIM_EXPERTS_VERSION && !g_service.absent ? &table : NULL;
}
