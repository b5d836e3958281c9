/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variables_test.c - variables of docs/settings.md that decide whether and how a communicator of GPUs attaches: on fake
 * GPUs, each case in a process of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka wants the three above first */
#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"
#include "shim/setup/config.h"
#include "tests/abi/child.h"

enum { N = 2, LOG_BYTES = 4096, UNKNOWN = -1 };

/* Two ranks in a group, in this environment, and the expected outcome. */
typedef struct scenario {
    const char *set[8];                /* name, value, ... */
    int vmm_error, ipc_error, failing; /* of which rank */
    int unopened;                      /* likewise: it cannot open the others' pinned memory */
    int unsent;                        /* likewise: it cannot send its own */
    int phase;                         /* of both; UNKNOWN: Shunt does not know the communicator */
    const char *reason;                /* in the log; NULL: not checked */
    int warnings;                      /* lines of the log */
    int blocks, multicast;             /* of the plan; -1: not checked */
    int real_version;
    const char *const *sources; /* of the plan's rules */
    bool deterministic;
    bool alone;          /* each rank has a communicator of its own */
    bool plain_priority; /* kernels inherit that of their stream */
    sel_measurement_t measurement;
} scenario_t;

static int phase_of(ncclComm_t comm)
{
    shim_comm_t *state = shim_comm_find(comm);
    return state != NULL ? atomic_load(&state->phase) : UNKNOWN;
}

static ncclResult_t init_rank(ncclComm_t *comm, ncclUniqueId id, int rank, bool alone)
{
    id.internal[sizeof(id.internal) - 1] = (char)(alone ? rank : 0);
    return alone ? ncclCommInitRank(comm, 1, id, 0) : ncclCommInitRank(comm, N, id, rank);
}

static int attach(void *argument)
{
    const scenario_t *scenario = argument;
    ncclComm_t comms[N];
    ncclUniqueId id = {{0}};
    snprintf(id.internal, sizeof(id.internal), "variables test %d", (int)getpid());
    clearenv();
    setenv("HOME", "/nonexistent", 1);
    setenv("SHUNT_DEBUG", "info", 1);
    for (int i = 0; i < 8 && scenario->set[i] != NULL; i += 2)
        setenv(scenario->set[i], scenario->set[i + 1], 1);
    fake_reset();
    fake.multicast = true;
    fake.sources = scenario->sources;
    fake.measurement = scenario->measurement;
    fake_real_version(scenario->real_version);
    fake.vmm_error[scenario->failing] = scenario->vmm_error;
    fake.ipc_error[scenario->failing] = scenario->ipc_error;
    fake.unopened[scenario->failing] = scenario->unopened;
    fake.unsent[scenario->failing] = scenario->unsent;
    fake_depth = 1;
    for (int r = 0; r < N; r++)
        CHILD_CHECK(init_rank(&comms[r], id, r, scenario->alone) == ncclSuccess);
    fake_depth = 0;
    CHILD_CHECK(shim_attach_after_group(ncclSuccess) == ncclSuccess);
    for (int r = 0; r < N; r++) {
        CHILD_CHECK(phase_of(comms[r]) == scenario->phase);
        if (scenario->phase != SHIM_COMM_ATTACHED)
            continue;
        const sel_plan_t *plan = shim_comm_find(comms[r])->plan;
        CHILD_CHECK(scenario->blocks < 0 || plan->settings.max_blocks == (uint32_t)scenario->blocks);
        CHILD_CHECK(plan->settings.deterministic == scenario->deterministic);
        const int priority = alg_scratch_team(shim_comm_find(comms[r])->scratch)->priority;
        CHILD_CHECK(priority == (scenario->plain_priority ? 0 : FAKE_PRIORITY));
        CHILD_CHECK(scenario->multicast < 0 || plan->topology.multicast == (scenario->multicast != 0));
    }
    for (int r = 0; r < N; r++)
        CHILD_CHECK(ncclCommDestroy(comms[r]) == ncclSuccess && comms[r]->destroys == 1);
    return 0;
}

static void expect(scenario_t scenario)
{
    char log[LOG_BYTES];
    assert_int_equal(child_run(attach, &scenario, log, sizeof(log)), 0);
    int warnings = 0;
    for (const char *at = log; (at = strstr(at, " WARN ")) != NULL; at++)
        warnings++;
    assert_int_equal(warnings, scenario.warnings);
    if (scenario.reason != NULL && strstr(log, scenario.reason) == NULL)
        fail_msg("no \"%s\" in %s", scenario.reason, log);
}

