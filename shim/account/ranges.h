/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranges.h - NVTX ranges around taken calls, as the real NCCL has around its own: domain NCCL, the call's name, and its
 * bytes. Nsight Systems shows them. Only where a tool asks (NVTX_INJECTION64_PATH); otherwise a call costs one relaxed
 * load and a branch, and nothing is loaded.
 */
#ifndef SHUNT_SHIM_RANGES_H
#define SHUNT_SHIM_RANGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern atomic_bool shim_ranges_off;

/* False: nothing is to be done. */
static inline bool shim_ranges_wanted(void)
{
    return !__builtin_expect(atomic_load_explicit(&shim_ranges_off, memory_order_relaxed), 1);
}

/* If wanted. False: no tool listens, which a process's first call finds out. function: static. */
bool shim_range_begin(const char *function, uint64_t bytes);
/* Of the last range begun by this thread. */
void shim_range_end(void);

#endif
