/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c - see clock.h. */
#include "shim/base/clock.h"

#include <time.h>

uint64_t shim_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}