static void expect_attached(const char *variable, const char *value)
{
    expect((scenario_t){.set = {variable, value}, .phase = SHIM_COMM_ATTACHED, .blocks = -1, .multicast = -1});
}

static void expect_forwarded(const char *variable, const char *value, const char *reason)
{
    expect((scenario_t){.set = {variable, value}, .phase = SHIM_COMM_FORWARD, .reason = reason});
}

/* Plugins that the real NCCL opens by their default names do not prevent an attach; those whose work Shunt bypasses get
 * a warning. */
static void default_plugins(void **state)
{
    (void)state;
    static const struct {
        const char *path, *line;
    } plugins[] = {{PLUGIN_FOLDER "/libnccl-tuner.so", ""},
                   {PLUGIN_FOLDER "/libnccl-net.so", ""},
                   {PLUGIN_FOLDER "/libnccl-profiler.so", "libnccl-profiler.so is loaded: it does not see"},
                   {PLUGIN_FOLDER "/libnccl-env.so", "libnccl-env.so is loaded: Shunt does not see"}};
    int lines = 0;
    for (size_t i = 0; i < sizeof(plugins) / sizeof(plugins[0]); i++) {
        assert_non_null(dlopen(plugins[i].path, RTLD_NOW | RTLD_LOCAL));
        lines += plugins[i].line[0] != 0;
        expect((scenario_t){
            .phase = SHIM_COMM_ATTACHED, .blocks = -1, .multicast = -1, .warnings = lines, .reason = plugins[i].line});
    }
}

static void enable(void **state)
{
    (void)state;
    expect_attached("SHUNT_ENABLE", "1");
    expect((scenario_t){.set = {"SHUNT_ENABLE", "0"}, .phase = UNKNOWN});
}

/* Choices that the user makes explicitly and Shunt lacks are forwarded to NCCL. */
static void explicit_choices(void **state)
{
    (void)state;
    static const char *const choices[][2] = {{"NCCL_ALGO", "ring"},
                                             {"NCCL_PROTO", "LL"},
                                             {"NCCL_TUNER_PLUGIN", "libtuner.so"},
                                             {"NCCL_PROFILER_PLUGIN", "libprofiler.so"},
                                             {"NCCL_LAUNCH_MODE", "GROUP"},
                                             {"NCCL_LAUNCH_ORDER_IMPLICIT", "2"},
                                             {"NCCL_CHECK_POINTERS", "1"},
                                             {"NCCL_CHECK_MODE", "DEBUG_LOCAL"}};
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        char reason[64];
        snprintf(reason, sizeof(reason), "%s is set, which only NCCL obeys", choices[i][0]);
        expect_forwarded(choices[i][0], choices[i][1], reason);
    }
    expect_attached("NCCL_TUNER_PLUGIN", "none");
    expect_attached("NCCL_PROFILER_PLUGIN", "none");
    expect_attached("NCCL_LAUNCH_MODE", "PARALLEL");
    expect_attached("NCCL_LAUNCH_ORDER_IMPLICIT", "0");
    expect_attached("NCCL_CHECK_POINTERS", "0");
    expect_attached("NCCL_CHECK_MODE", "DEFAULT");
    expect_forwarded("NCCL_CTA_POLICY", "ZERO", "reason=CTA_POLICY why=a CTA policy is set, which only NCCL obeys");
    expect_forwarded("NCCL_CTA_POLICY", "default|Efficiency",
                     "reason=CTA_POLICY why=a CTA policy is set, which only NCCL obeys");
    expect_forwarded("NCCL_CTA_POLICY", "2", "reason=CTA_POLICY why=a CTA policy is set, which only NCCL obeys");
    expect_attached("NCCL_CTA_POLICY", "DEFAULT");
    expect_attached("NCCL_CTA_POLICY", "0");
    expect_attached("NCCL_CTA_POLICY", "thrift");
}

/* The variable overrides the configuration if NCCL knows its value; a_cta_policy_is_forwarded in life_test.c tests the
 * effect. */
