/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.h - NVTX ranges around taken calls, like the real NCCL's (domain NCCL; name and bytes). Active only if
 * NVTX_INJECTION64_PATH names a tool; otherwise nothing is loaded. */
#ifndef SHUNT_SHIM_RANGES_H
#define SHUNT_SHIM_RANGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern atomic_bool shim_ranges_off;

static inline bool shim_ranges_wanted(void)
{
    return !__builtin_expect(atomic_load_explicit(&shim_ranges_off, memory_order_relaxed), 1);
}

/* Call only if shim_ranges_wanted. False: no tool is active, as the first call finds out. `function` must be static. */
bool shim_range_begin(const char *function, uint64_t bytes);
/* Ends this thread's last range. */
void shim_range_end(void);

#endif
