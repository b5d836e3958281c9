/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - seconds of CLOCK_MONOTONIC. */
#ifndef SHUNT_TOOLS_CLOCK_H
#define SHUNT_TOOLS_CLOCK_H

#include <time.h>

static inline double tool_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

#endif
