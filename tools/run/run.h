/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - a command with Shunt in NCCL's place, for `shunt run` and `shunt doctor`.
 */
#ifndef SHUNT_TOOLS_RUN_H
#define SHUNT_TOOLS_RUN_H

#include <stdbool.h>

int tool_run(int argc, char **argv);
/* Execute the command in this process, with LD_AUDIT if `audited`. Returns only on failure, with an exit status, after
 * a message. */
int tool_run_command(char **command, bool audited);

#endif
