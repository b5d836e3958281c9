/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_nocuda.c - in a build without CUDA there is no CUDA device.
 */
#include "tools/bench/bench.h"

const bench_device_t *const bench_device_cuda = NULL;
