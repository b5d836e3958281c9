/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - what table.c and memory.c share. Private to this folder.
 */
#ifndef SHUNT_MEMORY_H
#define SHUNT_MEMORY_H

#include "selector/selector.h"

/* Whether the plan's tuned table is of its machine. The loader has refused another machine's; this also refuses it if a
 * communicator's GPUs differ in kind. */
bool sel_tuned_is_ours(const sel_plan_t *plan);

#endif