static int policies(void *argument)
{
    (void)argument;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const shim_config_t parent = {.cta_policy = true};
    clearenv();
    setenv("HOME", "/nonexistent", 1);
    CHILD_CHECK(!shim_config_read(&config, &parent).cta_policy);
    CHILD_CHECK(shim_config_read(NULL, &parent).cta_policy);
    config.CTAPolicy = 0;
    CHILD_CHECK(!shim_config_read(&config, NULL).cta_policy);
    setenv("NCCL_CTA_POLICY", "1", 1);
    CHILD_CHECK(shim_config_read(&config, NULL).cta_policy);
    config.CTAPolicy = 2;
    setenv("NCCL_CTA_POLICY", "Default", 1);
    CHILD_CHECK(!shim_config_read(&config, NULL).cta_policy);
    setenv("NCCL_CTA_POLICY", "thrift", 1);
    CHILD_CHECK(shim_config_read(&config, NULL).cta_policy);
    config.size = offsetof(ncclConfig_t, CTAPolicy); /* an older NCCL's */
    CHILD_CHECK(!shim_config_read(&config, NULL).cta_policy);
    return 0;
}

static void cta_policy(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(policies, NULL, log, sizeof(log)), 0);
}

/* The log names the sources of the rules, for two H200 with a policy, and truncates no name. */
static void sources_of_rules(void **state)
{
    (void)state;
    static const char *const sources[] = {"policy",
                                          "selector/measured/graph-2-h200.csv",
                                          "selector/measured/tune-4-h200.csv",
                                          "selector/measured/graph-2-h200.csv",
                                          "selector/measured/tried-6-h200.csv",
                                          "selector/measured/bulk-2-h100.csv",
                                          "selector/measured/collectives-2-h200.csv",
                                          "docs/lab/results/few-blocks-2-h200.csv",
                                          "selector/measured/sendrecv-2-h200.csv",
                                          NULL};
    expect((scenario_t){.phase = SHIM_COMM_ATTACHED,
                        .sources = sources,
                        .reason =
                            "rules=policy, selector/measured/graph-2-h200.csv, selector/measured/tune-4-h200.csv, "
                            "selector/measured/tried-6-h200.csv, selector/measured/bulk-2-h100.csv, "
                            "selector/measured/collectives-2-h200.csv, docs/lab/results/few-blocks-2-h200.csv, "
                            "selector/measured/sendrecv-2-h200.csv\n",
                        .blocks = -1,
                        .multicast = -1});
}

static void no_peer_access(void **state)
{
    (void)state;
    scenario_t pinned = {.set = {"NCCL_P2P_DISABLE", "1"},
                         .phase = SHIM_COMM_ATTACHED,
                         .reason = "through pinned memory",
                         .blocks = -1,
                         .multicast = -1};
    expect(pinned);
    pinned.set[0] = "NCCL_P2P_LEVEL", pinned.set[1] = "LOC";
    expect(pinned);
    pinned.set[1] = "0";
    expect(pinned);
    pinned.reason = "class=nvswitch-sm90-2";
    pinned.set[1] = "NVL";
    expect(pinned);
    expect_attached("NCCL_P2P_DISABLE", "0");
}

/* Containers that share /dev/shm meet, but their processes may not open each other's memory, so descriptors are sent.
 * If that fails, too, NCCL serves, and one line reports it. */
static void containers(void **state)
{
    (void)state;
    expect((scenario_t){.set = {"NCCL_P2P_DISABLE", "1"},
                        .unopened = -ESRCH,
                        .failing = 1,
                        .phase = SHIM_COMM_ATTACHED,
                        .reason = "through pinned memory"});
    expect((scenario_t){.set = {"NCCL_P2P_DISABLE", "1"},
                        .unopened = -ESRCH,
                        .unsent = -EACCES,
                        .failing = 1,
                        .phase = SHIM_COMM_FORWARD,
                        .reason = "rank 1 could not send its memory's descriptor: Permission denied",
                        .warnings = 1});
}

/* With NCCL_P2P_DISABLE and NCCL_SHM_DISABLE only the network is left, which is NCCL's; the latter alone has no
 * effect. */
static void shm_disable(void **state)
{
    (void)state;
    scenario_t neither = {.set = {"NCCL_P2P_DISABLE", "1", "NCCL_SHM_DISABLE", "1"},
                          .phase = SHIM_COMM_FORWARD,
                          .reason = "allow neither peer access nor shared memory",
                          .blocks = -1,
                          .multicast = -1};
    expect(neither);
    neither.reason = "reason=NO_PATH why=rank "; /* the one that decided, in its words */
    expect(neither);
    expect_attached("NCCL_SHM_DISABLE", "1");
}

