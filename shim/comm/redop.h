/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redop.h - the program's operators (ncclRedOpCreatePreMulSum).
 *
 * NCCL (CPU mode: Shunt) makes the handle, Shunt records its meaning. The program may destroy the operator right after
 * the call that uses it, so a queued call copies what shim_redop_find returns.
 */
#ifndef SHUNT_SHIM_REDOP_H
#define SHUNT_SHIM_REDOP_H

#include "shim/comm/comm.h"

typedef struct shim_redop {
    ncclDataType_t type;
    const void *scalar_pointer; /* read when the kernel runs; may be NULL */
    uint64_t scalar_bits;       /* without a pointer: the element's bytes, little-endian */
} shim_redop_t;

/* Stores the operator's meaning, in place of an older one with this handle. False without memory. */
bool shim_redop_remember(shim_comm_t *comm, ncclRedOp_t op, const shim_redop_t *redop);
void shim_redop_drop(shim_comm_t *comm, ncclRedOp_t op);
/* False if the operator is unknown. */
bool shim_redop_find(shim_comm_t *comm, ncclRedOp_t op, shim_redop_t *redop);
void shim_redop_forget(shim_comm_t *comm);

#endif
