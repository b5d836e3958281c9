/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - groups of experts on GPUs: memory, kernels and launches. */
#include "shim/account/trace.h"
#include "shim/account/track.h"
#include "shim/comm/capture.h"
#include "shim/comm/stop.h"
#include "shim/experts/group.h"

#if SHUNT_HAS_CUDA
#include <cuda_runtime_api.h>

static int preload(const alg_experts_shape_t *shape)
{
    return net_cuda_errno(alg_experts_preload_cuda(shape));
}

static int memory(const shim_experts_group_t *group, void **memory, size_t bytes)
{
    net_visit_t visit;
    int error = net_device_enter(&visit, group->extra->comm->device);
    if (error)
        return error;
    const int mode = net_capture_relax();
    if (group->alloc.alloc_fn)
        error = shim_experts_callers_memory(group, memory, bytes);
    else if (bytes)
        error = (int)cudaMalloc(memory, bytes);
    else
        (void)cudaFree(*memory);
    net_capture_restore(mode);
    if (error)
        (void)cudaGetLastError();
    net_device_leave(&visit);
    return error;
}

static ncclResult_t fail_launch(shim_experts_group_t *group, const char *name, int error)
{
    (void)cudaGetLastError(); /* the program's next query must not see it */
    group->failure = ncclInternalError;
    return shim_experts_refuse(ncclUnhandledCudaError,
                               "%s: CUDA error %d, %s; the group's calls fail from now on; look for an earlier CUDA "
                               "error of the program",
                               name, error, cudaGetErrorString((cudaError_t)error));
}

/* A receiving half is captured if its sending half is. */
static int launch_tracked(const shim_experts_handle_t *handle, const alg_team_t *team, const alg_experts_call_t *call,
                          cudaStream_t stream)
{
    const shim_experts_group_t *group = handle->group;
    const shim_comm_t *comm = group->extra->comm;
    const bool off = atomic_load_explicit(&shim_trace_off, memory_order_relaxed);
    if (handle->captured < 0 || (off && !shim_track_goes_on(handle->captured > 0)))
        return alg_experts_launch_cuda(team, &group->shape, call, stream);
    const shim_track_call_t about = {.device = comm->device,
                                     .life = comm->life,
                                     .captured = handle->captured > 0,
                                     .collective = call->combine ? "combine" : "dispatch",
                                     .algorithm = shim_record_experts,
                                     .comm = atomic_load(&comm->handle),
                                     .rank = (int32_t)comm->rank,
                                     .kind = SHIM_TRACK_EXPERTS,
                                     .blocks = call->blocks,
                                     .threads = ALG_EXPERTS_THREADS,
                                     .parts = 1,
                                     .bytes = shim_experts_bytes(call)};
    const shim_timed_t timed = shim_track_begin(&about, stream);
    const int error = alg_experts_launch_cuda(team, &group->shape, call, stream);
    shim_track_end(timed, &about, stream);
    return error;
}

/* Launches under the communicator's lock, since the process's exit waits for launches that hold it. */
static ncclResult_t run(shim_experts_handle_t *handle, alg_team_t *team, alg_experts_call_t *call, cudaStream_t stream)
{
    shim_experts_group_t *group = handle->group;
    shim_comm_t *comm = group->extra->comm;
    net_visit_t visit;
    pthread_mutex_lock(&comm->lock);
    if (shim_comm_exiting()) {
        pthread_mutex_unlock(&comm->lock);
        return shim_experts_refuse(ncclSystemError, "%s: no calls are made while the process exits",
                                   shim_experts_name(call));
    }
    int error = net_device_enter(&visit, comm->device);
    if (error == 0) {
        shim_experts_begin(handle, team, call, stream);
        error = launch_tracked(handle, team, call, stream);
        net_device_leave(&visit);
    }
    pthread_mutex_unlock(&comm->lock);
    return error == 0 ? ncclSuccess : fail_launch(group, shim_experts_name(call), error);
}

static int32_t captured(const void *stream)
{
    shim_capture_t capture;
    return shim_capture_query((void *)(uintptr_t)stream, &capture) == 0 ? capture.id != 0 : -1;
}

const shim_experts_ops_t shim_experts_cuda = {.threads = ALG_EXPERTS_THREADS,
                                              .enter = net_scope_enter,
                                              .preload = preload,
                                              .memory = memory,
                                              .run = run,
                                              .captured = captured};
#else
const shim_experts_ops_t shim_experts_cuda; /* no communicator is attached */
#endif
