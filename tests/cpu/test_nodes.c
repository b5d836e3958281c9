/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that are treated as ranks of several nodes (NCCL_HOSTID): how they meet, their results, and the effect when one
 * of them is gone.
 *
 * The other programs of this folder also run on such nodes (CMakeLists.txt).
 */
#include "cpu.h"

#include <netinet/in.h>
#include <pthread.h>
#include <shunt.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

/* For tests in which the time limit must end a wait, and all before it must stay within the limit too. */
static const char *const long_limit[] = {"SHUNT_TIMEOUT_MS", "15000", NULL};

typedef struct layout {
    int per_node;
} layout_t;

static void set_node(ranks_t *ranks)
{
    const layout_t *layout = ranks->arg;
    char name[32];
    snprintf(name, sizeof(name), "node%d", ranks->rank / layout->per_node);
    setenv("NCCL_HOSTID", name, 1);
}

static void expect_class(ncclComm_t comm, const char *name, int nranks)
{
    shunt_communicator_t facts = {.size = sizeof(facts)};
    char expected[32];
    snprintf(expected, sizeof(expected), "%s-%d", name, nranks);
    CHECK(shunt_communicator(comm, &facts) == 0);
    CHECK(strcmp(facts.class_name, expected) == 0);
}

static void run_layout(int nranks, int per_node, const char *const *env, uint32_t killed, ranks_body_t body)
{
    const layout_t layout = {per_node};
    ranks_plan_t plan = {
        .shape = RANKS_PROCESSES, .nranks = nranks, .killed = killed, .env = env, .body = body, .arg = &layout};
    assert_int_equal(ranks_run(&plan), 0);
}

/* ---- The same values, whatever the layout --------------------------------------------- */

/* Returns the hash of all results; *exact gets the hash of those that do not depend on the order of summation. */
static uint64_t compute(ranks_t *ranks, ncclComm_t comm, uint64_t *exact)
{
    static const ncclDataType_t types[] = {ncclFloat16, ncclFloat32, ncclInt8, ncclUint64, ncclBfloat16, ncclFloat64};
    static const size_t counts[] = {1, 7, 1000, 5003, 12007};
    static const ref_op_t ops[] = {REF_SUM, REF_AVG, REF_MAX, REF_PROD};
    const call_shape_t shape = {0, 0, false};
    uint64_t hash = 0;
    for (size_t i = 0; i < 6 * 4; i++) {
        const data_case_t c = {types[i % 6], ops[i / 6], DATA_RANDOM, 100 + i, counts[i % 5], ranks->nranks};
        call_run(comm, ranks->rank, &c, shape, ref_is_float(c.type) && c.op != REF_MAX ? &hash : exact);
    }
    return hash ^ *exact;
}

/* Results are right in all layouts; the last word is the hash of the first layout. */
static void values_body(ranks_t *ranks)
{
    set_node(ranks);
    const layout_t *layout = ranks->arg;
    ncclComm_t comm = ranks_init(ranks);
    expect_class(comm, layout->per_node < ranks->nranks ? "network" : "host", ranks->nranks);
    uint64_t exact = 0;
    call_agree(ranks, compute(ranks, comm, &exact));
    ranks_barrier(ranks);
    uint64_t first = 0;
    atomic_compare_exchange_strong(&ranks->shared->words[63], &first, exact);
    CHECK(first == 0 || first == exact);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void values(void **state)
{
    static const struct {
        int nranks, per_node[4];
    } cases[] = {{2, {2, 1}}, {4, {4, 2, 1, 3}}, {8, {8, 2, 1}}};
    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        ranks_shared_t *shared = ranks_share();
        for (int l = 0; l < 4 && cases[c].per_node[l]; l++) {
            const layout_t layout = {cases[c].per_node[l]};
            ranks_plan_t plan = {.shape = RANKS_PROCESSES,
                                 .nranks = cases[c].nranks,
                                 .body = values_body,
                                 .arg = &layout,
                                 .shared = shared};
            for (int w = 0; w < 63; w++)
                atomic_store(&shared->words[w], 0);
            assert_int_equal(ranks_run(&plan), 0);
        }
    }
}

/* ---- Tables ---------------------------------------------------------------------------------- */

