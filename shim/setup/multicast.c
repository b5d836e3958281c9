/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/setup/multicast.h"

#include <string.h>

#include "shim/base/nccl_env.h"
#include "shim/real/real.h"

/* The first NCCL that uses multicast between two GPUs. Earlier ones need three (ncclNvlsInit of 2.18.1 to 2.28.3). */
enum { BETWEEN_TWO = 22807 };

uint32_t shim_multicast_least(bool has)
{
    const char *enable = shim_nccl_env("NCCL_NVLS_ENABLE");
    if (!has || (enable && strcmp(enable, "0") == 0))
        return 0;
    const shim_real_t *real = shim_real();
    return real && real->version < BETWEEN_TWO ? 3 : 2;
}
