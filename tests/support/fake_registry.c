/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_registry.c - no algorithms, for tests whose kernels are fakes.
 */
#include "algorithms/algorithm.h"

const alg_algorithm_t *const alg_registry[1];
const uint32_t alg_registry_count = 0;
