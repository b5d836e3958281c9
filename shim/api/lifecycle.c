/*
 * lifecycle.c - the entry points that make, ask and end communicators.
 *
 * On GPUs each one publishes or detaches Shunt's state and forwards the call
 * with the application's own pointers; what the real NCCL answers is the answer.
 * No lock is held while a call is forwarded, for it may wait for other ranks, or
 * be the abort that ends such a wait. In host mode host.c has the bodies.
 *
 * A destroy must leave nothing of ours behind the handle, whose address the real
 * NCCL may give to the next communicator. Its scratch goes back to the pool only
 * if it ended in good order: our own kernels have ended (drained), none was
 * aborted or timed out. Peers' kernels cannot touch it any more: a kernel ends
 * only after it has got everything that its peers sent in that call, so once
 * ours have ended, no store of theirs is on its way; what still runs there polls
 * its own scratch. And nobody re-arms a pooled scratch before all ranks have
 * said, in the next set-up, that theirs is idle too.
 */
#include <stdlib.h>
#include <sys/random.h>

#include "shim/account/trace.h"
#include "shim/base/device.h"
#include "shim/base/last_error.h"
#include "shim/base/settings.h"
#include "shim/call/check.h"
#include "shim/call/group.h"
#include "shim/comm/drain.h"
#include "shim/comm/failure.h"
#include "shim/comm/reap.h"
#include "shim/comm/shrink.h"
#include "shim/host/host.h"
#include "shim/real/real.h"
#include "shim/setup/attach.h"
#include "shim/setup/config.h"

enum { ABORT_DRAIN_MS = 2000, SPLIT_TAG = 's' };

_Static_assert(sizeof(ncclUniqueId) == NCCL_UNIQUE_ID_BYTES, "a unique id is 128 bytes");

/* The real NCCL, for a call that cannot do without. */
static const shim_real_t *real_nccl(void)
{
    const shim_real_t *real = shim_real();
    if (!real)
        shim_set_last_error("%s", shim_real_failure());
    return real;
}

static bool is_refused(ncclResult_t result)
{
    return result != ncclSuccess && result != ncclInProgress;
}

/* A forwarded call that fails is the real NCCL's to explain: ncclGetLastError asks it again. */
static ncclResult_t answer(ncclResult_t result)
{
    if (is_refused(result))
        shim_set_last_error("%s", "");
    return result;
}

/* ---- Making ------------------------------------------------------------------------ */

static net_key_t key_of_ids(const ncclUniqueId *ids, int id_count, int nranks)
{
    struct {
        net_key_t ids;
        int64_t nranks;
    } whole = {net_key_hash(ids, (size_t)id_count * sizeof(*ids)), nranks};
    return net_key_hash(&whole, sizeof(whole));
}

static net_key_t key_of_split(const net_key_t *parent, unsigned number, int color)
{
    struct {
        net_key_t parent;
        int64_t tag, number, color;
    } whole = {*parent, SPLIT_TAG, number, color};
    return net_key_hash(&whole, sizeof(whole));
}

/* NULL where there is nothing for Shunt: switched off, one rank, arguments that NCCL will refuse, or two NCCLs. */
static shim_setup_t *publish_rank(ncclComm_t *newcomm, int nranks, const ncclUniqueId *ids, int id_count, int rank,
                                  const ncclConfig_t *config)
{
    shim_comm_reap();
    if (!shim_settings()->enable || !newcomm || !ids || id_count < 1 || nranks < 2 || rank < 0 || rank >= nranks ||
        id_count > nranks || !shim_real_alone(shim_real()))
        return NULL;
    bool blocking = shim_config_blocking(config, true);
    const shim_setup_request_t request = {.key = key_of_ids(ids, id_count, nranks),
                                          .newcomm = newcomm,
                                          .wait = blocking,
                                          .grouped = shim_group_depth() > 0,
                                          .blocking = blocking,
                                          .publish = nranks <= ALG_MAX_RANKS,
                                          .max_blocks = shim_config_max_blocks(config, 0),
                                          .launch_order = shim_config_launch_order(config, false),
                                          .graph_mixing = shim_config_graph_mixing(config, true),
                                          .split_share = shim_config_split_share(config, false),
                                          .shrink_share = shim_config_shrink_share(config, false),
                                          .rank = rank,
                                          .nranks = nranks};
    return shim_attach_publish(&request);
}

