/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - makes and ends communicators. A set-up is as on GPUs (attach.c), but its failure is an error of the call.
 * Handles are looked up, never dereferenced, since they may be destroyed. */
#include "shim/cpu/cpu.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "shim/base/device.h"
#include "shim/base/key.h"
#include "shim/base/last_error.h"
#include "shim/base/nccl_env.h"
#include "shim/call/group.h"
#include "shim/comm/extra.h"
#include "shim/comm/reap.h"
#include "shim/comm/shrink.h"
#include "shim/cpu/check.h"
#include "shim/real/real.h"
#include "shim/setup/attach.h"
#include "shim/setup/config.h"

enum { SPLIT_TAG = 's' };
static const char id_magic[8] = "shuntid";

static ncclResult_t make_id(ncclUniqueId *id)
{
    memset(id, 0, sizeof(*id));
    memcpy(id->internal, id_magic, sizeof(id_magic));
    size_t size = sizeof(id->internal) - sizeof(id_magic) - SHIM_INVITATION_BYTES; /* the invitation follows */
    if (getrandom(id->internal + sizeof(id_magic), size, 0) != (ssize_t)size) {
        shim_set_last_error("ncclGetUniqueId: the system gives no random bytes: %s", strerror(errno));
        return ncclSystemError;
    }
    return ncclSuccess;
}

/* NAME:PORT, as in NCCL. */
static bool is_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    const long port = colon && colon > text ? strtol(colon + 1, &end, 10) : 0;
    return port > 0 && port <= UINT16_MAX && *end == '\0';
}

/* Makes the id from NCCL_COMM_ID, so it is equal on all ranks. */
static ncclResult_t derive_id(ncclUniqueId *id, const char *address)
{
    const net_key_t key = net_key_hash(address, strlen(address));
    if (!is_address(address)) {
        shim_set_last_error("ncclGetUniqueId: NCCL_COMM_ID=%.100s is not ADDRESS:PORT", address);
        return ncclInvalidArgument;
    }
    memset(id, 0, sizeof(*id));
    memcpy(id->internal, id_magic, sizeof(id_magic));
    memcpy(id->internal + sizeof(id_magic), &key, sizeof(key));
    return ncclSuccess;
}

static atomic_bool is_rank; /* this process has begun a communicator */

/* Whether the real NCCL made the id. It does if this process hides its GPUs and is no rank: it may be a controller
 * whose workers have GPUs. Ranks of the CPU device make their own ids, because the real NCCL keeps a thread for each id
 * until its ranks join. If all ranks make the same id (by_all), the real NCCL makes it on ranks, too. */
static bool real_made(ncclUniqueId *id, bool by_all)
{
    const shim_real_t *real = shim_gpus_hidden() && (by_all || !atomic_load(&is_rank)) ? shim_real() : NULL;
    memset(id, 0, sizeof(*id)); /* older NCCLs leave the end of the id unset */
    return real && real->ncclGetUniqueId(id) == ncclSuccess;
}

ncclResult_t shim_cpu_get_unique_id(ncclUniqueId *id)
{
    if (!id)
        return shim_cpu_invalid("ncclGetUniqueId", "uniqueId is NULL");
    const char *address = shim_nccl_env("NCCL_COMM_ID");
    ncclResult_t result = ncclSuccess;
    if (!real_made(id, address != NULL))
        result = address ? derive_id(id, address) : make_id(id);
    if (result == ncclSuccess && !address)
        shim_nodes_invite(id);
    return result;
}

/* Atomic: another thread of the application may read it. */
static void clear(ncclComm_t *newcomm)
{
    __atomic_store_n(newcomm, NULL, __ATOMIC_RELEASE);
}

static ncclResult_t too_many(const char *function, int nranks)
{
    shim_set_last_error("%s: %d ranks; the CPU device serves at most %d", function, nranks, ALG_MAX_RANKS);
    return ncclInvalidUsage;
}

static ncclResult_t no_memory(const char *function)
{
    shim_set_last_error("%s: out of memory", function);
    return ncclSystemError;
}

static shim_setup_request_t request_for(net_key_t key, ncclComm_t *newcomm, const ncclConfig_t *config,
                                        const shim_config_t *parent)
{
    const shim_config_t said = shim_config_read(config, parent);
    return (shim_setup_request_t){.key = key,
                                  .newcomm = newcomm,
                                  .ops = &shim_setup_cpu,
                                  .wait = said.blocking,
                                  .grouped = shim_group_depth() > 0,
                                  .publish = true,
                                  .config = said};
}