/* IPC memory is used if VMM memory is refused, or the user has disabled it. */
static void cumem_enable(void **state)
{
    (void)state;
    scenario_t refused = {
        .vmm_error = -38, .phase = SHIM_COMM_ATTACHED, .reason = "by CUDA IPC", .blocks = -1, .multicast = -1};
    expect(refused);
    refused.vmm_error = 0;
    refused.set[0] = "NCCL_CUMEM_ENABLE", refused.set[1] = "0";
    expect(refused);
    refused.ipc_error = -38;
    refused.phase = SHIM_COMM_FORWARD, refused.reason = "could not share memory of its GPU: CUDA refuses it";
    refused.warnings = 1; /* for any rank, whichever finds it first */
    for (refused.failing = 0; refused.failing < N; refused.failing++)
        expect(refused);
}

/* NCCL_NVLS_ENABLE changes the choice for two GPUs from NCCL 2.28.7 on, which uses multicast there. */
static void nvls_enable(void **state)
{
    (void)state;
    scenario_t multicast = {.phase = SHIM_COMM_ATTACHED, .blocks = -1, .real_version = 22803, .multicast = 0};
    expect(multicast);
    multicast.real_version = 22807, multicast.multicast = 1;
    expect(multicast);
    multicast.set[0] = "NCCL_NVLS_ENABLE", multicast.set[1] = "0", multicast.multicast = 0;
    expect(multicast);
}

/* Count and remove the notes in a folder; `text` gets the last one's. */
static int take_notes(const char *folder, char *text, size_t capacity)
{
    int notes = 0;
    char path[512];
    DIR *listing = opendir(folder);
    assert_non_null(listing);
    text[0] = '\0';
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        assert_int_equal(strncmp(entry->d_name, "wanted-", 7), 0);
        snprintf(path, sizeof(path), "%s/%.256s", folder, entry->d_name);
        const int file = open(path, O_RDONLY);
        const ssize_t bytes = read(file, text, capacity - 1);
        text[bytes > 0 ? bytes : 0] = '\0';
        close(file);
        assert_int_equal(unlink(path), 0);
        notes++;
    }
    closedir(listing);
    return notes;
}

/* A note is left if `shunt run` started the program and no table applies; never under LD_PRELOAD alone. */
static void tune(void **state)
{
    (void)state;
    static const struct {
        const char *run, *tune, *set, *value;
        sel_measurement_t measurement;
        int notes;
    } cases[] = {
        {"", "", "SHUNT_DEBUG", "info", SEL_NOT_MEASURED, 0},
        {"", "auto", "SHUNT_DEBUG", "info", SEL_MEASURED_OTHER, 0},
        {"", "1", "SHUNT_DEBUG", "info", SEL_NOT_MEASURED, 1},
        {"1", "", "SHUNT_DEBUG", "info", SEL_NOT_MEASURED, 1},
        {"1", "auto", "SHUNT_DEBUG", "info", SEL_MEASURED_OTHER, 1},
        {"1", "", "SHUNT_DEBUG", "info", SEL_MEASURED_EARLIER, 0},
        {"1", "", "SHUNT_DEBUG", "info", SEL_MEASURED, 0},
        {"1", "0", "SHUNT_DEBUG", "info", SEL_NOT_MEASURED, 0},
        {"1", "", "SHUNT_ALGO", "oneshot", SEL_NOT_MEASURED, 0},
        {"1", "", "SHUNT_CACHE_DIR", "/nonexistent", SEL_NOT_MEASURED, 0},
    };
    char folder[] = "/tmp/shunt-variables-XXXXXX", text[256];
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const bool measured = cases[i].measurement == SEL_MEASURED || cases[i].measurement == SEL_MEASURED_EARLIER;
        expect((scenario_t){.set = {"SHUNT_CACHE_DIR", folder, "SHUNT_RUN", cases[i].run, "SHUNT_TUNE", cases[i].tune,
                                    cases[i].set, cases[i].value},
                            .phase = SHIM_COMM_ATTACHED,
                            .measurement = cases[i].measurement,
                            .real_version = 22809,
                            .blocks = -1,
                            .multicast = -1,
                            .reason = measured || i == 8 ? NULL : "`shunt tune` measures it"});
        assert_int_equal(take_notes(folder, text, sizeof(text)), cases[i].notes);
        if (cases[i].notes > 0)
            assert_non_null(strstr(text, " 22809 fake\n"));
    }
    assert_int_equal(rmdir(folder), 0);
}

