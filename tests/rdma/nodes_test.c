/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodes_test.c - ranks that are treated as ranks of two nodes (NCCL_HOSTID), each node with its own RDMA device
 * (RDMA_DEVICES): their results, the transport used, and the effect of a cut link, a wrong key or a dead rank.
 *
 * Runs in scripts/rdma-vm on real verbs; elsewhere with fake devices, without cut links and wrong keys. The ranks meet
 * over the loopback (NCCL_SOCKET_IFNAME), so the link's counters count only RDMA.
 */
#include "tests/cpu/cpu.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>

static const char *const patient[] = {"NCCL_SOCKET_IFNAME", "lo", NULL};
/* A packet that is not answered is sent anew twice, after 67 ms each. */
static const char *const quick[] = {
    "NCCL_SOCKET_IFNAME", "lo", "NCCL_IB_TIMEOUT", "14", "NCCL_IB_RETRY_CNT", "2", NULL};

static void run_nodes(int nranks, const char *const *env, uint32_t killed, ranks_body_t body)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = nranks, .killed = killed, .env = env, .body = body};
    assert_int_equal(ranks_run(&plan), 0);
}

/* ---- The way ------------------------------------------------------------------------------- */

static bool has_wire(void)
{
    return getenv("RDMA_VM_WIRE") != NULL;
}

static int node_of(const ranks_t *ranks)
{
    return ranks->rank / (ranks->nranks / 2);
}

/* Write the name of the rank's device, as in NCCL_IB_HCA. */
static void name_device(const ranks_t *ranks, char name[32])
{
    const char *devices = getenv("RDMA_DEVICES");
    CHECK(devices != NULL && strchr(devices, ',') != NULL);
    const char *own = node_of(ranks) ? strchr(devices, ',') + 1 : devices;
    snprintf(name, 32, "=%.*s", (int)strcspn(own, ","), own);
}

static void name_log(char name[64])
{
    snprintf(name, 64, "/tmp/rdma-nodes-%d", (int)getpid());
}

static ncclComm_t init_node(ranks_t *ranks)
{
    char device[32], log[64];
    name_device(ranks, device);
    name_log(log);
    setenv("NCCL_HOSTID", node_of(ranks) ? "b" : "a", 1);
    setenv("NCCL_IB_HCA", device, 1);
    setenv("SHUNT_DEBUG", "info", 1);
    setenv("SHUNT_DEBUG_FILE", log, 1);
    return ranks_init(ranks);
}

/* Check that this process's log reports RDMA, and remove the log. Only once per process. */
static void expect_rdma(const ranks_t *ranks)
{
    char device[32], log[64], line[512], wanted[64];
    bool found = false;
    name_device(ranks, device);
    name_log(log);
    snprintf(wanted, sizeof(wanted), "reached by RDMA (%s:1)", device + 1);
    FILE *file = fopen(log, "re");
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file))
        found = found || strstr(line, wanted);
    fclose(file);
    unlink(log);
    CHECK(found);
}

/* What the rank's node has sent; 0 without a wire. */
static uint64_t wire_bytes(const ranks_t *ranks)
{
    char name[64];
    unsigned long long bytes;
    if (!has_wire())
        return 0;
    snprintf(name, sizeof(name), "/sys/class/net/veth%d/statistics/tx_bytes", node_of(ranks));
    FILE *file = fopen(name, "r");
    CHECK(file && fscanf(file, "%llu", &bytes) == 1);
    fclose(file);
    return bytes;
}

/* Check the sent bytes, after a barrier: a rank may have its results before it has sent all its data. */
static void expect_sent(ranks_t *ranks, uint64_t before, uint64_t bytes)
{
    ranks_barrier(ranks);
    CHECK(!has_wire() || wire_bytes(ranks) - before >= bytes);
}

static void command(const char *line)
{
    CHECK(system(line) == 0);
}

/* ---- What they compute --------------------------------------------------------------------- */

