/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refuse.c - an audit library (LD_AUDIT) that simulates another machine.
 *
 * REFUSE=peer  GPUs 0 and 1 have no access to each other's memory. The driver's
 *              functions that report or grant it are bound to the ones here, also
 *              for lookups with dlsym or cuGetProcAddress.
 * REFUSE=nvml  there is no libnvidia-ml.so.1, as in a container without it.
 * REFUSE=nvlink  NVML knows of no NVLink: GPUs reach each other over PCIe, as far as it tells.
 * REFUSE=sharing  a GPU reaches itself by NVLink: ranks that share one are served like those of several (gpu.h,
 * --share).
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#undef cuGetProcAddress
#undef cuIpcOpenMemHandle
#define EXPORT __attribute__((visibility("default")))

enum { FIRST = 0, SECOND = 1, VERSION = 12000 }; /* the two GPUs; CUDA version of the driver calls here */

typedef CUresult get_proc_t(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
typedef CUresult can_access_t(int *, CUdevice, CUdevice);
typedef CUresult p2p_attribute_t(int *, CUdevice_P2PAttribute, CUdevice, CUdevice);
typedef CUresult enable_peer_t(CUcontext, unsigned);
typedef CUresult ipc_open_t(CUdeviceptr *, CUipcMemHandle, unsigned);
typedef CUresult set_access_t(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
typedef int p2p_status_t(void *, void *, int, int *); /* NVML's */
typedef int link_state_t(void *, unsigned, int *);

static get_proc_t get_proc;
static can_access_t can_access;
static p2p_attribute_t p2p_attribute;
static enable_peer_t enable_peer;
static ipc_open_t ipc_open;
static set_access_t set_access;
static p2p_status_t p2p_status, p2p_status_itself;
static link_state_t link_state;

enum {
    GET_PROC,
    CAN_ACCESS,
    P2P_ATTRIBUTE,
    ENABLE_PEER,
    IPC_OPEN,
    SET_ACCESS,
    P2P_STATUS,
    STATUS_ITSELF,
    LINK_STATE,
    REFUSALS
};

/* Replacement of a driver function, and the real one once it has been looked up. */
static struct {
    const char *what; /* REFUSE */
    const char *name; /* a version may follow: _v2 */
    void *here;
    void *driver;
} refusals[REFUSALS] = {
    [GET_PROC] = {"peer", "cuGetProcAddress", (void *)get_proc, NULL},
    [CAN_ACCESS] = {"peer", "cuDeviceCanAccessPeer", (void *)can_access, NULL},
    [P2P_ATTRIBUTE] = {"peer", "cuDeviceGetP2PAttribute", (void *)p2p_attribute, NULL},
    [ENABLE_PEER] = {"peer", "cuCtxEnablePeerAccess", (void *)enable_peer, NULL},
    [IPC_OPEN] = {"peer", "cuIpcOpenMemHandle", (void *)ipc_open, NULL},
    [SET_ACCESS] = {"peer", "cuMemSetAccess", (void *)set_access, NULL},
    [STATUS_ITSELF] = {"sharing", "nvmlDeviceGetP2PStatus", (void *)p2p_status_itself, NULL},
    [P2P_STATUS] = {"nvlink", "nvmlDeviceGetP2PStatus", (void *)p2p_status, NULL},
    [LINK_STATE] = {"nvlink", "nvmlDeviceGetNvLinkState", (void *)link_state, NULL},
};

static bool asked_to(const char *what)
{
    const char *refuse = getenv("REFUSE");
    return refuse && strcmp(refuse, what) == 0;
}

/* The function for a program that looked up `name`, and would get `function`. */
static void *instead(const char *name, void *function)
{
    for (int i = 0; i < REFUSALS; i++) {
        const size_t length = strlen(refusals[i].name);
        if (strncmp(name, refusals[i].name, length) != 0 || (name[length] && strcmp(name + length, "_v2") != 0) ||
            !asked_to(refusals[i].what))
            continue;
        if (function != refusals[i].here)
            refusals[i].driver = function;
        return refusals[i].here;
    }
    return function;
}

static CUresult get_proc(const char *name, void **function, int version, cuuint64_t flags,
                         CUdriverProcAddressQueryResult *status)
{
    const CUresult result = ((get_proc_t *)refusals[GET_PROC].driver)(name, function, version, flags, status);
    if (result == CUDA_SUCCESS && function && *function)
        *function = instead(name, *function);
    return result;
}

/* Driver functions used by this file itself. */
static void *driver_has(const char *name)
{
    CUdriverProcAddressQueryResult status;
    void *function = NULL;
    ((get_proc_t *)refusals[GET_PROC].driver)(name, &function, VERSION, CU_GET_PROC_ADDRESS_DEFAULT, &status);
    if (!function)
        abort(); /* without a driver for this test it fails, and the signal shows where */
    return function;
}

static bool strangers(CUdevice one, CUdevice other)
{
    return (one == FIRST && other == SECOND) || (one == SECOND && other == FIRST);
}

static CUresult can_access(int *can, CUdevice one, CUdevice other)
{
    const CUresult result = ((can_access_t *)refusals[CAN_ACCESS].driver)(can, one, other);
    if (result == CUDA_SUCCESS && strangers(one, other))
        *can = 0;
    return result;
}

static CUresult p2p_attribute(int *value, CUdevice_P2PAttribute attribute, CUdevice one, CUdevice other)
{
    const CUresult result = ((p2p_attribute_t *)refusals[P2P_ATTRIBUTE].driver)(value, attribute, one, other);
    if (result == CUDA_SUCCESS && strangers(one, other))
        *value = 0;
    return result;
}

static CUdevice current_device(void)
{
    CUdevice device = -1;
    ((CUresult(*)(CUdevice *))driver_has("cuCtxGetDevice"))(&device);
    return device;
}

static CUresult enable_peer(CUcontext peer, unsigned flags)
{
    const CUdevice own = current_device();
    CUcontext popped;
    ((CUresult(*)(CUcontext))driver_has("cuCtxPushCurrent"))(peer);
    const CUdevice other = current_device();
    ((CUresult(*)(CUcontext *))driver_has("cuCtxPopCurrent"))(&popped);
    if (strangers(own, other))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return ((enable_peer_t *)refusals[ENABLE_PEER].driver)(peer, flags);
}

/* A handle does not show its owner: these two GPUs can open none. */
static CUresult ipc_open(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags)
{
    const CUdevice device = current_device();
    if (device == FIRST || device == SECOND)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return ((ipc_open_t *)refusals[IPC_OPEN].driver)(pointer, handle, flags);
}

/* The GPU whose memory is mapped there; -1: host memory. */
static CUdevice owner_of(CUdeviceptr pointer)
{
    CUmemGenericAllocationHandle block;
    CUmemAllocationProp properties = {.type = 0};
    if (((CUresult(*)(CUmemGenericAllocationHandle *, void *))driver_has("cuMemRetainAllocationHandle"))(
            &block, (void *)pointer) != CUDA_SUCCESS)
        return -1;
    ((CUresult(*)(CUmemAllocationProp *, CUmemGenericAllocationHandle))driver_has(
        "cuMemGetAllocationPropertiesFromHandle"))(&properties, block);
    ((CUresult(*)(CUmemGenericAllocationHandle))driver_has("cuMemRelease"))(block);
    return properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties.location.id : -1;
}

static CUresult set_access(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    const CUdevice owner = owner_of(pointer);
    for (size_t i = 0; i < count; i++)
        if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && strangers(owner, access[i].location.id))
            return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return ((set_access_t *)refusals[SET_ACCESS].driver)(pointer, bytes, access, count);
}

/* ---- NVML ------------------------------------------------------------------------- */

enum { NVML_OVER_NVLINK = 2, NVML_NOT_OK = 1, NVML_NOT_SUPPORTED = 3 };

static int p2p_status(void *one, void *other, int index, int *status)
{
    const int result = ((p2p_status_t *)refusals[P2P_STATUS].driver)(one, other, index, status);
    if (result == 0 && index == NVML_OVER_NVLINK)
        *status = NVML_NOT_OK;
    return result;
}

static int p2p_status_itself(void *one, void *other, int index, int *status)
{
    if (one != other)
        return ((p2p_status_t *)refusals[STATUS_ITSELF].driver)(one, other, index, status);
    *status = 0;
    return 0;
}

static int link_state(void *device, unsigned link, int *active)
{
    (void)device, (void)link, (void)active;
    return NVML_NOT_SUPPORTED;
}

/* ---- What the linker calls ------------------------------------------------------- */

EXPORT unsigned la_version(unsigned version)
{
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

EXPORT unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    (void)map, (void)space, (void)cookie;
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

EXPORT uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags,
                              const char *name)
{
    (void)index, (void)from, (void)to, (void)flags;
    return (uintptr_t)instead(name, (void *)symbol->st_value);
}

EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag)
{
    (void)cookie, (void)flag;
    return asked_to("nvml") && strstr(name, "libnvidia-ml.so") ? NULL : (char *)name;
}
