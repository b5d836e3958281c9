/* SPDX-License-Identifier: Apache-2.0 */
/* group.c - groups of experts: served here if all ranks agree, else forwarded to the real library. What a rank knows of
 * the communicator is equal on all (docs/design.md, rule 2): if Shunt does not serve it by peer access, each rank
 * forwards without asking its peers. All else is agreed (agree.c). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/last_error.h"
#include "shim/base/log.h"
#include "shim/base/settings.h"
#include "shim/experts/group.h"
#include "shim/setup/attach.h"

enum { ROW_UNIT = 16, ERROR_BYTES = 400 };

ncclResult_t shim_experts_refuse(ncclResult_t result, const char *format, ...)
{
    char text[ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    shim_set_last_error("%s", text);
    shim_warn("%s", text);
    return result;
}

const char *shim_experts_keep(const char *text)
{
    static struct kept {
        struct kept *next;
        char text[];
    } * first;
    static net_lock_t lock = NET_LOCK_INITIALIZER;
    const size_t bytes = strlen(text) + 1;
    net_lock_take(&lock);
    struct kept *kept = first;
    while (kept && strcmp(kept->text, text) != 0)
        kept = kept->next;
    if (!kept && (kept = malloc(sizeof(*kept) + bytes))) {
        memcpy(kept->text, text, bytes);
        kept->next = first;
        first = kept;
    }
    net_lock_give(&lock);
    return kept ? kept->text : "no memory";
}

/* Why the communicator cannot have groups, equal on all ranks; or NULL. */
static const char *comm_refusal(shim_comm_t *comm)
{
    if (!comm || !shim_attach_settle(comm))
        return "Shunt does not serve the communicator";
    if (comm->nodes)
        return "the communicator's ranks are on several nodes";
    if (comm->nranks < 2 || comm->nranks > ALG_MAX_RANKS)
        return "the communicator does not have 2 to 8 ranks";
    if (alg_scratch_map(comm->scratch)->memory != ALG_MEMORY_PEER)
        return "the GPUs do not reach each other's memory";
    return NULL;
}

static const char *config_refusal(const ncclEpGroupConfig_t *config, uint32_t nranks)
{
    if (config->algorithm != NCCL_EP_ALGO_LOW_LATENCY)
        return "high throughput is not served";
    if (config->enable_mask)
        return "masks (enable_mask) are not served";
    if (config->zero_copy == NCCL_EP_ZERO_COPY_ON)
        return "zero_copy=ON is not served";
    if (!config->alloc.alloc_fn != !config->alloc.free_fn)
        return "only one of alloc_fn and free_fn is set";
    if (config->num_experts == 0 || config->num_experts % nranks != 0)
        return "num_experts is not a multiple of the number of ranks";
    if (config->max_dispatch_tokens_per_rank == 0 || config->max_token_bytes == 0)
        return "max_dispatch_tokens_per_rank or max_token_bytes is 0";
    if (config->num_topk > ALG_EXPERTS_TOP_K)
        return "num_topk is above 32";
    return NULL;
}

/* If a group's scratch would exceed this, its fp32 sums lack NVIDIA's bits. 128 tokens, 8 choices, 7168 fp32: 94
 * MiB. */
enum { EXACT_FP32_BYTES = 96 << 20 };

static alg_experts_exact_t exact_of(alg_experts_shape_t shape, bool deterministic)
{
    alg_map_t map;
    if (deterministic)
        return ALG_EXPERTS_EXACT_ALL;
    shape.exact = ALG_EXPERTS_EXACT_FP32;
    return alg_experts_map(&shape, &map) && map.total_bytes <= EXACT_FP32_BYTES ? ALG_EXPERTS_EXACT_FP32
                                                                                : ALG_EXPERTS_EXACT_NONE;
}

static alg_experts_shape_t shape_of(const ncclEpGroupConfig_t *config, const shim_comm_t *comm)
{
    const uint32_t any = config->num_experts < ALG_EXPERTS_TOP_K ? config->num_experts : (uint32_t)ALG_EXPERTS_TOP_K;
    const uint64_t row = ((uint64_t)config->max_token_bytes + ROW_UNIT - 1) / ROW_UNIT * ROW_UNIT;
    alg_experts_shape_t shape = {.nranks = comm->nranks,
                                 .experts = config->num_experts,
                                 .most_tokens = config->max_dispatch_tokens_per_rank,
                                 .most_top_k = config->num_topk ? config->num_topk : any,
                                 .row_bytes = row <= UINT32_MAX ? (uint32_t)row : 0};
    shape.exact = exact_of(shape, comm->plan && comm->plan->settings.deterministic);
    return shape;
}

