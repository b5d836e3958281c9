/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forward_test.c - groups that Shunt does not serve: NVIDIA's library, played by a fake, gets each call once, with its
 * own group or handle and every other argument as the program gave it. Then beside a served group, and how the library
 * is found.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "service.h"
#include "structures.h"
#include "tests/abi/child.h"

enum { LOG_BYTES = 16384 };

static char log_text[LOG_BYTES];

static void *fake(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    return handle ? dlsym(handle, name) : NULL;
}

static const record_t *record(const char *name)
{
    return ((record_find_t *)fake(EP_FAKE, "record_find"))(name);
}

/* Whether the function was called once, with these words; forgets the call. */
static bool got(const char *name, const uint64_t word[RECORD_WORDS])
{
    record_t *r = (record_t *)record(name);
    const bool same = r->calls == 1 && memcmp(r->word, word, sizeof(r->word)) == 0;
    if (!same)
        fprintf(stderr, "%s: %d calls\n", name, r->calls);
    memset(r, 0, sizeof(*r));
    return same;
}

#define GOT(name, ...) CHILD_CHECK(got(name, (const uint64_t[RECORD_WORDS]){__VA_ARGS__}))

static int groups(ncclEpGroup_t *group)
{
    int mask[8], error;
    ncclEpGroupConfig_t config = EP(ncclEpGroupConfig_t, .num_experts = 8, .enable_mask = 1);
    const ncclEpGroupConfig_t same = config;
    CHILD_CHECK(ncclEpCreateGroup(group, COMM, &config) == ncclSuccess);
    GOT("CreateGroup", WORD(COMM), WORD(&config));
    CHILD_CHECK(memcmp(&config, &same, sizeof(config)) == 0);
    CHILD_CHECK(*group != REAL_GROUP);
    CHILD_CHECK(ncclEpMaskQuery(*group, mask, STREAM) == ncclSuccess);
    GOT("MaskQuery", WORD(REAL_GROUP), WORD(mask), WORD(STREAM));
    CHILD_CHECK(ncclEpMaskUpdate(*group, mask, STREAM) == ncclSuccess);
    GOT("MaskUpdate", WORD(REAL_GROUP), WORD(mask), WORD(STREAM));
    CHILD_CHECK(ncclEpMaskClean(*group, STREAM) == ncclSuccess);
    GOT("MaskClean", WORD(REAL_GROUP), WORD(STREAM));
    CHILD_CHECK(ncclEpGetAsyncError(*group, &error) == ncclSuccess);
    GOT("GetAsyncError", WORD(REAL_GROUP), WORD(&error));
    CHILD_CHECK(ncclEpErrorClear(*group) == ncclSuccess);
    GOT("ErrorClear", WORD(REAL_GROUP));
    return 0;
}

/* Structures are not read: NVIDIA's library checks them. */
static int handles(ncclEpGroup_t group, ncclEpHandle_t *handle, ncclEpHandle_t *other)
{
    size_t bytes, sizes[2] = {3, 5};
    ncclEpTensor_t choices = ep_tensor(NULL, sizes), memory = choices;
    ncclEpHandleConfig_t config = {0};
    ncclEpLayoutInfo_t info = {0};
    CHILD_CHECK(ncclEpHandleMemSize(group, NCCL_EP_LAYOUT_FLAT, &config, &bytes, -1) == ncclSuccess);
    GOT("HandleMemSize", WORD(REAL_GROUP), NCCL_EP_LAYOUT_FLAT, WORD(&config), WORD(&bytes), UINT64_MAX);
    CHILD_CHECK(ncclEpInitHandle(handle, group, NCCL_EP_LAYOUT_FLAT, &config, 7, &memory) == ncclSuccess);
    GOT("InitHandle", WORD(REAL_GROUP), NCCL_EP_LAYOUT_FLAT, WORD(&config), 7, WORD(&memory));
    CHILD_CHECK(*handle != REAL_HANDLE);
    CHILD_CHECK(ncclEpUpdateHandle(*handle, &choices, &info, STREAM) == ncclSuccess);
    GOT("UpdateHandle", WORD(REAL_HANDLE), WORD(&choices), WORD(&info), WORD(STREAM));
    /* Its calls of ncclEpInitHandle and ncclEpUpdateHandle stay within it. */
    CHILD_CHECK(ncclEpCreateHandle(other, group, NCCL_EP_LAYOUT_FLAT, &choices, &info, &config, STREAM) == ncclSuccess);
    GOT("CreateHandle", WORD(REAL_GROUP), NCCL_EP_LAYOUT_FLAT, WORD(&choices), WORD(&info), WORD(&config),
        WORD(STREAM));
    GOT("InitHandle", WORD(REAL_GROUP), NCCL_EP_LAYOUT_FLAT, WORD(&config), 5, 0);
    GOT("UpdateHandle", WORD(REAL_HANDLE), WORD(&choices), WORD(&info), WORD(STREAM));
    return 0;
}