SHIM_PUBLIC(ncclGetUniqueId);
ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
    if (shim_host_mode())
        return shim_host_get_unique_id(uniqueId);
    const shim_real_t *real = real_nccl();
    return real ? answer(real->ncclGetUniqueId(uniqueId)) : ncclSystemError;
}

SHIM_PUBLIC(ncclCommInitRank);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    if (shim_host_mode())
        return shim_group_check(shim_host_init_rank(comm, nranks, &commId, 1, rank, NULL));
    const shim_real_t *real = real_nccl();
    if (!real)
        return ncclSystemError;
    shim_setup_t *setup = publish_rank(comm, nranks, &commId, 1, rank, NULL);
    return shim_attach_forwarded(&setup, 1, answer(real->ncclCommInitRank(comm, nranks, commId, rank)));
}

SHIM_PUBLIC(ncclCommInitRankConfig);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config)
{
    if (shim_host_mode())
        return shim_group_check(shim_host_init_rank(comm, nranks, &commId, 1, rank, config));
    const shim_real_t *real = real_nccl();
    if (!real)
        return ncclSystemError;
    shim_setup_t *setup = publish_rank(comm, nranks, &commId, 1, rank, config);
    return shim_attach_forwarded(&setup, 1, answer(real->ncclCommInitRankConfig(comm, nranks, commId, rank, config)));
}

SHIM_PUBLIC(ncclCommInitRankScalable);
ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
                                      ncclConfig_t *config)
{
    if (shim_host_mode())
        return shim_group_check(shim_host_init_rank(newcomm, nranks, commIds, nId, myrank, config));
    const shim_real_t *real = real_nccl();
    if (!real)
        return ncclSystemError;
    shim_setup_t *setup = publish_rank(newcomm, nranks, commIds, nId, myrank, config);
    return shim_attach_forwarded(&setup, 1,
                                 answer(real->ncclCommInitRankScalable(newcomm, nranks, myrank, nId, commIds, config)));
}

/* All ranks are here, so the key is a secret of this process. */
static uint32_t publish_all(ncclComm_t *comms, int count, shim_setup_t **setups)
{
    ncclUniqueId id;
    if (getrandom(&id, sizeof(id), GRND_NONBLOCK) != sizeof(id))
        return 0;
    for (int rank = 0; rank < count; rank++)
        setups[rank] = publish_rank(comms + rank, count, &id, 1, rank, NULL);
    return (uint32_t)count;
}

SHIM_PUBLIC(ncclCommInitAll);
ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    if (shim_host_mode())
        return shim_group_check(shim_host_init_all(comm, ndev, devlist));
    const shim_real_t *real = real_nccl();
    if (!real)
        return ncclSystemError;
    shim_setup_t **setups = comm && ndev > 1 ? calloc((size_t)ndev, sizeof(setups[0])) : NULL;
    uint32_t count = setups ? publish_all(comm, ndev, setups) : 0;
    ncclResult_t result = shim_attach_forwarded(setups, count, answer(real->ncclCommInitAll(comm, ndev, devlist)));
    free(setups);
    return result;
}

static shim_setup_t *publish_child(shim_comm_t *parent, ncclComm_t handle, net_key_t key, bool shared,
                                   ncclComm_t *newcomm, const ncclConfig_t *config)
{
    shim_comm_reap();
    const shim_setup_request_t request = {.key = key,
                                          .newcomm = newcomm,
                                          .parent = handle,
                                          .wait = parent->blocking,
                                          .grouped = shim_group_depth() > 0,
                                          .blocking = shim_config_blocking(config, parent->blocking),
                                          .publish = true,
                                          .max_blocks = shim_config_max_blocks(config, parent->max_blocks),
                                          .launch_order = shim_config_launch_order(config, parent->launch_order),
                                          .graph_mixing = shim_config_graph_mixing(config, parent->graph_mixing),
                                          .split_share = shim_config_split_share(config, parent->split_share),
                                          .shrink_share = shim_config_shrink_share(config, parent->shrink_share),
                                          .family = shared ? parent->family : 0,
                                          .rank = -1,
                                          .nranks = -1};
    return shim_attach_publish(&request);
}

