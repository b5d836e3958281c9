/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_runtime.h - stands in for CUDA's header where there is no CUDA toolkit.
 *
 * nccl.h needs two opaque pointers of it (events since 2.32), and counts on it
 * to bring in size_t. With a toolkit this folder is not on the include path.
 */
#ifndef SHUNT_NOCUDA_RUNTIME_H
#define SHUNT_NOCUDA_RUNTIME_H

#include <stddef.h>

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

#endif