static int calls(ncclEpHandle_t handle)
{
    ncclEpDispatchInputs_t in = {0};
    ncclEpDispatchOutputs_t out = {0};
    ncclEpLayoutInfo_t info = {0};
    ncclEpDispatchConfig_t config = {0};
    ncclEpCombineInputs_t back_in = {0};
    ncclEpCombineOutputs_t back_out = {0};
    ncclEpCombineConfig_t back = {0};
    ncclEpCompleteConfig_t rest = {0};
    CHILD_CHECK(ncclEpDispatch(handle, &in, &out, &info, &config, STREAM) == ncclSuccess);
    GOT("Dispatch", WORD(REAL_HANDLE), WORD(&in), WORD(&out), WORD(&info), WORD(&config), WORD(STREAM));
    CHILD_CHECK(ncclEpCombine(handle, &back_in, &back_out, &back, STREAM) == ncclSuccess);
    GOT("Combine", WORD(REAL_HANDLE), WORD(&back_in), WORD(&back_out), WORD(&back), WORD(STREAM));
    CHILD_CHECK(ncclEpComplete(handle, &rest, STREAM) == ncclSuccess);
    GOT("Complete", WORD(REAL_HANDLE), WORD(&rest), WORD(STREAM));
    ((record_return_t *)fake(EP_FAKE, "record_return"))(ncclRemoteError);
    CHILD_CHECK(ncclEpDispatch(handle, &in, &out, &info, &config, STREAM) == ncclRemoteError);
    CHILD_CHECK(ncclEpComplete(handle, NULL, STREAM) == ncclRemoteError);
    ((record_return_t *)fake(EP_FAKE, "record_return"))(ncclSuccess);
    return 0;
}

static int whole_life(void *absent)
{
    ncclEpGroup_t group = NULL;
    ncclEpHandle_t handle = NULL, other = NULL;
    int version = 0;
    g_service.absent = absent != NULL;
    g_service.declines = true;
    CHILD_CHECK(ncclEpGetVersion(&version) == ncclSuccess && version == NCCL_EP_VERSION_CODE);
    CHILD_CHECK(groups(&group) == 0 && handles(group, &handle, &other) == 0 && calls(handle) == 0);
    CHILD_CHECK(ncclEpGetVersion(&version) == ncclSuccess && version == RECORD_VERSION);
    CHILD_CHECK(ncclEpHandleDestroy(other) == ncclSuccess);
    GOT("HandleDestroy", WORD(REAL_HANDLE));
    CHILD_CHECK(ncclEpHandleDestroy(handle) == ncclSuccess && ncclEpGroupDestroy(group) == ncclSuccess);
    GOT("GroupDestroy", WORD(REAL_GROUP));
    CHILD_CHECK(g_service.create.calls == (absent ? 0 : 1) && g_service.handle_create.calls == 0);
    CHILD_CHECK(ncclEpGroupDestroy(group) == ncclInvalidArgument && ncclEpHandleDestroy(handle) == ncclInvalidArgument);
    return 0;
}

