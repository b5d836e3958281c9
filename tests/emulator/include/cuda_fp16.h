/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_fp16.h - for nccl.h, which includes it: conversions are the CPU device's. */
