/*
 * host.c - host mode: what the real NCCL does elsewhere, for communicators on
 * the host device.
 *
 * Ids, argument checks in NCCL's order, init, split, shrink and the end of a
 * communicator. Set-up is the same as on GPUs (attach.c), but nobody else finds
 * the ranks: the first stage waits for them, with a limit, and a failure is the
 * caller's error. A handle is the address of Shunt's state; whether it is valid
 * is asked of the table, so a destroyed one is recognised and never read.
 */
#include "shim/host/host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "shim/base/log.h"
#include "shim/call/group.h"
#include "shim/comm/redop.h"
#include "shim/setup/attach.h"
#include "shim/setup/config.h"
#include "shim/setup/hosts.h"

enum { SPLIT_TAG = 's' };
static const char id_magic[8] = "shuntid";
static const char no_comm[] = "this is no communicator, or it was destroyed";

static ncclResult_t invalid(const char *function, const char *text)
{
    shim_set_last_error("%s: %s", function, text);
    return ncclInvalidArgument;
}

void shim_host_fail(shim_comm_t *comm, ncclResult_t result, const char *text)
{
    int fine = ncclSuccess;
    if (!atomic_compare_exchange_strong(&comm->async_error, &fine, result))
        return;
    atomic_store(&comm->phase, SHIM_COMM_DEAD);
    atomic_store(&comm->reusable, false);
    shim_set_last_error("rank %u of %u: %s", comm->rank, comm->nranks, text);
    shim_warn("communicator %p has failed: rank %u of %u: %s", (void *)atomic_load(&comm->handle), comm->rank,
              comm->nranks, text);
}

/* ---- Checks ------------------------------------------------------------------------ */

/* The state of a valid handle, with a reference; else NULL, and *result says why. */
static shim_comm_t *acquire(ncclComm_t handle, const char *function, ncclResult_t *result)
{
    shim_comm_t *comm = handle ? shim_comm_acquire(handle) : NULL;
    if (!comm)
        *result = invalid(function, handle ? no_comm : "comm is NULL");
    return comm;
}

/* The stored error, as every call but the end of a communicator reports it. */
static ncclResult_t check_ready(shim_comm_t *comm, const char *function)
{
    ncclResult_t error = (ncclResult_t)atomic_load(&comm->async_error);
    if (error != ncclSuccess) {
        shim_set_last_error("%s: the communicator has failed before", function);
        return error;
    }
    if (atomic_load(&comm->phase) == SHIM_COMM_JOINING)
        return invalid(function, "the communicator is not ready: its group has not ended");
    return ncclSuccess;
}

ncclResult_t shim_host_check_comm(ncclComm_t handle, const char *function)
{
    ncclResult_t result = ncclSuccess;
    shim_comm_t *comm = acquire(handle, function, &result);
    if (!comm)
        return result;
    result = check_ready(comm, function);
    shim_comm_release(comm);
    return result;
}

static ncclResult_t check_op(shim_comm_t *comm, size_t count, ncclDataType_t type, ncclRedOp_t op, const char *function)
{
    shim_redop_t redop;
    if ((int)op >= 0 && op < ncclNumOps)
        return ncclSuccess;
    if ((int)op < 0 || !shim_redop_find(comm, op, &redop))
        return invalid(function, "this communicator has no such operator");
    bool fits = count == 0 || redop.type == type; /* NCCL does not look that far into an empty call */
    return fits ? ncclSuccess : invalid(function, "the operator was made for another datatype");
}

