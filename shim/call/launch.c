/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/call/launch.h"

#include "shim/account/trace.h"
#include "shim/account/track.h"
#include "shim/base/last_error.h"
#include "shim/base/log.h"
#include "shim/base/settings.h"
#include "shim/comm/order.h"
#include "shim/comm/share.h"
#include "shim/comm/stop.h"

#if SHUNT_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

ncclResult_t shim_launch_failed(int error, const char *what)
{
#if SHUNT_HAS_CUDA
    (void)cudaGetLastError();
    const char *text = cudaGetErrorString((cudaError_t)error);
#else
    const char *text = "no CUDA in this build";
#endif
    shim_set_last_error("%s: CUDA error %d, %s", what, error, text);
    shim_warn("%s: CUDA error %d, %s; the call fails; look for an earlier CUDA error of the program", what, error,
              text);
    return ncclUnhandledCudaError;
}

alg_team_t shim_launch_team(const shim_comm_t *comm, const alg_algorithm_t *algorithm, const alg_call_t *call)
{
    const uint64_t bytes = alg_call_bytes(call, comm->nranks);
    return alg_scratch_team_for(comm->scratch, alg_piece_of(alg_scratch_map(comm->scratch), algorithm, bytes));
}

static shim_track_call_t tracked(const shim_launch_t *launch, const alg_call_t *call)
{
    const shim_comm_t *comm = launch->comm;
    return (shim_track_call_t){.device = comm->device,
                               .life = comm->life,
                               .captured = launch->capture->id != 0,
                               .collective = alg_collective_name(call->collective),
                               .algorithm = launch->algorithm->name,
                               .comm = atomic_load(&comm->handle),
                               .rank = (int32_t)comm->rank,
                               .kind = call->collective == ALG_SEND_RECV ? SHIM_TRACK_MESSAGES : SHIM_TRACK_COLLECTIVES,
                               .blocks = call->blocks,
                               .threads = call->threads,
                               .parts = call->message_count > 0 ? call->message_count
                                        : call->part_count > 0  ? call->part_count
                                                                : 1,
                               .bytes = alg_call_bytes(call, comm->nranks)};
}

static int launch_tracked(const shim_launch_t *launch, const alg_team_t *team, const alg_call_t *call)
{
    if (atomic_load_explicit(&shim_trace_off, memory_order_relaxed) && !shim_track_goes_on(launch->capture->id != 0))
        return launch->algorithm->launch_cuda(team, call, launch->stream);
    const shim_track_call_t about = tracked(launch, call);
    const shim_timed_t timed = shim_track_begin(&about, launch->stream);
    const int error = launch->algorithm->launch_cuda(team, call, launch->stream);
    shim_track_end(timed, &about, launch->stream);
    return error;
}

/* Returns a cudaError_t. */
static int launch_in_order(const shim_launch_t *launch)
{
    shim_comm_t *comm = launch->comm;
    const bool captured = launch->capture->id != 0;
    alg_call_t granted = *launch->call;
    alg_team_t team = shim_launch_team(comm, launch->algorithm, launch->call);
    int error = launch->joined ? 0 : shim_order_enter(comm, launch->stream, launch->capture);
    if (error != 0)
        return error;
    shim_ahead_t *ahead = captured ? shim_captured_ahead(comm, launch->capture) : NULL;
    const shim_ask_t ask = {.algorithm = launch->algorithm,
                            .stream = captured ? NULL : launch->stream,
                            .stream_id = launch->capture->stream_id,
                            .beside = launch->beside,
                            .ahead = ahead};
    if (!shim_share_grant(comm, &granted, &ask))
        team.dependent_launch = 0;
    team.limit = alg_limit(shim_setting_timeout_ns(0), granted.id);
    shim_nodes_call(comm->nodes, &team, &granted, captured);
    error = launch_tracked(launch, &team, &granted);
    /* also after a failure: some kernels may have launched */
    const int left = launch->joined ? 0 : shim_order_leave(comm, launch->stream, launch->capture, false);
    if (!launch->joined)
        shim_share_launched(comm, false);
    return error != 0 ? error : left;
}

ncclResult_t shim_launch(const shim_launch_t *launch)
{
    shim_comm_t *comm = launch->comm;
    const char *name = launch->algorithm->name;
    /* A thread that ends a communicator sets its phase, then takes this lock: it waits for every launch that saw
     * ATTACHED. */
    if (atomic_load(&comm->phase) != SHIM_COMM_ATTACHED) {
        shim_set_last_error("%s: the communicator was aborted or destroyed during the call", name);
        return ncclInvalidUsage;
    }
    if (shim_comm_exiting()) {
        shim_set_last_error("%s: no calls are made while the process exits", name);
        return ncclSystemError;
    }
    ncclResult_t before = (ncclResult_t)atomic_load_explicit(&comm->async_error, memory_order_relaxed);
    if (before != ncclSuccess) {
        shim_set_last_error("%s: the communicator has already failed; abort it", name);
        return before;
    }
    int error = launch_in_order(launch);
    if (error == 0)
        return ncclSuccess;
    /* Otherwise the peers' call would pair with this rank's next call and add unrelated data, or the next call would
     * not be ordered after this one. */
    atomic_store(&comm->async_error, ncclUnhandledCudaError);
    return shim_launch_failed(error, name);
}