static shim_setup_t *publish_rank(ncclComm_t *newcomm, int nranks, const ncclUniqueId *ids, int id_count, int rank,
                                  const ncclConfig_t *config)
{
    shim_setup_request_t request = request_for(shim_attach_key(ids, id_count, nranks), newcomm, config, NULL);
    request.rank = rank;
    request.nranks = nranks;
    request.invitation = shim_nodes_invitation(ids, id_count);
    atomic_store(&is_rank, true);
    return shim_cpu_publish(&request);
}

ncclResult_t shim_cpu_init_rank(ncclComm_t *newcomm, int nranks, const ncclUniqueId *ids, int id_count, int rank,
                                const ncclConfig_t *config)
{
    static const char function[] = "ncclCommInitRank";
    const char *fault = shim_config_fault(config);
    shim_comm_reap();
    if (id_count < 1 || id_count > nranks || !ids)
        return shim_cpu_invalid(function, "the number of ids is not in 1..nranks");
    if (!newcomm)
        return shim_cpu_invalid(function, "newcomm is NULL");
    clear(newcomm);
    if (nranks < 1 || rank < 0 || rank >= nranks) {
        shim_set_last_error("%s: rank %d is not one of %d ranks", function, rank, nranks);
        return ncclInvalidArgument;
    }
    if (fault)
        return shim_cpu_invalid(function, fault);
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

ncclResult_t shim_cpu_init_all(ncclComm_t *comms, int count, const int *devices)
{
    static const char function[] = "ncclCommInitAll";
    shim_setup_t *setups[ALG_MAX_RANKS];
    ncclUniqueId id;
    shim_comm_reap();
    if (!comms)
        return shim_cpu_invalid(function, "comm is NULL");
    if (count < 0)
        return shim_cpu_invalid(function, "ndev is negative");
    if (count > ALG_MAX_RANKS)
        return too_many(function, count);
    for (int i = 0; devices && i < count; i++) {
        if (devices[i] < 0)
            return shim_cpu_invalid(function, "a device is negative");
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

/* The call blocks if the parent is blocking: the child's configuration is only for the child's own calls. */
static ncclResult_t publish_child(shim_setup_request_t *request, shim_comm_t *parent, ncclComm_t handle,
                                  const char *function)
{
    request->parent = handle;
    request->wait = parent->config.blocking;
    shim_comm_retain(parent);
    request->counted = parent;
    shim_setup_t *setup = shim_cpu_publish(request);
    if (setup)
        return shim_attach_forwarded(&setup, 1, ncclSuccess);
    shim_attach_uncount(request);
    shim_comm_release(parent);
    return no_memory(function);
}

static ncclResult_t check_parent(shim_comm_t *parent, ncclComm_t *newcomm, const ncclConfig_t *config,
                                 const char *function)
{
    if (!newcomm)
        return shim_cpu_invalid(function, "newcomm is NULL");
    ncclResult_t result = shim_cpu_check_ready(parent, function);
    if (result != ncclSuccess)
        return result;
    clear(newcomm);
    const char *fault = shim_config_fault(config);
    return fault ? shim_cpu_invalid(function, fault) : ncclSuccess;
}

ncclResult_t shim_cpu_split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, const ncclConfig_t *config)
{
    static const char function[] = "ncclCommSplit";
    shim_comm_reap();
    shim_comm_t *parent = shim_cpu_acquire(comm, function);
    if (!parent)
        return ncclInvalidArgument;
    ncclResult_t result = check_parent(parent, newcomm, config, function);
    if (result == ncclSuccess && color < 0 && color != NCCL_SPLIT_NOCOLOR)
        result = shim_cpu_invalid(function, "the colour is negative");
    if (result == ncclSuccess) {
        unsigned number = atomic_fetch_add(&parent->splits, 1);
        shim_setup_request_t request =
            request_for(shim_key_child(&parent->key, SPLIT_TAG, number), newcomm, config, &parent->config);
        request.rank = (int)parent->rank;
        request.nranks = (int)parent->nranks;
        request.number = number;
        request.regroup = true;
        request.publish = !parent->nodes;
        request.invitation = parent->invitation;
        request.place = parent->place;
        request.color = color;
        request.order = key;
        result = publish_child(&request, parent, comm, function);
    }
    shim_comm_release(parent);
    return result;
}

/* The new rank among the *nranks that remain. -1 if this rank is excluded or the list is invalid. */
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

/* Makes calls in other threads leave their waits. */
static void stop(shim_comm_t *comm)
{
    int phase = atomic_exchange(&comm->phase, SHIM_COMM_DEAD);
    atomic_store(&comm->reusable, false);
    if (phase == SHIM_COMM_ATTACHED)
        __atomic_store_n(&alg_scratch_control(comm->scratch)->abort, 1, __ATOMIC_RELEASE);
    shim_extra_stop(comm);
}

ncclResult_t shim_cpu_shrink(ncclComm_t comm, const int *exclude, int exclude_count, ncclComm_t *newcomm,
                             const ncclConfig_t *config, int flags)
{
    static const char function[] = "ncclCommShrink";
    int nranks = 0;
    shim_comm_reap();
    shim_comm_t *parent = shim_cpu_acquire(comm, function);
    if (!parent)
        return ncclInvalidArgument;
    if (flags & NCCL_SHRINK_ABORT) {
        stop(parent);
        atomic_store(&parent->async_error, ncclSuccess); /* cleared: programs shrink to exclude dead ranks */
    }
    ncclResult_t result = check_parent(parent, newcomm, config, function);
    if (result == ncclSuccess && (!exclude || exclude_count <= 0))
        result = shim_cpu_invalid(function, "no rank is excluded");
    int rank = result == ncclSuccess ? rank_after_shrink(parent, exclude, exclude_count, &nranks) : -1;
    if (result == ncclSuccess && rank < 0)
        result = shim_cpu_invalid(function, "excludeRanksList must have other ranks of comm, each once");
    if (result == ncclSuccess) {
        net_key_t key = {{0, 0}};
        shim_shrink_t *shrink = shim_shrink_begin(parent, exclude, exclude_count, &key);
        shim_setup_request_t request = request_for(key, newcomm, config, &parent->config);
        request.rank = rank;
        request.nranks = nranks;
        request.shrink = shrink;
        request.invitation = parent->invitation;
        result = shrink ? publish_child(&request, parent, comm, function) : no_memory(function);
    }
    shim_comm_release(parent);
    return result;
}

ncclResult_t shim_cpu_finalize(ncclComm_t comm)
{
    static const char function[] = "ncclCommFinalize";
    if (!comm)
        return ncclSuccess;
    shim_comm_t *state = shim_cpu_acquire(comm, function);
    if (!state)
        return ncclInvalidArgument;
    ncclResult_t result = shim_cpu_check_ready(state, function);
    if (result == ncclSuccess && atomic_exchange(&state->finalized, true))
        result = shim_cpu_invalid(function, "the communicator was finalized or revoked already");
    shim_comm_release(state);
    return result;
}

/* In a group the state is kept, because queued calls still run at the group's end. */
static void release_state(shim_comm_t *state)
{
    if (shim_group_depth() > 0)
        shim_attach_defer_release(state);
    else
        shim_comm_release(state);
    shim_comm_reap();
}

ncclResult_t shim_cpu_destroy(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    shim_attach_cancel(comm);
    shim_comm_t *state = shim_cpu_acquire(comm, "ncclCommDestroy");
    if (!state)
        return ncclInvalidArgument;
    int phase = atomic_load(&state->phase);
    atomic_store(&state->reusable, phase == SHIM_COMM_ATTACHED);
    shim_comm_drop(state, comm);
    release_state(state);
    return ncclSuccess;
}

ncclResult_t shim_cpu_abort(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    shim_comm_t *state = shim_cpu_acquire(comm, "ncclCommAbort");
    if (!state)
        return ncclInvalidArgument;
    stop(state);
    shim_attach_cancel(comm);
    shim_comm_drop(state, comm);
    release_state(state);
    return ncclSuccess;
}

ncclResult_t shim_cpu_revoke(ncclComm_t comm, int flags)
{
    static const char function[] = "ncclCommRevoke";
    ncclResult_t result = ncclSuccess;
    if (!comm)
        return ncclSuccess;
    if (flags != 0)
        return shim_cpu_invalid(function, "flags must be 0");
    shim_comm_t *state = shim_cpu_acquire(comm, function);
    if (!state)
        return ncclInvalidArgument;
    if (atomic_exchange(&state->finalized, true)) {
        result = shim_cpu_invalid(function, "the communicator was finalized or revoked already");
    } else {
        atomic_store(&state->revoked, true);
        stop(state);
        atomic_store(&state->async_error, ncclSuccess); /* cleared, so that children can be made */
    }
    shim_comm_release(state);
    return result;
}

ncclResult_t shim_cpu_async_error(ncclComm_t comm, ncclResult_t *error)
{
    static const char function[] = "ncclCommGetAsyncError";
    ncclResult_t result = ncclSuccess;
    shim_comm_t *state = shim_cpu_acquire(comm, function);
    if (!state)
        return ncclInvalidArgument;
    if (!error)
        result = shim_cpu_invalid(function, "asyncError is NULL");
    else
        *error = shim_attach_poll(comm) ? ncclInProgress : (ncclResult_t)atomic_load(&state->async_error);
    shim_comm_release(state);
    return result;
}
