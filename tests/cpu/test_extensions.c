/* SPDX-License-Identifier: Apache-2.0 */
/* shunt.h as a client uses it: found with dlsym, absent in any other NCCL. */
#include "cpu.h"
#include "tests/support/coll_config.h"

#include <dlfcn.h>
#include <limits.h>
#include <shunt.h>
#include <string.h>

static void *find(const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    CHECK(symbol != NULL);
    return symbol;
}

static void extensions_body(ranks_t *ranks)
{
    int (*cpu_mode)(void) = (int (*)(void))find("shunt_host_mode");
    int (*version)(void) = (int (*)(void))find("shunt_version");
    int (*last)(shunt_decision_t *) = (int (*)(shunt_decision_t *))find("shunt_last_decision");
    int (*stats)(shunt_statistics_t *) = (int (*)(shunt_statistics_t *))find("shunt_stats");
    shunt_decision_t decision = {.size = sizeof(decision)};
    shunt_statistics_t before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    shunt_statistics_t cut = {.size = offsetof(shunt_statistics_t, calls_forwarded), .calls_forwarded = 77};
    float in[300] = {0}, out[300];
    ncclComm_t comm;

    CHECK(version() == SHUNT_VERSION_CODE);
    CHECK(cpu_mode() == 1);
    CHECK(last(NULL) == -1 && stats(NULL) == -1);
    CHECK(last(&decision) == -1); /* no collective yet */
    comm = ranks_init(ranks);
    CHECK(stats(&before) == 0);
    CHECK(before.communicators_attached >= 1);
    CHECK_NCCL(ncclAllReduce(in, out, 300, ncclFloat32, ncclSum, comm, NULL));
    CHECK(last(&decision) == 0);
    CHECK(decision.taken == 1);
    CHECK(strcmp(decision.collective, "allreduce") == 0);
    CHECK(decision.algorithm && strlen(decision.algorithm) > 0);
    CHECK(decision.reason && strlen(decision.reason) > 0);
    CHECK(decision.bytes == sizeof(in));
    CHECK(stats(&after) == 0);
    CHECK(after.calls_taken >= before.calls_taken + 1);
    CHECK(after.bytes_taken >= before.bytes_taken + sizeof(in));
    CHECK(stats(&cut) == 0);
    CHECK(cut.calls_forwarded == 77); /* beyond the caller's struct */
    ranks_barrier(ranks);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void extensions(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, extensions_body, NULL);
    cpu_run(RANKS_THREADS, 2, extensions_body, NULL);
}

static const char *algorithm_of_a_call(ncclComm_t comm)
{
    static float in[300], out[300];
    shunt_decision_t decision = {.size = sizeof(decision)};
    CHECK_NCCL(ncclAllReduce(in, out, 300, ncclFloat32, ncclSum, comm, NULL));
    CHECK(shunt_last_decision(&decision) == 0);
    return decision.algorithm;
}