static void every_argument_is_passed_on(void **state)
{
    (void)state;
    setenv("SHUNT_NCCL_EP_PATH", EP_FAKE, 1);
    assert_int_equal(child_run(whole_life, NULL, log_text, LOG_BYTES), 0);
    assert_string_equal(log_text, "");
    assert_int_equal(child_run(whole_life, "no service", log_text, LOG_BYTES), 0);
}

/* As garbage collectors do it: NVIDIA's library reads the group when a handle ends. */
static int group_first(void *argument)
{
    (void)argument;
    ncclEpGroupConfig_t config = EP(ncclEpGroupConfig_t);
    ncclEpGroup_t group = NULL;
    ncclEpHandle_t handle = NULL;
    g_service.declines = true;
    CHILD_CHECK(ncclEpCreateGroup(&group, COMM, &config) == ncclSuccess);
    CHILD_CHECK(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, NULL, 1, NULL) == ncclSuccess);
    CHILD_CHECK(ncclEpGroupDestroy(group) == ncclSuccess && record("GroupDestroy")->calls == 0);
    CHILD_CHECK(ncclEpHandleDestroy(handle) == ncclSuccess && record("HandleDestroy")->calls == 1);
    CHILD_CHECK(record("GroupDestroy")->calls == 1);
    return 0;
}

static void a_group_outlives_its_handles(void **state)
{
    (void)state;
    setenv("SHUNT_NCCL_EP_PATH", EP_FAKE, 1);
    assert_int_equal(child_run(group_first, NULL, log_text, LOG_BYTES), 0);
}

static int failures(void *argument)
{
    (void)argument;
    ncclEpGroupConfig_t config = EP(ncclEpGroupConfig_t);
    size_t sizes[2] = {1, 1};
    ncclEpTensor_t choices = ep_tensor(NULL, sizes);
    ncclEpGroup_t group = NULL, none = NULL;
    ncclEpHandle_t handle = NULL;
    g_service.declines = true;
    CHILD_CHECK(ncclEpCreateGroup(&group, COMM, &config) == ncclSuccess);
    ((record_return_t *)fake(EP_FAKE, "record_return"))(ncclInternalError);
    CHILD_CHECK(ncclEpCreateGroup(&none, COMM, &config) == ncclInternalError && !none);
    CHILD_CHECK(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, NULL, 1, NULL) == ncclInternalError && !handle);
    CHILD_CHECK(ncclEpCreateHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, &choices, NULL, NULL, STREAM) ==
                    ncclInternalError &&
                !handle);
    CHILD_CHECK(ncclEpGroupDestroy(group) == ncclInternalError);
    return 0;
}

static void its_errors_are_returned(void **state)
{
    (void)state;
    setenv("SHUNT_NCCL_EP_PATH", EP_FAKE, 1);
    assert_int_equal(child_run(failures, NULL, log_text, LOG_BYTES), 0);
}

