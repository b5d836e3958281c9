/* SPDX-License-Identifier: Apache-2.0 */
/* rdma.c - reads NCCL's variables, with NCCL's meaning and defaults. It opens libibverbs only if there is an RDMA
 * device. */
#include "shim/nodes/rdma.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if SHUNT_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

#include "shim/base/nccl_env.h"
#include "shim/base/pci_tree.h"
#include "shim/base/settings.h"
#include "shim/base/words.h"

static int number(const char *name, int otherwise)
{
    const char *text = shim_nccl_env(name);
    if (!text || !*text)
        return otherwise;
    errno = 0;
    const long value = strtol(text, NULL, 0);
    return errno ? otherwise : (int)value;
}

static int32_t add_gpu(sel_machine_t *machine, int device)
{
#if SHUNT_HAS_CUDA
    char bus[SEL_BUS_BYTES], text[32];
    if (device >= 0 && cudaDeviceGetPCIBusId(text, sizeof(text), device) == cudaSuccess && sel_bus_normal(text, bus))
        return sel_machine_add_gpu(machine, SHIM_SYS, bus);
#endif
    (void)machine;
    (void)device;
    return -1;
}

static void find_nearest(int device, shim_rdma_t *rdma)
{
    uint32_t order[SEL_MAX_NICS];
    sel_machine_t *machine = calloc(1, sizeof(*machine));
    if (!machine)
        return;
    shim_pci_tree_read(machine);
    const int32_t gpu = add_gpu(machine, device);
    sel_machine_add_nics(machine, SHIM_SYS);
    sel_nics_near(machine, gpu, order);
    for (uint32_t i = 0; i < machine->nics; i++) {
        const sel_nic_t *nic = &machine->nic[order[i]];
        snprintf(rdma->nearest[i].device, sizeof(rdma->nearest[i].device), "%s", nic->name);
        rdma->nearest[i].port = nic->port;
    }
    rdma->wish.nearest = rdma->nearest;
    rdma->wish.nearest_count = machine->nics;
    free(machine);
}

static const char *forbidden(void)
{
    const char *net = shim_nccl_env("NCCL_NET");
    if (number("NCCL_IB_DISABLE", 0) != 0)
        return "NCCL_IB_DISABLE is set";
    if (net && *net && !shim_same_word(net, "IB"))
        return "NCCL_NET is not IB";
    return NULL;
}

void shim_rdma_read(int device, shim_rdma_t *rdma)
{
    const char *library = shim_settings()->ibv_so;
    *rdma = (shim_rdma_t){.wish = {.library = *library ? library : NULL,
                                   .devices = shim_nccl_env("NCCL_IB_HCA"),
                                   .gid_index = number("NCCL_IB_GID_INDEX", -1),
                                   .service_level = number("NCCL_IB_SL", -1),
                                   .traffic_class = number("NCCL_IB_TC", -1),
                                   .pkey_index = number("NCCL_IB_PKEY", 0),
                                   .timeout = number("NCCL_IB_TIMEOUT", 20),
                                   .retries = number("NCCL_IB_RETRY_CNT", 7)}};
    if (rdma->wish.service_level == -1)
        rdma->wish.service_level = 0;
    if (rdma->wish.traffic_class == -1)
        rdma->wish.traffic_class = 0;
    rdma->wish.off = forbidden();
    if (rdma->wish.off)
        return;
    find_nearest(device, rdma);
    if (rdma->wish.nearest_count == 0 && !rdma->wish.library)
        rdma->wish.off = "no RDMA device";
}
