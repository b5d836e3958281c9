/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_nccl_ep.c - a libnccl_ep.so.0 that records its calls. Like NVIDIA's it makes a handle by its own public
 * functions, through the PLT.
 */
#include "record.h"

#include <string.h>

enum { MOST_NAMES = 32 };

static struct {
    const char *name;
    record_t record;
} g_records[MOST_NAMES];
static ncclResult_t g_result;

record_find_t record_find;
record_return_t record_return;

record_t *record_find(const char *name)
{
    int i = 0;
    while (i < MOST_NAMES - 1 && g_records[i].name && strcmp(g_records[i].name, name) != 0)
        i++;
    g_records[i].name = name;
    return &g_records[i].record;
}

void record_return(ncclResult_t result)
{
    g_result = result;
}

static ncclResult_t take(const char *name, const uint64_t word[RECORD_WORDS])
{
    record_t *record = record_find(name);
    record->calls++;
    memcpy(record->word, word, sizeof(record->word));
    return g_result;
}

#define TAKE(name, ...) take(name, (const uint64_t[RECORD_WORDS]){__VA_ARGS__})

ncclResult_t ncclEpGetVersion(int *version)
{
    *version = RECORD_VERSION;
    return TAKE("GetVersion", WORD(version));
}

ncclResult_t ncclEpCreateGroup(ncclEpGroup_t *group, ncclComm_t comm, const ncclEpGroupConfig_t *config)
{
    *group = REAL_GROUP;
    return TAKE("CreateGroup", WORD(comm), WORD(config));
}

ncclResult_t ncclEpGroupDestroy(ncclEpGroup_t group)
{
    return TAKE("GroupDestroy", WORD(group));
}

ncclResult_t ncclEpHandleMemSize(ncclEpGroup_t group, ncclEpLayout_t layout, const ncclEpHandleConfig_t *config,
                                 size_t *bytes, int top_k)
{
    return TAKE("HandleMemSize", WORD(group), layout, WORD(config), WORD(bytes), (uint64_t)top_k);
}

ncclResult_t ncclEpInitHandle(ncclEpHandle_t *handle, ncclEpGroup_t group, ncclEpLayout_t layout,
                              const ncclEpHandleConfig_t *config, int top_k, const ncclEpTensor_t *memory)
{
    *handle = REAL_HANDLE;
    return TAKE("InitHandle", WORD(group), layout, WORD(config), (uint64_t)top_k, WORD(memory));
}

ncclResult_t ncclEpUpdateHandle(ncclEpHandle_t handle, const ncclEpTensor_t *choices, const ncclEpLayoutInfo_t *layout,
                                cudaStream_t stream)
{
    return TAKE("UpdateHandle", WORD(handle), WORD(choices), WORD(layout), WORD(stream));
}

ncclResult_t ncclEpCreateHandle(ncclEpHandle_t *handle, ncclEpGroup_t group, ncclEpLayout_t layout,
                                const ncclEpTensor_t *choices, const ncclEpLayoutInfo_t *info,
                                const ncclEpHandleConfig_t *config, cudaStream_t stream)
{
    TAKE("CreateHandle", WORD(group), layout, WORD(choices), WORD(info), WORD(config), WORD(stream));
    const ncclResult_t result = ncclEpInitHandle(handle, group, layout, config, (int)choices->sizes[1], NULL);
    return result == ncclSuccess ? ncclEpUpdateHandle(*handle, choices, info, stream) : result;
}

ncclResult_t ncclEpHandleDestroy(ncclEpHandle_t handle)
{
    return TAKE("HandleDestroy", WORD(handle));
}

ncclResult_t ncclEpDispatch(ncclEpHandle_t handle, const ncclEpDispatchInputs_t *inputs,
                            const ncclEpDispatchOutputs_t *outputs, const ncclEpLayoutInfo_t *layout,
                            const ncclEpDispatchConfig_t *config, cudaStream_t stream)
{
    return TAKE("Dispatch", WORD(handle), WORD(inputs), WORD(outputs), WORD(layout), WORD(config), WORD(stream));
}

ncclResult_t ncclEpCombine(ncclEpHandle_t handle, const ncclEpCombineInputs_t *inputs,
                           const ncclEpCombineOutputs_t *outputs, const ncclEpCombineConfig_t *config,
                           cudaStream_t stream)
{
    return TAKE("Combine", WORD(handle), WORD(inputs), WORD(outputs), WORD(config), WORD(stream));
}

ncclResult_t ncclEpComplete(ncclEpHandle_t handle, const ncclEpCompleteConfig_t *config, cudaStream_t stream)
{
    return TAKE("Complete", WORD(handle), WORD(config), WORD(stream));
}

ncclResult_t ncclEpMaskQuery(ncclEpGroup_t group, int *device_mask, cudaStream_t stream)
{
    return TAKE("MaskQuery", WORD(group), WORD(device_mask), WORD(stream));
}

ncclResult_t ncclEpMaskUpdate(ncclEpGroup_t group, const int *host_mask, cudaStream_t stream)
{
    return TAKE("MaskUpdate", WORD(group), WORD(host_mask), WORD(stream));
}

ncclResult_t ncclEpMaskClean(ncclEpGroup_t group, cudaStream_t stream)
{
    return TAKE("MaskClean", WORD(group), WORD(stream));
}

#ifndef FAKE_OLD
ncclResult_t ncclEpGetAsyncError(ncclEpGroup_t group, int *error)
{
    return TAKE("GetAsyncError", WORD(group), WORD(error));
}

ncclResult_t ncclEpErrorClear(ncclEpGroup_t group)
{
    return TAKE("ErrorClear", WORD(group));
}
#endif
