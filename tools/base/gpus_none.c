/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpus_none.c - gpus.h in a build without CUDA.
 */
#include "tools/base/gpus.h"

#include <stdio.h>
#include <string.h>

void tool_gpus_read(tool_gpus_t *gpus)
{
    memset(gpus, 0, sizeof *gpus);
    snprintf(gpus->error, sizeof gpus->error, "built without CUDA");
}