static ncclResult_t check_arguments(const shim_call_t *call)
{
    const char *function = call->function;
    shim_comm_t *comm = call->comm;
    const alg_call_t *alg = &call->alg;
    if (atomic_load(&comm->revoked)) {
        shim_set_last_error("%s: the communicator was revoked", function);
        return ncclInvalidUsage;
    }
    ncclResult_t result = check_ready(comm, function);
    if (result != ncclSuccess)
        return result;
    if (atomic_load(&comm->finalized)) {
        shim_set_last_error("%s: the communicator was finalized", function);
        return ncclInvalidUsage;
    }
    if (alg->root >= comm->nranks) {
        shim_set_last_error("%s: root %d is not in 0..%u", function, (int)alg->root, comm->nranks - 1);
        return ncclInvalidArgument;
    }
    if ((unsigned)alg->type >= ALG_TYPE_COUNT) {
        shim_set_last_error("%s: %d is no datatype", function, (int)alg->type);
        return ncclInvalidArgument;
    }
    if (call->collective < ALG_COLLECTIVE_COUNT && alg_collective_reduces((alg_collective_t)call->collective))
        result = check_op(comm, alg->count, shim_call_type(call), call->op, function);
    if (result != ncclSuccess)
        return result;
    return alg->count > 0 && !shim_call_has_buffers(call) ? invalid(function, "a buffer is NULL") : ncclSuccess;
}

ncclResult_t shim_host_check_call(const shim_call_t *call)
{
    if (!call->comm)
        return invalid(call->function, call->handle ? no_comm : "comm is NULL");
    return check_arguments(call);
}

/* ---- A call ------------------------------------------------------------------------ */

const char *shim_host_status_text(uint32_t status)
{
    switch (status) {
    case ALG_STATUS_TIMEOUT:
        return "a call waited longer than SHUNT_TIMEOUT_MS for its peers";
    case ALG_STATUS_PEER_LEFT:
        return "a peer left a call before its end";
    default:
        return "a peer's process is gone";
    }
}

static ncclResult_t result_of(shim_comm_t *comm, int status)
{
    switch (status) {
    case ALG_STATUS_OK:
        return ncclSuccess;
    case ALG_STATUS_TIMEOUT:
    case ALG_STATUS_PEER_DEAD:
    case ALG_STATUS_PEER_LEFT:
        shim_host_fail(comm, ncclRemoteError, shim_host_status_text((uint32_t)status));
        return ncclRemoteError;
    default:
        atomic_store(&comm->reusable, false);
        shim_set_last_error("the communicator was aborted or revoked during a call");
        return ncclSystemError;
    }
}

ncclResult_t shim_host_run(const shim_call_t *call)
{
    shim_comm_t *comm = call->comm;
    ncclResult_t result = ncclSystemError;
    pthread_mutex_lock(&comm->lock);
    if (atomic_load(&comm->phase) == SHIM_COMM_ATTACHED) {
        atomic_fetch_add(&comm->calls_begun, 1);
        int status = call->algorithm->launch_host(shim_comm_team(comm), &call->alg);
        atomic_fetch_add(&comm->calls_ended, 1);
        result = result_of(comm, status);
    } else {
        shim_set_last_error("the communicator has failed or ended before its call could run");
        int error = atomic_load(&comm->async_error);
        result = error != ncclSuccess ? (ncclResult_t)error : ncclSystemError;
    }
    pthread_mutex_unlock(&comm->lock);
    return result;
}

/* ---- Making ------------------------------------------------------------------------ */

static ncclResult_t make_id(ncclUniqueId *id)
{
    memset(id, 0, sizeof(*id));
    memcpy(id->internal, id_magic, sizeof(id_magic));
    size_t size = sizeof(id->internal) - sizeof(id_magic);
    if (getrandom(id->internal + sizeof(id_magic), size, 0) != (ssize_t)size) {
        shim_set_last_error("ncclGetUniqueId: the system gives no random bytes: %s", strerror(errno));
        return ncclSystemError;
    }
    return ncclSuccess;
}

ncclResult_t shim_host_get_unique_id(ncclUniqueId *id)
{
    if (!id)
        return invalid("ncclGetUniqueId", "uniqueId is NULL");
    ncclResult_t result = make_id(id);
    if (result == ncclSuccess)
        shim_hosts_invite(id);
    return result;
}

/* Where the application may look from another thread while the call is under way. */
static void clear(ncclComm_t *newcomm)
{
    __atomic_store_n(newcomm, NULL, __ATOMIC_RELEASE);
}

