/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - NCCL's answers, from its documentation and its order of checks
 * (ncclEnqueueCheck, ArgsCheck, ncclCommFinalize, ncclCommRevoke). Independent of
 * Shunt.
 */
#include "fuzz.h"

#include <string.h>

/* Order: handle; revoked; finalized; datatype; operator; then an empty call succeeds; then buffers. */
ncclResult_t fuzz_expect_call(fuzz_state_t state, const fuzz_call_t *call)
{
    if (state == STATE_NONE)
        return ncclInvalidArgument;
    if (state == STATE_REVOKED || state == STATE_FINALIZED)
        return ncclInvalidUsage;
    if (call->type < 0 || call->type >= ncclNumTypes || call->op == OP_UNKNOWN)
        return ncclInvalidArgument;
    if (call->count == 0)
        return ncclSuccess;
    return call->op == OP_OTHER_TYPE || call->null_buffer ? ncclInvalidArgument : ncclSuccess;
}

ncclResult_t fuzz_expect_finalize(fuzz_state_t state)
{
    return state == STATE_NONE || state == STATE_LIVE ? ncclSuccess : ncclInvalidArgument;
}

/* With flags 0. */
ncclResult_t fuzz_expect_revoke(fuzz_state_t state)
{
    return fuzz_expect_finalize(state);
}

bool fuzz_apart(const fuzz_comm_t *comm)
{
    unsigned seen = 0;
    for (int m = 0; m < comm->members; m++) {
        if (seen & (1u << comm->owner[m]))
            return false;
        seen |= 1u << comm->owner[m];
    }
    return true;
}

void fuzz_child(const fuzz_comm_t *parent, const int *order, int members, bool blocking, fuzz_comm_t *child)
{
    memset(child, 0, sizeof(*child));
    child->state = STATE_LIVE;
    child->members = members;
    child->blocking = blocking;
    for (int m = 0; m < members; m++)
        child->owner[m] = parent->owner[order[m]];
}
