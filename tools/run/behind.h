/* SPDX-License-Identifier: Apache-2.0 */
/*
 * behind.h - the real NCCL that a program would load, if it has functions that Shunt's library lacks.
 */
#ifndef SHUNT_TOOLS_BEHIND_H
#define SHUNT_TOOLS_BEHIND_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* True if the NCCL that `command` (searched in PATH if it has no slash) would load without Shunt has a function that
 * `library` lacks. Then `real` is its path with links resolved and `name` one of these functions. Runs no code of the
 * command. */
bool tool_behind(const char *library, const char *command, char real[PATH_MAX], char *name, size_t capacity);

#endif
