/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_ep.h - the binary interface of NVIDIA's nccl_ep, API version 2 (library 0.1 and 0.2), as libnccl_ep.so.0 has it.
 * Each structure begins with its size and a magic word, and only grows at the end: it is valid from the size of its
 * first version (NCCL_EP_*_V1) on, a field beyond `size` is 0, its default, and what lies behind the last field here is
 * not read. Pointers may be NULL where stated. Element types are ncclDataType_t; the caller owns tensors' memory. */
#ifndef SHUNT_SHIM_NCCL_EP_H
#define SHUNT_SHIM_NCCL_EP_H

#include <assert.h>
#include <nccl.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NCCL_EP_API_VERSION = 2,
    NCCL_EP_VERSION_CODE = 200, /* library 0.2.0: major * 10000 + minor * 100 + patch */
    NCCL_EP_AUTO = 0,
    NCCL_EP_FLOAT4X2 = 12 /* ncclDataType_t that older nccl.h lack: two values of 4 bits */
};
#define NCCL_EP_MAGIC 0xC00FFFEEu        /* of all structures but tensors */
#define NCCL_EP_TENSOR_MAGIC 0xCAFECAFEu /* of tensors that the caller made */

typedef enum ncclEpAlgorithm { NCCL_EP_ALGO_LOW_LATENCY = 0, NCCL_EP_ALGO_HIGH_THROUGHPUT = 1 } ncclEpAlgorithm_t;

/* High throughput: what happens to tokens beyond max_recv_tokens_per_rank. */
typedef enum ncclEpOverflowPolicy {
    NCCL_EP_OVERFLOW_AUTO = 0, /* TRAP */
    NCCL_EP_OVERFLOW_TRAP = 1,
    NCCL_EP_OVERFLOW_DROP = 2
} ncclEpOverflowPolicy_t;

/* The order of received tokens. Low latency has EXPERT_MAJOR and RANK_MAJOR. */
typedef enum ncclEpLayout {
    NCCL_EP_LAYOUT_UNSET = 0, /* refused */
    /* [local experts][ranks * max_dispatch_tokens_per_rank][hidden]; low latency: no weights, no indices. */
    NCCL_EP_LAYOUT_EXPERT_MAJOR = 1,
    /* Tokens [ranks][max_dispatch_tokens_per_rank][hidden], weights and indices
     * [ranks][max_dispatch_tokens_per_rank][top_k]. */
    NCCL_EP_LAYOUT_RANK_MAJOR = 2,
    NCCL_EP_LAYOUT_FLAT = 3 /* high throughput */
} ncclEpLayout_t;

/* High throughput; Shunt's low latency takes only FWD_PASS. */
typedef enum ncclEpPassDir { NCCL_EP_FWD_PASS = 0, NCCL_EP_BWD_PASS = 1 } ncclEpPassDir_t;

/* Whether kernels may use tensors' windows instead of staging memory. ON: they must, except LL combine. */
typedef enum ncclEpZeroCopyMode {
    NCCL_EP_ZERO_COPY_AUTO = 0,
    NCCL_EP_ZERO_COPY_OFF = 1,
    NCCL_EP_ZERO_COPY_ON = 2
} ncclEpZeroCopyMode_t;

/* How received indices number experts; an expert of another rank is -1. */
typedef enum ncclEpExpertIdKind {
    NCCL_EP_EXPERT_ID_AUTO = 0, /* LOCAL */
    NCCL_EP_EXPERT_ID_LOCAL = 1,
    NCCL_EP_EXPERT_ID_GLOBAL = 2
} ncclEpExpertIdKind_t;

typedef enum ncclEpDispQuant {
    NCCL_EP_DISP_QUANT_NONE = 0,      /* tokens as they are, no scales */
    NCCL_EP_DISP_QUANT_FWD = 1,       /* tokens and scales byte by byte */
    NCCL_EP_DISP_QUANT_DS_FP8E3M4 = 2 /* bf16 in; ncclFloat8e4m3 and an fp32 scale per 128 elements out */
} ncclEpDispQuant_t;

typedef enum ncclEpCombQuant { NCCL_EP_COMB_QUANT_NONE = 0, NCCL_EP_COMB_QUANT_NVFP4 = 1 } ncclEpCombQuant_t;

typedef struct ncclEpGroup *ncclEpGroup_t;
typedef struct ncclEpHandle *ncclEpHandle_t;

