/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table_load.h - the tuned table of this process: its file, and the part for a communicator.
 */
#ifndef SHUNT_SHIM_TABLE_LOAD_H
#define SHUNT_SHIM_TABLE_LOAD_H

#include "selector/selector.h"

/* Where the table of a machine (sel_fingerprint; host device: 0) lies: in SHUNT_CACHE_DIR. False if there is
 * no such folder to name, or the path does not fit. */
bool shim_table_path(uint64_t machine, char *path, size_t capacity);

/* If the plan's class was not measured on this machine, or with another NCCL: leave a note in the cache folder, on
 * which the next `shunt run` measures it, and log what `shunt tune` would bring. Once a process and number of ranks;
 * without effect where the folder cannot be written, and no note (SHUNT_TUNE=auto) in programs without `shunt run`. */
void shim_table_note(const sel_plan_t *plan);

/* Fill in the rows for this number of ranks and the links' figures, from SHUNT_TABLE or this machine's table.
 * `tuned` is zero, and stays so without a table or with another machine's. The first call reads the file and reports
 * its faults. */
void shim_table_wanted(uint32_t nranks, uint64_t machine, sel_tuned_t *tuned);

#endif
