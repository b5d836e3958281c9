/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables of docs/settings.md that have an effect on the CPU device, each as visible to a program.
 * tests/tools/test_variables.py lists the tests of the others.
 */
#include "cpu.h"

#include <dirent.h>
#include <dlfcn.h>

#include <shunt.h>
#include <string.h>
#include <unistd.h>

enum { LOG_BYTES = 8192, COUNT = 16384 };

static const size_t bytes = COUNT * sizeof(float);

static shunt_decision_t reduce_once(ranks_t *ranks, ncclComm_t comm)
{
    const data_case_t c = {.type = ncclFloat32, .kind = DATA_SMALL, .seed = 1, .count = COUNT, .nranks = ranks->nranks};
    uint64_t hash = 0;
    call_run(comm, ranks->rank, &c, (call_shape_t){0}, &hash);
    shunt_decision_t decision = {.size = sizeof(decision)};
    CHECK(shunt_last_decision(&decision) == 0);
    CHECK(decision.bytes == bytes);
    return decision;
}

static shunt_decision_t decide(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    shunt_decision_t decision = reduce_once(ranks, comm);
    ranks_barrier(ranks);
    CHECK_NCCL(ncclCommDestroy(comm));
    return decision;
}

/* ---- What each is set to, and must do ------------------------------------------------- */

typedef struct setting {
    const char *value;
    const char *expected;
} setting_t;

static void run(const char *variable, const setting_t *setting, int nranks, ranks_body_t body)
{
    const char *const env[] = {"SHUNT_SCRATCH_BYTES", "16M", "SHUNT_CACHE_DIR", "/nowhere", variable,
                               setting->value,        NULL};
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = nranks, .body = body, .env = env, .arg = setting};
    assert_int_equal(ranks_run(&plan), 0);
}

static void device_body(ranks_t *ranks)
{
    const setting_t *setting = ranks->arg;
    (void)ranks;
    CHECK(shunt_host_mode() == (strcmp(setting->expected, "cpu") == 0));
}

static void device(void **state)
{
    (void)state;
    run("SHUNT_DEVICE", &(setting_t){"cpu", "cpu"}, 1, device_body);
    run("SHUNT_DEVICE", &(setting_t){"host", "cpu"}, 1, device_body); /* its older name */
    run("SHUNT_DEVICE", &(setting_t){"cuda", "cuda"}, 1, device_body);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = driver != NULL ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    run("SHUNT_DEVICE", &(setting_t){"auto", init != NULL && init(0) == 0 ? "cuda" : "cpu"}, 1, device_body);
}

static void algo_body(ranks_t *ranks)
{
    const setting_t *setting = ranks->arg;
    shunt_decision_t decision = decide(ranks);
    CHECK(strcmp(decision.algorithm, setting->expected) == 0);
    CHECK(strcmp(decision.source, strcmp(setting->value, "nccl") == 0 ? "CPU device" : "policy") == 0);
}

/* SHUNT_ALGO selects the algorithm. (The CPU device cannot forward, so `nccl` has no effect.) */
static void algo(void **state)
{
    (void)state;
    static const setting_t settings[] = {
        {"oneshot", "oneshot"},
        {"twoshot", "twoshot"},
        {"staged", "staged"},
        {"^oneshot", "twoshot"},
        {"0-64K=staged;64K-=twoshot", "twoshot"},
        {"allreduce:0-65=nccl;65-65537=staged", "staged"},
        {"nccl", "oneshot"},
    };
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        run("SHUNT_ALGO", &settings[i], 2, algo_body);
}

/* A cap limits a policy with many blocks. */
static void max_ctas_body(ranks_t *ranks)
{
    const setting_t *setting = ranks->arg;
    setenv("SHUNT_ALGO", "twoshot:4x1", 1);
    CHECK(decide(ranks).blocks == (uint32_t)atoi(setting->expected));
}

