/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_nocuda.c - the missing CUDA device of a build without CUDA.
 */
#include "tools/bench/bench.h"

const bench_device_t *const bench_device_cuda = NULL;