/* The fake service ends the process if it gets another's group or handle. */
static int mixture(void *argument)
{
    (void)argument;
    ncclEpGroupConfig_t config = EP(ncclEpGroupConfig_t);
    ncclEpGroup_t served = NULL, forwarded = NULL;
    ncclEpHandle_t ours = NULL, theirs = NULL;
    CHILD_CHECK(ncclEpCreateGroup(&served, COMM, &config) == ncclSuccess);
    g_service.declines = true;
    CHILD_CHECK(ncclEpCreateGroup(&forwarded, COMM, &config) == ncclSuccess);
    CHILD_CHECK(record("CreateGroup")->calls == 1);
    CHILD_CHECK(ncclEpInitHandle(&ours, served, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, 1, NULL) == ncclSuccess);
    CHILD_CHECK(record("InitHandle")->calls == 0);
    CHILD_CHECK(ncclEpInitHandle(&theirs, forwarded, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, 1, NULL) == ncclSuccess);
    CHILD_CHECK(record("InitHandle")->calls == 1 && g_service.handle_create.calls == 1);
    CHILD_CHECK(ncclEpComplete(ours, NULL, STREAM) == ncclSuccess && record("Complete")->calls == 0);
    CHILD_CHECK(ncclEpComplete(theirs, NULL, STREAM) == ncclSuccess && g_service.complete.calls == 1);
    CHILD_CHECK(ncclEpMaskClean(served, STREAM) == ncclInvalidUsage && record("MaskClean")->calls == 0);
    CHILD_CHECK(ncclEpMaskClean(forwarded, STREAM) == ncclSuccess && record("MaskClean")->calls == 1);
    CHILD_CHECK(ncclEpHandleDestroy(theirs) == ncclSuccess && ncclEpHandleDestroy(ours) == ncclSuccess);
    CHILD_CHECK(ncclEpGroupDestroy(served) == ncclSuccess && ncclEpGroupDestroy(forwarded) == ncclSuccess);
    CHILD_CHECK(record("HandleDestroy")->calls == 1 && record("GroupDestroy")->calls == 1);
    CHILD_CHECK(g_service.groups == 0 && g_service.handles == 0);
    return 0;
}

static void served_and_forwarded_groups_do_not_mix(void **state)
{
    (void)state;
    setenv("SHUNT_NCCL_EP_PATH", EP_FAKE, 1);
    assert_int_equal(child_run(mixture, NULL, log_text, LOG_BYTES), 0);
}

/* ---- How it is found ---- */

static int create_one(void *wanted)
{
    ncclEpGroupConfig_t config = EP(ncclEpGroupConfig_t);
    ncclEpGroup_t group = NULL;
    g_service.declines = true;
    const ncclResult_t result = ncclEpCreateGroup(&group, COMM, &config);
    if (!wanted)
        CHILD_CHECK(result == ncclInvalidUsage && !group);
    else
        CHILD_CHECK(result == ncclSuccess && fake(wanted, "record_find"));
    return 0;
}

static void without_one_a_line_says_what_to_do(void **state)
{
    (void)state;
    setenv("SHUNT_NCCL_EP_PATH", "/nowhere/libnccl_ep.so", 1);
    assert_int_equal(child_run(create_one, NULL, log_text, LOG_BYTES), 0);
    assert_int_equal(child_count(log_text, "\n"), 1);
    assert_int_equal(child_count(log_text, "WARN ncclEpCreateGroup returns ncclInvalidUsage"), 1);
    assert_int_equal(child_count(log_text, "the fake declines"), 1);
    assert_int_equal(child_count(log_text, "SHUNT_NCCL_EP_PATH names no libnccl_ep"), 1);
    setenv("SHUNT_DEBUG", "none", 1);
    assert_int_equal(child_run(create_one, NULL, log_text, LOG_BYTES), 0);
    assert_string_equal(log_text, "");
    unsetenv("SHUNT_DEBUG");
}

/* Shunt's own library and any other file are refused before any of their code runs. */
static void other_files_are_refused(void **state)
{
    (void)state;
    static const char *const others[] = {EP_OURS, "/proc/self/exe", "/dev/null"};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        setenv("SHUNT_NCCL_EP_PATH", others[i], 1);
        assert_int_equal(child_run(create_one, NULL, log_text, LOG_BYTES), 0);
        assert_int_equal(child_count(log_text, "it is not NVIDIA's libnccl_ep"), 1);
    }
    /* Nor is Shunt's own taken from a folder, where it may lie beside NVIDIA's. */
    char folder[] = EP_OURS;
    *strrchr(folder, '/') = '\0';
    setenv("SHUNT_NCCL_EP_PATH", folder, 1);
    assert_int_equal(child_run(create_one, NULL, log_text, LOG_BYTES), 0);
    assert_int_equal(child_count(log_text, "libnccl_ep.so.0"), 0);
}