static ncclResult_t too_many(const char *function, int nranks)
{
    shim_set_last_error("%s: %d ranks; the host device serves at most %d", function, nranks, ALG_MAX_RANKS);
    return ncclInvalidUsage;
}

static ncclResult_t no_memory(const char *function)
{
    shim_set_last_error("%s: out of memory", function);
    return ncclSystemError;
}

static shim_setup_request_t request_for(net_key_t key, ncclComm_t *newcomm, const ncclConfig_t *config)
{
    bool blocking = shim_config_blocking(config, true);
    return (shim_setup_request_t){.key = key,
                                  .newcomm = newcomm,
                                  .host = true,
                                  .wait = blocking,
                                  .blocking = blocking,
                                  .publish = true,
                                  .max_blocks = shim_config_max_blocks(config, 0)};
}

static shim_setup_t *publish_rank(ncclComm_t *newcomm, int nranks, const ncclUniqueId *ids, int id_count, int rank,
                                  const ncclConfig_t *config)
{
    struct {
        net_key_t ids;
        int64_t nranks;
    } whole = {net_key_hash(ids, (size_t)id_count * sizeof(*ids)), nranks};
    shim_setup_request_t request = request_for(net_key_hash(&whole, sizeof(whole)), newcomm, config);
    request.rank = rank;
    request.nranks = nranks;
    request.invitation = shim_hosts_invitation(ids, id_count);
    return shim_attach_publish(&request);
}

ncclResult_t shim_host_init_rank(ncclComm_t *newcomm, int nranks, const ncclUniqueId *ids, int id_count, int rank,
                                 const ncclConfig_t *config)
{
    static const char function[] = "ncclCommInitRank";
    const char *fault = shim_config_fault(config);
    shim_comm_reap();
    if (id_count < 1 || id_count > nranks || !ids)
        return invalid(function, "the number of ids is not in 1..nranks");
    if (!newcomm)
        return invalid(function, "newcomm is NULL");
    if (nranks < 1 || rank < 0 || rank >= nranks) {
        shim_set_last_error("%s: rank %d of %d is no rank", function, rank, nranks);
        return ncclInvalidArgument;
    }
    clear(newcomm);
    if (fault)
        return invalid(function, fault);
    if (nranks > ALG_MAX_RANKS)
        return too_many(function, nranks);
    shim_setup_t *setup = publish_rank(newcomm, nranks, ids, id_count, rank, config);
    return setup ? shim_attach_forwarded(&setup, 1, ncclSuccess) : no_memory(function);
}

static bool has_duplicate(const int *devices, int count)
{
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++) {
            if (devices[i] == devices[j])
                return true;
        }
    }
    return false;
}

ncclResult_t shim_host_init_all(ncclComm_t *comms, int count, const int *devices)
{
    static const char function[] = "ncclCommInitAll";
    shim_setup_t *setups[ALG_MAX_RANKS];
    ncclUniqueId id;
    shim_comm_reap();
    if (!comms)
        return invalid(function, "comm is NULL");
    if (count < 0)
        return invalid(function, "ndev is negative");
    if (count > ALG_MAX_RANKS)
        return too_many(function, count);
    for (int i = 0; devices && i < count; i++) {
        if (devices[i] < 0)
            return invalid(function, "a device is negative");
    }
    if (devices && has_duplicate(devices, count)) {
        shim_set_last_error("%s: a device is listed twice", function);
        return ncclInvalidUsage;
    }
    ncclResult_t result = make_id(&id);
    if (result != ncclSuccess)
        return result;
    for (int rank = 0; rank < count; rank++) {
        clear(comms + rank);
        setups[rank] = publish_rank(comms + rank, count, &id, 1, rank, NULL);
        if (!setups[rank])
            result = no_memory(function);
    }
    return shim_attach_forwarded(setups, (uint32_t)count, result);
}

static net_key_t key_of_split(const net_key_t *parent, unsigned number)
{
    struct {
        net_key_t parent;
        int64_t tag, number;
    } whole = {*parent, SPLIT_TAG, number};
    return net_key_hash(&whole, sizeof(whole));
}