static void max_ctas(void **state)
{
    (void)state;
    run("SHUNT_MAX_CTAS", &(setting_t){"0", "4"}, 2, max_ctas_body);
    run("SHUNT_MAX_CTAS", &(setting_t){"3", "3"}, 2, max_ctas_body);
    run("NCCL_MAX_CTAS", &(setting_t){"2", "2"}, 2, max_ctas_body);
}

/* The log prints the scratch's size, and a message of 2 MiB fits or does not. (Bulk copies between two ranks need
 * little scratch.) */
static void scratch_bytes_body(ranks_t *ranks)
{
    enum { LARGE = 1 << 19 };
    const setting_t *setting = ranks->arg;
    char path[] = "/tmp/shunt-variables-XXXXXX", log[LOG_BYTES];
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    setenv("SHUNT_DEBUG", "info", 1);
    setenv("SHUNT_DEBUG_FILE", path, 1);
    ncclComm_t comm = ranks_init(ranks);
    float *buffer = calloc(LARGE, sizeof(*buffer));
    ncclResult_t result = ncclAllReduce(buffer, buffer, LARGE, ncclFloat32, ncclSum, comm, NULL);
    CHECK(result == (atoi(setting->value) == 1 ? ncclInvalidUsage : ncclSuccess));
    free(buffer);
    CHECK_NCCL(ncclCommDestroy(comm));
    ssize_t got = read(fd, log, sizeof(log) - 1);
    log[got > 0 ? got : 0] = '\0';
    close(fd);
    unlink(path);
    /* One rank of a process logs it, and so each of these. */
    CHECK(strstr(log, "class=host-3") != NULL && strstr(log, "rules=CPU device") != NULL);
    CHECK(strstr(log, setting->expected) != NULL);
}

static void scratch_bytes(void **state)
{
    (void)state;
    run("SHUNT_SCRATCH_BYTES", &(setting_t){"1M", " scratch_kib=1024 "}, 3, scratch_bytes_body);
    run("SHUNT_SCRATCH_BYTES", &(setting_t){"16777216", " scratch_kib=16384 "}, 3, scratch_bytes_body);
}

/* If a rank never calls, the call ends at SHUNT_TIMEOUT_MS. */
static void timeout_body(ranks_t *ranks)
{
    const setting_t *setting = ranks->arg;
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    (void)ranks;
    CHECK_NCCL(ncclGetUniqueId(&id));
    double start = ranks_seconds();
    CHECK_FAILS(ncclCommInitRank(&comm, 2, id, 0));
    CHECK(ranks_seconds() - start >= atof(setting->value) * 1e-3);
    CHECK(strstr(ncclGetLastError(NULL), setting->expected) != NULL);
}

static void timeout_ms(void **state)
{
    (void)state;
    run("SHUNT_TIMEOUT_MS", &(setting_t){"300", "within 300 ms"}, 1, timeout_body);
}

