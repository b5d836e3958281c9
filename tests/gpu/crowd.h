/* SPDX-License-Identifier: Apache-2.0 */
/* crowd.h - a kernel that leaves no place on the current GPU. */
#ifndef TEST_CROWD_H
#define TEST_CROWD_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kernel takes all threads of all multiprocessors, and ends when *go, in pinned memory, is not 0. */
cudaError_t crowd_fill(int *go, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
