/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h - the machine that this process runs on, as selector/topology/topology.h
 * describes one.
 */
#ifndef SHUNT_SHIM_MACHINE_H
#define SHUNT_SHIM_MACHINE_H

#include "selector/topology/topology.h"

/* Read all of it. Queries NVML, /sys and CUDA, and may start them, which takes a while. */
void shim_machine_read(sel_machine_t *machine);

#endif