/* Ranks with different node ids are treated as on different nodes. */
static void node_id_body(ranks_t *ranks)
{
    const setting_t *setting = ranks->arg;
    ncclComm_t comm = NULL;
    char own[16];
    snprintf(own, sizeof(own), "%s%d", setting->value, setting->expected != NULL ? ranks->rank : 0);
    setenv("NCCL_HOSTID", own, 1);
    ncclUniqueId id = ranks_id(ranks);
    CHECK_NCCL(ncclCommInitRank(&comm, ranks->nranks, id, ranks->rank));
    shunt_communicator_t facts = {.size = sizeof(facts)};
    CHECK(shunt_communicator(comm, &facts) == 0);
    CHECK(strcmp(facts.class_name, setting->expected != NULL ? setting->expected : "host-2") == 0);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void node_id(void **state)
{
    (void)state;
    run("NCCL_HOSTID", &(setting_t){"host", NULL}, 2, node_id_body);
    run("NCCL_HOSTID", &(setting_t){"host", "network-2"}, 2, node_id_body);
}

/* Every rank makes the same id. */
static void comm_id_body(ranks_t *ranks)
{
    const setting_t *setting = ranks->arg;
    ncclUniqueId id;
    if (setting->expected) {
        CHECK_RESULT(ncclGetUniqueId(&id), ncclInvalidArgument);
        CHECK(strstr(ncclGetLastError(NULL), setting->expected) != NULL);
        return;
    }
    for (int i = 0; i < 2; i++) {
        ncclComm_t comm = NULL;
        CHECK_NCCL(ncclGetUniqueId(&id));
        CHECK_NCCL(ncclCommInitRank(&comm, ranks->nranks, id, ranks->rank));
        reduce_once(ranks, comm);
        ranks_barrier(ranks);
        CHECK_NCCL(ncclCommDestroy(comm));
    }
    /* Another address is another id. */
    ncclUniqueId other;
    CHECK_NCCL(ncclGetUniqueId(&id));
    setenv("NCCL_COMM_ID", "127.0.0.1:4001", 1);
    CHECK_NCCL(ncclGetUniqueId(&other));
    CHECK(memcmp(&id, &other, sizeof(id)) != 0);
}

static void comm_id(void **state)
{
    (void)state;
    run("NCCL_COMM_ID", &(setting_t){"127.0.0.1:4000", NULL}, 3, comm_id_body);
    run("NCCL_COMM_ID", &(setting_t){"[::1]:4000", NULL}, 2, comm_id_body);
    static const char *const wrong[] = {
        "127.0.0.1", ":4000", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "a:4000b"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        run("NCCL_COMM_ID", &(setting_t){wrong[i], "NCCL_COMM_ID"}, 1, comm_id_body);
}

/* The variable overrides the configuration. */
static void comm_blocking_body(ranks_t *ranks)
{
    const setting_t *setting = ranks->arg;
    bool blocking = strcmp(setting->value, "1") == 0;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = !blocking;
    ncclUniqueId id = ranks_id(ranks);
    ncclComm_t comm = NULL;
    ncclResult_t result = ncclCommInitRankConfig(&comm, ranks->nranks, id, ranks->rank, &config);
    CHECK(result == (blocking ? ncclSuccess : ncclInProgress));
    while (result == ncclInProgress)
        CHECK_NCCL(ncclCommGetAsyncError(comm, &result));
    CHECK(result == ncclSuccess);
    reduce_once(ranks, comm);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void comm_blocking(void **state)
{
    (void)state;
    run("NCCL_COMM_BLOCKING", &(setting_t){"1", NULL}, 2, comm_blocking_body);
    run("NCCL_COMM_BLOCKING", &(setting_t){"0", NULL}, 2, comm_blocking_body);
}

static int open_sockets(void)
{
    int count = 0;
    DIR *names = opendir("/proc/self/fd");
    for (struct dirent *entry; names != NULL && (entry = readdir(names)) != NULL;) {
        char target[64] = "";
        if (readlinkat(dirfd(names), entry->d_name, target, sizeof(target) - 1) > 0)
            count += strncmp(target, "socket:", 7) == 0;
    }
    if (names != NULL)
        closedir(names);
    return count;
}

/* Only the process that makes the id listens, at the given port; ranks of one node need no listener. */
static void listen_body(ranks_t *ranks)
{
    const setting_t *setting = ranks->arg;
    const int before = open_sockets();
    ncclUniqueId id = ranks_id(ranks);
    CHECK(open_sockets() - before == (ranks->rank == 0 && setting->expected != NULL ? 1 : 0));
    ncclComm_t comm = NULL;
    CHECK_NCCL(ncclCommInitRank(&comm, ranks->nranks, id, ranks->rank));
    reduce_once(ranks, comm);
    ranks_barrier(ranks);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void listens(void **state)
{
    (void)state;
    run("SHUNT_LISTEN", &(setting_t){"0", NULL}, 2, listen_body);
    run("SHUNT_LISTEN", &(setting_t){"1", "a listener"}, 2, listen_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device),        cmocka_unit_test(algo),          cmocka_unit_test(max_ctas),
        cmocka_unit_test(scratch_bytes), cmocka_unit_test(timeout_ms),    cmocka_unit_test(node_id),
        cmocka_unit_test(comm_id),       cmocka_unit_test(comm_blocking), cmocka_unit_test(listens),
    };
    cpu_limit(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
