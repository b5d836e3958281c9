/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input at every entry point: NCCL's codes, in NCCL's order of checks, with a message that says what was wrong. */
#include "cpu.h"

#include <stddef.h>
#include <string.h>

static const ncclDataType_t bad_type = (ncclDataType_t)ncclNumTypes;
static ncclComm_t const null_comm = NULL;

#define CHECK_INVALID(call)                        \
    do {                                           \
        CHECK_RESULT(call, ncclInvalidArgument);   \
        CHECK(strlen(ncclGetLastError(NULL)) > 0); \
    } while (0)

static void versions_body(ranks_t *ranks)
{
    int version = 0;
    (void)ranks;
    CHECK_RESULT(ncclGetVersion(NULL), ncclInvalidArgument);
    CHECK_NCCL(ncclGetVersion(&version));
    CHECK(version >= NCCL_VERSION(2, 18, 0) && version < NCCL_VERSION(3, 0, 0));
    /* As NCCL 2.32 has them: programs compare them. */
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                        "internal error - please report this issue to the NCCL developers",
                                        "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                        "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress",
                                        "timeout"};
    enum { TEXTS = sizeof(texts) / sizeof(texts[0]) };
    CHECK((int)TEXTS >= (int)ncclNumResults);
    for (int i = 0; i < TEXTS; i++)
        CHECK(strcmp(ncclGetErrorString((ncclResult_t)i), texts[i]) == 0);
    CHECK(strcmp(ncclGetErrorString((ncclResult_t)-1), "unknown result code") == 0);
    CHECK(strcmp(ncclGetErrorString((ncclResult_t)TEXTS), "unknown result code") == 0);
    CHECK(ncclGetLastError(NULL) != NULL);
}