static void sums_body(ranks_t *ranks)
{
    static const ncclDataType_t types[] = {ncclFloat16, ncclFloat32, ncclInt8, ncclUint64, ncclBfloat16, ncclFloat64};
    static const size_t counts[] = {1, 7, 1000, 5003, 40007};
    static const ref_op_t ops[] = {REF_SUM, REF_AVG, REF_MAX};
    ncclComm_t comm = init_node(ranks);
    expect_rdma(ranks);
    uint64_t hash = 0, bytes = 0;
    const uint64_t before = wire_bytes(ranks);
    ranks_barrier(ranks);
    for (size_t i = 0; i < 30; i++) {
        const data_case_t c = {types[i % 6], ops[i % 3], DATA_RANDOM, 100 + i, counts[i % 5], ranks->nranks};
        call_run(comm, ranks->rank, &c, (call_shape_t){0, 0, false}, &hash);
        bytes += c.count * ref_bytes(c.type);
    }
    call_agree(ranks, hash);
    expect_sent(ranks, before, bytes);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void sums(void **state)
{
    (void)state;
    run_nodes(2, patient, 0, sums_body);
    run_nodes(4, patient, 0, sums_body);
}

static void collectives_body(ranks_t *ranks)
{
    ncclComm_t comm = init_node(ranks);
    expect_rdma(ranks);
    uint64_t hash = 0, before = wire_bytes(ranks);
    for (uint32_t i = 0; i < 2 * COLL_COUNT; i++) {
        const coll_t k = {
            (alg_collective_t)(i % COLL_COUNT), i / COLL_COUNT, {ncclFloat32, REF_SUM, DATA_SMALL, i, 9001, 2}};
        call_run_coll(comm, ranks->rank, &k, (call_shape_t){0, 0, false}, &hash);
    }
    expect_sent(ranks, before, sizeof(float) * 9001 * COLL_COUNT);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void collectives(void **state)
{
    (void)state;
    run_nodes(2, patient, 0, collectives_body);
}

/* ---- Failures ------------------------------------------------------------------------------ */

static ncclResult_t sum(ncclComm_t comm)
{
    static int32_t in[50000], out[50000];
    for (int i = 0; i < 50000; i++) {
        in[i] = i;
        out[i] = -1;
    }
    ncclResult_t result = ncclAllReduce(in, out, 50000, ncclInt32, ncclSum, comm, NULL);
    for (int i = 0; i < 50000 && result == ncclSuccess; i++)
        CHECK(out[i] == 2 * i);
    return result;
}

/* Check that the warning and the last error contain the device's message. */
static void expect_named(ncclComm_t comm, const char *what)
{
    if (!strstr(ncclGetLastError(comm), what))
        fprintf(stderr, "last error: %s\n", ncclGetLastError(comm));
    CHECK(strstr(ncclGetLastError(comm), what) != NULL);
}

static void expect_failed(ncclComm_t comm, ncclResult_t result)
{
    ncclResult_t async = ncclSuccess;
    CHECK(result == ncclRemoteError);
    CHECK_NCCL(ncclCommGetAsyncError(comm, &async));
    CHECK(async == ncclRemoteError);
    CHECK_NCCL(ncclCommAbort(comm));
}

static void cut_wire_body(ranks_t *ranks)
{
    ncclComm_t comm = init_node(ranks);
    expect_rdma(ranks);
    ncclResult_t result = ncclSuccess;
    for (int i = 0; result == ncclSuccess; i++) {
        result = sum(comm);
        if (i == 5 && ranks->rank == 0)
            command("ip link set veth1 down"); /* rank 1 is in its next call */
    }
    expect_failed(comm, result);
    ranks_barrier(ranks);
    if (ranks->rank == 0)
        command("sh \"$RDMA_VM_WIRE\"");
    /* A new communicator of the same processes. */
    comm = init_node(ranks);
    const uint64_t before = wire_bytes(ranks);
    CHECK_NCCL(sum(comm));
    expect_sent(ranks, before, 50000 * sizeof(int32_t));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void cut_wire(void **state)
{
    (void)state;
    run_nodes(2, quick, 0, cut_wire_body);
}

/* A failed write of rank 0 gives all ranks an error. */
static void failed_write_body(ranks_t *ranks)
{
    if (ranks->rank == 0)
        setenv("FAKE_VERBS", "two,fail=60", 1);
    ncclComm_t comm = init_node(ranks);
    expect_rdma(ranks);
    ncclResult_t result = ncclSuccess;
    while (result == ncclSuccess)
        result = sum(comm);
    if (ranks->rank == 0)
        expect_named(comm, "transport retry counter exceeded");
    expect_failed(comm, result);
}

static void failed_write(void **state)
{
    (void)state;
    run_nodes(2, patient, 0, failed_write_body);
}

/* Rank 0, which writes with a wrong key, gets an error, and rank 1 sees that rank 0 is gone. */
static void bad_key_body(ranks_t *ranks)
{
    ncclComm_t comm = init_node(ranks);
    expect_rdma(ranks);
    CHECK_NCCL(sum(comm));
    ranks_barrier(ranks);
    if (ranks->rank == 0) {
        void *library = dlopen(getenv("SHUNT_IBV_SO"), RTLD_NOW | RTLD_NOLOAD);
        CHECK(library != NULL);
        _Atomic int *on = dlsym(library, "bad_key_on");
        CHECK(on != NULL);
        atomic_store(on, 1);
    }
    ncclResult_t result = ncclSuccess;
    while (result == ncclSuccess) /* rank 0 may have rank 1's part before it hears that its own did not arrive */
        result = sum(comm);
    expect_failed(comm, result);
}

static void bad_key(void **state)
{
    (void)state;
    const char *const env[] = {"NCCL_SOCKET_IFNAME", "lo", "SHUNT_IBV_SO", getenv("RDMA_BAD_KEY"), NULL};
    run_nodes(2, env, 0, bad_key_body);
}

static void killed_body(ranks_t *ranks)
{
    ncclComm_t comm = init_node(ranks);
    expect_rdma(ranks);
    CHECK_NCCL(sum(comm));
    if (ranks->rank == 1)
        raise(SIGKILL);
    expect_failed(comm, sum(comm));
}

static void killed(void **state)
{
    (void)state;
    run_nodes(2, quick, 1u << 1, killed_body);
}

int main(void)
{
    const struct CMUnitTest with_made_up_devices[] = {
        cmocka_unit_test(sums),
        cmocka_unit_test(collectives),
        cmocka_unit_test(killed),
        cmocka_unit_test(failed_write),
    };
    const struct CMUnitTest on_a_wire[] = {
        cmocka_unit_test(sums),     cmocka_unit_test(collectives), cmocka_unit_test(killed),
        cmocka_unit_test(cut_wire), cmocka_unit_test(bad_key),
    };
    cpu_limit(30);
    if (has_wire())
        return cmocka_run_group_tests(on_a_wire, NULL, NULL);
    return cmocka_run_group_tests(with_made_up_devices, NULL, NULL);
}
