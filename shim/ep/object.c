/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/ep/object.h"
#include "shim/ep/names.h"
#include "transport/transport.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define GROUP 0x70756f7267706553ull
#define HANDLE 0x6c646e6168706553ull

/* Destroyed objects of one kind, kept for reuse. */
typedef struct store {
    size_t bytes;
    shim_ep_object_t *first;
} store_t;

static net_lock_t g_lock = NET_LOCK_INITIALIZER;
static store_t g_groups = {.bytes = sizeof(struct ncclEpGroup)};
static store_t g_handles = {.bytes = sizeof(struct ncclEpHandle)};

static void *take(store_t *store, uint64_t magic)
{
    net_lock_take(&g_lock);
    shim_ep_object_t *object = store->first;
    if (object)
        store->first = object->next;
    net_lock_give(&g_lock);
    if (!object)
        object = malloc(store->bytes);
    if (!object)
        return NULL;
    memset(object, 0, store->bytes);
    object->magic = magic;
    return object;
}

static void give(store_t *store, shim_ep_object_t *object)
{
    net_lock_take(&g_lock);
    object->next = store->first;
    store->first = object;
    net_lock_give(&g_lock);
}

bool shim_ep_group_is_valid(ncclEpGroup_t group)
{
    return group && group->object.magic == GROUP;
}

bool shim_ep_handle_is_valid(ncclEpHandle_t handle)
{
    return handle && handle->object.magic == HANDLE;
}

ncclEpGroup_t shim_ep_group_make(void)
{
    ncclEpGroup_t group = take(&g_groups, GROUP);
    if (group)
        group->holders = 1;
    return group;
}

ncclEpHandle_t shim_ep_handle_make(ncclEpGroup_t group)
{
    ncclEpHandle_t handle = take(&g_handles, HANDLE);
    if (handle) {
        handle->group = group;
        atomic_fetch_add(&group->holders, 1);
    }
    return handle;
}

static ncclResult_t release(ncclEpGroup_t group)
{
    if (atomic_fetch_sub(&group->holders, 1) > 1)
        return ncclSuccess;
    ncclResult_t result = ncclSuccess;
    if (group->served)
        result = group->service->destroy(group->served);
    else if (group->real)
        result = shim_ep_real()->GroupDestroy(group->real);
    give(&g_groups, &group->object);
    return result;
}

ncclResult_t shim_ep_group_end(ncclEpGroup_t group)
{
    group->object.magic = 0;
    return release(group);
}

ncclResult_t shim_ep_handle_end(ncclEpHandle_t handle)
{
    ncclEpGroup_t group = handle->group;
    handle->object.magic = 0;
    give(&g_handles, &handle->object);
    return release(group);
}
