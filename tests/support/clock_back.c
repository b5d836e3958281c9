/* SPDX-License-Identifier: Apache-2.0 */
/* clock_back.c - see clock_back.h. */
#include "clock_back.h"

#include <stdbool.h>
#include <time.h>

atomic_bool clock_goes_back;

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    const int error = __real_clock_gettime(clock, now);
    if (clock == CLOCK_REALTIME && atomic_load(&clock_goes_back))
        now->tv_sec += 3600;
    return error;
}
