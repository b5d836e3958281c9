/* SPDX-License-Identifier: Apache-2.0 */
/*
 * static_nccl.h - does a program or library have NCCL linked into it?
 */
#ifndef SHUNT_TOOLS_STATIC_NCCL_H
#define SHUNT_TOOLS_STATIC_NCCL_H

#include <stdbool.h>

/* Whether an ELF file of this machine's kind defines ncclCommInitRank, in its dynamic symbols or, where it is not
 * stripped, in the others. Runs no code of it. A file that cannot be read: false. */
bool tool_static_nccl(const char *path);

#endif
