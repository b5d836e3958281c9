/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_experts_test.c - what is told of experts' calls on a fake GPU: taken, captured, on a stream that cannot be
 * asked, failed, refused; beside collectives, with which they have it in common. A call's tensors are not looked at.
 */
#include "fake_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/account/statistics.h"
#include "shim/account/trace.h"
#include "shim/account/track.h"
#include "shim/base/last_error.h"
#include "shim/experts/check.h"
#include "shim/record/book.h"
#include "tests/abi/child.h"

enum { BLOCKS = 7, TOKENS = 5, TOKEN_BYTES = 64, LINE_BYTES = 1024, LOG_BYTES = 8192 };

static char path[] = "/tmp/shunt-cuda-experts-XXXXXX";
static uint32_t launched; /* experts' kernels */

/* ---- Fakes of what calls use ---- */

ncclResult_t shim_experts_refuse(ncclResult_t result, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    shim_set_last_error("%s", text);
    return result;
}

static ncclResult_t check(const shim_experts_handle_t *handle, bool combine, alg_experts_call_t *call)
{
    *call = (alg_experts_call_t){
        .combine = combine, .tokens = handle->tokens, .token_bytes = TOKEN_BYTES, .routes = handle->routes};
    return ncclSuccess;
}

ncclResult_t shim_experts_check_dispatch(const shim_experts_handle_t *handle, const ncclEpDispatchInputs_t *inputs,
                                         const ncclEpDispatchOutputs_t *outputs, const ncclEpLayoutInfo_t *layout,
                                         const ncclEpDispatchConfig_t *config, alg_experts_call_t *call)
{
    (void)inputs, (void)outputs, (void)layout, (void)config;
    return check(handle, false, call);
}

ncclResult_t shim_experts_check_combine(const shim_experts_handle_t *handle, const ncclEpCombineInputs_t *inputs,
                                        const ncclEpCombineOutputs_t *outputs, const ncclEpCombineConfig_t *config,
                                        alg_experts_call_t *call)
{
    (void)inputs, (void)outputs, (void)config;
    return check(handle, true, call);
}

int alg_experts_preload_cuda(const alg_experts_shape_t *shape)
{
    (void)shape;
    return 0;
}

