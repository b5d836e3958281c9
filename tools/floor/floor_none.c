/* SPDX-License-Identifier: Apache-2.0 */
/* floor_none.c - floor.h in a build without CUDA. */
#include "tools/floor/floor.h"

#include <stdio.h>
#include <string.h>

void tool_floor_measure(uint32_t gpus, tool_floor_t *floor)
{
    (void)gpus;
    memset(floor, 0, sizeof *floor);
    snprintf(floor->error, sizeof floor->error, "built without CUDA");
}
