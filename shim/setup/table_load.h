/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table_load.h - the tuned table of this process: which file, and what of it a
 * communicator wants.
 */
#ifndef SHUNT_SHIM_TABLE_LOAD_H
#define SHUNT_SHIM_TABLE_LOAD_H

#include "selector/selector.h"

/* Where the table of a machine (sel_fingerprint; host device: 0) lies: in SHUNT_CACHE_DIR. False if there is
 * no such folder to name, or the path does not fit. */
bool shim_table_path(uint64_t machine, char *path, size_t capacity);

/* The rows for so many ranks and the links' figures, of SHUNT_TABLE or of this machine's table. `tuned` is all zero;
 * without a table, or with one of another machine, it stays so. The file is read once, at the first call, and what is
 * wrong with it is said then. */
void shim_table_wanted(uint32_t nranks, uint64_t machine, sel_tuned_t *tuned);

#endif