typedef struct ncclEpTensor {
    unsigned int size;
    unsigned int magic; /* NCCL_EP_TENSOR_MAGIC, or ncclEpTensorAlloc's own */
    unsigned int ndim;
    ncclDataType_t datatype;
    void *data;           /* device memory, or NULL with a window */
    ncclWindow_t win_hdl; /* or NULL */
    uint64_t win_offset;  /* bytes from the window's start */
    size_t *sizes;        /* ndim elements; in an allocated tensor the elements may change, the pointer not */
} ncclEpTensor_t;

typedef struct ncclEpTensorAllocConfig {
    unsigned int size;
    unsigned int magic;
} ncclEpTensorAllocConfig_t;

/* They return a cudaError_t, which a build without CUDA does not know. */
typedef int (*ncclEpAllocFn_t)(void **memory, size_t bytes, void *context);
typedef int (*ncclEpFreeFn_t)(void *memory, void *context);

/* All NULL: cudaMalloc and cudaFree. */
typedef struct ncclEpAllocConfig {
    ncclEpAllocFn_t alloc_fn;
    ncclEpFreeFn_t free_fn;
    void *context;
} ncclEpAllocConfig_t;

/* Equal on all ranks; NCCL_EP_AUTO where a field has an automatic value. */
typedef struct ncclEpGroupConfig {
    unsigned int size;
    unsigned int magic;
    unsigned int version; /* the caller's NCCL_EP_API_VERSION */
    ncclEpAlgorithm_t algorithm;
    unsigned int num_experts; /* of all ranks, a multiple of their number */
    unsigned int max_dispatch_tokens_per_rank;
    unsigned int max_recv_tokens_per_rank; /* high throughput */
    unsigned int max_token_bytes;          /* of a row with its scales, dispatch and combine */
    unsigned long rdma_buffer_size;        /* bytes; not AUTO: a handle that needs more is refused */
    unsigned int num_qp_per_rank;
    unsigned int num_channels;
    unsigned int max_num_sms;
    ncclEpAllocConfig_t alloc; /* both functions or none */
    unsigned int enable_mask;  /* low latency: ranks that time out are left out */
    uint64_t timeout_ns;       /* of waits in kernels; 0: some 100 s */
    /* Version 2: */
    ncclEpZeroCopyMode_t zero_copy;
    ncclEpOverflowPolicy_t overflow_policy;
    unsigned int num_topk; /* most top_k of a handle; 0: any */
    unsigned char padding_v2[4];
} ncclEpGroupConfig_t;

/* Tensors may be NULL. Counters have 32 bits, some 64 in high throughput. */
typedef struct ncclEpLayoutInfo {
    unsigned int size;
    unsigned int magic;
    ncclEpTensor_t *expert_counters;    /* [local experts] */
    ncclEpTensor_t *src_rank_counters;  /* [ranks] */
    ncclEpTensor_t *expert_offsets;     /* [local experts] */
    ncclEpTensor_t *recv_total_counter; /* [1] */
    /* Version 2: */
    ncclEpExpertIdKind_t recv_topk_idx_kind;
    unsigned char padding_v2[4];
} ncclEpLayoutInfo_t;

typedef struct ncclEpDispatchInputs {
    unsigned int size;
    unsigned int magic;
    ncclEpTensor_t *tokens;       /* [tokens][hidden] */
    ncclEpTensor_t *topk_weights; /* fp32 [tokens][top_k]; may be NULL */
    ncclEpTensor_t *scales;       /* QUANT_FWD, else NULL */
} ncclEpDispatchInputs_t;

typedef struct ncclEpDispatchOutputs {
    unsigned int size;
    unsigned int magic;
    ncclEpTensor_t *tokens;       /* in the handle's layout */
    ncclEpTensor_t *topk_weights; /* may be NULL */
    ncclEpTensor_t *scales;       /* for recipes with scales, else NULL */
    ncclEpTensor_t *topk_idx;     /* may be NULL */
} ncclEpDispatchOutputs_t;

typedef struct ncclEpCombineInputs {
    unsigned int size;
    unsigned int magic;
    ncclEpTensor_t *tokens;       /* experts' results, as dispatch laid them out */
    ncclEpTensor_t *topk_weights; /* high throughput, backward */
    /* Version 2: */
    ncclEpTensor_t *scales; /* recipes with scales */
} ncclEpCombineInputs_t;

typedef struct ncclEpCombineOutputs {
    unsigned int size;
    unsigned int magic;
    ncclEpTensor_t *tokens;       /* [tokens][hidden] */
    ncclEpTensor_t *topk_weights; /* low latency, expert-major: the weights to apply; may be NULL */
} ncclEpCombineOutputs_t;

