/* SPDX-License-Identifier: Apache-2.0 */
/* forward.c - the targets of forward.S's trampolines. A trampoline jumps through its slot of shim_forward_table, which
 * is resolved here at the first call; concurrent calls store the same address. */
#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/base/device.h"
#include "shim/real/real.h"

/* In names.def's order, as forward.S counts them. */
static const char *const forward_names[] = {
#define SHIM_FORWARD(name) #name, "p" #name,
#define SHIM_FORWARD_ONLY(name) #name,
#include "shim/names/names.def"
};

enum { FORWARD_COUNT = sizeof forward_names / sizeof *forward_names };

__attribute__((visibility("hidden"))) _Atomic(void *) shim_forward_table[FORWARD_COUNT];
__attribute__((visibility("hidden"))) void *shim_forward_resolve(uint32_t index);

/* Called instead of a function that the real NCCL lacks, even one that returns an int, a small struct or nothing. */
static ncclResult_t forward_missing(void)
{
    return ncclInvalidUsage;
}

void *shim_forward_resolve(uint32_t index)
{
    const char *name = forward_names[index];
    const shim_real_t *real = shim_real_used();
    void *target = real ? shim_real_symbol(real, name) : NULL;
    if (target) {
        atomic_store_explicit(&shim_forward_table[index], target, memory_order_release);
        return target;
    }
    /* A constructor of the NCCL being opened called this: the answer is not final, so it is not stored. */
    if (!real && !shim_cpu_mode() && shim_real_failure()[0] == '\0')
        return (void *)forward_missing;
    void *empty = NULL;
    if (atomic_compare_exchange_strong(&shim_forward_table[index], &empty, (void *)forward_missing))
        shim_real_log_missing(name);
    return (void *)forward_missing;
}
