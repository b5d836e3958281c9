/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table_load.h - this process's tuned table: its file, and a communicator's part of it.
 */
#ifndef SHUNT_SHIM_TABLE_LOAD_H
#define SHUNT_SHIM_TABLE_LOAD_H

#include "selector/selector.h"

/* Path of a machine's table (sel_fingerprint; host device: 0) in SHUNT_CACHE_DIR. False if there is no folder, or the
 * path does not fit. */
bool shim_table_path(uint64_t machine, char *path, size_t capacity);

/* If the plan's class was not measured on this machine, or with another NCCL: log what `shunt tune` would bring, and
 * leave a note, so that the next `shunt run` measures it. Once a process and number of ranks. No note without `shunt
 * run` (SHUNT_TUNE=auto) or a writable cache folder. */
void shim_table_note(const sel_plan_t *plan);

/* Fill in the rows for this number of ranks and the links' figures, from SHUNT_TABLE or this machine's table. `tuned`
 * is zero, and stays so without a table of this machine. The first call reads the file and warns of its faults. */
void shim_table_wanted(uint32_t nranks, uint64_t machine, sel_tuned_t *tuned);

#endif