/* Each field is checked, but only as far as the structure reaches. */
static void wrong_fields(ncclUniqueId id)
{
    static const struct {
        size_t offset;
        int value;
    } wrong[] = {{offsetof(ncclConfig_t, cgaClusterSize), -1},
                 {offsetof(ncclConfig_t, minCTAs), 0},
                 {offsetof(ncclConfig_t, maxCTAs), -3},
                 {offsetof(ncclConfig_t, splitShare), 2},
                 {offsetof(ncclConfig_t, collnetEnable), -1},
                 {offsetof(ncclConfig_t, CTAPolicy), 4},
                 {offsetof(ncclConfig_t, shrinkShare), 3},
                 {offsetof(ncclConfig_t, nvlsCTAs), 0},
                 {offsetof(ncclConfig_t, nChannelsPerNetPeer), 0},
                 {offsetof(ncclConfig_t, nvlinkCentricSched), 2}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm = NULL;
        memcpy((char *)&config + wrong[i].offset, &wrong[i].value, sizeof(int));
        CHECK_INVALID(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
        config.size = wrong[i].offset;
        CHECK_NCCL(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
        CHECK_NCCL(ncclCommDestroy(comm));
    }
}

static void init_body(ranks_t *ranks)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER, wrong;
    ncclComm_t comm = NULL, comms[2];
    int twice[2] = {0, 0}, negative[2] = {0, -1};
    ncclUniqueId id;
    (void)ranks;
    CHECK_INVALID(ncclGetUniqueId(NULL));
    CHECK_NCCL(ncclGetUniqueId(&id));
    CHECK_INVALID(ncclCommInitRank(NULL, 1, id, 0));
    CHECK_INVALID(ncclCommInitRank(&comm, 0, id, 0));
    CHECK_INVALID(ncclCommInitRank(&comm, -3, id, 0));
    CHECK_INVALID(ncclCommInitRank(&comm, 2, id, 2));
    comm = (ncclComm_t)(void *)comms; /* as programs leave it: NCCL sets it to NULL */
    CHECK_INVALID(ncclCommInitRank(&comm, 2, id, -1));
    CHECK(comm == NULL);
    CHECK_FAILS(ncclCommInitRank(&comm, 1000000, id, 0)); /* more than this device serves */
    CHECK(strlen(ncclGetLastError(NULL)) > 0);
    CHECK(comm == NULL);

    CHECK_INVALID(ncclCommInitRankConfig(NULL, 1, id, 0, &config));
    CHECK_INVALID(ncclCommInitRankConfig(&comm, 1, id, 1, &config));
    wrong = config;
    wrong.magic = 1;
    CHECK_INVALID(ncclCommInitRankConfig(&comm, 1, id, 0, &wrong));
    wrong = config;
    wrong.blocking = 7;
    CHECK_INVALID(ncclCommInitRankConfig(&comm, 1, id, 0, &wrong));
    wrong_fields(id);

    CHECK_INVALID(ncclCommInitRankScalable(&comm, 1, 0, 0, &id, NULL));
    CHECK_INVALID(ncclCommInitRankScalable(&comm, 1, 0, 2, &id, NULL));
    CHECK_INVALID(ncclCommInitRankScalable(&comm, 1, 1, 1, &id, NULL));
    CHECK_INVALID(ncclCommInitRankScalable(NULL, 1, 0, 1, &id, NULL));

    CHECK_INVALID(ncclCommInitAll(NULL, 1, NULL));
    CHECK_INVALID(ncclCommInitAll(comms, -1, NULL));
    CHECK_INVALID(ncclCommInitAll(comms, 2, negative));
    CHECK_RESULT(ncclCommInitAll(comms, 2, twice), ncclInvalidUsage);

    /* it has not affected the next one, with a default configuration or none */
    CHECK_NCCL(ncclCommInitRankConfig(&comm, 1, id, 0, NULL));
    CHECK_NCCL(ncclCommDestroy(comm));
    CHECK_NCCL(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* One element, root 0. */
static call_t a_call(int collective, ncclComm_t comm, const void *send, void *recv)
{
    return (call_t){.k = {.collective = (alg_collective_t)collective, .c = {.type = ncclFloat32, .count = 1}},
                    .comm = comm,
                    .send = send,
                    .recv = recv};
}

/* NULL, invalid and destroyed handles are refused. */
static void bad_handle(ncclComm_t comm)
{
    float x = 1;
    int number = 0;
    ncclComm_t child = NULL;
    ncclResult_t async = ncclSuccess;
    ncclRedOp_t op = ncclSum;
    CHECK_INVALID(ncclCommCount(comm, &number));
    CHECK_INVALID(ncclCommCuDevice(comm, &number));
    CHECK_INVALID(ncclCommUserRank(comm, &number));
    CHECK_INVALID(ncclCommGetAsyncError(comm, &async));
    CHECK_INVALID(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK_INVALID(ncclAllReduce(&x, &x, 0, ncclFloat32, ncclSum, comm, NULL));
    CHECK_INVALID(ncclSend(&x, 1, ncclFloat32, 0, comm, NULL));
    CHECK_INVALID(ncclRecv(&x, 1, ncclFloat32, 0, comm, NULL));
    for (int collective = 0; collective < COLL_COUNT; collective++) {
        call_t call = a_call(collective, comm, &x, &x);
        CHECK_INVALID(call_issue_with(&call, ncclSum));
        call.k.c.count = 0;
        CHECK_INVALID(call_issue_with(&call, ncclSum));
    }
    CHECK_INVALID(ncclCommSplit(comm, 0, 0, &child, NULL));
    CHECK_INVALID(ncclRedOpCreatePreMulSum(&op, &x, ncclFloat32, ncclScalarHostImmediate, comm));
    CHECK_INVALID(ncclRedOpDestroy((ncclRedOp_t)5, comm));
}

static void handles_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks), gone = comm;
    static uint64_t junk[64];
    CHECK_NCCL(ncclCommDestroy(null_comm));
    CHECK_NCCL(ncclCommAbort(null_comm));
    CHECK_NCCL(ncclCommFinalize(null_comm));
#ifdef NCCL_REVOKE_DEFAULT /* nccl.h from 2.28.9 on */
    CHECK_NCCL(ncclCommRevoke(null_comm, NCCL_REVOKE_DEFAULT));
#endif
    bad_handle(NULL);
    bad_handle((ncclComm_t)(void *)junk); /* readable memory, but not a communicator */
    CHECK_INVALID(ncclCommDestroy((ncclComm_t)(void *)junk));
    CHECK_NCCL(ncclCommDestroy(comm));
    bad_handle(gone);
    CHECK_INVALID(ncclCommDestroy(gone));
}

/* Each bad argument is refused, and pairs of them in NCCL's order: type before operator, both before count 0. */
static void all_reduce_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, 1, 12, ranks->nranks};
    call_shape_t shape = {0, 0, false};
    uint64_t hash = 0;
    float in[4] = {1, 2, 3, 4}, out[4] = {9, 9, 9, 9}, scalar = 2;
    ncclRedOp_t op;
    ncclResult_t async;

    CHECK_INVALID(ncclAllReduce(in, out, 4, bad_type, ncclSum, comm, NULL));
    CHECK_INVALID(ncclAllReduce(in, out, 4, (ncclDataType_t)-1, ncclSum, comm, NULL));
    CHECK_INVALID(ncclAllReduce(in, out, 4, ncclFloat32, (ncclRedOp_t)-1, comm, NULL));
    CHECK_INVALID(ncclAllReduce(in, out, 4, ncclFloat32, ncclNumOps, comm, NULL)); /* never created */
    CHECK_INVALID(ncclAllReduce(in, out, 4, ncclFloat32, (ncclRedOp_t)1000, comm, NULL));
    CHECK_INVALID(ncclAllReduce(in, out, 0, bad_type, ncclSum, comm, NULL));
    CHECK_INVALID(ncclAllReduce(in, out, 0, ncclFloat32, (ncclRedOp_t)-1, comm, NULL));
    CHECK_INVALID(ncclAllReduce(NULL, out, 4, ncclFloat32, ncclSum, comm, NULL));
    CHECK_INVALID(ncclAllReduce(in, NULL, 4, ncclFloat32, ncclSum, comm, NULL));

    CHECK_NCCL(ncclAllReduce(in, out, 0, ncclFloat32, ncclSum, comm, NULL));
    CHECK_NCCL(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, comm, NULL));
    CHECK(out[0] == 9 && out[3] == 9);

    /* user's operators: of another type, destroyed, destroyed twice, built-in */
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comm));
    CHECK(op >= ncclNumOps);
    CHECK_INVALID(ncclAllReduce(in, out, 4, ncclInt32, op, comm, NULL));
    CHECK_NCCL(ncclAllReduce(in, out, 0, ncclInt32, op, comm, NULL)); /* an empty call is not checked that far */
    CHECK_NCCL(ncclRedOpDestroy(op, comm));
    CHECK_INVALID(ncclRedOpDestroy(op, comm));
    CHECK_INVALID(ncclAllReduce(in, out, 4, ncclFloat32, op, comm, NULL));
    CHECK_INVALID(ncclRedOpDestroy(ncclSum, comm));
    CHECK_INVALID(ncclRedOpDestroy(ncclAvg, comm));
    CHECK_INVALID(ncclRedOpDestroy((ncclRedOp_t)-1, comm));
    CHECK_FAILS(ncclRedOpCreatePreMulSum(&op, &scalar, bad_type, ncclScalarHostImmediate, comm));

    CHECK_INVALID(ncclCommCount(comm, NULL));
    CHECK_INVALID(ncclCommCuDevice(comm, NULL));
    CHECK_INVALID(ncclCommUserRank(comm, NULL));
    CHECK_INVALID(ncclCommGetAsyncError(comm, NULL));
    CHECK_INVALID(ncclCommSplit(comm, 0, 0, NULL, NULL));

    /* nothing was launched, nothing is broken */
    CHECK_NCCL(ncclCommGetAsyncError(comm, &async));
    CHECK(async == ncclSuccess);
    call_run(comm, ranks->rank, &c, shape, &hash);
    call_agree(ranks, hash);
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* Whether a buffer has more than one block. */
static bool has_blocks(int collective, int nranks)
{
    const coll_t k = {.collective = (alg_collective_t)collective, .c = {.count = 1, .nranks = nranks}};
    return coll_input_count(&k, 0) > 1 || coll_output_count(&k, 0) > 1;
}

