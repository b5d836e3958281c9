/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_trace_test.c - the events of calls on a fake GPU: taken, forwarded,
 * captured, refused, in a group, on a communicator that Shunt does not know.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"
#include "shim/account/trace.h"
#include "shim/account/track.h"
#include "tests/abi/child.h"

enum { SMALL = 10, LARGE = FAKE_TAKEN_LIMIT + 1, LINE_BYTES = 1024, LOG_BYTES = 4096 };

/* A busy machine must not change what a test sees. So the clock of kernels' times moves by 1 us a reading, and the
 * trace's writer sleeps until it is asked. */
uint64_t __wrap_net_now_ns(void);
int __wrap_net_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t until_ns);
int __real_net_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t until_ns);

uint64_t __wrap_net_now_ns(void)
{
    static _Atomic uint64_t began_ns, readings;
    struct timespec now;
    uint64_t unset = 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_compare_exchange_strong(&began_ns, &unset,
                                   (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec);
    return atomic_load(&began_ns) + 1000 * atomic_fetch_add(&readings, 1);
}

int __wrap_net_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t until_ns)
{
    return __real_net_condition_wait(condition, mutex, until_ns + UINT64_C(60000000000));
}

static char path[] = "/tmp/shunt-cuda-trace-XXXXXX";
static float buffer[2];

/* Whether the next event of the file contains all these words. */
static bool next_has(FILE *file, const char *const *words)
{
    char line[LINE_BYTES];
    if (fgets(line, sizeof(line), file) == NULL)
        return false;
    for (; *words != NULL; words++) {
        if (strstr(line, *words) == NULL) {
            fprintf(stderr, "no %s in %s", *words, line);
            return false;
        }
    }
    return true;
}

#define NEXT(file, ...) CHILD_CHECK(next_has(file, (const char *const[]){__VA_ARGS__, NULL}))

static void begin_trace(void)
{
    clearenv();
    setenv("HOME", "/nonexistent", 1);
    setenv("SHUNT_TRACE", path, 1);
    fake_reset();
}

static int calls(void *unused)
{
    (void)unused;
    begin_trace();
    shim_track_prepare(0, 0);
    shim_comm_t *comm = fake_comm(0, true);
    ncclComm_t handle = comm->handle, unknown = (ncclComm_t)0x77700;
    cudaStream_t stream = fake_stream(1);
    comm->rank = 1;

    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclMax, handle, stream);
    ncclAllReduce(buffer, buffer, LARGE, ncclFloat32, ncclSum, handle, stream);
    fake_stream_capture(stream, 9);
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, handle, stream);
    ncclBroadcast(buffer, buffer, LARGE, ncclFloat32, 0, handle, stream);
    fake_stream_capture(stream, 0);
    ncclGroupStart();
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclAvg, handle, stream);
    ncclGroupStart();
    ncclGroupEnd(); /* an inner one: no event */
    ncclGroupEnd();
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, unknown, stream);
    atomic_store(&comm->async_error, ncclUnhandledCudaError);
    atomic_store(&comm->phase, SHIM_COMM_DEAD);
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, handle, stream);
    shim_trace_flush();

    char rank_of_two[LINE_BYTES], own_stream[64];
    snprintf(rank_of_two, sizeof(rank_of_two), "\"comm\":\"%p\",\"rank\":1,\"nranks\":2", (void *)handle);
    snprintf(own_stream, sizeof(own_stream), "\"stream\":\"%p\"", (void *)stream);
    FILE *file = fopen(path, "r");
    CHILD_CHECK(file != NULL);
    NEXT(file, "process_name");
    NEXT(file, "\"begin\"");
    NEXT(file, "\"ncclAllReduce fake\"", rank_of_two, own_stream, "\"count\":10,\"bytes\":40", "\"op\":\"max\"",
         "\"captured\":false,\"route\":\"shunt\",\"algorithm\":\"fake\",\"blocks\":1,\"threads\":32",
         "\"reason\":\"taken: chosen by the table or SHUNT_ALGO\",\"source\":\"tuned table\",\"result\":0");
    NEXT(file, "\"ncclAllReduce nccl\"", rank_of_two, "\"captured\":false,\"route\":\"nccl\"",
         "\"reason\":\"forwarded: the table has no faster algorithm for this size\",\"source\":\"policy\"");
    NEXT(file, "\"ncclAllReduce fake\"", "\"captured\":true,\"route\":\"shunt\"");
    NEXT(file, "\"ncclBroadcast nccl\"", "\"captured\":true,\"route\":\"nccl\"", "\"op\":\"\"", "\"blocks\":0",
         "\"source\":\"policy\"");
    NEXT(file, "\"ncclAllReduce fake\"", "\"op\":\"avg\"", "\"captured\":false");
    NEXT(file, "\"ncclGroupEnd\"", "\"cat\":\"group\"", "\"result\":0");
    NEXT(file, "\"ncclAllReduce nccl\"", "\"comm\":\"0x77700\",\"rank\":-1,\"nranks\":-1");
    NEXT(file, "\"ncclAllReduce refused\"", "\"captured\":null,\"route\":\"refused\"", "\"result\":1");
    NEXT(file, "\"thread_name\"", "GPU 0, communicator 0x");
    NEXT(file, "\"allreduce fake\",\"cat\":\"gpu\"", "\"dur\":1000.000", "\"rank\":1,\"bytes\":40,\"calls\":1");
    NEXT(file, "\"allreduce fake\",\"cat\":\"gpu\"", "\"dur\":1000.000"); /* the group's; the graph was not replayed */
    NEXT(file, "]");
    fclose(file);
    return 0;
}

