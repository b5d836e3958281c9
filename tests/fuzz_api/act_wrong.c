/* SPDX-License-Identifier: Apache-2.0 */
/*
 * act_wrong.c - calls that are refused, each with NCCL's error code and without side effects.
 *
 * Only one actor makes them, on one of its blocking ranks, since in NCCL a refused call may break a non-blocking
 * communicator. Some are in a group, whose end then returns the last of the errors that NCCL records in groups.
 */
#include "act.h"

#include <string.h>

typedef struct wrong {
    ncclResult_t last; /* of the calls that a group remembers */
} wrong_t;

/* A call that a group remembers. */
#define REFUSED(wrong, call, expected)             \
    do {                                           \
        CHECK_RESULT(call, expected);              \
        CHECK(strlen(ncclGetLastError(NULL)) > 0); \
        (wrong)->last = expected;                  \
    } while (0)

/* Try a handle that is no communicator: NULL, or memory that never was one. */
static void try_handle(wrong_t *wrong, ncclComm_t comm)
{
    float x = 1;
    int number = 0, list[1] = {0};
    ncclComm_t child = NULL;
    ncclResult_t state;
    ncclRedOp_t op;
    CHECK_RESULT(ncclCommCount(comm, &number), ncclInvalidArgument);
    CHECK_RESULT(ncclCommCuDevice(comm, &number), ncclInvalidArgument);
    CHECK_RESULT(ncclCommUserRank(comm, &number), ncclInvalidArgument);
    CHECK_RESULT(ncclCommGetAsyncError(comm, &state), ncclInvalidArgument);
    CHECK_RESULT(ncclRedOpCreatePreMulSum(&op, &x, ncclFloat32, ncclScalarHostImmediate, comm), ncclInvalidArgument);
    REFUSED(wrong, ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, comm, NULL), ncclInvalidArgument);
    REFUSED(wrong, ncclAllReduce(&x, &x, 0, ncclFloat32, ncclSum, comm, NULL), ncclInvalidArgument);
    REFUSED(wrong, ncclBroadcast(&x, &x, 1, ncclFloat32, 0, comm, NULL), ncclInvalidArgument);
    REFUSED(wrong, ncclCommSplit(comm, 0, 0, &child, NULL), ncclInvalidArgument);
    REFUSED(wrong, ncclCommShrink(comm, list, 1, &child, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
    if (!comm) {
        CHECK_NCCL(ncclCommFinalize(comm));
        CHECK_NCCL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
        CHECK_NCCL(ncclCommAbort(comm));
        CHECK_NCCL(ncclCommDestroy(comm));
        return;
    }
    REFUSED(wrong, ncclCommFinalize(comm), ncclInvalidArgument);
    REFUSED(wrong, ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclInvalidArgument);
    REFUSED(wrong, ncclCommAbort(comm), ncclInvalidArgument);
    REFUSED(wrong, ncclCommDestroy(comm), ncclInvalidArgument);
}

static void try_init(actor_t *actor, wrong_t *wrong)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    int n = 1 + (int)act_draw(actor, 4);
    CHECK_RESULT(ncclGetUniqueId(NULL), ncclInvalidArgument);
    CHECK_NCCL(ncclGetUniqueId(&id));
    REFUSED(wrong, ncclCommInitRank(NULL, n, id, 0), ncclInvalidArgument);
    REFUSED(wrong, ncclCommInitRank(&comm, -n, id, 0), ncclInvalidArgument);
    REFUSED(wrong, ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
    REFUSED(wrong, ncclCommInitRank(&comm, n, id, n), ncclInvalidArgument);
    REFUSED(wrong, ncclCommInitRank(&comm, n, id, -1), ncclInvalidArgument);
    REFUSED(wrong, ncclCommInitRankScalable(&comm, n, 0, n + 1, &id, NULL), ncclInvalidArgument);
    REFUSED(wrong, ncclCommInitAll(&comm, -n, NULL), ncclInvalidArgument);
    config.magic ^= 1;
    REFUSED(wrong, ncclCommInitRankConfig(&comm, n, id, 0, &config), ncclInvalidArgument);
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.blocking = 2;
    REFUSED(wrong, ncclCommInitRankConfig(&comm, n, id, 0, &config), ncclInvalidArgument);
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.minCTAs = 4;
    config.maxCTAs = 3;
    REFUSED(wrong, ncclCommInitRankConfig(&comm, n, id, 0, &config), ncclInvalidArgument);
    CHECK(comm == NULL);
}

/* Try random arguments. Several may be bad, which shows the order of the checks. Only calls that cannot succeed with
 * data are made, since they would wait for the other ranks. */
static void try_call(actor_t *actor, wrong_t *wrong, int slot, int member)
{
    static const int types[] = {-1, ncclNumTypes, 99, ncclFloat32, ncclInt8, ncclBfloat16};
    const fuzz_comm_t *comm = &actor->comm[slot];
    const fuzz_op_t *made = &comm->op[0];
    float buffer[4] = {0};
    fuzz_call_t call = {.count = act_draw(actor, 3), .type = types[act_draw(actor, 6)]};
    ncclRedOp_t op = (ncclRedOp_t)act_draw(actor, ncclNumOps);
    switch (act_draw(actor, 4)) {
    case 0:
        call.op = OP_UNKNOWN;
        op = act_draw(actor, 2) ? (ncclRedOp_t)-1 : (ncclRedOp_t)ncclMaxRedOp;
        break;
    case 1:
        if (made->made) {
            call.op = call.type == (int)made->c.type ? OP_OWN : OP_OTHER_TYPE;
            op = *act_op(actor, slot, 0, member);
        }
        break;
    default:
        break;
    }
    call.null_buffer = act_draw(actor, 2) == 0;
    ncclResult_t expected = fuzz_expect_call(comm->state, &call);
    if (expected == ncclSuccess && call.count > 0)
        return;
    ncclResult_t got = ncclAllReduce(call.null_buffer ? NULL : buffer, buffer, call.count, (ncclDataType_t)call.type,
                                     op, act_handle(actor, slot, member), NULL);
    CHECK_RESULT(got, expected);
    if (expected != ncclSuccess)
        wrong->last = expected;
}

static void try_children(actor_t *actor, wrong_t *wrong, int slot, int member)
{
    const fuzz_comm_t *comm = &actor->comm[slot];
    ncclComm_t child = NULL, parent = act_handle(actor, slot, member);
    int list[2] = {0, 0};
    REFUSED(wrong, ncclCommSplit(parent, -2, 0, &child, NULL), ncclInvalidArgument);
    REFUSED(wrong, ncclCommSplit(parent, 0, 0, NULL, NULL), ncclInvalidArgument);
    REFUSED(wrong, ncclCommShrink(parent, NULL, 1, &child, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
    REFUSED(wrong, ncclCommShrink(parent, list, 0, &child, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
    list[0] = member; /* to itself */
    REFUSED(wrong, ncclCommShrink(parent, list, 1, &child, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
    list[0] = comm->members;
    REFUSED(wrong, ncclCommShrink(parent, list, 1, &child, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
    REFUSED(wrong, ncclCommRevoke(parent, 1), ncclInvalidArgument);
}

static void try_facts(ncclComm_t comm)
{
    ncclRedOp_t op;
    float scalar = 1;
    CHECK_RESULT(ncclCommCount(comm, NULL), ncclInvalidArgument);
    CHECK_RESULT(ncclCommCuDevice(comm, NULL), ncclInvalidArgument);
    CHECK_RESULT(ncclCommUserRank(comm, NULL), ncclInvalidArgument);
    CHECK_RESULT(ncclCommGetAsyncError(comm, NULL), ncclInvalidArgument);
    CHECK_RESULT(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument);
    CHECK_RESULT(ncclRedOpDestroy((ncclRedOp_t)ncclMaxRedOp, comm), ncclInvalidArgument);
    CHECK_RESULT(ncclRedOpCreatePreMulSum(NULL, &scalar, ncclFloat32, ncclScalarHostImmediate, comm),
                 ncclInvalidArgument);
    CHECK_RESULT(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, (ncclScalarResidence_t)7, comm),
                 ncclInvalidArgument);
}

static void try_twice(actor_t *actor, wrong_t *wrong, int slot, int member)
{
    fuzz_state_t state = actor->comm[slot].state;
    if (fuzz_expect_finalize(state) != ncclSuccess)
        REFUSED(wrong, ncclCommFinalize(act_handle(actor, slot, member)), fuzz_expect_finalize(state));
    if (fuzz_expect_revoke(state) != ncclSuccess)
        REFUSED(wrong, ncclCommRevoke(act_handle(actor, slot, member), NCCL_REVOKE_DEFAULT), fuzz_expect_revoke(state));
}

static void try_one(actor_t *actor, wrong_t *wrong, int slot, int member, uint64_t which)
{
    static uint64_t junk[64];
    const fuzz_comm_t *comm = &actor->comm[slot];
    bool fit = comm->state != STATE_NONE && comm->state != STATE_STOPPED && comm->blocking && member >= 0;
    if (which == 0)
        try_handle(wrong, NULL);
    else if (which == 1)
        try_handle(wrong, (ncclComm_t)(void *)junk);
    else if (which == 2)
        try_init(actor, wrong);
    else if (!fit)
        return;
    else if (which == 3)
        try_children(actor, wrong, slot, member);
    else if (which == 4)
        try_facts(act_handle(actor, slot, member));
    else if (which == 5)
        try_twice(actor, wrong, slot, member);
    else
        try_call(actor, wrong, slot, member);
}

void act_mistake(actor_t *actor, const fuzz_step_t *step)
{
    int slot = (int)step->slot, member = -1, depth = (int)act_draw(actor, 3), tries = 1 + (int)act_draw(actor, 6);
    wrong_t wrong = {ncclSuccess};
    if ((int)act_draw(actor, (uint64_t)actor->run->program->actors) != actor->me)
        return;
    for (int m = 0; m < actor->comm[slot].members; m++)
        if (act_owns(actor, slot, m))
            member = m;
    CHECK_RESULT(ncclGroupEnd(), ncclInvalidUsage); /* none is open */
    for (int i = 0; i < depth; i++)
        CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < tries; i++)
        try_one(actor, &wrong, slot, member, act_draw(actor, 9));
    act_close(depth, wrong.last);
    CHECK_RESULT(ncclGroupEnd(), ncclInvalidUsage);
}