/* A call on a parent that does not block does not either; the child is as its configuration says. */
static ncclResult_t publish_child(shim_setup_request_t *request, const shim_comm_t *parent, ncclComm_t handle,
                                  const ncclConfig_t *config, const char *function)
{
    request->parent = handle;
    request->wait = parent->blocking;
    request->blocking = shim_config_blocking(config, parent->blocking);
    shim_setup_t *setup = shim_attach_publish(request);
    return setup ? shim_attach_forwarded(&setup, 1, ncclSuccess) : no_memory(function);
}

static ncclResult_t check_parent(shim_comm_t *parent, ncclComm_t *newcomm, const ncclConfig_t *config,
                                 const char *function)
{
    if (!newcomm)
        return invalid(function, "newcomm is NULL");
    ncclResult_t result = check_ready(parent, function);
    if (result != ncclSuccess)
        return result;
    clear(newcomm);
    const char *fault = shim_config_fault(config);
    return fault ? invalid(function, fault) : ncclSuccess;
}

ncclResult_t shim_host_split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, const ncclConfig_t *config)
{
    static const char function[] = "ncclCommSplit";
    ncclResult_t result = ncclSuccess;
    shim_comm_reap();
    shim_comm_t *parent = acquire(comm, function, &result);
    if (!parent)
        return result;
    result = check_parent(parent, newcomm, config, function);
    if (result == ncclSuccess && color < 0 && color != NCCL_SPLIT_NOCOLOR)
        result = invalid(function, "the colour is negative");
    if (result == ncclSuccess) {
        unsigned number = atomic_fetch_add(&parent->splits, 1);
        shim_setup_request_t request = request_for(key_of_split(&parent->key, number), newcomm, config);
        request.rank = (int)parent->rank;
        request.nranks = (int)parent->nranks;
        request.regroup = true;
        request.publish = !parent->hosts;
        request.invitation = parent->invitation;
        request.color = color;
        request.order = key;
        result = publish_child(&request, parent, comm, config, function);
    }
    shim_comm_release(parent);
    return result;
}

/* Ranks that are left below and in all; -1 if this rank is excluded or the list is wrong. */
static int rank_after_shrink(const shim_comm_t *parent, const int *exclude, int count, int *nranks)
{
    bool excluded[ALG_MAX_RANKS] = {false};
    for (int i = 0; i < count; i++) {
        if (exclude[i] < 0 || exclude[i] >= (int)parent->nranks || excluded[exclude[i]])
            return -1;
        excluded[exclude[i]] = true;
    }
    int rank = 0;
    for (uint32_t r = 0; r < parent->rank; r++)
        rank += !excluded[r];
    *nranks = (int)parent->nranks - count;
    return excluded[parent->rank] ? -1 : rank;
}

/* Let a call that another thread runs end, and take no more. */
static void stop(shim_comm_t *comm)
{
    int phase = atomic_exchange(&comm->phase, SHIM_COMM_DEAD);
    atomic_store(&comm->reusable, false);
    if (phase == SHIM_COMM_ATTACHED)
        __atomic_store_n(&shim_comm_team(comm)->control->abort, 1, __ATOMIC_RELEASE);
}

ncclResult_t shim_host_shrink(ncclComm_t comm, const int *exclude, int exclude_count, ncclComm_t *newcomm,
                              const ncclConfig_t *config, int flags)
{
    static const char function[] = "ncclCommShrink";
    ncclResult_t result = ncclSuccess;
    int nranks = 0;
    shim_comm_reap();
    shim_comm_t *parent = acquire(comm, function, &result);
    if (!parent)
        return result;
    if (flags & NCCL_SHRINK_ABORT) {
        stop(parent);
        atomic_store(&parent->async_error, ncclSuccess); /* the dead are what a shrink is for */
    }
    result = check_parent(parent, newcomm, config, function);
    if (result == ncclSuccess && (!exclude || exclude_count <= 0))
        result = invalid(function, "no rank is excluded");
    int rank = result == ncclSuccess ? rank_after_shrink(parent, exclude, exclude_count, &nranks) : -1;
    if (result == ncclSuccess && rank < 0)
        result = invalid(function, "the excluded ranks are not other ranks of comm, each once");
    if (result == ncclSuccess) {
        net_key_t key = {{0, 0}};
        shim_shrink_t *shrink = shim_shrink_begin(parent, exclude, exclude_count, &key);
        shim_setup_request_t request = request_for(key, newcomm, config);
        request.rank = rank;
        request.nranks = nranks;
        request.invitation = parent->invitation;
        result = shrink ? publish_child(&request, parent, comm, config, function) : no_memory(function);
    }
    shim_comm_release(parent);
    return result;
}

