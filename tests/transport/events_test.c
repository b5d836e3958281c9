/* SPDX-License-Identifier: Apache-2.0 */
/* events_test.c - what cuda_events.c calls, on a fake CUDA: each call sees whether captures allow it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants these above first */
#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "transport/transport.h"

static char thing; /* every event and stream */

static struct {
    int relaxed, restored; /* relaxed: also the mode to restore */
    int cleared;
    unsigned flags;
    int priority;
    cudaError_t error;
} made;

int net_capture_relax(void)
{
    return ++made.relaxed;
}

void net_capture_restore(int mode)
{
    assert_int_equal(mode, ++made.restored);
}

static cudaError_t make(unsigned flags, int priority)
{
    assert_int_equal(made.relaxed, made.restored + 1);
    made.flags = flags;
    made.priority = priority;
    return made.error;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    *event = (cudaEvent_t)(void *)&thing;
    return make(flags, 0);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    assert_ptr_equal(event, &thing);
    return make(0, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    *stream = (cudaStream_t)(void *)&thing;
    return make(flags, priority);
}

cudaError_t cudaGetLastError(void)
{
    made.cleared++;
    return made.error;
}

/* Another thread's capture in the global mode would forbid these calls, and be invalidated by them. */
static void captures_allow_events_and_streams(void **state)
{
    void *event, *stream;
    (void)state;
    assert_int_equal(net_event_make(&event, true), 0);
    assert_int_equal(made.flags, cudaEventDefault);
    assert_int_equal(net_event_make(&event, false), 0);
    assert_int_equal(made.flags, cudaEventDisableTiming);
    assert_int_equal(net_event_query(event), 0);
    assert_int_equal(net_stream_make(&stream), 0);
    assert_int_equal(made.flags, cudaStreamNonBlocking);
    assert_int_equal(made.priority, -5);
    assert_int_equal(made.restored, 4);

    made.error = cudaErrorNotReady;
    assert_int_equal(net_event_query(event), NET_NOT_READY);
    assert_int_equal(made.restored, 5);
    assert_int_equal(made.cleared, 1); /* the program does not see it */
    event = stream = NULL;
    assert_int_equal(net_event_make(&event, true), cudaErrorNotReady);
    assert_int_equal(net_stream_make(&stream), cudaErrorNotReady);
    assert_null(event);
    assert_null(stream);
    made.error = cudaSuccess;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(captures_allow_events_and_streams)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