/* Slices of the GPU: their times differ by the records of events between them, and those whose events have not passed
 * come later. */
static int kernels(void *unused)
{
    (void)unused;
    begin_trace();
    shim_comm_t *comm = fake_comm(0, true), *other = fake_comm(0, true);
    char line[LINE_BYTES];
    double at_us[3], us[3], call_us = 0;
    int found = 0;
    for (int i = 0; i < 2; i++)
        ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, comm->handle, fake_stream(1));
    fake.running = true;
    shim_trace_flush();
    fake.running = false;
    const uint32_t events = fake.events;
    shim_trace_flush();
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, other->handle, fake_stream(2));
    shim_trace_flush();
    CHILD_CHECK(fake.events == events + 1); /* the other communicator's own: a launch's are used again */

    FILE *file = fopen(path, "r");
    CHILD_CHECK(file != NULL);
    int names = 0;
    while (fgets(line, sizeof(line), file)) {
        names += strstr(line, "\"thread_name\"") != NULL;
        const char *call = strstr(line, "\"cat\":\"shunt\",\"ts\":");
        if (call)
            CHILD_CHECK(sscanf(call, "\"cat\":\"shunt\",\"ts\":%lf", &call_us) == 1);
        const char *at = strstr(line, "\"cat\":\"gpu\",\"ts\":");
        if (at && found < 3)
            CHILD_CHECK(sscanf(at, "\"cat\":\"gpu\",\"ts\":%lf,\"dur\":%lf", &at_us[found], &us[found]) == 2);
        found += at != NULL;
    }
    fclose(file);
    CHILD_CHECK(found == 3 && names == 2);
    CHILD_CHECK(us[0] == 1000 && us[1] == 1000 && us[2] == 1000);
    CHILD_CHECK(at_us[2] > call_us - 1e6 &&
                at_us[2] < call_us + 1e6); /* the host's clock; the fake's has steps of ms */
    CHILD_CHECK(at_us[1] - at_us[0] > 2999.9 && at_us[1] - at_us[0] < 3000.1); /* end, the call's own event, begin */
    return 0;
}

