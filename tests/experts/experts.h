/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.h - a rank's group and the tensors of a dispatch with the combine that undoes it, for tests on the CPU
 * device and on GPUs.
 *
 * Rows are small whole numbers and weights are powers of two, so sums are exact. Experts return the rows unchanged.
 */
#ifndef TEST_EXPERTS_H
#define TEST_EXPERTS_H

#include "ranks.h"
#include "shim/experts/service.h"

enum { EXPERTS_LOCAL = 3, EXPERTS_TOKENS = 7, EXPERTS_TOP_K = 2, EXPERTS_HIDDEN = 512 };

typedef struct experts_tensor {
    ncclEpTensor_t t;
    size_t sizes[3];
} experts_tensor_t;

/* All tensors and structures of a round; a test changes them before the calls. */
typedef struct experts_round {
    int rank, nranks;
    bool rank_major;
    uint64_t seed;
    shim_experts_handle_t *handle;
    experts_tensor_t choices, tokens, weights, scales;
    experts_tensor_t out, out_weights, out_choices, out_scales, counters;
    experts_tensor_t combined, combine_weights;
    ncclEpDispatchInputs_t inputs;
    ncclEpDispatchOutputs_t outputs;
    ncclEpLayoutInfo_t layout;
    ncclEpDispatchConfig_t config;
    ncclEpCombineInputs_t back;
    ncclEpCombineOutputs_t result;
    ncclEpCombineConfig_t combine;
    float *want; /* of `combined` */
} experts_round_t;

/* Where tensors live, and what makes and ends a call; zero: the CPU device's. Memory is the host's, too. */
typedef struct experts_place {
    const shim_experts_service_t *service; /* instead of shuntExperts' */
    void *(*make)(size_t bytes);
    void (*drop)(void *memory);
    void (*wait)(void); /* until a call has ended */
} experts_place_t;
extern experts_place_t experts_place;
extern _Thread_local cudaStream_t experts_stream;

const shim_experts_service_t *experts_service(void);
ncclEpGroupConfig_t experts_config(int nranks);
/* Collective; must be served. */
shim_experts_group_t *experts_group(ncclComm_t comm, int nranks);
experts_tensor_t experts_tensor(ncclDataType_t type, unsigned ndim, size_t a, size_t b, size_t c, void *data);

/* A round of up to EXPERTS_TOKENS tokens, whose numbers follow from the seed, the same on all ranks; and its handle,
 * unless `handle` is given. */
experts_round_t *experts_round(shim_experts_group_t *group, shim_experts_handle_t *handle, int rank, int nranks,
                               bool rank_major, uint64_t seed);
/* Free its memory; the handle stays. */
void experts_round_free(experts_round_t *round);
ncclResult_t experts_dispatch(experts_round_t *round);
ncclResult_t experts_combine(experts_round_t *round);
ncclResult_t experts_complete(experts_round_t *round);
/* Whether what arrived is right. */
void experts_check_dispatch(const experts_round_t *round);
void experts_check_combine(const experts_round_t *round);
/* A whole round, checked. */
void experts_run(shim_experts_group_t *group, int rank, int nranks, bool rank_major, uint64_t seed);

#endif
