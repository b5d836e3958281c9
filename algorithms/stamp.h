/* SPDX-License-Identifier: Apache-2.0 */
/* stamp.h - a kernel of one thread that writes the GPU's clock into pinned memory, for captured calls: events do not
 * serve, as each replay records a graph's events again. */
#ifndef SHUNT_STAMP_H
#define SHUNT_STAMP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct alg_stamp {
    uint64_t ns;   /* of the GPU's clock */
    uint64_t mark; /* written last: alg_stamp_mark */
} alg_stamp_t;

/* Pinned memory of one GPU, zero at first; `count` alg_stamp_t follow, stamp n at n % count. */
typedef struct alg_stamps {
    uint64_t taken; /* stamps so far; kernels count them */
    uint64_t unused;
} alg_stamps_t;

#ifdef __CUDACC__
#define ALG_STAMP_FN __host__ __device__ static inline
#else
#define ALG_STAMP_FN static inline
#endif

ALG_STAMP_FN uint64_t alg_stamp_mark(uint64_t number, uint32_t what)
{
    return (number + 1) << 32 | what;
}

/* Enqueues a stamp, also in a capture. `stamps`: as the GPU addresses it. Returns a cudaError_t. */
int alg_stamp_launch(alg_stamps_t *stamps, uint32_t count, uint32_t what, void *stream);
/* Loads the kernel, so that no capture does. Returns a cudaError_t. */
int alg_stamp_preload(void);

#ifdef __cplusplus
}
#endif
#endif