SHIM_PUBLIC(ncclCommSplit);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
    if (shim_host_mode())
        return shim_group_check(shim_host_split(comm, color, key, newcomm, config));
    const shim_real_t *real = real_nccl();
    if (!real)
        return ncclSystemError;
    shim_comm_t *parent = shim_comm_acquire(comm);
    if (!parent)
        return answer(real->ncclCommSplit(comm, color, key, newcomm, config));
    unsigned number = atomic_fetch_add(&parent->splits, 1);
    shim_setup_t *setup = newcomm && color >= 0 ? publish_child(parent, comm, key_of_split(&parent->key, number, color),
                                                                parent->split_share, newcomm, config)
                                                : NULL;
    ncclResult_t result = answer(real->ncclCommSplit(comm, color, key, newcomm, config));
    unsigned taken = number + 1;
    if (is_refused(result)) /* the other ranks wait for this one under the same number */
        atomic_compare_exchange_strong(&parent->splits, &taken, number);
    shim_comm_release(parent);
    return shim_attach_forwarded(&setup, 1, result);
}

/* ---- Ending ------------------------------------------------------------------------ */

/* Take no more calls. Waits for a launch that is under way, but not for its kernel. */
static void kill_state(shim_comm_t *comm)
{
    pthread_mutex_lock(&comm->lock);
    atomic_store(&comm->phase, SHIM_COMM_DEAD);
    pthread_mutex_unlock(&comm->lock);
}

/* No lock: the thread that launches may hold it and wait. */
static void stop_one(shim_comm_t *comm)
{
    int phase = atomic_exchange(&comm->phase, SHIM_COMM_DEAD);
    /* Scratch is set before the phase says ATTACHED, and stays as long as a reference does. */
    if (phase == SHIM_COMM_ATTACHED || phase == SHIM_COMM_DEAD) {
        if (comm->scratch)
            __atomic_store_n(&alg_scratch_control(comm->scratch)->abort, 1, __ATOMIC_RELEASE);
    }
}

static void stop_relative(shim_comm_t *comm, void *context)
{
    const shim_comm_t *stopped = context;
    if (comm != stopped && comm->family == stopped->family)
        stop_one(comm);
}

/* Let our kernels leave their waits now, those of communicators that share resources with this one too. */
static void stop_kernels(shim_comm_t *comm)
{
    stop_one(comm);
    shim_comm_each(stop_relative, comm);
}

/* They were told to stop. As of NCCL's own none runs any more when a call that blocks returns: the program may free
 * its buffers. */
static void let_kernels_end(shim_comm_t *comm)
{
    if (comm->blocking && shim_group_depth() == 0)
        shim_drain(comm, ABORT_DRAIN_MS);
}

/* Nothing has gone wrong on this rank. */
static bool in_good_order(shim_comm_t *comm)
{
    if (!comm->scratch || atomic_load(&comm->async_error) != ncclSuccess)
        return false;
    alg_control_t *control = alg_scratch_control(comm->scratch);
    return __atomic_load_n(&control->abort, __ATOMIC_ACQUIRE) == 0 &&
           __atomic_load_n(&control->status, __ATOMIC_ACQUIRE) == ALG_STATUS_OK;
}

/* Out of the table for good, if the state is still there. */
static void drop_from_table(shim_comm_t *comm, ncclComm_t handle)
{
    if (shim_comm_find(handle) == comm)
        shim_comm_release(shim_comm_remove(handle));
}