/* A policy can be set for one communicator between two calls, as `shunt tune` does. */
static void measuring_body(ranks_t *ranks)
{
    shunt_communicator_t facts = {.size = sizeof(facts)}, cut = {.size = offsetof(shunt_communicator_t, machine)};
    uint32_t algorithms = 0;
    const char *name;
    char path[300];
    CHECK(shunt_communicator(NULL, &facts) == -1 && shunt_set_policy(NULL, "oneshot") == -1);
    ncclComm_t comm = ranks_init(ranks), other = ranks_init(ranks);
    CHECK(shunt_communicator(comm, NULL) == -1);
    CHECK(shunt_communicator(comm, &facts) == 0 && shunt_communicator(comm, &cut) == 0);
    CHECK(facts.ranks == 2 && facts.machine == 0 && strcmp(facts.class_name, "host-2") == 0);
    CHECK(cut.ranks == 2 && cut.class_name[0] == '\0');
    while ((name = shunt_algorithm("allreduce", algorithms)) != NULL) {
        /* Of GPUs without peer access; of several nodes. */
        const bool foreign = strncmp(name, "shm-", 4) == 0 || strcmp(name, "exchange") == 0;
        CHECK(shunt_set_policy(comm, name) == 0);
        CHECK(strcmp(algorithm_of_a_call(comm), foreign ? "oneshot" : name) == 0);
        CHECK(strcmp(algorithm_of_a_call(other), "oneshot") == 0);
        algorithms++;
    }
    CHECK(algorithms >= 3 && shunt_algorithm("allsend", 0) == NULL && shunt_algorithm(NULL, 0) == NULL);
    shunt_decision_t decision = {.size = sizeof(decision)};
    CHECK(shunt_choose(comm, "allreduce", 300, ncclFloat32, &decision) == 0 && decision.taken == 1);
    CHECK(decision.bytes == 1200 && strcmp(decision.collective, "allreduce") == 0);
    CHECK(shunt_choose(comm, "allgather", 300, ncclFloat32, &decision) == 0 && decision.bytes == 2400);
    CHECK(shunt_choose(comm, "sendrecv", 300, ncclFloat32, &decision) == 0 && decision.bytes == 1200);
    CHECK(shunt_choose(comm, "allsend", 300, ncclFloat32, &decision) == -1);
    CHECK(shunt_set_policy(comm, NULL) == -1);
    CHECK(shunt_set_policy(comm, "twoshot") == 0 && shunt_set_policy(comm, "nonsense") == -1);
    CHECK(strcmp(algorithm_of_a_call(comm), "twoshot") == 0); /* unchanged */
    CHECK(shunt_set_policy(comm, "") == 0);
    CHECK(strcmp(algorithm_of_a_call(comm), "oneshot") == 0);
    CHECK(shunt_table_path(0x1f, path, sizeof(path)) == 0 && shunt_table_path(0x1f, path, 10) == -1);
    CHECK(strstr(path, "/table-000000000000001f.csv") != NULL);
    ranks_barrier(ranks);
    CHECK_NCCL(ncclCommDestroy(comm));
    CHECK(shunt_communicator(comm, &facts) == -1);
    CHECK_NCCL(ncclCommDestroy(other));
}

/* A policy can select the two-step algorithms for long broadcasts and reduces, which no row selects yet. */
static void two_crossings_body(ranks_t *ranks)
{
    enum { COUNT = 300000 };
    static float in[COUNT], out[COUNT];
    shunt_decision_t decision = {.size = sizeof(decision)};
    ncclComm_t comm = ranks_init(ranks);
    for (int reduces = 0; reduces < 2; reduces++) {
        const char *collective = reduces ? "reduce" : "broadcast", *name = "";
        for (uint32_t i = 0; name != NULL && strcmp(name, "twoshot") != 0; i++)
            name = shunt_algorithm(collective, i);
        CHECK(name != NULL);
        CHECK(shunt_set_policy(comm, reduces ? "reduce:twoshot:64x1024" : "broadcast:twoshot:64x1024") == 0);
        for (int i = 0; i < COUNT; i++)
            in[i] = (float)(i % 1000 + ranks->rank);
        CHECK_NCCL(reduces ? ncclReduce(in, out, COUNT, ncclFloat32, ncclSum, 1, comm, NULL)
                           : ncclBroadcast(in, out, COUNT, ncclFloat32, 1, comm, NULL));
        CHECK(shunt_last_decision(&decision) == 0 && decision.taken && strcmp(decision.algorithm, "twoshot") == 0);
        for (int i = 0; i < COUNT && (!reduces || ranks->rank == 1); i++)
            CHECK(out[i] == (float)(reduces ? 3 * (i % 1000) + 3 : i % 1000 + 1));
    }
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* A collective's configuration is for GPUs: here it changes nothing. */
static void configured_body(ranks_t *ranks)
{
    ncclResult_t (*reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t,
                           const coll_config_t *) = find("ncclAllReduceConfig");
    coll_config_t config = coll_config_unset;
    config.max_ctas = 8;
    config.cga_cluster_size = 2;
    config.algorithms = "ring";
    float in = 1, out = 0;
    ncclComm_t comm = ranks_init(ranks);
    CHECK_NCCL(reduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL, &config));
    CHECK(out == (float)ranks->nranks);
    config.force = 3;
    CHECK_FAILS(reduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL, &config));
    config.force = 1;
    config.magic = 0;
    CHECK_FAILS(reduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL, &config));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void configured(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, configured_body, NULL);
}

static void two_crossings(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 3, two_crossings_body, NULL);
}

static void measuring(void **state)
{
    (void)state;
    setenv("SHUNT_CACHE_DIR", "/nowhere", 1);
    cpu_run(RANKS_PROCESSES, 2, measuring_body, NULL);
}

