/* SPDX-License-Identifier: Apache-2.0 */
/* answer.c - calls into the real NCCL, and its results. */
#include "shim/base/device.h"
#include "shim/base/last_error.h"
#include "shim/real/real.h"

const shim_real_t *shim_real_used(void)
{
    return shim_cpu_mode() ? NULL : shim_real();
}

const shim_real_t *shim_real_need(const char *function)
{
    const shim_real_t *found = shim_real();
    if (!found)
        shim_set_last_error("%s: %s", function, shim_real_failure());
    return found;
}

/* Called with NCCL's arguments, which it ignores: in the ABIs of Linux the caller removes them. */
#define SHIM_TREATED(name)                \
    static ncclResult_t none_##name(void) \
    {                                     \
        (void)shim_real_need(#name);      \
        return ncclSystemError;           \
    }
#include "shim/names/names.def"

const shim_real_t *shim_real_or_none(void)
{
    static const shim_real_t none = {
#define SHIM_TREATED(name) .name = (__typeof__(&name))(void *)none_##name,
#include "shim/names/names.def"
    };
    const shim_real_t *found = shim_real();
    return found ? found : &none;
}

ncclResult_t shim_real_answer(ncclResult_t result)
{
    if (shim_is_error(result) && shim_real())
        shim_set_last_error("%s", "");
    return result;
}
