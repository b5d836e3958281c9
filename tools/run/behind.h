/* SPDX-License-Identifier: Apache-2.0 */
/*
 * behind.h - the real NCCL that a program would get, if it has names that ours lacks.
 */
#ifndef SHUNT_TOOLS_BEHIND_H
#define SHUNT_TOOLS_BEHIND_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* True if the NCCL that `command` (searched in PATH if it has no slash) would load without Shunt has a function that
 * `library` lacks. Then `real` is its real path and `name` one of these functions. Runs no code of the command. */
bool tool_behind(const char *library, const char *command, char real[PATH_MAX], char *name, size_t capacity);

#endif
