/* SPDX-License-Identifier: Apache-2.0 */
/* collectives_config.c - NCCL's collectives with a configuration (NCCL 2.31). With a configuration that sets nothing, a
 * call is plain: NCCL lets one rank pass NULL and its peer an empty one. Calls with requests are forwarded, in
 * order with Shunt's. */
#include <stddef.h>

#include "shim/base/device.h"
#include "shim/call/call.h"
#include "shim/names/names.h"

static const unsigned config_magic = 0xcafebeef;

/* ncclCollConfig_t of NCCL 2.32, for builds with an older nccl.h. NCCL adds fields at the end. */
typedef struct config {
    size_t size;
    unsigned magic, version;
    const void *ext;
    int min_ctas, max_ctas, nvls_ctas, cga_cluster_size;
    const char *alg_selection;
    int force_alg_selection, cta_policy;
    uint64_t user_profiler_tag;
    const void *launch_completion_event; /* not in 2.31 */
} config_t;

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 0)
_Static_assert(offsetof(config_t, user_profiler_tag) == offsetof(ncclCollConfig_t, userProfilerTag) &&
                   offsetof(config_t, cga_cluster_size) == offsetof(ncclCollConfig_t, cgaClusterSize),
               "a mirror of ncclCollConfig_t");
#endif

static bool is_known(const config_t *c)
{
    return c->size >= offsetof(config_t, launch_completion_event) && c->size <= sizeof(config_t) &&
           c->magic == config_magic && (c->force_alg_selection == 0 || c->force_alg_selection == 1);
}

/* The profiler's tag is no request: ranks may differ in it. */
static bool has_requests(const config_t *c)
{
    const int unset = NCCL_CONFIG_UNDEF_INT;
    return c->ext != NULL || c->min_ctas != unset || c->max_ctas != unset || c->nvls_ctas != unset ||
           c->cga_cluster_size != unset || (c->alg_selection != NULL && c->alg_selection[0] != '\0') ||
           c->cta_policy != unset || (c->size == sizeof(config_t) && c->launch_completion_event != NULL);
}

/* NULL: the call is plain, but for the tag. On the CPU device it is, since all requests are for GPUs. */
static const void *requests_of(const ncclCollConfig_t *given)
{
    const config_t *c = (const void *)given;
    const bool plain = c == NULL || (is_known(c) && (shim_cpu_mode() || !has_requests(c)));
    return plain ? NULL : given;
}

static uint64_t tag_of(const ncclCollConfig_t *given)
{
    const config_t *c = (const void *)given;
    return c != NULL && is_known(c) && !shim_cpu_mode() ? c->user_profiler_tag : 0;
}

/* The configuration that NCCL gets. The program's may be gone at a group's end, so `own` carries the profiler's tag. */
static const void *given_to_nccl(const shim_call_t *call, config_t *own)
{
    if (call->more != NULL)
        return call->more;
    const int unset = NCCL_CONFIG_UNDEF_INT;
    *own = (config_t){.size = offsetof(config_t, launch_completion_event),
                      .magic = config_magic,
                      .version = call->tag_version,
                      .min_ctas = unset,
                      .max_ctas = unset,
                      .nvls_ctas = unset,
                      .cga_cluster_size = unset,
                      .force_alg_selection = 1,
                      .cta_policy = unset,
                      .user_profiler_tag = call->tag};
    return own;
}

static bool is_plain(const ncclCollConfig_t *config)
{
    return requests_of(config) == NULL && tag_of(config) == 0;
}

#define CONFIGURED(config)                              \
    .more = requests_of(config), .tag = tag_of(config), \
    .tag_version = tag_of(config) ? ((const config_t *)(const void *)config)->version : 0

SHIM_HAND_ON(ncclAllReduceConfig, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->op, c->handle,
             c->stream, given_to_nccl(c, &(config_t){0}))
SHIM_PUBLIC(ncclAllReduceConfig);
ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (is_plain(config))
        return ncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
    return shim_call_make(SHIM_CALL(ncclAllReduceConfig, ALG_ALL_REDUCE, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .op = op, CONFIGURED(config)));
}

SHIM_HAND_ON(ncclBroadcastConfig, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), (int)c->alg.root,
             c->handle, c->stream, given_to_nccl(c, &(config_t){0}))
SHIM_PUBLIC(ncclBroadcastConfig);
ncclResult_t ncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (is_plain(config))
        return ncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
    return shim_call_make(SHIM_CALL(ncclBroadcastConfig, ALG_BROADCAST, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .alg.root = (uint32_t)root, CONFIGURED(config)));
}

SHIM_HAND_ON(ncclReduceConfig, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->op, (int)c->alg.root,
             c->handle, c->stream, given_to_nccl(c, &(config_t){0}))
SHIM_PUBLIC(ncclReduceConfig);
ncclResult_t ncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t *config)
{
    if (is_plain(config))
        return ncclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
    return shim_call_make(SHIM_CALL(ncclReduceConfig, ALG_REDUCE, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .op = op, .alg.root = (uint32_t)root, CONFIGURED(config)));
}

SHIM_HAND_ON(ncclReduceScatterConfig, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->op, c->handle,
             c->stream, given_to_nccl(c, &(config_t){0}))
SHIM_PUBLIC(ncclReduceScatterConfig);
ncclResult_t ncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                     const ncclCollConfig_t *config)
{
    if (is_plain(config))
        return ncclReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
    return shim_call_make(SHIM_CALL(ncclReduceScatterConfig, ALG_REDUCE_SCATTER, .alg.input = sendbuff,
                                    .alg.output = recvbuff, .alg.count = recvcount, .op = op, CONFIGURED(config)));
}

SHIM_HAND_ON(ncclAllGatherConfig, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->handle, c->stream,
             given_to_nccl(c, &(config_t){0}))
SHIM_PUBLIC(ncclAllGatherConfig);
ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (is_plain(config))
        return ncclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream);
    return shim_call_make(SHIM_CALL(ncclAllGatherConfig, ALG_ALL_GATHER, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = sendcount, CONFIGURED(config)));
}

SHIM_HAND_ON(ncclAlltoAllConfig, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->handle, c->stream,
             given_to_nccl(c, &(config_t){0}))
SHIM_PUBLIC(ncclAlltoAllConfig);
ncclResult_t ncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (is_plain(config))
        return ncclAlltoAll(sendbuff, recvbuff, count, datatype, comm, stream);
    return shim_call_make(SHIM_CALL(ncclAlltoAllConfig, ALG_ALL_TO_ALL, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, CONFIGURED(config)));
}

SHIM_HAND_ON(ncclGatherConfig, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), (int)c->alg.root,
             c->handle, c->stream, given_to_nccl(c, &(config_t){0}))
SHIM_PUBLIC(ncclGatherConfig);
ncclResult_t ncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (is_plain(config))
        return ncclGather(sendbuff, recvbuff, count, datatype, root, comm, stream);
    return shim_call_make(SHIM_CALL(ncclGatherConfig, ALG_GATHER, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .alg.root = (uint32_t)root, CONFIGURED(config)));
}

SHIM_HAND_ON(ncclScatterConfig, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), (int)c->alg.root,
             c->handle, c->stream, given_to_nccl(c, &(config_t){0}))
SHIM_PUBLIC(ncclScatterConfig);
ncclResult_t ncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (is_plain(config))
        return ncclScatter(sendbuff, recvbuff, count, datatype, root, comm, stream);
    return shim_call_make(SHIM_CALL(ncclScatterConfig, ALG_SCATTER, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .alg.root = (uint32_t)root, CONFIGURED(config)));
}
