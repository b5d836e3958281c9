/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - common start of this folder's programs: ranks on real GPUs.
 *
 * Programs need only CUDA, nccl.h and libnccl.so.2, so that they can be copied to a machine with GPUs. shunt.h's
 * functions are looked up at run time: the same program runs over the real NCCL (--allow-forward) for comparison. Exit
 * status: 0 passed, 1 failed, 77 skipped (with a reason on stdout).
 */
#ifndef TEST_GPU_H
#define TEST_GPU_H

#include <cuda_runtime_api.h>

#include "data.h"
#include "ranks.h"

typedef struct gpu_options {
    int gpus; /* ranks */
    int visible;
    int seconds; /* seconds, for a program that runs for a while */
    uint64_t seed;
    bool allow_forward; /* no failure if Shunt took nothing; policies are not checked */
    bool processes;     /* run only cases of that shape */
    bool share;         /* several ranks a GPU, as processes; needs an NCCL that allows it, and REFUSE=sharing */
    const char *only;   /* the only case to run, or NULL */
} gpu_options_t;

/* One rank. In RANKS_SOLO the body gets rank 0's, with no communicator. */
typedef struct gpu {
    ranks_t *ranks;
    int rank, nranks, device;
    cudaStream_t stream;
    ncclComm_t comm;     /* a body that destroys it sets it to NULL */
    double init_seconds; /* time to make it: the first of its process */
    uint8_t *pool;       /* device memory of this rank's calls */
    size_t pool_used;
    bool all_taken; /* GPU_ALL_TAKEN holds */
    const gpu_options_t *options;
} gpu_t;

enum {
    GPU_PROCESSES = 1 << RANKS_PROCESSES,
    GPU_THREADS = 1 << RANKS_THREADS,
    GPU_SOLO = 1 << RANKS_SOLO,
    GPU_RANKS = GPU_PROCESSES | GPU_THREADS,
    /* A rank fails if Shunt does not take an all-reduce of gpu_issue. SHUNT_DETERMINISTIC is 1, so that it takes those
     * of all sizes. Not with --allow-forward or --share. */
    GPU_ALL_TAKEN = 1 << 8
};

typedef struct gpu_case {
    const char *name;
    void (*body)(gpu_t *gpu);
    unsigned shapes; /* GPU_* */
    int seconds;     /* limit of one run */
} gpu_case_t;

/* The main function of every program: parses options, counts GPUs and runs all cases in all their shapes. */
int gpu_main(int argc, char **argv, const gpu_case_t *cases, size_t count);

typedef struct gpu_shape {
    size_t input_offset, output_offset; /* bytes from a 64-byte boundary */
    bool in_place;
} gpu_shape_t;

/* One all-reduce; device memory comes from the rank's pool, host memory is the call's own. */
typedef struct gpu_call {
    gpu_t *gpu;
    data_case_t c;
    int rank;
    ncclComm_t comm;
    bool in_place;
    bool taken; /* by Shunt, according to its extension */
    data_buffer_t input, output;
    uint8_t *device_input, *device_output;
} gpu_call_t;

/* Of a buffer with its guards, from its base on. */
size_t gpu_block_bytes(const data_buffer_t *buffer);

/* Allocate the device memory and streams of one rank. */
void gpu_open(gpu_t *gpu);
void gpu_close(gpu_t *gpu);

void gpu_prepare(gpu_t *gpu, gpu_call_t *call, ncclComm_t comm, int rank, const data_case_t *c, gpu_shape_t shape);
/* Copy input and poison (back) to device memory; complete on return. */
void gpu_load(gpu_call_t *call);
ncclResult_t gpu_issue(gpu_call_t *call, cudaStream_t stream);
/* Whether Shunt took this thread's last call. */
bool gpu_last_taken(void);
/* Fetch and check the output and the guards; the streams must have ended. Compares elements shard, shard + shards, ...
 * with the reference; the hash covers all, for calls that Shunt took. */
void gpu_verify(gpu_call_t *call, int shard, int shards, uint64_t *hash);
/* Free the call's host memory, and the pool if it was the last (LIFO). */
void gpu_release(gpu_call_t *call);
/* Load, run and verify a call on the rank's stream. Returns whether Shunt took it. */
bool gpu_run_on(gpu_t *gpu, ncclComm_t comm, int rank, const data_case_t *c, gpu_shape_t shape, uint64_t *hash);
/* Free bytes of the rank's GPU, between two barriers. */
size_t gpu_free_memory(gpu_t *gpu);
/* The same on the rank's own communicator. */
void gpu_run(gpu_t *gpu, const data_case_t *c, gpu_shape_t shape, uint64_t *hash);
/* The median of `count` times, which it sorts. */
double gpu_median(double *times, size_t count);

/* Count the calls of this process for the report. Called by a body that exits. */
void gpu_count(gpu_t *gpu);
/* Check that all ranks have the same hash. A barrier. */
void gpu_agree(gpu_t *gpu, uint64_t hash);
/* A case drawn from *seed: all types, operators, kinds; up to `largest` elements, usually few. */
data_case_t gpu_random_case(uint64_t *seed, int nranks, size_t largest);
gpu_shape_t gpu_random_shape(uint64_t *seed, ncclDataType_t type);
/* Set this rank's policy for a communicator, as in SHUNT_ALGO; every rank must do so between the same calls. Waits
 * until the communicator is attached, and fails if it is not, except with --allow-forward. No effect without Shunt. */
void gpu_policy(ncclComm_t comm, const char *policy);
/* Wait for a non-blocking communicator's result. */
void gpu_ready(ncclComm_t comm);

#define CHECK_CUDA(call)                                                                   \
    do {                                                                                   \
        cudaError_t check_error = (call);                                                  \
        if (check_error != cudaSuccess)                                                    \
            check_failed(__FILE__, __LINE__, #call ": ", cudaGetErrorString(check_error)); \
    } while (0)

#endif
