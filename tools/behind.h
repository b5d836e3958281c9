/* SPDX-License-Identifier: Apache-2.0 */
/*
 * behind.h - the real NCCL that a program would get, if it has names that ours lacks.
 */
#ifndef SHUNT_TOOLS_BEHIND_H
#define SHUNT_TOOLS_BEHIND_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* The NCCL that `command` (searched in PATH where it has no slash) would load without Shunt: true if it has a function
 * that `library` has not. Then `real` is its path, absolute and without links, and `name` one of these functions. Runs
 * no code of the command's. */
bool tool_behind(const char *library, const char *command, char real[PATH_MAX], char *name, size_t capacity);

#endif
