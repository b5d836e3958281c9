/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pci_tree.c - see pci_tree.h.
 *
 * Virtual machines hide where PCI devices hang, so whoever made one says it in a
 * file (NCCL_TOPO_FILE), which NCCL believes rather than /sys; so do we. What
 * devices there are, and what they can do, is asked of the drivers all the same.
 */
#include "shim/setup/pci_tree.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "shim/base/log.h"
#include "shim/base/nccl_env.h"

/* Where NCCL looks when nobody names a file. */
#define USUAL_FILE "/var/run/nvidia-topologyd/virtualTopology.xml"

void shim_pci_tree_read(sel_machine_t *machine)
{
    static atomic_bool told;
    char fault[256];
    const char *file = shim_nccl_env("NCCL_TOPO_FILE");
    if (!file || !*file)
        file = access(USUAL_FILE, R_OK) == 0 ? USUAL_FILE : NULL;
    if (!file)
        return;
    if (!sel_machine_load(machine, file, fault, sizeof(fault))) {
        if (!atomic_exchange(&told, true))
            shim_warn("topology file: %s; /sys is read instead", fault);
        return;
    }
    machine->gpus = machine->nics = 0;
    memset(machine->gpu, 0, sizeof(machine->gpu));
    memset(machine->nic, 0, sizeof(machine->nic));
}
