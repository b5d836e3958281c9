/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same rounds through libnccl_ep.so.0, as a program makes them: that library finds libnccl.so.2 in the process.
 */
#include "../cpu/cpu.h"
#include "experts.h"

/* ---- The library as a service ---- */

static ncclResult_t create(ncclComm_t comm, const ncclEpGroupConfig_t *config, shim_experts_group_t **group,
                           const char **why)
{
    *why = "an error";
    return ncclEpCreateGroup((ncclEpGroup_t *)group, comm, config);
}

static ncclResult_t destroy(shim_experts_group_t *group)
{
    return ncclEpGroupDestroy((ncclEpGroup_t)group);
}

static ncclResult_t handle_bytes(shim_experts_group_t *group, int top_k, size_t *bytes)
{
    return ncclEpHandleMemSize((ncclEpGroup_t)group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, bytes, top_k);
}

static ncclResult_t handle_create(shim_experts_group_t *group, ncclEpLayout_t layout, int top_k,
                                  const ncclEpTensor_t *memory, shim_experts_handle_t **handle)
{
    return ncclEpInitHandle((ncclEpHandle_t *)handle, (ncclEpGroup_t)group, layout, NULL, top_k, memory);
}

static ncclResult_t handle_update(shim_experts_handle_t *handle, const ncclEpTensor_t *choices)
{
    return ncclEpUpdateHandle((ncclEpHandle_t)handle, choices, NULL, NULL);
}

static ncclResult_t handle_destroy(shim_experts_handle_t *handle)
{
    return ncclEpHandleDestroy((ncclEpHandle_t)handle);
}

static ncclResult_t dispatch(shim_experts_handle_t *handle, const ncclEpDispatchInputs_t *inputs,
                             const ncclEpDispatchOutputs_t *outputs, const ncclEpLayoutInfo_t *layout,
                             const ncclEpDispatchConfig_t *config, cudaStream_t stream)
{
    return ncclEpDispatch((ncclEpHandle_t)handle, inputs, outputs, layout, config, stream);
}

static ncclResult_t combine(shim_experts_handle_t *handle, const ncclEpCombineInputs_t *inputs,
                            const ncclEpCombineOutputs_t *outputs, const ncclEpCombineConfig_t *config,
                            cudaStream_t stream)
{
    return ncclEpCombine((ncclEpHandle_t)handle, inputs, outputs, config, stream);
}

static ncclResult_t complete(shim_experts_handle_t *handle, cudaStream_t stream)
{
    return ncclEpComplete((ncclEpHandle_t)handle, NULL, stream);
}

static const shim_experts_service_t library = {
    SHIM_EXPERTS_VERSION, create,         destroy,  handle_bytes, handle_create,
    handle_update,        handle_destroy, dispatch, combine,      complete};

/* ---- Rounds ---- */

static void rounds_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    size_t bytes = 0;
    CHECK_NCCL(library.handle_bytes(group, EXPERTS_TOP_K, &bytes));
    CHECK(bytes > 0);
    for (uint64_t seed = 0; seed < 6; seed++)
        experts_run(group, ranks->rank, ranks->nranks, seed % 2, seed);
    experts_round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, false, 4);
    r->config.send_only = r->combine.send_only = 1;
    CHECK_NCCL(experts_dispatch(r));
    experts_run(group, ranks->rank, ranks->nranks, true, 9);
    CHECK_NCCL(experts_complete(r));
    experts_check_dispatch(r);
    CHECK_NCCL(experts_combine(r));
    CHECK_NCCL(experts_complete(r));
    experts_check_combine(r);
    CHECK_NCCL(library.handle_destroy(r->handle));
    experts_round_free(r);
    CHECK_NCCL(library.destroy(group));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void the_library_serves_rounds(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 3, rounds_body, NULL);
    cpu_run(RANKS_PROCESSES, 2, rounds_body, NULL);
}

/* Without NVIDIA's library nothing can be forwarded. */
static void refused_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    ncclEpGroupConfig_t config = experts_config(ranks->nranks);
    ncclEpGroup_t group = NULL;
    config.algorithm = NCCL_EP_ALGO_HIGH_THROUGHPUT;
    CHECK_FAILS(ncclEpCreateGroup(&group, comm, &config));
    CHECK(group == NULL);
    shim_experts_group_t *served = experts_group(comm, ranks->nranks);
    experts_run(served, ranks->rank, ranks->nranks, false, 2);
    CHECK_NCCL(library.destroy(served));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void what_is_not_served_is_an_error(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, refused_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_serves_rounds),
        cmocka_unit_test(what_is_not_served_is_an_error),
    };
    experts_place.service = &library;
    cpu_limit(20);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
