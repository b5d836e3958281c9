/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_fp16.h - nccl.h includes it and uses nothing of it. */