/* Default limit of a wait, as in NVIDIA's library. */
static const uint64_t TIMEOUT_NS = UINT64_C(100000000000);

static shim_experts_group_t *make(shim_comm_t *comm, alg_scratch_t *scratch, shim_record_t *record,
                                  const ncclEpGroupConfig_t *config, const alg_experts_shape_t *shape)
{
    const shim_experts_ops_t *ops = shim_experts_ops(comm);
    shim_experts_group_t *group = calloc(1, sizeof(*group));
    if (!group)
        return NULL;
    group->extra = shim_extra_add(comm, scratch, record);
    if (!group->extra) {
        free(group);
        return NULL;
    }
    group->ops = ops;
    group->shape = *shape;
    group->alloc = config->alloc;
    group->timeout_ns = config->timeout_ns ? config->timeout_ns : shim_setting_timeout_ns(comm->ops->timeout_ms);
    if (group->timeout_ns == 0)
        group->timeout_ns = TIMEOUT_NS;
    const uint32_t grid = alg_experts_grid(comm->plan->topology.multiprocessors, config->max_num_sms);
    group->blocks = grid > 0 ? grid : 1; /* the CPU device has no multiprocessors */
    group->staged = alg_experts_staged(shape);
    pthread_mutex_init(&group->lock, NULL);
    atomic_store(&group->references, 1);
    return group;
}

static ncclResult_t create(shim_comm_t *comm, const ncclEpGroupConfig_t *config, shim_experts_group_t **group,
                           const char **why)
{
    void *handle = (void *)atomic_load(&comm->handle);
    const alg_experts_shape_t shape = shape_of(config, comm);
    const char *refusal = config_refusal(config, comm->nranks);
    alg_map_t map;
    if (!refusal && !alg_experts_map(&shape, &map))
        refusal = "so many experts, tokens or bytes are not served";
    shim_record_t *record = shim_record_new();
    alg_scratch_t *scratch = shim_experts_agree(comm, &shape, refusal, record, why);
    if (!scratch) {
        shim_record_end(record);
        shim_info("communicator %p (rank %u of %u): a group of experts is forwarded: %s", handle, comm->rank,
                  comm->nranks, *why);
        return ncclSuccess;
    }
    shim_experts_group_t *made = make(comm, scratch, record, config, &shape);
    if (!made) {
        shim_record_end(record);
        alg_scratch_release(scratch, false);
        return shim_experts_refuse(ncclSystemError, "ncclEpCreateGroup: no memory");
    }
    shim_info("communicator %p (rank %u of %u): a group of %u experts is served, %zu KiB", handle, comm->rank,
              comm->nranks, shape.experts, alg_scratch_bytes(scratch) / 1024);
    *group = made;
    return ncclSuccess;
}

ncclResult_t shim_experts_create(ncclComm_t comm, const ncclEpGroupConfig_t *config, shim_experts_group_t **group,
                                 const char **why)
{
    if (!config || !group || !why)
        return shim_experts_refuse(ncclInvalidArgument, "ncclEpCreateGroup: an argument is NULL");
    shim_comm_t *state = comm ? shim_comm_acquire(comm) : NULL;
    *group = NULL;
    *why = comm_refusal(state);
    ncclResult_t result = ncclSuccess;
    if (!*why) {
        atomic_fetch_add(&state->extras_begun, 1);
        result = create(state, config, group, why);
        atomic_fetch_sub(&state->extras_begun, 1);
    }
    shim_comm_release(state);
    return result;
}

void shim_experts_release(shim_experts_group_t *group)
{
    if (atomic_fetch_sub(&group->references, 1) != 1)
        return;
    shim_extra_end(group->extra);
    pthread_mutex_destroy(&group->lock);
    free(group);
}

ncclResult_t shim_experts_destroy(shim_experts_group_t *group)
{
    if (!group)
        return shim_experts_refuse(ncclInvalidArgument, "ncclEpGroupDestroy: group is NULL");
    atomic_store(&group->destroyed, true);
    shim_experts_release(group);
    return ncclSuccess;
}