static void tables_body(ranks_t *ranks)
{
    int (*setting)(uint32_t, shunt_setting_t *) = (int (*)(uint32_t, shunt_setting_t *))find("shunt_setting");
    int (*row)(const shunt_communicator_t *, const char *, uint32_t, char *, size_t) =
        (int (*)(const shunt_communicator_t *, const char *, uint32_t, char *, size_t))find("shunt_table_row");
    shunt_setting_t s;
    char text[200];
    uint32_t count = 0;
    bool scratch = false;
    (void)ranks;
    for (; setting(count, &s) == 0; count++) {
        CHECK(strncmp(s.name, "SHUNT_", 6) == 0 || strncmp(s.name, "NCCL_", 5) == 0);
        CHECK(s.value && s.origin && s.initial && s.help);
        if (strcmp(s.name, "SHUNT_SCRATCH_BYTES") == 0)
            scratch = strcmp(s.origin, "environment") == 0;
    }
    CHECK(count > 3 && scratch);
    CHECK(setting(100000, &s) == -1);
    shunt_communicator_t facts = {.size = sizeof(facts), .class_name = "nvswitch-sm90-4"};
    CHECK(row(&facts, "allreduce", 0, text, sizeof(text)) == 0);
    CHECK(strstr(text, "oneshot") != NULL);
    CHECK(row(&facts, "sendrecv", 0, text, sizeof(text)) == 0 && strstr(text, "pairs") != NULL);
    CHECK(row(&facts, "allsend", 0, text, sizeof(text)) == -1 && row(&facts, NULL, 0, text, sizeof(text)) == -1);
    CHECK(row(&facts, "allreduce", 1000, text, sizeof(text)) == -1);
    CHECK(row(&facts, "allreduce", 0, NULL, 0) == -1);
    CHECK(row(NULL, "allreduce", 0, text, sizeof(text)) == -1);
    strcpy(facts.class_name, "nvswitch-sm90-400");
    CHECK(row(&facts, "allreduce", 0, text, sizeof(text)) == -1);
}

static void tables(void **state)
{
    static const char *const env[] = {"SHUNT_SCRATCH_BYTES", "4194304", NULL};
    ranks_plan_t plan = {.shape = RANKS_SOLO, .nranks = 1, .body = tables_body, .env = env};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
}

/* A machine from a file, and what is wrong with a file that is none. */
static void machines_body(ranks_t *ranks)
{
    char whole[20000], text[20000], fault[300];
    shunt_communicator_t facts = {.size = sizeof facts}, cut = {.size = offsetof(shunt_communicator_t, machine)};
    (void)ranks;
    const int length = shunt_topology(MACHINES "/h200-4.xml", 0, whole, sizeof whole);
    CHECK(length > 0 && (size_t)length == strlen(whole) && strstr(whole, "H200") != NULL);
    CHECK(shunt_topology(MACHINES "/h200-4.xml", 0, NULL, 0) == length);
    CHECK(shunt_topology(MACHINES "/h200-4.xml", 0, text, 10) == length && strlen(text) == 9);
    CHECK(strncmp(text, whole, 9) == 0);
    CHECK(shunt_topology(MACHINES "/h200-4.xml", 1, text, sizeof text) > 0 && strstr(text, "<gpu dev=\"0\"") != NULL);
    CHECK(shunt_topology("/nowhere.xml", 0, fault, sizeof fault) == -1 && strstr(fault, "/nowhere.xml") != NULL);
    CHECK(shunt_topology("/nowhere.xml", 0, NULL, 0) == -1);
    CHECK(shunt_topology_class(MACHINES "/h200-4.xml", &facts) == 0);
    CHECK(facts.ranks == 4 && facts.machine != 0 && strcmp(facts.class_name, "nvswitch-sm90-4") == 0);
    CHECK(shunt_topology_class(MACHINES "/h200-4.xml", &cut) == 0 && cut.ranks == 4 && cut.class_name[0] == '\0');
    CHECK(shunt_topology_class(MACHINES "/h200-4.xml", NULL) == -1);
    cut.size = 0;
    CHECK(shunt_topology_class(MACHINES "/h200-4.xml", &cut) == -1);
    CHECK(shunt_topology_class("/nowhere.xml", &facts) == -1);
}

static void machines(void **state)
{
    ranks_plan_t plan = {.shape = RANKS_SOLO, .nranks = 1, .body = machines_body};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(extensions),    cmocka_unit_test(measuring),
                                       cmocka_unit_test(two_crossings), cmocka_unit_test(tables),
                                       cmocka_unit_test(machines),      cmocka_unit_test(configured)};
    cpu_limit(30);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
