/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - shared by table.c and memory.c. */
#ifndef SHUNT_MEMORY_H
#define SHUNT_MEMORY_H

#include "selector/selector.h"

/* Whether the tuned table applies. The loader refuses another machine's table; this function also refuses one if the
 * ranks' GPUs differ in kind. */
bool sel_tuned_is_ours(const sel_plan_t *plan);

#endif