static void the_setting_may_name_a_folder(void **state)
{
    (void)state;
    char folder[] = EP_FAKE;
    *strrchr(folder, '/') = '\0';
    setenv("SHUNT_NCCL_EP_PATH", folder, 1);
    assert_int_equal(child_run(create_one, EP_FAKE, log_text, LOG_BYTES), 0);
}

static void it_is_searched_as_nccl_is(void **state)
{
    (void)state;
    /* They lead to folders where this machine may have NVIDIA's. */
    static const char *const others[] = {"VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "CONDA_PREFIX", "HOME"};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        unsetenv(others[i]);
    char folder[] = EP_FAKE, site[] = EP_WHEEL, path[4096];
    unsetenv("SHUNT_NCCL_EP_PATH");
    *strrchr(folder, '/') = '\0';
    setenv("LD_LIBRARY_PATH", folder, 1);
    assert_int_equal(child_run(create_one, EP_FAKE, log_text, LOG_BYTES), 0);
    /* In Python's packages: nccl/ep/lib/cu13, beside nvidia/nccl/lib. */
    *strstr(site, "/nccl/ep/lib") = '\0';
    snprintf(path, sizeof(path), "%s/nvidia/nccl/lib", site);
    setenv("LD_LIBRARY_PATH", path, 1);
    assert_int_equal(child_run(create_one, EP_WHEEL, log_text, LOG_BYTES), 0);
    unsetenv("LD_LIBRARY_PATH");
}

static int ask_what_it_lacks(void *argument)
{
    (void)argument;
    ncclEpGroupConfig_t config = EP(ncclEpGroupConfig_t);
    ncclEpGroup_t group = NULL;
    int error = 5;
    g_service.declines = true;
    CHILD_CHECK(ncclEpCreateGroup(&group, COMM, &config) == ncclSuccess);
    for (int i = 0; i < 3; i++)
        CHILD_CHECK(ncclEpGetAsyncError(group, &error) == ncclInvalidUsage && error == 5);
    CHILD_CHECK(ncclEpMaskClean(group, STREAM) == ncclSuccess);
    return 0;
}

static void an_older_one_lacks_functions(void **state)
{
    (void)state;
    setenv("SHUNT_NCCL_EP_PATH", EP_WHEEL, 1);
    assert_int_equal(child_run(ask_what_it_lacks, NULL, log_text, LOG_BYTES), 0);
    assert_int_equal(child_count(log_text, "ncclEpGetAsyncError is not in " EP_WHEEL), 1);
}

/* As in Python, where libnccl.so.2 is not in the global scope. */
static int read_shunts_files(void *argument)
{
    CHILD_CHECK(dlopen(EP_NCCL, RTLD_NOW | RTLD_LOCAL));
    return create_one(argument);
}

static void shunts_files_have_the_setting(void **state)
{
    (void)state;
    char folder[] = "/tmp/shunt-ep-XXXXXX", path[128];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/shunt", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/shunt/shunt.conf", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "SHUNT_NCCL_EP_PATH = %s\n", EP_FAKE);
    fclose(file);
    unsetenv("SHUNT_NCCL_EP_PATH");
    setenv("XDG_CONFIG_HOME", folder, 1);
    assert_int_equal(child_run(read_shunts_files, EP_FAKE, log_text, LOG_BYTES), 0);
    unsetenv("XDG_CONFIG_HOME");
    assert_int_equal(unlink(path), 0);
    *strrchr(path, '/') = '\0';
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_argument_is_passed_on),        cmocka_unit_test(its_errors_are_returned),
        cmocka_unit_test(a_group_outlives_its_handles),       cmocka_unit_test(served_and_forwarded_groups_do_not_mix),
        cmocka_unit_test(without_one_a_line_says_what_to_do), cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(the_setting_may_name_a_folder),      cmocka_unit_test(it_is_searched_as_nccl_is),
        cmocka_unit_test(an_older_one_lacks_functions),       cmocka_unit_test(shunts_files_have_the_setting),
    };
    unsetenv("SHUNT_DEBUG");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