/* ---- Ending ------------------------------------------------------------------------ */

ncclResult_t shim_host_finalize(ncclComm_t comm)
{
    static const char function[] = "ncclCommFinalize";
    ncclResult_t result = ncclSuccess;
    if (!comm)
        return ncclSuccess;
    shim_comm_t *state = acquire(comm, function, &result);
    if (!state)
        return result;
    result = check_ready(state, function);
    if (result == ncclSuccess && atomic_exchange(&state->finalized, true))
        result = invalid(function, "the communicator was finalized or revoked already");
    shim_comm_release(state);
    return result;
}

static void drop_from_table(shim_comm_t *state, ncclComm_t handle)
{
    if (shim_comm_find(handle) == state)
        shim_comm_release(shim_comm_remove(handle));
}

/* In a group, calls that were queued before may still run at its end: the state stays until then. */
static void let_go(shim_comm_t *state)
{
    if (shim_group_depth() > 0)
        shim_attach_defer_release(state);
    else
        shim_comm_release(state);
    shim_comm_reap();
}

ncclResult_t shim_host_destroy(ncclComm_t comm)
{
    ncclResult_t result = ncclSuccess;
    if (!comm)
        return ncclSuccess;
    shim_attach_cancel(comm);
    shim_comm_t *state = acquire(comm, "ncclCommDestroy", &result);
    if (!state)
        return result;
    int phase = atomic_load(&state->phase);
    atomic_store(&state->reusable, phase == SHIM_COMM_ATTACHED);
    drop_from_table(state, comm);
    let_go(state);
    return ncclSuccess;
}

ncclResult_t shim_host_abort(ncclComm_t comm)
{
    ncclResult_t result = ncclSuccess;
    if (!comm)
        return ncclSuccess;
    shim_comm_t *state = acquire(comm, "ncclCommAbort", &result);
    if (!state)
        return result;
    stop(state);
    shim_attach_cancel(comm);
    drop_from_table(state, comm);
    let_go(state);
    return ncclSuccess;
}

ncclResult_t shim_host_revoke(ncclComm_t comm, int flags)
{
    static const char function[] = "ncclCommRevoke";
    ncclResult_t result = ncclSuccess;
    if (!comm)
        return ncclSuccess;
    if (flags != 0)
        return invalid(function, "flags must be 0");
    shim_comm_t *state = acquire(comm, function, &result);
    if (!state)
        return result;
    if (atomic_exchange(&state->finalized, true)) {
        result = invalid(function, "the communicator was finalized or revoked already");
    } else {
        atomic_store(&state->revoked, true);
        stop(state);
        atomic_store(&state->async_error, ncclSuccess); /* quiet again; only children can be made */
    }
    shim_comm_release(state);
    return result;
}

ncclResult_t shim_host_async_error(ncclComm_t comm, ncclResult_t *error)
{
    static const char function[] = "ncclCommGetAsyncError";
    ncclResult_t result = ncclSuccess;
    shim_comm_t *state = acquire(comm, function, &result);
    if (!state)
        return result;
    if (!error)
        result = invalid(function, "asyncError is NULL");
    else
        *error = shim_attach_poll(comm) ? ncclInProgress : (ncclResult_t)atomic_load(&state->async_error);
    shim_comm_release(state);
    return result;
}
