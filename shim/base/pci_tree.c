/* SPDX-License-Identifier: Apache-2.0 */
/* pci_tree.c - reads the file that describes the PCI tree which a virtual machine hides. NCCL and Shunt prefer the
 * file to /sys. The drivers still report which devices exist. */
#include "shim/base/pci_tree.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "shim/base/log.h"
#include "shim/base/nccl_env.h"

/* NCCL's default path. */
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
            shim_warn("topology file: %s; /sys is read instead; correct the file, or unset NCCL_TOPO_FILE", fault);
        return;
    }
    machine->gpus = machine->nics = 0;
    memset(machine->gpu, 0, sizeof(machine->gpu));
    memset(machine->nic, 0, sizeof(machine->nic));
}
