/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_events.c - events and streams, made and asked while other threads may capture. */
#include <cuda_runtime_api.h>

#include "transport/transport.h"

_Static_assert((int)NET_NOT_READY == (int)cudaErrorNotReady, "the runtime's number");

static int cleared(cudaError_t error)
{
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return (int)error;
}

int net_event_query(void *event)
{
    const int mode = net_capture_relax();
    const int error = cleared(cudaEventQuery(event));
    net_capture_restore(mode);
    return error;
}

int net_event_make(void **event, bool timed)
{
    cudaEvent_t made;
    const int mode = net_capture_relax();
    const int error = cleared(cudaEventCreateWithFlags(&made, timed ? cudaEventDefault : cudaEventDisableTiming));
    net_capture_restore(mode);
    if (error == cudaSuccess)
        *event = made;
    return error;
}

int net_stream_make(void **stream)
{
    cudaStream_t made;
    int least = 0, greatest = 0;
    const int mode = net_capture_relax();
    int error = cleared(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    if (error == cudaSuccess)
        error = cleared(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest));
    net_capture_restore(mode);
    if (error == cudaSuccess)
        *stream = made;
    return error;
}