typedef struct ncclEpHandleConfig {
    unsigned int size;
    unsigned int magic;
    size_t dispatch_output_per_expert_alignment; /* rows; high throughput */
} ncclEpHandleConfig_t;

typedef struct ncclEpDispatchConfig {
    unsigned int size;
    unsigned int magic;
    unsigned int send_only;    /* not 0: ncclEpComplete receives */
    unsigned int round_scales; /* not 0: generated scales are powers of two */
    ncclEpPassDir_t pass_direction;
    /* Version 2: */
    ncclEpDispQuant_t quant_recipe;
} ncclEpDispatchConfig_t;

typedef struct ncclEpCombineConfig {
    unsigned int size;
    unsigned int magic;
    unsigned int send_only;
    ncclEpPassDir_t pass_direction;
    /* Version 2: */
    ncclEpCombQuant_t quant_recipe;
} ncclEpCombineConfig_t;

typedef struct ncclEpCompleteConfig {
    unsigned int size;
    unsigned int magic;
} ncclEpCompleteConfig_t;

/* Bytes of each structure's first version: the least that a call accepts. */
enum {
    NCCL_EP_TENSOR_V1 = 48,
    NCCL_EP_TENSOR_ALLOC_CONFIG_V1 = 8,
    NCCL_EP_GROUP_CONFIG_V1 = 96,
    NCCL_EP_LAYOUT_INFO_V1 = 40,
    NCCL_EP_DISPATCH_INPUTS_V1 = 32,
    NCCL_EP_DISPATCH_OUTPUTS_V1 = 40,
    NCCL_EP_COMBINE_INPUTS_V1 = 24,
    NCCL_EP_COMBINE_OUTPUTS_V1 = 24,
    NCCL_EP_HANDLE_CONFIG_V1 = 16,
    NCCL_EP_DISPATCH_CONFIG_V1 = 20,
    NCCL_EP_COMBINE_CONFIG_V1 = 16,
    NCCL_EP_COMPLETE_CONFIG_V1 = 8
};