int net_cuda_errno(int cuda_error)
{
    return -cuda_error;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    *memory = malloc(bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    free(memory);
    return cudaSuccess;
}

/* As the runtime, it remembers an error until somebody asks. */
int alg_experts_launch_cuda(const alg_team_t *team, const alg_experts_shape_t *shape, const alg_experts_call_t *call,
                            void *stream)
{
    (void)team, (void)shape, (void)call;
    fake.last_error = fake.launch_error;
    if (fake.launch_error == 0) {
        fake_work(FAKE_OURS, stream, 0);
        launched++;
    }
    return fake.launch_error;
}

/* ---- A group ---- */

typedef struct side {
    shim_comm_t *comm;
    shim_extra_t extra;
    shim_experts_group_t group;
    shim_experts_handle_t handle;
    ncclEpTensor_t tokens;
} side_t;

static side_t *side_make(int device)
{
    side_t *s = calloc(1, sizeof(*s));
    s->comm = fake_comm(device, true);
    s->comm->plan = calloc(1, sizeof(*s->comm->plan));
    s->extra = (shim_extra_t){.comm = s->comm, .record = shim_record_new()};
    s->group = (shim_experts_group_t){
        .ops = &shim_experts_cuda, .extra = &s->extra, .blocks = BLOCKS, .staged = 4, .timeout_ns = 1000000};
    pthread_mutex_init(&s->group.lock, NULL);
    s->handle = (shim_experts_handle_t){.group = &s->group, .tokens = TOKENS, .chosen = true};
    s->tokens = (ncclEpTensor_t){.datatype = ncclBfloat16};
    launched = 0;
    alg_scratch_control(NULL)->status = ALG_STATUS_OK;
    return s;
}

static void side_free(side_t *s)
{
    fake_graphs_destroy();
    shim_record_end(s->extra.record);
    pthread_mutex_destroy(&s->group.lock);
    fake_comm_end(s->comm);
    free(s);
}

static ncclResult_t dispatch(side_t *s, int stream, bool staged)
{
    const ncclEpDispatchInputs_t inputs = {.tokens = &s->tokens};
    const ncclEpDispatchConfig_t config = {.send_only = staged};
    return shim_experts_dispatch(&s->handle, &inputs, NULL, NULL, &config, fake_stream(stream));
}

static ncclResult_t combine(side_t *s, int stream)
{
    const ncclEpCombineInputs_t inputs = {.tokens = &s->tokens};
    const ncclEpCombineConfig_t config = {0};
    return shim_experts_combine(&s->handle, &inputs, NULL, &config, fake_stream(stream));
}

static uint64_t calls_taken(void)
{
    shunt_statistics_t totals = {.size = sizeof(totals)};
    shim_statistics_totals(&totals);
    return totals.calls_taken;
}

static uint64_t doubts_of(const shim_record_t *record)
{
    return atomic_load(&record->slot->doubts);
}

/* The flags of the record's last call. */
static uint32_t flags_of(const shim_record_t *record)
{
    record_made_t made;
    assert_true(record_last(record->slot, &made));
    return made.flags;
}

/* ---- Tests ---- */

/* A collective and a dispatch that fail: both were issued, their number may be this rank's alone, the error is told in
 * words and not left in the runtime. A call that is refused is none. */
static void a_failed_launch_counts_as_a_collectives(void **state)
{
    (void)state;
    fake_reset();
    side_t *s = side_make(0);
    s->comm->record = shim_record_new();
    for (int i = 0; i < 2; i++) {
        const shim_record_t *record = i == 0 ? s->comm->record : s->extra.record;
        const uint64_t before = calls_taken();
        fake.launch_error = cudaErrorInvalidResourceHandle;
        fake.last_error = i == 0 ? fake.launch_error : 0;
        assert_int_equal(i == 0 ? reduce(s->comm, SMALL, 1) : dispatch(s, 1, false), ncclUnhandledCudaError);
        assert_int_equal(fake.works, 0);
        assert_int_equal(calls_taken(), before + 1);
        assert_int_equal(doubts_of(record), 1);
        assert_int_equal(fake.last_error, 0);
        assert_non_null(strstr(ncclGetLastError(NULL), "CUDA error 400, fake error"));
        fake.launch_error = 0;
        assert_int_not_equal(i == 0 ? reduce(s->comm, SMALL, 1) : dispatch(s, 1, false), ncclSuccess);
        atomic_store(&s->comm->async_error, ncclSuccess);
        if (i == 1)
            assert_int_equal(calls_taken(), before + 1);
        assert_int_equal(fake.works, 0);
    }
    shim_record_end(s->comm->record);
    s->comm->record = NULL;
    side_free(s);
}

/* One question, in the context of the communicator's device, for all that is told. */
static void a_capture_is_asked_for_in_the_streams_context(void **state)
{
    (void)state;
    fake_reset();
    side_t *s = side_make(1);
    for (int i = 0; i < 3; i++) {
        fake.queried = fake.queries = 0;
        fake_stream_capture(fake_stream(1), i == 1 ? 9 : 0);
        assert_int_equal(i == 2 ? combine(s, 1) : dispatch(s, 1, false), ncclSuccess);
        assert_int_equal(fake.queried, 1u << 1);
        assert_int_equal(fake.queries, 1);
        assert_int_equal(flags_of(s->extra.record), 0);
        assert_int_equal(atomic_load(&s->extra.record->slot->made[RECORD_CAPTURED]), i > 0);
    }
    assert_int_equal(fake.device, 0);
    side_free(s);
}

static void a_stream_that_cannot_be_asked_is_told_as_unknown(void **state)
{
    (void)state;
    fake_reset();
    side_t *s = side_make(0);
    fake_stream_capture(fake_stream(1), ~0ull);
    assert_int_equal(dispatch(s, 1, false), ncclSuccess);
    assert_int_equal(launched, 1);
    assert_int_equal(flags_of(s->extra.record), RECORD_CAPTURE_UNKNOWN);
    assert_int_equal(atomic_load(&s->extra.record->slot->made[RECORD_COLLECTIVE]), 1);
    assert_int_equal(fake.last_error, 0);
    side_free(s);
}

/* A replay may have come round to the room of a call that is open on this rank. */
static void a_time_limit_names_an_open_call_beside_graphs(void **state)
{
    (void)state;
    for (int captured = 0; captured < 2; captured++) {
        fake_reset();
        side_t *s = side_make(0);
        shim_experts_handle_t other = s->handle;
        assert_int_equal(dispatch(s, 1, true), ncclSuccess);
        fake_stream_capture(fake_stream(2), captured ? 9 : 0);
        const ncclEpDispatchInputs_t inputs = {.tokens = &s->tokens};
        const ncclEpDispatchConfig_t config = {.send_only = 1};
        assert_int_equal(shim_experts_dispatch(&other, &inputs, NULL, NULL, &config, fake_stream(2)), ncclSuccess);
        assert_int_equal(shim_experts_complete(&other, fake_stream(2)), ncclSuccess);
        alg_scratch_control(NULL)->status = ALG_STATUS_TIMEOUT;
        assert_int_equal(shim_experts_complete(&s->handle, fake_stream(1)), ncclRemoteError);
        assert_non_null(strstr(ncclGetLastError(NULL), "a call waited too long for its peers"));
        assert_int_equal(strstr(ncclGetLastError(NULL), "ncclEpComplete it before a graph") != NULL, captured);
        side_free(s);
    }
}

/* ---- The trace ---- */

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

static int traced(void *unused)
{
    (void)unused;
    clearenv();
    setenv("HOME", "/nonexistent", 1);
    setenv("SHUNT_TRACE", path, 1);
    fake_reset();
    shim_track_prepare(1, 0);
    side_t *s = side_make(1);
    dispatch(s, 1, false);
    fake_stream_capture(fake_stream(1), 9);
    combine(s, 1);
    CHILD_CHECK(fake.queries == 2 && fake.queried == 1u << 1);
    fake_stream_capture(fake_stream(1), ~0ull);
    dispatch(s, 1, false);
    fake_stream_capture(fake_stream(1), 0);
    fake.launch_error = cudaErrorInvalidResourceHandle;
    combine(s, 1);
    combine(s, 1);
    fake_graph_launch(9, fake_stream(1));
    shim_trace_flush();

    FILE *file = fopen(path, "r");
    CHILD_CHECK(file != NULL);
    NEXT(file, "process_name");
    NEXT(file, "\"begin\"");
    NEXT(file, "\"ncclEpDispatch experts\"", "\"count\":5,\"bytes\":320", "\"captured\":false,\"route\":\"shunt\"",
         "\"blocks\":7,\"threads\":512", "\"result\":0");
    NEXT(file, "\"ncclEpCombine experts\"", "\"captured\":true");
    NEXT(file, "\"ncclEpDispatch experts\"", "\"captured\":null", "\"result\":0");
    NEXT(file, "\"ncclEpCombine experts\"", "\"captured\":null,\"route\":\"shunt\"", "\"result\":1");
    NEXT(file, "\"ncclEpCombine refused\"", "\"captured\":null,\"route\":\"refused\"", "\"result\":3");
    NEXT(file, "\"thread_name\"", "GPU 1, communicator 0x", ", experts\"");
    NEXT(file, "\"dispatch experts\",\"cat\":\"gpu\"", "\"bytes\":320,",
         "\"blocks\":7,\"threads\":512,\"captured\":false");
    NEXT(file, "\"combine experts\",\"cat\":\"gpu\"", "\"captured\":false"); /* the launch that failed */
    NEXT(file, "\"thread_name\"", ", experts, replays\"");
    NEXT(file, "\"combine experts\",\"cat\":\"gpu\"", "\"captured\":true");
    NEXT(file, "]");
    fclose(file);
    return 0;
}

static void events_of_calls(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(child_run(traced, NULL, log, sizeof(log)), 0);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_of_calls), /* first: a forked child shares the parent's count of calls */
        cmocka_unit_test(a_failed_launch_counts_as_a_collectives),
        cmocka_unit_test(a_capture_is_asked_for_in_the_streams_context),
        cmocka_unit_test(a_stream_that_cannot_be_asked_is_told_as_unknown),
        cmocka_unit_test(a_time_limit_names_an_open_call_beside_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
