/*
 * forward.c - where the trampolines of forward.S lead.
 *
 * A trampoline jumps through its slot of shim_forward_table. The first call of
 * a name finds the slot empty and comes here for the address. Two threads may
 * resolve one name at once; both find the same address, and the store is
 * idempotent. The table is static and lives as long as the library.
 */
#include "shim/names/forward.h"

#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "shim/base/log.h"
#include "shim/host/host.h"
#include "shim/real/real.h"

/* In the order of names.def, as forward.S counts them. */
static const char *const forward_names[] = {
#define SHIM_FORWARD(name) #name, "p" #name,
#define SHIM_FORWARD_ONLY(name) #name,
#include "shim/names/names.def"
};

enum { FORWARD_COUNT = sizeof forward_names / sizeof *forward_names };

__attribute__((visibility("hidden"))) _Atomic(void *) shim_forward_table[FORWARD_COUNT];
__attribute__((visibility("hidden"))) void *shim_forward_resolve(uint32_t index);

/* Names of treated functions, for one line each. */
static const char *const forward_treated[] = {
#define SHIM_TREATED(name) #name,
#include "shim/names/names.def"
};

static atomic_bool forward_treated_said[sizeof forward_treated / sizeof *forward_treated];

static void forward_say_missing(const char *name)
{
    if (shim_host_mode()) {
        shim_warn("%s is not there on the host device: it returns ncclInvalidUsage; calls that only the real NCCL "
                  "has need GPUs and SHUNT_DEVICE=cuda",
                  name);
        return;
    }
    const shim_real_t *real = shim_real();
    if (real)
        shim_warn(
            "%s is not in NCCL %d.%d.%d (%s): it returns ncclInvalidUsage; install a newer NCCL, or name one with "
            "SHUNT_NCCL_PATH",
            name, SHIM_VERSION_PARTS(real->version), real->path);
    else
        shim_warn("%s has no NCCL to go to: it returns ncclInvalidUsage; %s", name, shim_real_failure());
}

void shim_forward_missing(const char *name)
{
    for (size_t i = 0; i < sizeof forward_treated / sizeof *forward_treated; i++)
        if (strcmp(forward_treated[i], name) == 0 && !atomic_exchange(&forward_treated_said[i], true))
            forward_say_missing(name);
}

/* Stands in for every name that is missing. Most return an ncclResult_t; to those that return an int, a
 * small struct or nothing, the value means little and harms nothing. */
static ncclResult_t forward_missing(void)
{
    return ncclInvalidUsage;
}

void *shim_forward_resolve(uint32_t index)
{
    const char *name = forward_names[index];
    const shim_real_t *real = shim_host_mode() ? NULL : shim_real();
    void *target = real ? shim_real_symbol(real, name) : NULL;
    if (target) {
        atomic_store_explicit(&shim_forward_table[index], target, memory_order_release);
        return target;
    }
    /* Called from a constructor of the NCCL that is being opened: there is no answer yet, so none is kept. */
    if (!real && !shim_host_mode() && shim_real_failure()[0] == '\0')
        return (void *)forward_missing;
    void *empty = NULL;
    if (atomic_compare_exchange_strong(&shim_forward_table[index], &empty, (void *)forward_missing))
        forward_say_missing(name);
    return (void *)forward_missing;
}
