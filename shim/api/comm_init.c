/* SPDX-License-Identifier: Apache-2.0 */
/* comm_init.c - entry points that create communicators. On GPUs each publishes Shunt's state, forwards the call with
 * the application's pointers and returns the real NCCL's result. The call may wait for other ranks: no lock is held. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "shim/api/nccl.h"
#include "shim/base/nccl_env.h"
#include "shim/base/pins.h"
#include "shim/base/settings.h"
#include "shim/call/group.h"
#include "shim/comm/reap.h"
#include "shim/comm/shrink.h"
#include "shim/comm/stop.h"
#include "shim/setup/attach.h"
#include "shim/setup/config.h"

enum { SPLIT_TAG = 's' };

_Static_assert(sizeof(ncclUniqueId) == NCCL_UNIQUE_ID_BYTES, "a unique id is 128 bytes");

static net_key_t key_of_split(const net_key_t *parent, unsigned number, int color)
{
    struct {
        net_key_t parent;
        int64_t tag, number, color;
    } whole = {*parent, SPLIT_TAG, number, color};
    return net_key_hash(&whole, sizeof(whole));
}

static bool takes_part(void)
{
    const shim_real_t *real = shim_real_used();
    return real && shim_settings()->enable && shim_real_alone(real);
}

/* NULL if Shunt takes no part: disabled, one rank, arguments that NCCL will refuse, or two NCCLs in the process. */
static shim_setup_t *publish_rank(ncclComm_t *newcomm, int nranks, const ncclUniqueId *ids, int id_count, int rank,
                                  const ncclConfig_t *config)
{
    shim_comm_collect();
    if (nranks == 1 && takes_part())
        shim_pins_warn_alone();
    if (!newcomm || !ids || id_count < 1 || nranks < 2 || rank < 0 || rank >= nranks || id_count > nranks ||
        !takes_part())
        return NULL;
    const shim_config_t said = shim_config_read(config, NULL);
    const shim_invitation_t invitation = shim_nodes_invitation(ids, id_count);
    const int most = invitation.given ? SHIM_NODES_RANKS : ALG_MAX_RANKS;
    const shim_setup_request_t request = {.key = shim_attach_key(ids, id_count, nranks),
                                          .newcomm = newcomm,
                                          .ops = &shim_setup_cuda,
                                          .wait = said.blocking,
                                          .grouped = shim_group_depth() > 0,
                                          .publish = nranks <= most,
                                          .config = said,
                                          .rank = rank,
                                          .nranks = nranks,
                                          .invitation = invitation};
    return shim_attach_publish(&request);
}

SHIM_PUBLIC(ncclGetUniqueId);
ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
    if (uniqueId) /* older NCCLs leave it unset */
        memset(uniqueId, 0, sizeof(*uniqueId));
    const ncclResult_t result = shim_nccl_answer(shim_nccl()->ncclGetUniqueId(uniqueId));
    /* With NCCL_COMM_ID every rank makes the id; all must be equal, so none gets an invitation. */
    if (result == ncclSuccess && uniqueId && takes_part() && !shim_nccl_env("NCCL_COMM_ID"))
        shim_nodes_invite(uniqueId);
    return result;
}

SHIM_PUBLIC(ncclCommInitRank);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    shim_setup_t *setup = publish_rank(comm, nranks, &commId, 1, rank, NULL);
    return shim_attach_forwarded(&setup, 1,
                                 shim_nccl_answer(shim_nccl()->ncclCommInitRank(comm, nranks, commId, rank)));
}

SHIM_PUBLIC(ncclCommInitRankConfig);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config)
{
    shim_setup_t *setup = publish_rank(comm, nranks, &commId, 1, rank, config);
    return shim_attach_forwarded(
        &setup, 1, shim_nccl_answer(shim_nccl()->ncclCommInitRankConfig(comm, nranks, commId, rank, config)));
}