SHIM_PUBLIC(ncclCommShrink);
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
                            ncclConfig_t *config, int shrinkFlags)
{
    if (shim_host_mode())
        return shim_group_check(
            shim_host_shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
    const shim_real_t *real = real_nccl();
    if (!real)
        return ncclSystemError;
    shim_comm_t *parent = shim_real_symbol(real, "ncclCommShrink") ? shim_comm_acquire(comm) : NULL;
    if (!parent)
        return answer(real->ncclCommShrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
    if (shrinkFlags & NCCL_SHRINK_ABORT)
        stop_kernels(parent);
    net_key_t key;
    shim_shrink_t *shrink = shim_shrink_begin(parent, excludeRanksList, excludeRanksCount, &key);
    bool shared = parent->shrink_share && !(shrinkFlags & NCCL_SHRINK_ABORT);
    shim_setup_t *setup = newcomm && shrink ? publish_child(parent, comm, key, shared, newcomm, config) : NULL;
    ncclResult_t result =
        answer(real->ncclCommShrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
    if (is_refused(result))
        shim_shrink_take_back(shrink);
    if (shrinkFlags & NCCL_SHRINK_ABORT)
        let_kernels_end(parent);
    shim_comm_release(parent);
    return shim_attach_forwarded(&setup, 1, result);
}

SHIM_PUBLIC(ncclCommFinalize);
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (shim_host_mode())
        return shim_group_check(shim_host_finalize(comm));
    const shim_real_t *real = real_nccl();
    if (!real)
        return ncclSystemError;
    shim_comm_t *state = shim_comm_acquire(comm);
    /* Finalize flushes what was issued. One that must not block leaves that to ncclCommGetAsyncError. */
    if (state && state->blocking && shim_group_depth() == 0)
        shim_drain(state, 0);
    ncclResult_t result = answer(real->ncclCommFinalize(comm));
    if (state && (result == ncclSuccess || result == ncclInProgress)) {
        shim_attach_cancel(comm);
        kill_state(state);
        atomic_store(&state->finalized, true);
    }
    shim_comm_release(state);
    return result;
}

/* NCCL refused (the communicator is not ready) and the handle lives on: so does its state, or this
 * rank would route calls in another way than its peers. */
static void revive(shim_comm_t *comm, ncclComm_t handle, int phase)
{
    if (shim_comm_find(handle))
        return;
    atomic_store(&comm->reusable, false);
    int dead = SHIM_COMM_DEAD;
    atomic_compare_exchange_strong(&comm->phase, &dead, phase);
    shim_comm_insert(comm);
}

SHIM_PUBLIC(ncclCommDestroy);
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    shim_trace_flush(); /* the process may end without its exit handlers */
    if (shim_host_mode())
        return shim_group_check(shim_host_destroy(comm));
    const shim_real_t *real = real_nccl();
    if (!real)
        return ncclSystemError;
    shim_attach_cancel(comm);
    shim_comm_t *state = shim_comm_acquire(comm);
    if (!state)
        return answer(real->ncclCommDestroy(comm));
    bool grouped = shim_group_depth() > 0;
    int phase = atomic_load(&state->phase);
    kill_state(state);
    /* Still in the table while it drains, so that an abort from another thread can end that. */
    bool drained = grouped || shim_drain(state, 0);
    atomic_store(&state->reusable, drained && in_good_order(state));
    drop_from_table(state, comm);
    ncclResult_t result = answer(real->ncclCommDestroy(comm));
    if (result == ncclInvalidArgument)
        revive(state, comm, phase);
    if (grouped && result == ncclSuccess)
        shim_attach_defer_release(state);
    else if (drained)
        shim_comm_release(state);
    else
        shim_comm_release_later(state); /* its kernels may still run */
    shim_comm_reap();
    return result;
}

SHIM_PUBLIC(ncclCommAbort);
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (shim_host_mode())
        return shim_group_check(shim_host_abort(comm));
    const shim_real_t *real = real_nccl();
    if (!real)
        return ncclSystemError;
    shim_comm_t *state = shim_comm_acquire(comm);
    if (state)
        stop_kernels(state);
    shim_attach_cancel(comm);
    if (!state)
        return answer(real->ncclCommAbort(comm));
    drop_from_table(state, comm);
    shim_group_let_polls_end(state);
    ncclResult_t result = answer(real->ncclCommAbort(comm));
    if (shim_group_depth() > 0)
        shim_attach_defer_release(state);
    else if (shim_drain(state, ABORT_DRAIN_MS))
        shim_comm_release(state);
    else
        shim_comm_release_later(state);
    shim_comm_reap();
    return result;
}

static void give_up(shim_comm_t *comm, ncclComm_t handle)
{
    stop_kernels(comm);
    shim_attach_cancel(handle);
}

