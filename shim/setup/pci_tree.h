/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pci_tree.h - where the machine's PCI devices hang.
 */
#ifndef SHUNT_SHIM_PCI_TREE_H
#define SHUNT_SHIM_PCI_TREE_H

#include "selector/topology.h"

#define SHIM_SYS "/sys"

/* An empty machine, or one with the PCI tree alone of the file that the real NCCL takes it from. `machine`
 * is zero. */
void shim_pci_tree_read(sel_machine_t *machine);

#endif