SHIM_PUBLIC(ncclCommInitRankScalable);
ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
                                      ncclConfig_t *config)
{
    shim_setup_t *setup = publish_rank(newcomm, nranks, commIds, nId, myrank, config);
    return shim_attach_forwarded(
        &setup, 1,
        shim_nccl_answer(shim_nccl()->ncclCommInitRankScalable(newcomm, nranks, myrank, nId, commIds, config)));
}

/* All ranks are in this process: the key never leaves it. */
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
    shim_setup_t **setups = comm && ndev > 1 && takes_part() ? calloc((size_t)ndev, sizeof(setups[0])) : NULL;
    uint32_t count = setups ? publish_all(comm, ndev, setups) : 0;
    ncclResult_t result =
        shim_attach_forwarded(setups, count, shim_nccl_answer(shim_nccl()->ncclCommInitAll(comm, ndev, devlist)));
    free(setups);
    return result;
}

/* `shared`: an abort of the parent also aborts the child. A revoked parent shares nothing. */
static shim_setup_t *publish_child(shim_comm_t *parent, ncclComm_t handle, net_key_t key, bool shared,
                                   ncclComm_t *newcomm, const ncclConfig_t *config)
{
    shim_comm_collect();
    const shim_setup_request_t request = {.key = key,
                                          .newcomm = newcomm,
                                          .ops = &shim_setup_cuda,
                                          .parent = handle,
                                          .wait = parent->config.blocking,
                                          .grouped = shim_group_depth() > 0,
                                          .publish = true,
                                          .config = shim_config_read(config, &parent->config),
                                          .family = shared && !atomic_load(&parent->revoked) ? parent->family : 0,
                                          .rank = -1,
                                          .nranks = -1,
                                          .invitation = parent->invitation};
    return shim_attach_publish(&request);
}

SHIM_PUBLIC(ncclCommSplit);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
    const shim_real_t *nccl = shim_nccl();
    shim_comm_t *parent = shim_nccl_comm(comm);
    if (!parent)
        return shim_nccl_answer(nccl->ncclCommSplit(comm, color, key, newcomm, config));
    unsigned number = atomic_fetch_add(&parent->splits, 1);
    shim_setup_t *setup = newcomm && color >= 0 ? publish_child(parent, comm, key_of_split(&parent->key, number, color),
                                                                parent->config.split_share, newcomm, config)
                                                : NULL;
    ncclResult_t result = shim_nccl_answer(nccl->ncclCommSplit(comm, color, key, newcomm, config));
    unsigned taken = number + 1;
    if (shim_is_error(result)) /* the other ranks give this number to the next split */
        atomic_compare_exchange_strong(&parent->splits, &taken, number);
    shim_comm_release(parent);
    return shim_attach_forwarded(&setup, 1, result);
}

SHIM_PUBLIC(ncclCommShrink);
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
                            ncclConfig_t *config, int shrinkFlags)
{
    const shim_real_t *nccl = shim_nccl();
    shim_comm_t *parent = shim_real_symbol(nccl, "ncclCommShrink") ? shim_nccl_comm(comm) : NULL;
    if (!parent)
        return shim_nccl_answer(
            nccl->ncclCommShrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
    if (shrinkFlags & NCCL_SHRINK_ABORT)
        shim_comm_interrupt(parent);
    net_key_t key;
    shim_shrink_t *shrink = shim_shrink_begin(parent, excludeRanksList, excludeRanksCount, &key);
    bool shared = parent->config.shrink_share && !(shrinkFlags & NCCL_SHRINK_ABORT);
    shim_setup_t *setup = newcomm && shrink ? publish_child(parent, comm, key, shared, newcomm, config) : NULL;
    ncclResult_t result =
        shim_nccl_answer(nccl->ncclCommShrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
    if (shim_is_error(result))
        shim_shrink_take_back(shrink);
    else if (shrinkFlags & NCCL_SHRINK_ABORT) /* a non-blocking program polls the parent */
        atomic_store(&parent->async_error, ncclSuccess);
    if (shrinkFlags & NCCL_SHRINK_ABORT)
        shim_comm_wait_for_calls(parent, shim_group_depth() > 0);
    shim_comm_release(parent);
    return shim_attach_forwarded(&setup, 1, result);
}