/* Ranks agree if only the second node has a table, which has no rows for a network. */
static void one_table_body(ranks_t *ranks)
{
    char path[] = "/tmp/shunt-table-XXXXXX";
    static const char text[] = "# shunt table 2\n# machine: 0000000000000000\n"
                               "# link: 384.8 GB/s among 2 GPUs, one way 0.76 us, over nvswitch\n"
                               "collective,ranks,class,types,from,to,algorithm,blocks,threads,source\n"
                               "allreduce,2,nvswitch-sm90-2,any,1024,4096,oneshot,4,64,by hand\n";
    const call_shape_t shape = {0, 0, false};
    const data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, 7, 1000, ranks->nranks};
    uint64_t hash = 0;
    set_node(ranks);
    if (ranks->rank == 1) {
        const int file = mkstemp(path);
        CHECK(file >= 0 && write(file, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1 && close(file) == 0);
        setenv("SHUNT_TABLE", path, 1);
    }
    ncclComm_t comm = ranks_init(ranks);
    if (ranks->rank == 1)
        CHECK(unlink(path) == 0);
    expect_class(comm, "network", ranks->nranks);
    call_run(comm, ranks->rank, &c, shape, &hash);
    ranks_barrier(ranks);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void one_table(void **state)
{
    (void)state;
    run_layout(2, 1, NULL, 0, one_table_body);
}

/* ---- Children ---------------------------------------------------------------------------- */

static void children_body(ranks_t *ranks)
{
    set_node(ranks);
    ncclComm_t comm = ranks_init(ranks), node, across, without;
    CHECK_NCCL(ncclCommSplit(comm, ranks->rank / 2, 0, &node, NULL));
    expect_class(node, "host", 2); /* one node: by shared memory */
    CHECK_NCCL(ncclCommSplit(comm, ranks->rank % 2, -ranks->rank, &across, NULL));
    expect_class(across, "network", 2);
    int rank, last = ranks->nranks - 1;
    CHECK_NCCL(ncclCommUserRank(across, &rank));
    CHECK(rank == 1 - ranks->rank / 2);
    for (int i = 0; i < 10; i++) {
        ncclComm_t comms[] = {node, across, comm};
        int32_t in = 1 + i, out = 0;
        CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comms[i % 3], NULL));
        CHECK(out == in * (i % 3 == 2 ? 4 : 2));
    }
    if (ranks->rank != last) {
        CHECK_NCCL(ncclCommShrink(comm, &last, 1, &without, NULL, NCCL_SHRINK_DEFAULT));
        expect_class(without, "network", 3);
        CHECK_NCCL(ncclCommDestroy(without));
    }
    ranks_barrier(ranks); /* rank 0's process has the listener */
    CHECK_NCCL(ncclCommDestroy(node));
    CHECK_NCCL(ncclCommDestroy(comm));
    CHECK_NCCL(ncclCommDestroy(across));
}

static void children(void **state)
{
    (void)state;
    run_layout(4, 2, NULL, 0, children_body);
}

/* ---- Who is gone --------------------------------------------------------------------------- */

static ncclResult_t sum(ncclComm_t comm, int nranks)
{
    static float in[100000], out[100000];
    for (int i = 0; i < 100000; i++)
        in[i] = (float)(i % 1000);
    ncclResult_t result = ncclAllReduce(in, out, 100000, ncclFloat32, ncclSum, comm, NULL);
    for (int i = 0; i < 100000 && result == ncclSuccess; i++)
        CHECK(out[i] == (float)(i % 1000 * nranks));
    return result;
}

static void expect_remote_error(ncclComm_t comm, int nranks)
{
    ncclResult_t async = ncclSuccess;
    CHECK_RESULT(sum(comm, nranks), ncclRemoteError);
    CHECK_NCCL(ncclCommGetAsyncError(comm, &async));
    CHECK(async == ncclRemoteError);
    CHECK_RESULT(sum(comm, nranks), ncclRemoteError);
    CHECK_NCCL(ncclCommAbort(comm));
}

/* A rank's death is detected although its children hold copies of its sockets. */
static void killed_body(ranks_t *ranks)
{
    set_node(ranks);
    ncclComm_t comm = ranks_init(ranks);
    CHECK_NCCL(sum(comm, ranks->nranks));
    if (ranks->rank == ranks->nranks - 1) {
        if (fork() == 0) {
            while (atomic_load(&ranks->shared->words[0]) < (uint64_t)ranks->nranks - 1)
                usleep(1000);
            _exit(0);
        }
        raise(SIGKILL);
    }
    expect_remote_error(comm, ranks->nranks);
    atomic_fetch_add(&ranks->shared->words[0], 1);
}

static void killed(void **state)
{
    (void)state;
    run_layout(2, 1, NULL, 1u << 1, killed_body);
    run_layout(4, 2, NULL, 1u << 3, killed_body);
}

/* A living rank that is absent for longer than the limit detects at its next call that the others have left. */
static void stalled_body(ranks_t *ranks)
{
    set_node(ranks);
    ncclComm_t comm = ranks_init(ranks);
    CHECK_NCCL(sum(comm, ranks->nranks));
    if (ranks->rank == 0)
        ranks_wait(ranks, 0, (uint64_t)ranks->nranks - 1);
    expect_remote_error(comm, ranks->nranks);
    atomic_fetch_add(&ranks->shared->words[0], 1);
}

static void stalled(void **state)
{
    (void)state;
    run_layout(3, 1, long_limit, 0, stalled_body);
}

static void *abort_it(void *comm)
{
    usleep(50000);
    CHECK_NCCL(ncclCommAbort(comm));
    return NULL;
}

/* An abort on each of the other ranks frees its call, which rank 0 never makes. The library's limit is longer than the
 * run's. */
