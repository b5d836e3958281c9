/* SPDX-License-Identifier: Apache-2.0 */
/* group.h - groups and handles of experts. For this folder only. A group owns its scratch and a reference of its
 * communicator's state; a handle owns its routes, unless they are the caller's, and a reference of its group. So
 * destroys may come in any order, and later calls fail. */
#ifndef SHUNT_SHIM_EXPERTS_GROUP_H
#define SHUNT_SHIM_EXPERTS_GROUP_H

#include "algorithms/experts/experts.h"
#include "shim/comm/extra.h"
#include "shim/experts/service.h"

/* What differs between devices. */
typedef struct shim_experts_ops {
    uint32_t threads; /* of a block */
    /* Enter the meeting's scope; load the kernels. 0 or a negative errno. */
    int (*enter)(net_scope_t *scope, int device);
    int (*preload)(const alg_experts_shape_t *shape);
    /* Allocate `bytes`, or with 0 free *memory, also while the program captures; 0 or a CUDA error. */
    int (*memory)(const shim_experts_group_t *group, void **memory, size_t bytes);
    ncclResult_t (*run)(shim_experts_handle_t *handle, alg_team_t *team, alg_experts_call_t *call, cudaStream_t stream);
    int32_t (*captured)(const void *stream);
} shim_experts_ops_t;
extern const shim_experts_ops_t shim_experts_cuda, shim_experts_cpu;

static inline const shim_experts_ops_t *shim_experts_ops(const shim_comm_t *comm)
{
    static const shim_experts_ops_t *const ops[] = {
        [ALG_DEVICE_CUDA] = &shim_experts_cuda, [ALG_DEVICE_CPU] = &shim_experts_cpu};
    return ops[comm->ops->device];
}

struct shim_experts_group {
    const shim_experts_ops_t *ops;
    shim_extra_t *extra; /* the communicator and the scratch */
    alg_experts_shape_t shape;
    ncclEpAllocConfig_t alloc;
    uint64_t timeout_ns;
    uint32_t blocks;
    atomic_uint references; /* the program's and each handle's */
    pthread_mutex_t lock;   /* held by a call; guards the fields below, and handles' open calls */
    ncclResult_t failure;   /* of an earlier call */
    uint32_t staged;        /* number of rooms for staged calls */
    uint32_t taken;         /* bits: the rooms of open calls */
    uint64_t sends;         /* staged calls so far */
    bool lost;              /* a handle was destroyed with its call open */
    bool replays;           /* a staged call was captured */
    atomic_bool destroyed;
};

struct shim_experts_handle {
    shim_experts_group_t *group;
    bool rank_major;
    uint32_t top_k;
    void *memory; /* owned; NULL: the caller has it */
    void *routes;
    /* The last choices: the program's memory, read when a call runs. */
    bool chosen;
    const void *choices;
    uint32_t tokens;
    bool wide;
    bool dispatched; /* the routes are those of dispatched_tokens tokens */
    uint32_t dispatched_tokens;
    bool is_open;            /* a call was sent and is not received */
    uint32_t room;           /* the open call's staged room */
    int32_t captured;        /* whether the last noted call was captured: 1, 0; -1: unknown */
    alg_experts_call_t open; /* the call that was sent */
};

/* One log line, also ncclGetLastError's text; then `result`. */
ncclResult_t shim_experts_refuse(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The service's: shim_experts_create, ... */
#define SHIM_EXPERTS_CALL(name) __typeof__(*(shim_experts_service_t){0}.name) shim_experts_##name;
SHIM_EXPERTS_CALLS(SHIM_EXPERTS_CALL)
#undef SHIM_EXPERTS_CALL
void shim_experts_release(shim_experts_group_t *group);

/* agree.c: all ranks meet, and either each gets a scratch or none does. `refusal`: why this rank wants none, or NULL.
 * Returns the scratch, watched by the record; or NULL and a reason that lives as long as the process. Waits at most a
 * minute for each stage. */
alg_scratch_t *shim_experts_agree(shim_comm_t *comm, const alg_experts_shape_t *shape, const char *refusal,
                                  shim_record_t *record, const char **why);
/* A copy that is never freed: the program may keep it. There are few texts. */
const char *shim_experts_keep(const char *text);

/* Like ops->memory, but calls the program's functions. */
static inline int shim_experts_callers_memory(const shim_experts_group_t *group, void **memory, size_t bytes)
{
    if (bytes)
        return group->alloc.alloc_fn(memory, bytes, group->alloc.context);
    (void)group->alloc.free_fn(*memory, group->alloc.context);
    return 0;
}

/* Bytes of the rows that this rank sends (dispatch) or gets (combine), as they travel. */
static inline uint64_t shim_experts_bytes(const alg_experts_call_t *call)
{
    return (uint64_t)call->tokens * (call->token_bytes + call->scale_bytes);
}

/* note.c: the account of calls, under the group's lock. Counts and records a call before its launch, unless it only
 * receives; returns its id. A call counts even if its launch fails. CUDA: in the stream's context. */
uint64_t shim_experts_note(shim_experts_handle_t *handle, const alg_experts_call_t *call, const void *stream);
/* The trace's event of a call that began at start_ns (not 0). `tokens`: its input; NULL: ncclEpComplete. */
void shim_experts_trace(const shim_experts_handle_t *handle, const char *function, const ncclEpTensor_t *tokens,
                        const void *stream, uint64_t start_ns, ncclResult_t result);

/* Give the call its id, by which waiting kernels are recognized. Both halves of a staged call have one id. */
void shim_experts_begin(shim_experts_handle_t *handle, alg_team_t *team, alg_experts_call_t *call, cudaStream_t stream);
ncclResult_t shim_experts_fail_status(shim_experts_group_t *group, const char *name, uint32_t status);
const char *shim_experts_name(const alg_experts_call_t *call);

#endif
