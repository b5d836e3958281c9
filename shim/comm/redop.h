/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redop.h - operators that the user made with ncclRedOpCreatePreMulSum.
 *
 * On CUDA the real NCCL makes the handle and Shunt remembers what it stands
 * for; in host mode the handles are Shunt's own. They belong to one rank of
 * one communicator, and may be destroyed right after the call that uses them:
 * whoever queues a call copies what shim_redop_find gave.
 */
#ifndef SHUNT_SHIM_REDOP_H
#define SHUNT_SHIM_REDOP_H

#include "shim/comm/comm.h"

typedef struct shim_redop {
    ncclDataType_t type;
    const void *scalar_pointer; /* read by the kernel when it runs; or NULL */
    uint64_t scalar_bits;       /* with no pointer: the element's bytes, low end first */
} shim_redop_t;

/* A handle that the real NCCL gives out again replaces what it meant before. False without memory. */
bool shim_redop_remember(shim_comm_t *comm, ncclRedOp_t op, const shim_redop_t *redop);
/* False if there is no such operator. */
bool shim_redop_drop(shim_comm_t *comm, ncclRedOp_t op);
/* False if `op` is no operator that the user made for this communicator and still has. */
bool shim_redop_find(shim_comm_t *comm, ncclRedOp_t op, shim_redop_t *redop);
/* Free what is remembered for a communicator; from reap.c when its state is freed. */
void shim_redop_forget(shim_comm_t *comm);

#endif
