/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h - this process's machine, as selector/topology/topology.h describes one.
 */
#ifndef SHUNT_SHIM_MACHINE_H
#define SHUNT_SHIM_MACHINE_H

#include "selector/topology/topology.h"

/* Read all of it. Queries, and may slowly start, NVML and CUDA; reads /sys. */
void shim_machine_read(sel_machine_t *machine);

#endif
