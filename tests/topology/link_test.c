/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The links of a rank to its peers, with a fake CUDA and the fake NVML: from NVML; without NVML, from CUDA; over PCIe,
 * from the file that NCCL uses.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <cuda_runtime.h>

#include "shim/base/device.h"
#include "shim/base/log.h"
#include "shim/base/nccl_env.h"
#include "shim/setup/link.h"
#include "shim/setup/machine.h"
#include "shim/setup/multicast.h"
#include "transport/transport.h"

/* ---- CUDA: four GPUs at bus 0x11 and on, as in sockets-2x4.xml -------------------------- */

enum { GPUS = 4 };
static unsigned first_bus = 0x11, bus_step = 0x10;
static int atomics;
static int lonely = -1; /* without peer access */
static char logged[512];

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = GPUS;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    if (device >= GPUS)
        return cudaErrorInvalidDevice;
    *properties = (struct cudaDeviceProp){.name = "NVIDIA Made-Up",
                                          .totalGlobalMem = (size_t)80 << 30,
                                          .major = 9,
                                          .multiProcessorCount = 132,
                                          .pciBusID = (int)(first_bus + bus_step * (unsigned)device)};
    properties->uuid.bytes[0] = (char)device;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *bus)
{
    unsigned domain, number;
    if (sscanf(bus, "%x:%x", &domain, &number) != 2)
        return cudaErrorInvalidDevice;
    *device = (int)((number - first_bus) / bus_step);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int from, int to)
{
    *can = from != to && !(from == lonely || to == lonely);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, int attribute, int from, int to)
{
    *value = attribute == cudaDevP2PAttrNativeAtomicSupported && from != to && atomics;
    return cudaSuccess;
}

/* ---- The folders around ------------------------------------------------------------------ */

int net_scope_enter(net_scope_t *scope, int device)
{
    (void)scope;
    return device < GPUS ? 0 : -1;
}

void net_scope_leave(net_scope_t *scope)
{
    (void)scope;
}

int net_cuda_errno(int error)
{
    return -error;
}

bool shim_cpu_mode(void)
{
    return false;
}

const char *shim_nccl_env(const char *name)
{
    return getenv(name);
}

uint32_t shim_multicast_least(bool has)
{
    return has ? 2 : 0;
}

void shim_log(shim_log_level_t level, const char *format, ...)
{
    (void)level;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(logged, sizeof logged, format, arguments);
    va_end(arguments);
}

/* ---- The tests ----------------------------------------------------------------------------- */

static void expect(const int *device, uint32_t count, sel_link_t link, uint32_t lanes)
{
    shim_gpu_t gpu[GPUS];
    sel_gpu_kind_t kind;
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(shim_link_gpu(device[i], &gpu[i], &kind), 0);
    const sel_reach_t reach = shim_link_reach(device[0], gpu, 0, count);
    assert_int_equal(reach.link, link);
    assert_int_equal(reach.lanes, lanes);
}

static void by_cuda(void **state)
{
    (void)state;
    atomics = 1;
    expect((int[]){0, 1, 2}, 3, SEL_LINK_NVSWITCH, 0);
    atomics = 0;
    expect((int[]){0, 1, 2}, 3, SEL_LINK_PHB, 0); /* /sys does not have them */
    setenv("NCCL_TOPO_FILE", SHUNT_MACHINES "/sockets-2x4.xml", 1);
    expect((int[]){0, 3}, 2, SEL_LINK_PHB, 0);
    first_bus = 0x21; /* the last of them is on the other socket */
    expect((int[]){0, 2}, 2, SEL_LINK_PHB, 0);
    expect((int[]){0, 1, 3}, 3, SEL_LINK_SYS, 0);
    assert_string_equal(logged, "");
    setenv("NCCL_TOPO_FILE", SHUNT_MACHINES "/none.xml", 1);
    expect((int[]){0, 3}, 2, SEL_LINK_PHB, 0);
    assert_non_null(strstr(logged, "none.xml: No such file or directory"));
    unsetenv("NCCL_TOPO_FILE");
    first_bus = 0x11;
}

/* A rank lacks access to a peer, either way round; GPUs that this process does not see count as allowed. */
static void access_to_peers(void **state)
{
    (void)state;
    shim_gpu_t gpu[GPUS];
    sel_gpu_kind_t kind;
    for (int i = 0; i < GPUS; i++)
        assert_int_equal(shim_link_gpu(i, &gpu[i], &kind), 0);
    for (lonely = -1; lonely < GPUS; lonely++)
        for (int own = 0; own < GPUS; own++) {
            assert_int_equal(shim_link_peers(own, gpu, (uint32_t)own, GPUS), lonely == -1);
            const bool has = lonely != own && lonely != 0;
            assert_int_equal(shim_link_peers(own, (shim_gpu_t[]){gpu[own], gpu[0]}, 0, 2), has || own == 0);
        }
    lonely = -1;
}

static void by_nvml(void **state)
{
    (void)state;
    atomics = 1; /* not asked */
    bus_step = 1;
    first_bus = 0x10;
    expect((int[]){0, 1, 2, 3}, 4, SEL_LINK_NVSWITCH, 18);
    setenv("FAKE_NVML", "bridges", 1);
    first_bus = 0x40;
    expect((int[]){0, 1}, 2, SEL_LINK_MESH, 12);
    expect((int[]){0, 1, 2, 3}, 4, SEL_LINK_BRIDGES, 0);
    expect((int[]){0, 2}, 2, SEL_LINK_PHB, 0);
    setenv("FAKE_NVML", "switch", 1);
}

static void kinds(void **state)
{
    (void)state;
    shim_gpu_t one, two;
    sel_gpu_kind_t kind;
    assert_int_equal(shim_link_gpu(0, &one, &kind), 0);
    assert_int_equal(shim_link_gpu(1, &two, &kind), 0);
    assert_int_equal(one.arch, 90);
    assert_int_equal(kind.driver, 13000);
    assert_true(one.fingerprint == two.fingerprint && one.fingerprint == sel_gpu_fingerprint(&kind));
    assert_true(shim_link_gpu(GPUS, &one, &kind) != 0);
}

static void machine(void **state)
{
    (void)state;
    static sel_machine_t here;
    uint32_t gpu[SEL_MAX_GPUS];
    shim_machine_read(&here);
    assert_int_equal(sel_machine_team(&here, gpu), GPUS);
    assert_int_equal(here.gpu[gpu[3]].kind.multiprocessors, 132);
}

int main(void)
{
    const struct CMUnitTest without_nvml[] = {
        cmocka_unit_test(by_cuda),
        cmocka_unit_test(access_to_peers),
        cmocka_unit_test(kinds),
        cmocka_unit_test(machine),
    };
    const struct CMUnitTest with_nvml[] = {
        cmocka_unit_test(by_nvml),
        cmocka_unit_test(kinds),
        cmocka_unit_test(machine),
    };
    if (strcmp(getenv("FAKE_NVML"), "none") == 0)
        return cmocka_run_group_tests(without_nvml, NULL, NULL);
    return cmocka_run_group_tests(with_nvml, NULL, NULL);
}