/* SHUNT_DETERMINISTIC is passed to the plan; nothing_forwarded in tests/selector tests its effect. */
static void deterministic(void **state)
{
    (void)state;
    expect((scenario_t){.set = {"SHUNT_DETERMINISTIC", "1"},
                        .phase = SHIM_COMM_ATTACHED,
                        .blocks = -1,
                        .multicast = -1,
                        .deterministic = true});
    expect_attached("SHUNT_DETERMINISTIC", "0");
}

/* A variable that pins NCCL for reproducible bits has no effect with SHUNT_DETERMINISTIC, and otherwise the log names
 * what that setting would gain. */
static void pins(void **state)
{
    (void)state;
    static const char *const forwards[][2] = {
        {"NCCL_ALGO", "allreduce:tree"}, {"NCCL_PROTO", "Simple"}, {"NCCL_LAUNCH_MODE", "GROUP"}};
    static const char *const caps[][2] = {{"NCCL_MAX_NCHANNELS", "1"}, {"NCCL_MAX_CTAS", "1"}};
    static const char *const others[][2] = {
        {"NCCL_MIN_NCHANNELS", "1"}, {"NCCL_MIN_CTAS", "1"}, {"NCCL_NTHREADS", "1"}};
    scenario_t satisfied = {.set = {"SHUNT_DETERMINISTIC", "1", "NCCL_ALGO", "ring", "NCCL_PROTO", "LL"},
                            .phase = SHIM_COMM_ATTACHED,
                            .blocks = 0,
                            .multicast = -1,
                            .deterministic = true};
    satisfied.set[6] = "NCCL_LAUNCH_MODE", satisfied.set[7] = "GROUP";
    expect(satisfied);
    satisfied.set[2] = caps[0][0], satisfied.set[3] = caps[0][1];
    satisfied.set[4] = caps[1][0], satisfied.set[5] = caps[1][1];
    satisfied.set[6] = "NCCL_NTHREADS", satisfied.set[7] = "1";
    expect(satisfied);
    satisfied.set[6] = "SHUNT_MAX_CTAS", satisfied.set[7] = "5", satisfied.blocks = 5; /* the user's own */
    expect(satisfied);
    for (size_t i = 0; i < sizeof(forwards) / sizeof(forwards[0]); i++)
        expect_forwarded(forwards[i][0], forwards[i][1], "for reproducible results SHUNT_DETERMINISTIC=1 is faster");
    for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++)
        expect((scenario_t){.set = {caps[i][0], caps[i][1]},
                            .phase = SHIM_COMM_ATTACHED,
                            .reason = "limits Shunt's kernels to 1 blocks; if it is set for reproducible",
                            .blocks = 1,
                            .multicast = -1});
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        expect((scenario_t){
            .set = {others[i][0], others[i][1]}, .phase = SHIM_COMM_ATTACHED, .blocks = 0, .multicast = -1});
}

/* Calls that are forwarded despite SHUNT_DETERMINISTIC are logged once. */
static void forwarded_all_the_same(void **state)
{
    (void)state;
    expect((scenario_t){.set = {"SHUNT_DETERMINISTIC", "1", "NCCL_TUNER_PLUGIN", "libtuner.so"},
                        .phase = SHIM_COMM_FORWARD,
                        .reason = "forwarded to NCCL: NCCL_TUNER_PLUGIN is set",
                        .warnings = 1});
    expect((scenario_t){.set = {"SHUNT_DETERMINISTIC", "1"},
                        .phase = UNKNOWN,
                        .reason = "communicators of one rank are forwarded to NCCL;",
                        .warnings = 1,
                        .alone = true});
    expect((scenario_t){.set = {"SHUNT_DETERMINISTIC", "0"}, .phase = UNKNOWN, .alone = true});
}

static void priority(void **state)
{
    (void)state;
    expect((scenario_t){.set = {"SHUNT_PRIORITY", "0"},
                        .phase = SHIM_COMM_ATTACHED,
                        .blocks = -1,
                        .multicast = -1,
                        .plain_priority = true});
    expect_attached("SHUNT_PRIORITY", "1");
}