/* Each collective refuses bad arguments in NCCL's order: root, type, operator, then an empty call, then buffers. */
static void refused(int collective, ncclComm_t comm, int nranks)
{
    float send[8] = {1}, recv[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    const ncclDataType_t types[] = {bad_type, (ncclDataType_t)-1};
    const ncclRedOp_t ops[] = {(ncclRedOp_t)-1, ncclNumOps, (ncclRedOp_t)1000};
    const int roots[] = {-1, nranks, 1 << 30};
    call_t call = a_call(collective, comm, send, recv);
    for (size_t count = 0; count < 2; count++) {
        call.k.c.count = count;
        for (int i = 0; i < 2; i++) {
            call.k.c.type = types[i];
            CHECK_INVALID(call_issue_with(&call, ncclSum));
        }
        call.k.c.type = ncclFloat32;
        for (int i = 0; i < 3 && coll_reduces(&call.k); i++)
            CHECK_INVALID(call_issue_with(&call, ops[i]));
        for (int i = 0; i < 3 && coll_rooted(&call.k); i++) {
            call.k.root = (uint32_t)roots[i];
            CHECK_INVALID(call_issue_with(&call, ncclSum));
            CHECK(strstr(ncclGetLastError(NULL), "root") != NULL);
            call.k.c.type = bad_type;
            CHECK_INVALID(call_issue_with(&call, ncclSum));
            CHECK(strstr(ncclGetLastError(NULL), "root") != NULL);
            call.k.c.type = ncclFloat32;
        }
        call.k.root = 0;
    }
    call.k.c.count = SIZE_MAX / 4 + 1;
    CHECK_INVALID(call_issue_with(&call, ncclSum));
    if (has_blocks(collective, nranks)) {
        call.k.c.count = SIZE_MAX / 4; /* of one block */
        CHECK_INVALID(call_issue_with(&call, ncclSum));
    }
    call.k.c.count = 0;
    CHECK_NCCL(call_issue_with(&call, ncclSum));
    call.send = call.recv = NULL;
    CHECK_NCCL(call_issue_with(&call, ncclSum));
    CHECK(recv[0] == 9 && recv[7] == 9);
}

/* A NULL buffer is refused on a rank that needs it, which depends on the root, and accepted on others. */
static void null_buffers(int collective, ncclComm_t comm, int rank, int nranks)
{
    float send[8] = {1}, recv[8] = {9};
    for (int root = 0; root < nranks; root++) {
        call_t call = a_call(collective, comm, NULL, recv);
        call.k.root = (uint32_t)root;
        call.k.c.nranks = nranks;
        if (coll_input_count(&call.k, (uint32_t)rank) > 0)
            CHECK_INVALID(call_issue_with(&call, ncclSum));
        call.send = send;
        call.recv = NULL;
        if (coll_output_count(&call.k, (uint32_t)rank) > 0)
            CHECK_INVALID(call_issue_with(&call, ncclSum));
    }
    CHECK(recv[0] == 9);
}

static void each_collective_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    uint64_t hash = 0;
    for (int collective = 0; collective < COLL_COUNT; collective++) {
        refused(collective, comm, ranks->nranks);
        null_buffers(collective, comm, ranks->rank, ranks->nranks);
        /* nothing was launched, nothing is broken; unused buffers are NULL on every other rank */
        coll_t k = {.collective = (alg_collective_t)collective, .root = (uint32_t)ranks->nranks - 1};
        k.c = (data_case_t){ncclFloat32, REF_SUM, DATA_RANDOM, (uint64_t)collective, 12, ranks->nranks};
        call_run_coll(comm, ranks->rank, &k, (call_shape_t){0, 0, false}, &hash);
        k.c.seed++;
        call_run_coll(comm, ranks->rank, &k, (call_shape_t){0, 0, false}, &hash);
    }
    call_agree(ranks, hash);
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* Make each reducing collective with a user's operator. */
static void own_operator(ncclComm_t comm, int nranks, const float *in, float *out, ncclRedOp_t op, float scalar)
{
    CHECK_NCCL(ncclReduce(in, out, 1, ncclFloat32, op, nranks - 1, comm, NULL));
    CHECK_NCCL(ncclReduceScatter(in, out + 1, 1, ncclFloat32, op, comm, NULL));
    CHECK(out[1] == scalar * (float)nranks);
    CHECK_INVALID(ncclReduce(in, out, 1, ncclInt32, op, 0, comm, NULL));
    CHECK_INVALID(ncclReduceScatter(in, out, 1, ncclInt32, op, comm, NULL));
    CHECK_NCCL(ncclReduce(in, out, 0, ncclInt32, op, 0, comm, NULL));
}

static void own_operators_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    float in[8] = {1, 1, 1, 1, 1, 1, 1, 1}, out[2] = {0, 0}, scalar = 3;
    const bool root = ranks->rank == ranks->nranks - 1;
    ncclRedOp_t op;
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarDevice, comm));
    for (; scalar < 6; scalar++) {
        own_operator(comm, ranks->nranks, in, out, op, scalar);
        CHECK(out[0] == (root ? scalar * (float)ranks->nranks : 0));
    }
    CHECK_NCCL(ncclRedOpDestroy(op, comm));
    CHECK_INVALID(ncclReduce(in, out, 1, ncclFloat32, op, 0, comm, NULL));
    CHECK_INVALID(ncclReduceScatter(in, out, 1, ncclFloat32, op, comm, NULL));
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* A scalar in memory is read when the call runs, and many operators can exist at once. */
static void operators_body(ranks_t *ranks)
{
    enum { MANY = 40 };
    ncclComm_t comm = ranks_init(ranks);
    ncclRedOp_t ops[MANY], late;
    float scalar = 5, in = (float)(ranks->rank + 1), out = 0, sum = 0;
    for (int r = 0; r < ranks->nranks; r++)
        sum += (float)(r + 1);
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&late, &scalar, ncclFloat32, ncclScalarDevice, comm));
    for (int i = 0; i < MANY; i++) {
        float own = (float)i;
        CHECK_NCCL(ncclRedOpCreatePreMulSum(&ops[i], &own, ncclFloat32, ncclScalarHostImmediate, comm));
    }
    for (int i = MANY - 1; i >= 0; i--) {
        CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclFloat32, ops[i], comm, NULL));
        CHECK(out == (float)i * sum);
        CHECK_NCCL(ncclRedOpDestroy(ops[i], comm));
        scalar = (float)(i + 2);
        CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclFloat32, late, comm, NULL));
        CHECK(out == scalar * sum);
    }
    CHECK_NCCL(ncclRedOpDestroy(late, comm));
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* A refused message, in a group, too, has no side effect; an empty message is valid otherwise. */
static void messages_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    const int peer = 1 - ranks->rank;
    float in[16] = {0}, out[16] = {0};
    void *handle = NULL;
    for (size_t count = 0; count < 2; count++) {
        CHECK_INVALID(ncclSend(in, count, ncclFloat32, 2, comm, NULL));
        CHECK_INVALID(ncclRecv(out, count, ncclFloat32, -1, comm, NULL));
        CHECK_INVALID(ncclSend(in, count, bad_type, peer, comm, NULL));
        CHECK_INVALID(ncclRecv(out, count, bad_type, 2, comm, NULL));
    }
    CHECK_INVALID(ncclSend(NULL, 1, ncclFloat32, peer, comm, NULL));
    CHECK_INVALID(ncclRecv(NULL, 1, ncclFloat32, peer, comm, NULL));
    CHECK_INVALID(ncclSend(in, SIZE_MAX / 2, ncclFloat32, peer, comm, NULL));
    CHECK_NCCL(ncclSend(NULL, 0, ncclFloat32, peer, comm, NULL)); /* no rank has to receive it */
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSend(in, 1, ncclFloat32, peer, comm, NULL));
    CHECK_INVALID(ncclRecv(out, 1, ncclFloat32, 2, comm, NULL));
    CHECK_INVALID(ncclGroupEnd());
    in[0] = 5;
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSend(in, 1, ncclFloat32, peer, comm, NULL));
    CHECK_NCCL(ncclRecv(out, 1, ncclFloat32, peer, comm, NULL));
    CHECK_NCCL(ncclGroupEnd());
    CHECK(out[0] == 5);
    /* registration has no effect here, and a program that registers continues */
    CHECK_NCCL(ncclCommRegister(comm, in, sizeof(in), &handle));
    CHECK_NCCL(ncclCommDeregister(comm, handle));
    in[0] = 1;
    CHECK_NCCL(ncclAllReduce(in, out, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK(out[0] == (float)ranks->nranks);
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* NCCL checks some calls' arguments outside of the group. */
static void group_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    float in = 1, out = 0;
    void *handle = NULL;
    CHECK_NCCL(ncclGroupStart());
    CHECK_INVALID(ncclMemAlloc(NULL, 4));
    CHECK_INVALID(ncclCommRegister(NULL, &in, sizeof in, &handle));
    CHECK_RESULT(ncclCommDeregister(comm, &in), ncclInvalidUsage);
    CHECK_INVALID(ncclCommInitAll(NULL, 1, NULL));
#ifdef NCCL_REVOKE_DEFAULT
    CHECK_INVALID(ncclCommRevoke(comm, 1));
#endif
    CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK_NCCL(ncclGroupEnd());
    CHECK(out == (float)ranks->nranks);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void versions(void **state)
{
    (void)state;
    cpu_run(RANKS_SOLO, 1, versions_body, NULL);
}

static void init(void **state)
{
    (void)state;
    cpu_run(RANKS_SOLO, 1, init_body, NULL);
}

static void handles(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 1, handles_body, NULL);
    cpu_run(RANKS_PROCESSES, 2, handles_body, NULL);
}

static void all_reduce(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 1, all_reduce_body, NULL);
    cpu_run(RANKS_PROCESSES, 3, all_reduce_body, NULL);
    cpu_run(RANKS_THREADS, 2, all_reduce_body, NULL);
}

static void each_collective(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 1, each_collective_body, NULL);
    cpu_run(RANKS_PROCESSES, 3, each_collective_body, NULL); /* no threads: they share the last error */
}

static void own_operators(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 1, own_operators_body, NULL);
    cpu_run(RANKS_PROCESSES, 3, own_operators_body, NULL);
}

static void operators(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 1, operators_body, NULL);
    cpu_run(RANKS_PROCESSES, 3, operators_body, NULL);
}

static void group(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, group_body, NULL);
}

static void messages(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, messages_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions),        cmocka_unit_test(init),
        cmocka_unit_test(handles),         cmocka_unit_test(all_reduce),
        cmocka_unit_test(each_collective), cmocka_unit_test(own_operators),
        cmocka_unit_test(operators),       cmocka_unit_test(group),
        cmocka_unit_test(messages),
    };
    const char *nodes = getenv("RANKS_PER_NODE");
    if (nodes != NULL && strcmp(nodes, "1") == 0)
        cmocka_set_skip_filter("messages"); /* there are none between nodes */
    cpu_limit(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
