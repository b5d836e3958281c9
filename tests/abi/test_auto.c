/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_auto.c - which device SHUNT_DEVICE=auto selects with and without GPUs. This program has loaded fake_driver.c as
 * the driver, which lists GPUs even if the kernel lists none. For builds with and without CUDA.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "child.h"
#include "fake_driver.h"
#include "shunt.h"

typedef struct unique_id {
    unsigned char byte[128];
} unique_id_t;
int ncclGetUniqueId(unique_id_t *id);
int ncclCommInitRank(void **comm, int nranks, unique_id_t id, int rank);
int ncclCommDestroy(void *comm);
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *comm, void *stream);

enum { LOG_BYTES = 32768 };
static char log_text[LOG_BYTES];

static void begin(int gpus)
{
    child_settings("auto", ABI_FAKE);
    setenv("SHUNT_DEBUG", "info", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    fake_driver_gpus = gpus;
}

/* With GPUs calls go to the real NCCL: the fake counts its calls in the buffer, which stands for GPU memory. */
static int scenario_gpus(void *unused)
{
    int calls = 0, comm;
    (void)unused;
    begin(2);
    CHILD_CHECK(ncclBroadcast(&calls, &calls, 1, 2, 0, &comm, NULL) == 0);
    CHILD_CHECK(calls == 1);
    CHILD_CHECK(shunt_host_mode() == 0);
    return 0;
}

static void gpus_are_never_taken_for_the_cpu_device(void **state)
{
    (void)state;
    assert_int_equal(child_run(scenario_gpus, NULL, log_text, sizeof log_text), 0);
    assert_int_equal(child_count(log_text, "CPU device"), 0);
    assert_int_equal(child_count(log_text, "built without CUDA"), SHUNT_HAS_CUDA ? 0 : 1);
}

static int scenario_no_gpus(void *unused)
{
    (void)unused;
    begin(0);
    CHILD_CHECK(shunt_host_mode() == 1);
    return 0;
}

static int scenario_hidden_gpus(void *unused)
{
    (void)unused;
    begin(2);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    CHILD_CHECK(shunt_host_mode() == 1);
    return 0;
}

static void without_gpus_it_is_the_cpu_device(void **state)
{
    (void)state;
    if (access("/proc/driver/nvidia/gpus", F_OK) != 0) { /* the kernel's list comes before the driver's */
        assert_int_equal(child_run(scenario_no_gpus, NULL, log_text, sizeof log_text), 0);
        assert_int_equal(child_count(log_text, "CPU device: no CUDA driver answers"), 1);
    }
    assert_int_equal(child_run(scenario_hidden_gpus, NULL, log_text, sizeof log_text), 0);
}

/* Whether the end of an id contains the invitation to ranks of other nodes. */
static bool invites(const unique_id_t *id)
{
    unsigned any = 0;
    for (size_t i = 64; i < sizeof(id->byte); i++)
        any |= id->byte[i];
    return any != 0;
}

/* An id that a controller without GPUs makes is valid for the real NCCL of workers with GPUs. */
static int scenario_id_of_hidden_gpus(void *unused)
{
    unique_id_t id, own;
    void *comm = NULL;
    (void)unused;
    begin(2);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_COMM_ID", "192.0.2.1:4000", 1); /* every rank makes the id, so all must be equal */
    memset(&id, 0xee, sizeof(id));
    CHILD_CHECK(ncclGetUniqueId(&id) == 0);
    CHILD_CHECK(id.byte[0] == 7 && id.byte[47] == 7); /* the fake's */
    CHILD_CHECK(!invites(&id));
    unsetenv("NCCL_COMM_ID");
    CHILD_CHECK(ncclGetUniqueId(&id) == 0);
    CHILD_CHECK(id.byte[0] == 7 && invites(&id));
    CHILD_CHECK(ncclCommInitRank(&comm, 1, id, 0) == 0 && ncclCommDestroy(comm) == 0);
    CHILD_CHECK(ncclGetUniqueId(&own) == 0); /* of a rank of the CPU device, no controller */
    CHILD_CHECK(own.byte[0] != 7);
    return 0;
}

static int scenario_id_without_nccl(void *unused)
{
    unique_id_t id = {{0}}, other = {{0}};
    (void)unused;
    begin(2);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    setenv("SHUNT_NCCL_PATH", "/nowhere", 1);
    CHILD_CHECK(ncclGetUniqueId(&id) == 0 && ncclGetUniqueId(&other) == 0);
    CHILD_CHECK(memcmp(&id, &other, sizeof(id)) != 0);
    return 0;
}

static void the_real_nccl_makes_the_ids_of_hidden_gpus(void **state)
{
    (void)state;
    assert_int_equal(child_run(scenario_id_of_hidden_gpus, NULL, log_text, sizeof log_text), 0);
    assert_int_equal(child_run(scenario_id_without_nccl, NULL, log_text, sizeof log_text), 0);
}

/* A parent without GPUs stays on the CPU device, while its child that sees a GPU uses CUDA. */
static int scenario_forked(void *unused)
{
    int status = -1;
    (void)unused;
    begin(2);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    CHILD_CHECK(shunt_host_mode() == 1);
    if (fork() == 0)
        _exit(shunt_host_mode());
    CHILD_CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 1);
    if (fork() == 0) {
        setenv("CUDA_VISIBLE_DEVICES", "1", 1);
        _exit(shunt_host_mode());
    }
    CHILD_CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHILD_CHECK(shunt_host_mode() == 1);
    return 0;
}

static void a_forked_child_decides_anew(void **state)
{
    (void)state;
    assert_int_equal(child_run(scenario_forked, NULL, log_text, sizeof log_text), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_are_never_taken_for_the_cpu_device),
        cmocka_unit_test(without_gpus_it_is_the_cpu_device),
        cmocka_unit_test(the_real_nccl_makes_the_ids_of_hidden_gpus),
        cmocka_unit_test(a_forked_child_decides_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
