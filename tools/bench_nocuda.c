/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_nocuda.c - in a build without CUDA there is no CUDA device.
 */
#include "bench.h"

const bench_device_t *const bench_device_cuda = NULL;
