/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SHUNT_SHIM_PCI_TREE_H
#define SHUNT_SHIM_PCI_TREE_H

#include "selector/topology/topology.h"

#define SHIM_SYS "/sys"

/* Fill in the PCI tree of the real NCCL's topology file, if there is one. The caller has zeroed `machine`. */
void shim_pci_tree_read(sel_machine_t *machine);

#endif