static void max_ctas(void **state)
{
    (void)state;
    scenario_t capped = {.set = {"NCCL_MAX_CTAS", "9"}, .phase = SHIM_COMM_ATTACHED, .blocks = 9, .multicast = -1};
    expect(capped);
    capped.set[2] = "SHUNT_MAX_CTAS", capped.set[3] = "5", capped.blocks = 5;
    expect(capped);
    capped.set[0] = "NCCL_MAX_NCHANNELS", capped.set[1] = "4", capped.blocks = 4;
    expect(capped);
    capped.set[1] = "8", capped.blocks = 5;
    expect(capped);
    capped.set[1] = "-2", capped.blocks = 5; /* NCCL's default */
    expect(capped);
}

/* The variables override the configuration; an_abort_ends_communicators_that_share in life_test.c tests the effect. */
static int share(void *argument)
{
    const char *value = argument;
    const bool wanted = value[0] == '1';
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = config.shrinkShare = !wanted;
    clearenv();
    setenv("HOME", "/nonexistent", 1);
    const shim_config_t same = {.split_share = wanted, .shrink_share = wanted}, other = {0};
    CHILD_CHECK(shim_config_read(&config, &same).split_share == !wanted);
    CHILD_CHECK(shim_config_read(NULL, &same).shrink_share == wanted);
    setenv("NCCL_COMM_SPLIT_SHARE_RESOURCES", value, 1);
    CHILD_CHECK(shim_config_read(&config, &same).split_share == wanted);
    CHILD_CHECK(shim_config_read(&config, &same).shrink_share == !wanted);
    setenv("NCCL_COMM_SHRINK_SHARE_RESOURCES", value, 1);
    CHILD_CHECK(shim_config_read(&config, &other).shrink_share == wanted);
    CHILD_CHECK(shim_config_read(NULL, &other).shrink_share == wanted);
    return 0;
}

static void share_resources(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(share, "0", log, sizeof(log)), 0);
    assert_int_equal(child_run(share, "1", log, sizeof(log)), 0);
}

/* The variable overrides the configuration, whose field is newer than the build's nccl.h: it is three words after
 * nvlsCTAs. */
static int mixing(void *argument)
{
    (void)argument;
    union {
        ncclConfig_t config;
        int word[64];
    } newer;
    const size_t place = offsetof(ncclConfig_t, nvlsCTAs) / sizeof(int) + 3;
    for (size_t i = 0; i < sizeof(newer.word) / sizeof(int); i++)
        newer.word[i] = NCCL_CONFIG_UNDEF_INT;
    newer.config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    newer.config.size = sizeof(newer);
    clearenv();
    setenv("HOME", "/nonexistent", 1);
    for (int of_parent = 0; of_parent < 2; of_parent++) {
        const shim_config_t parent = {.graph_mixing = of_parent};
        newer.word[place] = NCCL_CONFIG_UNDEF_INT;
        CHILD_CHECK(shim_config_read(NULL, &parent).graph_mixing == of_parent);
        CHILD_CHECK(shim_config_read(&newer.config, &parent).graph_mixing);
        for (int mode = 0; mode < 3; mode++) {
            newer.word[place] = mode;
            newer.config.size = sizeof(newer);
            CHILD_CHECK(shim_config_read(&newer.config, &parent).graph_mixing == (mode == 2));
            newer.config.size = (place + 1) * sizeof(int) - 1; /* an older NCCL's */
            CHILD_CHECK(shim_config_read(&newer.config, &parent).graph_mixing);
        }
    }
    newer.config.size = sizeof(newer);
    setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 1);
    CHILD_CHECK(!shim_config_read(&newer.config, NULL).graph_mixing);
    newer.word[place] = 0;
    setenv("NCCL_GRAPH_MIXING_SUPPORT", "1", 1);
    CHILD_CHECK(shim_config_read(&newer.config, NULL).graph_mixing);
    return 0;
}

static void graph_mixing(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(mixing, NULL, log, sizeof(log)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(enable),
        cmocka_unit_test(explicit_choices),
        cmocka_unit_test(no_peer_access),
        cmocka_unit_test(containers),
        cmocka_unit_test(shm_disable),
        cmocka_unit_test(cumem_enable),
        cmocka_unit_test(nvls_enable),
        cmocka_unit_test(max_ctas),
        cmocka_unit_test(deterministic),
        cmocka_unit_test(share_resources),
        cmocka_unit_test(graph_mixing),
        cmocka_unit_test(priority),
        cmocka_unit_test(cta_policy),
        cmocka_unit_test(tune),
        cmocka_unit_test(sources_of_rules),
        cmocka_unit_test(pins),
        cmocka_unit_test(forwarded_all_the_same),
        cmocka_unit_test(default_plugins), /* the last one: they stay loaded */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
