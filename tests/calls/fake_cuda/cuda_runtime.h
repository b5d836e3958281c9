/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_runtime.h - what nccl.h includes; see cuda_runtime_api.h. */
#include "cuda_runtime_api.h"
