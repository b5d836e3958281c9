/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_fp16.h - nccl.h includes it and uses nothing of it; see cuda_runtime.h beside this file. */
#ifndef SHUNT_NOCUDA_FP16_H
#define SHUNT_NOCUDA_FP16_H
#endif