SHIM_PUBLIC(ncclCommRevoke);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    if (shim_host_mode())
        return shim_group_check(shim_host_revoke(comm, revokeFlags));
    const shim_real_t *real = real_nccl();
    if (!real)
        return ncclSystemError;
    /* Only what NCCL will do too. The state stays, for the key of a shrink. */
    if (revokeFlags != 0 || !shim_real_symbol(real, "ncclCommRevoke"))
        return answer(real->ncclCommRevoke(comm, revokeFlags));
    shim_comm_t *state = shim_comm_acquire(comm);
    /* NCCL refuses to revoke what was finalized or revoked before: our kernels go on then. It cannot simply be asked
     * first: a revoke waits for NCCL's own kernels, which may stand behind one of ours that waits. */
    bool refused = state && (atomic_load(&state->finalized) || atomic_load(&state->revoked));
    if (state && !refused)
        give_up(state, comm);
    ncclResult_t result = answer(real->ncclCommRevoke(comm, revokeFlags));
    if (state && !is_refused(result)) {
        if (refused)
            give_up(state, comm);
        atomic_store(&state->revoked, true);
        let_kernels_end(state);
    }
    shim_comm_release(state);
    return result;
}

/* ---- Asking ------------------------------------------------------------------------ */

/* What went wrong in our own kernels. */
static ncclResult_t own_error(shim_comm_t *comm)
{
    ncclResult_t error = (ncclResult_t)atomic_load(&comm->async_error);
    int phase = atomic_load(&comm->phase);
    if (error != ncclSuccess || phase != SHIM_COMM_ATTACHED)
        return error;
    uint32_t status = __atomic_load_n(&alg_scratch_control(comm->scratch)->status, __ATOMIC_ACQUIRE);
    if (status == ALG_STATUS_OK)
        return ncclSuccess;
    shim_comm_fail(comm, ncclRemoteError, shim_comm_status_text(status));
    return ncclRemoteError;
}

SHIM_PUBLIC(ncclCommGetAsyncError);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    if (shim_host_mode())
        return shim_host_async_error(comm, asyncError);
    const shim_real_t *real = real_nccl();
    if (!real)
        return ncclSystemError;
    ncclResult_t result = real->ncclCommGetAsyncError(comm, asyncError);
    if (result != ncclSuccess || !asyncError)
        return result;
    bool ready = *asyncError == ncclSuccess;
    if (!ready && *asyncError != ncclInProgress)
        shim_attach_cancel(comm);
    /* Other ranks of this thread may wait for the steps of this poll, whatever it asked for. */
    bool pending = shim_attach_poll(ready ? comm : NULL);
    if (!ready)
        return ncclSuccess;
    if (pending) {
        *asyncError = ncclInProgress;
        return ncclSuccess;
    }
    shim_comm_t *state = shim_comm_acquire(comm);
    if (state) {
        *asyncError = own_error(state);
        if (*asyncError == ncclSuccess && atomic_load(&state->finalized) && !shim_drained(state))
            *asyncError = ncclInProgress;
        shim_comm_release(state);
    }
    return ncclSuccess;
}

typedef enum { FACT_COUNT, FACT_DEVICE, FACT_RANK } fact_t;

static ncclResult_t host_fact(ncclComm_t handle, int *value, fact_t fact, const char *function)
{
    ncclResult_t result = shim_host_check_comm(handle, function);
    if (result != ncclSuccess)
        return result;
    if (!value) {
        shim_set_last_error("%s: the result's pointer is NULL", function);
        return ncclInvalidArgument;
    }
    shim_comm_t *comm = shim_comm_acquire(handle);
    if (!comm)
        return ncclInvalidArgument;
    *value = fact == FACT_COUNT ? (int)comm->nranks : fact == FACT_RANK ? (int)comm->rank : comm->device;
    shim_comm_release(comm);
    return ncclSuccess;
}

SHIM_PUBLIC(ncclCommCount);
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    if (shim_host_mode())
        return host_fact(comm, count, FACT_COUNT, "ncclCommCount");
    const shim_real_t *real = real_nccl();
    return real ? answer(real->ncclCommCount(comm, count)) : ncclSystemError;
}

SHIM_PUBLIC(ncclCommCuDevice);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    if (shim_host_mode())
        return host_fact(comm, device, FACT_DEVICE, "ncclCommCuDevice");
    const shim_real_t *real = real_nccl();
    return real ? answer(real->ncclCommCuDevice(comm, device)) : ncclSystemError;
}

SHIM_PUBLIC(ncclCommUserRank);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    if (shim_host_mode())
        return host_fact(comm, rank, FACT_RANK, "ncclCommUserRank");
    const shim_real_t *real = real_nccl();
    return real ? answer(real->ncclCommUserRank(comm, rank)) : ncclSystemError;
}
