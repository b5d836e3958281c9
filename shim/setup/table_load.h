/* SPDX-License-Identifier: Apache-2.0 */
/* table_load.h - this process's tuned table: its file, and a communicator's part of it. */
#ifndef SHUNT_SHIM_TABLE_LOAD_H
#define SHUNT_SHIM_TABLE_LOAD_H

#include "selector/selector.h"

/* Path of a machine's table (sel_fingerprint; CPU device: 0). False without a cache folder, or if it does not fit. */
bool shim_table_path(uint64_t machine, char *path, size_t capacity);

/* If the plan's class was not measured here with this NCCL: log it, and under `shunt run` leave a note, so that the
 * next `shunt run` measures it. Acts once per process and number of ranks. */
void shim_table_note(const sel_plan_t *plan);

/* Fill in rows for this number of ranks and the links' figures, from SHUNT_TABLE or this machine's table; without one
 * `tuned` stays zero. The first call reads the file. */
void shim_table_wanted(uint32_t nranks, uint64_t machine, sel_tuned_t *tuned);

#endif