static void aborted_body(ranks_t *ranks)
{
    set_node(ranks);
    ncclComm_t comm = ranks_init(ranks);
    if (ranks->rank > 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, abort_it, comm) == 0);
        CHECK_FAILS(sum(comm, ranks->nranks));
        pthread_join(thread, NULL);
    }
    ranks_barrier(ranks);
    if (ranks->rank == 0)
        expect_remote_error(comm, ranks->nranks);
}

static void aborted(void **state)
{
    (void)state;
    run_layout(3, 1, NULL, 0, aborted_body);
}

/* ---- Who never meets ------------------------------------------------------------------------- */

static void init_fails(ranks_t *ranks, ncclUniqueId id, const char *text)
{
    ncclComm_t comm = NULL;
    CHECK_FAILS(ncclCommInitRank(&comm, ranks->nranks, id, ranks->rank));
    if (strstr(ncclGetLastError(NULL), text) == NULL)
        check_failed(__FILE__, __LINE__, text, ncclGetLastError(NULL));
}

/* Make an id in a process that then ends, and with it its listener. */
static void make_id_of_the_dead(ranks_t *ranks)
{
    set_node(ranks);
    if (ranks->rank == 0) {
        pid_t pid = fork();
        if (pid == 0) {
            CHECK_NCCL(ncclGetUniqueId(&ranks->shared->id));
            _exit(0);
        }
        CHECK(waitpid(pid, NULL, 0) == pid);
    }
    ranks_barrier(ranks);
}

static void no_listener_body(ranks_t *ranks)
{
    make_id_of_the_dead(ranks);
    init_fails(ranks, ranks->shared->id, "cannot meet at");
}

static bool has_six(void)
{
    struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int made = socket(AF_INET6, SOCK_STREAM, 0);
    const bool bound = made >= 0 && bind(made, (struct sockaddr *)&loopback, sizeof(loopback)) == 0;
    if (made >= 0)
        close(made);
    return bound;
}

/* The error of ranks that could not meet names the address where they tried. */
static void interface_body(ranks_t *ranks)
{
    const char *family = getenv("NCCL_SOCKET_FAMILY");
    const bool none = strcmp(getenv("NCCL_SOCKET_IFNAME"), "nothing") == 0;
    const bool wants_six = family && strcmp(family, "AF_INET6") == 0;
    if (wants_six && !has_six())
        return;
    make_id_of_the_dead(ranks);
    init_fails(ranks, ranks->shared->id,
               none        ? "1 of 2 ranks joined"
               : wants_six ? "meet at [::1]:"
                           : "meet at 127.0.0.1:");
}

static void socket_variables(void **state)
{
    static const char *const loopback[] = {"NCCL_SOCKET_IFNAME", "lo", NULL};
    static const char *const six[] = {"NCCL_SOCKET_IFNAME", "lo", "NCCL_SOCKET_FAMILY", "AF_INET6", NULL};
    static const char *const port[] = {"NCCL_SOCKET_IFNAME", "=lo:0", NULL};
    static const char *const none[] = {"NCCL_SOCKET_IFNAME", "nothing", "SHUNT_TIMEOUT_MS", "1000", NULL};
    (void)state;
    run_layout(2, 1, loopback, 0, interface_body);
    run_layout(2, 1, six, 0, interface_body);
    run_layout(2, 1, port, 0, interface_body);
    run_layout(2, 1, none, 0, interface_body);
}

/* With a modified id, which has no listener, the ranks only wait for each other on this node. */
static void spoilt_id_body(ranks_t *ranks)
{
    set_node(ranks);
    ncclUniqueId id = ranks_id(ranks);
    id.internal[sizeof(id.internal) - 1] ^= 1;
    init_fails(ranks, id, "1 of 2 ranks joined");
}

/* A rank that never calls gives the others an error. */
static void missing_body(ranks_t *ranks)
{
    set_node(ranks);
    ncclUniqueId id = ranks_id(ranks);
    if (ranks->rank > 0)
        init_fails(ranks, id, "not all of its 3 ranks joined");
    ranks_barrier(ranks);
}

/* Two ranks with the same number give an error. */
static void twice_body(ranks_t *ranks)
{
    ncclComm_t comm = NULL;
    set_node(ranks);
    ncclUniqueId id = ranks_id(ranks);
    CHECK_FAILS(ncclCommInitRank(&comm, ranks->nranks, id, 0));
    ranks_barrier(ranks);
}

static void never_met(void **state)
{
    static const char *const short_limit[] = {"SHUNT_TIMEOUT_MS", "1000", NULL};
    (void)state;
    run_layout(2, 1, NULL, 0, no_listener_body);
    run_layout(2, 1, short_limit, 0, spoilt_id_body);
    run_layout(3, 1, short_limit, 0, missing_body);
    run_layout(2, 1, short_limit, 0, twice_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),           cmocka_unit_test(children),  cmocka_unit_test(killed),
        cmocka_unit_test(stalled),          cmocka_unit_test(aborted),   cmocka_unit_test(never_met),
        cmocka_unit_test(socket_variables), cmocka_unit_test(one_table),
    };
    cpu_limit(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
