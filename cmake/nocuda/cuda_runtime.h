/*
 * cuda_runtime.h - stands in for CUDA's header where there is no CUDA toolkit.
 *
 * nccl.h needs one name of it, an opaque pointer, and counts on it to bring in
 * size_t. With a toolkit this folder is not on the include path.
 */
#ifndef SHUNT_NOCUDA_RUNTIME_H
#define SHUNT_NOCUDA_RUNTIME_H

#include <stddef.h>

typedef struct CUstream_st *cudaStream_t;

#endif
