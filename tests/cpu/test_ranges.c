/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVTX ranges: a tool gets each call once, with NCCL's name and the call's bytes, in NCCL's domain; and none if NCCL
 * has none.
 */
#include "cpu.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 64, TEXT_BYTES = 16384 };

static char g_file[64];

static void calls_body(ranks_t *ranks)
{
    float in[2 * COUNT] = {0}, out[2 * COUNT];
    const int peer = 1 - ranks->rank;
    ncclComm_t comm = ranks_init(ranks);
    CHECK_NCCL(ncclAllReduce(in, out, COUNT, ncclFloat32, ncclSum, comm, NULL));
    CHECK_NCCL(ncclAllGather(in, out, COUNT, ncclFloat32, comm, NULL));
    CHECK_NCCL(ncclBroadcast(in, out, COUNT, ncclInt8, 0, comm, NULL));
    CHECK_NCCL(ncclAllReduce(in, out, 0, ncclFloat32, ncclSum, comm, NULL)); /* empty: no range */
    CHECK_FAILS(ncclReduce(in, out, COUNT, ncclFloat32, ncclSum, 2, comm, NULL));
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSend(in, COUNT, ncclFloat32, peer, comm, NULL));
    CHECK_NCCL(ncclRecv(out, COUNT, ncclFloat32, peer, comm, NULL));
    CHECK_NCCL(ncclGroupEnd());
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* Return the ranges that the tool has written; empty: it was never loaded. */
static void ranges_run(const char *tool, const char *disable, char text[TEXT_BYTES])
{
    const char *const env[] = {
        "NVTX_INJECTION64_PATH", tool, "INJECTION_FILE", g_file, "NCCL_NVTX_DISABLE", disable, NULL};
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 2, .env = env, .body = calls_body};
    unlink(g_file);
    assert_int_equal(ranks_run(&plan), 0);
    FILE *file = fopen(g_file, "r");
    const size_t size = file ? fread(text, 1, TEXT_BYTES - 1, file) : 0;
    text[size] = '\0';
    if (file)
        fclose(file);
    unlink(g_file);
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

static void each_call_is_a_range(void **state)
{
    (void)state;
    static const char *const pushes[] = {"push NCCL ncclAllReduce 256\n", "push NCCL ncclAllGather 256\n",
                                         "push NCCL ncclBroadcast 64\n", "push NCCL ncclSend 256\n",
                                         "push NCCL ncclRecv 256\n"};
    char text[TEXT_BYTES];
    ranges_run(INJECTION, "0", text);
    assert_int_equal(count_of(text, "loaded"), 2);
    for (size_t i = 0; i < sizeof pushes / sizeof pushes[0]; i++)
        assert_int_equal(count_of(text, pushes[i]), 2);
    assert_int_equal(count_of(text, "push"), 10);
    assert_int_equal(count_of(text, "pop NCCL  0\n"), 10);
}

static void nvtx_disable(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    ranges_run(INJECTION, "1", text);
    assert_string_equal(text, "");
}

/* Calls succeed without a tool. */
static void without_a_tool_there_are_none(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    ranges_run("", "0", text);
    assert_string_equal(text, "");
    ranges_run("/nowhere/tool.so", "0", text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_is_a_range),
        cmocka_unit_test(nvtx_disable),
        cmocka_unit_test(without_a_tool_there_are_none),
    };
    cpu_limit(20);
    snprintf(g_file, sizeof g_file, "/tmp/shunt-ranges-%d", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