/* Events of a device's earlier life are not used again; the kernel that they belong to has no slice. */
static int reset(void *unused)
{
    (void)unused;
    begin_trace();
    fake.life = 1;
    shim_comm_t *comm = fake_comm(0, true), *other = fake_comm(0, true);
    comm->life = 1;
    other->life = 2;
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, comm->handle, fake_stream(1));
    shim_trace_flush();
    fake.running = true;
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, comm->handle, fake_stream(1));
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, comm->handle, fake_stream(1));
    fake.life = 2;
    fake.running = false;
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, other->handle, fake_stream(2));
    shim_trace_flush();
    CHILD_CHECK(fake.stale == 0);

    char line[LINE_BYTES];
    int slices = 0;
    FILE *file = fopen(path, "r");
    CHILD_CHECK(file != NULL);
    while (fgets(line, sizeof(line), file))
        slices += strstr(line, "\"cat\":\"gpu\"") != NULL;
    fclose(file);
    CHILD_CHECK(slices == 2);
    return 0;
}

/* Each replay of a graph gives its calls' slices, on a track of their own. */
static int replays(void *unused)
{
    (void)unused;
    begin_trace();
    shim_track_prepare(0, 0);
    shim_track_prepare(0, 0);
    CHILD_CHECK(fake.pinned == 1);
    shim_comm_t *comm = fake_comm(0, true);
    cudaStream_t stream = fake_stream(1);
    const size_t counts[] = {SMALL, SMALL / 2};
    fake_stream_capture(stream, 9);
    for (int i = 0; i < 2; i++)
        ncclAllReduce(buffer, buffer, counts[i], ncclFloat32, ncclSum, comm->handle, stream);
    fake_stream_capture(stream, 0);
    CHILD_CHECK(fake_nodes(9, FAKE_STAMP) == 4);
    shim_trace_flush();
    fake_graph_launch(9, stream);
    fake.running = true; /* no clock, no slices */
    shim_trace_flush();
    fake.running = false;
    fake_graph_launch(9, stream);
    for (int i = 0; i < 3; i++) /* the late stamp comes with the first */
        shim_trace_flush();

    char line[LINE_BYTES];
    FILE *file = fopen(path, "r");
    CHILD_CHECK(file != NULL);
    int names = 0, slices = 0;
    double ended_us = 0;
    while (fgets(line, sizeof(line), file)) {
        double at_us, us;
        names += strstr(line, "\"thread_name\"") != NULL && strstr(line, ", replays\"") != NULL;
        const char *slice = strstr(line, "\"cat\":\"gpu\",\"ts\":");
        if (!slice)
            continue;
        CHILD_CHECK(sscanf(slice, "\"cat\":\"gpu\",\"ts\":%lf,\"dur\":%lf", &at_us, &us) == 2);
        CHILD_CHECK(us > 999.9 && us < 1000.1);
        CHILD_CHECK(slices == 0 || at_us - ended_us > 999.9);
        CHILD_CHECK(slices % 2 == 0 || at_us - ended_us < 1000.1); /* between replays the clock was asked */
        CHILD_CHECK(strstr(line, slices % 2 == 0 ? "\"bytes\":40" : "\"bytes\":20") != NULL);
        CHILD_CHECK(strstr(line, "\"captured\":true") != NULL && strstr(line, "\"allreduce fake\"") != NULL);
        ended_us = at_us + us;
        slices++;
    }
    CHILD_CHECK(names == 1 && slices == 4);
    fclose(file);
    return 0;
}

/* ---- Without the trace's thread, which the fake GPU does not expect beside calls ---- */

static void lap(uint64_t life)
{
    const shim_track_call_t call = {.life = life, .collective = "allreduce", .algorithm = "fake"};
    fake.life = life;
    shim_track_end(shim_track_begin(&call, fake_stream(1)), &call, fake_stream(1));
}