/* The layout that compiled programs rely on. AT: a field's offset. ENDS: a version's last field, and its size. */
#define NCCL_EP_AT(type, field, offset) static_assert(offsetof(type, field) == (offset), #type "." #field)
#define NCCL_EP_ENDS(type, field, bytes) \
    static_assert(offsetof(type, field) + sizeof(((type *)0)->field) == (bytes), #type " up to " #field)
#define NCCL_EP_SIZE(type, bytes) static_assert(sizeof(type) == (bytes), #type)
NCCL_EP_SIZE(ncclEpAlgorithm_t, 4); /* all enumerations have 4 bytes */
NCCL_EP_SIZE(ncclEpLayout_t, 4);
NCCL_EP_AT(ncclEpTensor_t, magic, 4);
NCCL_EP_AT(ncclEpTensor_t, ndim, 8);
NCCL_EP_AT(ncclEpTensor_t, datatype, 12);
NCCL_EP_AT(ncclEpTensor_t, data, 16);
NCCL_EP_AT(ncclEpTensor_t, win_hdl, 24);
NCCL_EP_AT(ncclEpTensor_t, win_offset, 32);
NCCL_EP_AT(ncclEpTensor_t, sizes, 40);
NCCL_EP_ENDS(ncclEpTensor_t, sizes, NCCL_EP_TENSOR_V1);
NCCL_EP_SIZE(ncclEpTensor_t, 48);
NCCL_EP_AT(ncclEpTensorAllocConfig_t, magic, 4);
NCCL_EP_SIZE(ncclEpTensorAllocConfig_t, NCCL_EP_TENSOR_ALLOC_CONFIG_V1);
NCCL_EP_AT(ncclEpAllocConfig_t, free_fn, 8);
NCCL_EP_AT(ncclEpAllocConfig_t, context, 16);
NCCL_EP_SIZE(ncclEpAllocConfig_t, 24);
NCCL_EP_AT(ncclEpGroupConfig_t, magic, 4);
NCCL_EP_AT(ncclEpGroupConfig_t, version, 8);
NCCL_EP_AT(ncclEpGroupConfig_t, algorithm, 12);
NCCL_EP_AT(ncclEpGroupConfig_t, num_experts, 16);
NCCL_EP_AT(ncclEpGroupConfig_t, max_dispatch_tokens_per_rank, 20);
NCCL_EP_AT(ncclEpGroupConfig_t, max_recv_tokens_per_rank, 24);
NCCL_EP_AT(ncclEpGroupConfig_t, max_token_bytes, 28);
NCCL_EP_AT(ncclEpGroupConfig_t, rdma_buffer_size, 32);
NCCL_EP_AT(ncclEpGroupConfig_t, num_qp_per_rank, 40);
NCCL_EP_AT(ncclEpGroupConfig_t, num_channels, 44);
NCCL_EP_AT(ncclEpGroupConfig_t, max_num_sms, 48);
NCCL_EP_AT(ncclEpGroupConfig_t, alloc, 56);
NCCL_EP_AT(ncclEpGroupConfig_t, enable_mask, 80);
NCCL_EP_AT(ncclEpGroupConfig_t, timeout_ns, 88);
NCCL_EP_ENDS(ncclEpGroupConfig_t, timeout_ns, NCCL_EP_GROUP_CONFIG_V1);
NCCL_EP_AT(ncclEpGroupConfig_t, zero_copy, 96);
NCCL_EP_AT(ncclEpGroupConfig_t, overflow_policy, 100);
NCCL_EP_AT(ncclEpGroupConfig_t, num_topk, 104);
NCCL_EP_ENDS(ncclEpGroupConfig_t, padding_v2, 112);
NCCL_EP_SIZE(ncclEpGroupConfig_t, 112);
NCCL_EP_AT(ncclEpLayoutInfo_t, magic, 4);
NCCL_EP_AT(ncclEpLayoutInfo_t, expert_counters, 8);
NCCL_EP_AT(ncclEpLayoutInfo_t, src_rank_counters, 16);
NCCL_EP_AT(ncclEpLayoutInfo_t, expert_offsets, 24);
NCCL_EP_ENDS(ncclEpLayoutInfo_t, recv_total_counter, NCCL_EP_LAYOUT_INFO_V1);
NCCL_EP_AT(ncclEpLayoutInfo_t, recv_topk_idx_kind, 40);
NCCL_EP_ENDS(ncclEpLayoutInfo_t, padding_v2, 48);
NCCL_EP_SIZE(ncclEpLayoutInfo_t, 48);
NCCL_EP_AT(ncclEpDispatchInputs_t, magic, 4);
NCCL_EP_AT(ncclEpDispatchInputs_t, tokens, 8);
NCCL_EP_AT(ncclEpDispatchInputs_t, topk_weights, 16);
NCCL_EP_ENDS(ncclEpDispatchInputs_t, scales, NCCL_EP_DISPATCH_INPUTS_V1);
NCCL_EP_SIZE(ncclEpDispatchInputs_t, 32);
NCCL_EP_AT(ncclEpDispatchOutputs_t, magic, 4);
NCCL_EP_AT(ncclEpDispatchOutputs_t, tokens, 8);
NCCL_EP_AT(ncclEpDispatchOutputs_t, topk_weights, 16);
NCCL_EP_AT(ncclEpDispatchOutputs_t, scales, 24);
NCCL_EP_ENDS(ncclEpDispatchOutputs_t, topk_idx, NCCL_EP_DISPATCH_OUTPUTS_V1);
NCCL_EP_SIZE(ncclEpDispatchOutputs_t, 40);
NCCL_EP_AT(ncclEpCombineInputs_t, magic, 4);
NCCL_EP_AT(ncclEpCombineInputs_t, tokens, 8);
NCCL_EP_ENDS(ncclEpCombineInputs_t, topk_weights, NCCL_EP_COMBINE_INPUTS_V1);
NCCL_EP_ENDS(ncclEpCombineInputs_t, scales, 32);
NCCL_EP_SIZE(ncclEpCombineInputs_t, 32);
NCCL_EP_AT(ncclEpCombineOutputs_t, magic, 4);
NCCL_EP_AT(ncclEpCombineOutputs_t, tokens, 8);
NCCL_EP_ENDS(ncclEpCombineOutputs_t, topk_weights, NCCL_EP_COMBINE_OUTPUTS_V1);
NCCL_EP_SIZE(ncclEpCombineOutputs_t, 24);
NCCL_EP_AT(ncclEpHandleConfig_t, magic, 4);
NCCL_EP_ENDS(ncclEpHandleConfig_t, dispatch_output_per_expert_alignment, NCCL_EP_HANDLE_CONFIG_V1);
NCCL_EP_SIZE(ncclEpHandleConfig_t, 16);
NCCL_EP_AT(ncclEpDispatchConfig_t, magic, 4);
NCCL_EP_AT(ncclEpDispatchConfig_t, send_only, 8);
NCCL_EP_AT(ncclEpDispatchConfig_t, round_scales, 12);
NCCL_EP_ENDS(ncclEpDispatchConfig_t, pass_direction, NCCL_EP_DISPATCH_CONFIG_V1);
NCCL_EP_ENDS(ncclEpDispatchConfig_t, quant_recipe, 24);
NCCL_EP_SIZE(ncclEpDispatchConfig_t, 24);
NCCL_EP_AT(ncclEpCombineConfig_t, magic, 4);
NCCL_EP_AT(ncclEpCombineConfig_t, send_only, 8);
NCCL_EP_ENDS(ncclEpCombineConfig_t, pass_direction, NCCL_EP_COMBINE_CONFIG_V1);
NCCL_EP_ENDS(ncclEpCombineConfig_t, quant_recipe, 20);
NCCL_EP_SIZE(ncclEpCombineConfig_t, 20);
NCCL_EP_AT(ncclEpCompleteConfig_t, magic, 4);
NCCL_EP_SIZE(ncclEpCompleteConfig_t, NCCL_EP_COMPLETE_CONFIG_V1);
#undef NCCL_EP_AT
#undef NCCL_EP_ENDS
#undef NCCL_EP_SIZE

/* Configurations may be NULL, except a group's; so may layout and memory. */
ncclResult_t ncclEpGetVersion(int *version);
ncclResult_t ncclEpTensorAlloc(ncclEpTensor_t **tensor, unsigned int ndim, ncclDataType_t datatype, const size_t *sizes,
                               const ncclEpTensorAllocConfig_t *config);
ncclResult_t ncclEpTensorDestroy(ncclEpTensor_t *tensor);
/* Collective. */
ncclResult_t ncclEpCreateGroup(ncclEpGroup_t *group, ncclComm_t comm, const ncclEpGroupConfig_t *config);
ncclResult_t ncclEpGroupDestroy(ncclEpGroup_t group);
/* Least bytes of ncclEpInitHandle's `memory`. */
ncclResult_t ncclEpHandleMemSize(ncclEpGroup_t group, ncclEpLayout_t layout, const ncclEpHandleConfig_t *config,
                                 size_t *bytes, int top_k);
/* May be collective. memory: [bytes] of ncclUint8. */
ncclResult_t ncclEpInitHandle(ncclEpHandle_t *handle, ncclEpGroup_t group, ncclEpLayout_t layout,
                              const ncclEpHandleConfig_t *config, int top_k, const ncclEpTensor_t *memory);
/* choices: int32 or int64 [tokens][top_k], experts of all ranks or -1. Low latency: layout is NULL. */
ncclResult_t ncclEpUpdateHandle(ncclEpHandle_t handle, const ncclEpTensor_t *choices, const ncclEpLayoutInfo_t *layout,
                                cudaStream_t stream);
/* ncclEpInitHandle with memory of its own, then ncclEpUpdateHandle. */
ncclResult_t ncclEpCreateHandle(ncclEpHandle_t *handle, ncclEpGroup_t group, ncclEpLayout_t layout,
                                const ncclEpTensor_t *choices, const ncclEpLayoutInfo_t *info,
                                const ncclEpHandleConfig_t *config, cudaStream_t stream);
ncclResult_t ncclEpHandleDestroy(ncclEpHandle_t handle);
ncclResult_t ncclEpDispatch(ncclEpHandle_t handle, const ncclEpDispatchInputs_t *inputs,
                            const ncclEpDispatchOutputs_t *outputs, const ncclEpLayoutInfo_t *layout,
                            const ncclEpDispatchConfig_t *config, cudaStream_t stream);
ncclResult_t ncclEpCombine(ncclEpHandle_t handle, const ncclEpCombineInputs_t *inputs,
                           const ncclEpCombineOutputs_t *outputs, const ncclEpCombineConfig_t *config,
                           cudaStream_t stream);
/* The second phase of the handle's last call, if that was send_only. */
ncclResult_t ncclEpComplete(ncclEpHandle_t handle, const ncclEpCompleteConfig_t *config, cudaStream_t stream);
/* These five need enable_mask. A mask has an int per rank: 1 active, 0 left out. */
ncclResult_t ncclEpMaskQuery(ncclEpGroup_t group, int *device_mask, cudaStream_t stream);
ncclResult_t ncclEpMaskUpdate(ncclEpGroup_t group, const int *host_mask, cudaStream_t stream);
ncclResult_t ncclEpMaskClean(ncclEpGroup_t group, cudaStream_t stream); /* collective */
ncclResult_t ncclEpGetAsyncError(ncclEpGroup_t group, int *error);      /* 1: a rank timed out */
ncclResult_t ncclEpErrorClear(ncclEpGroup_t group);

#endif
