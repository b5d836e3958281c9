/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h - this process's machine, as selector/topology/topology.h describes one. */
#ifndef SHUNT_SHIM_MACHINE_H
#define SHUNT_SHIM_MACHINE_H

#include "selector/topology/topology.h"

/* Queries NVML and CUDA, which may start slowly, and reads /sys. */
void shim_machine_read(sel_machine_t *machine);

#endif