/* A GPU that is full for a while costs no slice and no event; kernels for which there is no room are counted. */
static int crowded(void *unused)
{
    enum { ROOM = 8192, MORE = 11 };
    char text[LINE_BYTES];
    uint32_t slices = 0;
    (void)unused;
    clearenv();
    fake_reset();
    for (int i = 0; i < 3; i++)
        lap(1);
    fake.record_error = cudaErrorMemoryAllocation;
    shim_track_collect();
    fake.record_error = 0;
    fake.running = true;
    for (int i = 3; i < ROOM + MORE; i++)
        lap(1);
    shim_track_collect();
    fake.running = false;
    shim_track_collect();
    while (shim_track_text(1, text, sizeof(text)) > 0)
        slices++;
    CHILD_CHECK(slices == ROOM && shim_track_left_out() == MORE);
    CHILD_CHECK(fake.events == 2 * ROOM + 1); /* the anchor's */
    for (int i = 0; i < ROOM; i++)
        lap(1);
    CHILD_CHECK(fake.events == 2 * ROOM + 1 && shim_track_left_out() == 0);
    return 0;
}

static uint32_t slices_now(void)
{
    char text[LINE_BYTES];
    uint32_t slices = 0;
    shim_track_collect();
    while (shim_track_text(1, text, sizeof(text)) > 0)
        slices++;
    return slices;
}

static bool times_a_captured_call(uint64_t life, cudaStream_t stream)
{
    const shim_track_call_t call = {.life = life, .captured = true, .collective = "allreduce", .algorithm = "fake"};
    const shim_timed_t timed = shim_track_begin(&call, stream);
    shim_track_end(timed, &call, stream);
    return timed.stamped.number > 0;
}

/* Replays that nobody reads in time, and captured calls beyond the room, are counted; a reset begins anew. */
static int too_many_replays(void *unused)
{
    enum { STAMPS = 65536, CALLS = 65536, REPLAYS = 40000 };
    (void)unused;
    clearenv();
    fake_reset();
    const cudaStream_t captured = fake_stream(1), other = fake_stream(2);
    CHILD_CHECK(!times_a_captured_call(0, other) && shim_track_left_out() == 1); /* not prepared */
    fake.pin_error = cudaErrorMemoryAllocation;
    shim_track_prepare(0, 0);
    CHILD_CHECK(!times_a_captured_call(0, other) && shim_track_left_out() == 1);
    fake.pin_error = 0;
    shim_track_prepare(0, 0);
    CHILD_CHECK(fake.pinned == 0 && fake.streams_made == 1); /* it was tried in this life */
    CHILD_CHECK(!shim_track_goes_on(true));
    fake_device_reset();
    shim_track_prepare(0, 1);
    CHILD_CHECK(fake.pinned == 1 && shim_track_goes_on(true) && !shim_track_goes_on(false));
    fake_stream_capture(captured, 9);
    CHILD_CHECK(times_a_captured_call(1, captured));
    fake_stream_capture(captured, 0);
    for (int i = 0; i < REPLAYS; i++)
        fake_graph_launch(9, captured);
    CHILD_CHECK(slices_now() == STAMPS / 2 && shim_track_left_out() == REPLAYS - STAMPS / 2);
    fake_graph_launch(9, captured);
    CHILD_CHECK(slices_now() == 1 && shim_track_left_out() == 0);

    /* The begin of a kernel was read, and its end comes behind a gap: it may be another replay's. */
    const shim_track_call_t call = {.life = 1, .captured = true, .collective = "allreduce", .algorithm = "fake"};
    const shim_timed_t timed = shim_track_begin(&call, other);
    CHILD_CHECK(slices_now() == 0);
    for (int i = 0; i < REPLAYS; i++)
        fake_graph_launch(9, captured);
    shim_track_end(timed, &call, other);
    CHILD_CHECK(slices_now() == STAMPS / 2 - 1);
    (void)shim_track_left_out();

    for (int i = 2; i < CALLS; i++)
        CHILD_CHECK(times_a_captured_call(1, other));
    CHILD_CHECK(!times_a_captured_call(1, other)); /* it has stamps all the same: 2 of those that are read */
    CHILD_CHECK(slices_now() == STAMPS / 2 - 1 && shim_track_left_out() == CALLS - 1 - STAMPS / 2 + 1);
    fake_stream_capture(captured, 10);
    CHILD_CHECK(!times_a_captured_call(1, captured) && fake_nodes(10, FAKE_STAMP) == 2);
    fake_stream_capture(captured, 0);
    fake_graph_launch(9, captured);
    fake_device_reset();
    CHILD_CHECK(slices_now() == 0); /* later than the last look at the clock */
    shim_track_prepare(0, 2);
    CHILD_CHECK(fake.pinned == 2 && !times_a_captured_call(1, other) && fake.stale == 0);
    return 0;
}

