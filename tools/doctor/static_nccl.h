/* SPDX-License-Identifier: Apache-2.0 */
/*
 * static_nccl.h - detects NCCL linked statically into a program or library.
 */
#ifndef SHUNT_TOOLS_STATIC_NCCL_H
#define SHUNT_TOOLS_STATIC_NCCL_H

#include <stdbool.h>

/* Whether an ELF file for this machine's architecture defines ncclCommInitRank among its dynamic symbols or, unless it
 * is stripped, its other symbols; a function without a size does not count. Runs no code of the file. False if it
 * cannot be read. */
bool tool_static_nccl(const char *path);

#endif
