/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - a command with Shunt in NCCL's place, for `shunt run` and `shunt doctor`.
 */
#ifndef SHUNT_TOOLS_RUN_H
#define SHUNT_TOOLS_RUN_H

#include <stdbool.h>

/* Put the command in this process's place; `audited`: with LD_AUDIT as well. Returns only if that failed, which is
 * told, with an exit status. */
int tool_run_command(char **command, bool audited);

#endif