/* A kernel that was measured, but not written, before the device was reset. */
static int written_late(void *unused)
{
    char text[LINE_BYTES];
    (void)unused;
    clearenv();
    fake_reset();
    lap(1);
    shim_track_collect();
    lap(2);
    CHILD_CHECK(shim_track_text(1, text, sizeof(text)) > 0);
    for (int i = 0; i < 3; i++)
        lap(2);
    CHILD_CHECK(fake.stale == 0);
    return 0;
}

static void run_traced(int (*body)(void *))
{
    char log[LOG_BYTES];
    strcpy(path, "/tmp/shunt-cuda-trace-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(child_run(body, NULL, log, sizeof(log)), 0);
    unlink(path);
}

static void times_of_kernels(void **state)
{
    (void)state;
    run_traced(kernels);
}

static void times_after_a_reset(void **state)
{
    (void)state;
    run_traced(reset);
}

static void kernels_on_a_crowded_gpu(void **state)
{
    (void)state;
    run_traced(crowded);
}

static void kernel_written_after_a_reset(void **state)
{
    (void)state;
    run_traced(written_late);
}

static void times_of_replays(void **state)
{
    (void)state;
    run_traced(replays);
}

static void replays_beyond_the_room(void **state)
{
    (void)state;
    run_traced(too_many_replays);
}

static void events_of_calls(void **state)
{
    (void)state;
    run_traced(calls);
}

/* The exception to SHUNT_DETERMINISTIC is logged once: for a sum that goes to NCCL, not for an empty or invalid one. */
static int sums(void *unused)
{
    (void)unused;
    clearenv();
    setenv("HOME", "/nonexistent", 1);
    fake_reset();
    static sel_plan_t plan;
    shim_comm_t *comm = fake_comm(0, true);
    cudaStream_t stream = fake_stream(1);
    comm->plan = &plan;
    ncclAllReduce(buffer, buffer, LARGE, ncclFloat32, ncclSum, comm->handle, stream);
    plan.settings.deterministic = 1;
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, comm->handle, stream);
    ncclAllReduce(buffer, buffer, 0, ncclFloat32, ncclSum, comm->handle, stream);
    ncclAllReduce(NULL, buffer, LARGE, ncclFloat32, ncclSum, comm->handle, stream);
    ncclBroadcast(buffer, buffer, LARGE, ncclFloat32, 0, comm->handle, stream);
    fprintf(stderr, "then\n");
    for (int i = 0; i < 3; i++)
        ncclReduce(buffer, buffer, LARGE, ncclFloat32, ncclSum, 0, comm->handle, stream);
    comm->plan = NULL;
    return 0;
}

static void forwarded_sums(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(sums, NULL, log, sizeof(log)), 0);
    const char *then = strstr(log, "then\n");
    assert_int_equal(child_count(log, "SHUNT_DETERMINISTIC=1"), 1);
    assert_non_null(strstr(then, "SHUNT_DETERMINISTIC=1: ncclReduce is forwarded"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(events_of_calls),
                                       cmocka_unit_test(times_of_kernels),
                                       cmocka_unit_test(times_of_replays),
                                       cmocka_unit_test(replays_beyond_the_room),
                                       cmocka_unit_test(times_after_a_reset),
                                       cmocka_unit_test(kernels_on_a_crowded_gpu),
                                       cmocka_unit_test(kernel_written_after_a_reset),
                                       cmocka_unit_test(forwarded_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
