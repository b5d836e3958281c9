/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.c - without NVTX's header (cmake/nvtx.cmake) there are no ranges. */
#define _GNU_SOURCE
#include "shim/account/ranges.h"

#ifdef SHUNT_HAS_NVTX
#include <pthread.h>
#include <stdlib.h>

#include <nvtx3/nvToolsExt.h>

#include "shim/base/nccl_env.h"

atomic_bool shim_ranges_off;
static nvtxDomainHandle_t g_domain;

/* NVTX loads the library that the variable names. secure_getenv hides it in a set-user-ID program, whose user must not
 * choose code. */
static bool is_wanted(void)
{
    const char *disable = shim_nccl_env("NCCL_NVTX_DISABLE");
    const char *tool = secure_getenv("NVTX_INJECTION64_PATH");
    return tool && tool[0] != '\0' && (!disable || strtoll(disable, NULL, 0) == 0);
}

static void start(void)
{
    g_domain = is_wanted() ? nvtxDomainCreateA("NCCL") : NULL;
    atomic_store_explicit(&shim_ranges_off, !g_domain, memory_order_relaxed);
}

bool shim_range_begin(const char *function, uint64_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
    if (!g_domain)
        return false;
    const nvtxEventAttributes_t range = {.version = NVTX_VERSION,
                                         .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                         .payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
                                         .payload.ullValue = bytes,
                                         .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                         .message.ascii = function};
    nvtxDomainRangePushEx(g_domain, &range);
    return true;
}

void shim_range_end(void)
{
    nvtxDomainRangePop(g_domain);
}

#else

atomic_bool shim_ranges_off = true;

bool shim_range_begin(const char *function, uint64_t bytes)
{
    (void)function;
    (void)bytes;
    return false;
}

void shim_range_end(void)
{
}

#endif
