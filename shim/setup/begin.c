/* SPDX-License-Identifier: Apache-2.0 */
/* begin.c - from the real init's success to this rank's posted identity. A split in CPU mode first finds its colour's
 * ranks. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "shim/base/clock.h"
#include "shim/base/settings.h"
#include "shim/real/real.h"
#include "shim/setup/setup.h"

typedef struct regroup {
    int32_t color, order;
} regroup_t;

int shim_setup_read(shim_setup_t *setup, uint32_t stage, uint32_t rank, void *record, size_t size)
{
    size_t got = 0;
    int error = net_read(setup->rendezvous, stage, rank, record, size, &got);
    return error ? error : got == size ? 0 : -EPROTO;
}

void shim_setup_adopt(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    if (atomic_load(&comm->handle)) /* known already; by now the program's variable may be gone */
        return;
    ncclComm_t handle = __atomic_load_n(setup->request.newcomm, __ATOMIC_ACQUIRE);
    if (!handle)
        return;
    atomic_store(&comm->handle, handle);
    shim_comm_insert(comm);
}

static bool query_real(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    const shim_real_t *real = shim_real();
    ncclComm_t handle = atomic_load(&comm->handle);
    int rank, nranks, device;
    if (real->ncclCommCount(handle, &nranks) != ncclSuccess || real->ncclCommUserRank(handle, &rank) != ncclSuccess ||
        real->ncclCommCuDevice(handle, &device) != ncclSuccess)
        return false;
    comm->rank = (uint32_t)rank;
    comm->nranks = (uint32_t)nranks;
    comm->device = device;
    return true;
}

static int fill_and_post(shim_setup_t *setup)
{
    shim_identity_t identity;
    if (!setup->comm->record && setup->comm->nranks > 1)
        setup->comm->record = shim_record_new();
    int error = shim_identity_fill(setup, &identity);
    return error ? error : net_post(setup->rendezvous, STAGE_IDENTITY, &identity, sizeof(identity));
}

void shim_setup_post_identity(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    int error = net_set_rank(setup->rendezvous, comm->rank, comm->nranks);
    if (error == -EEXIST) {
        shim_setup_decline(setup, SHIM_WHY(RANK_TAKEN), comm->rank);
        return;
    }
    if (!error)
        error = fill_and_post(setup);
    if (error)
        shim_setup_decline(setup, SHIM_WHY(NOT_BEGUN), strerror(-error));
}

static void begin_cuda(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    if (!query_real(setup)) {
        shim_setup_decline(setup, SHIM_WHY(NO_RANK));
        return;
    }
    shim_identity_tell_plugins();
    uint32_t here = setup->rendezvous ? net_count(setup->rendezvous) : 0;
    /* The built-in rows are for two ranks on two nodes; more ranks meet only if SHUNT_ALGO is set. */
    const bool elsewhere = setup->rendezvous && here < comm->nranks && setup->request.invitation.given &&
                           comm->nranks <= (shim_settings()->algo[0] ? SHIM_NODES_RANKS : 2);
    shim_why_t refusal;
    const bool refused = shim_identity_refuses(&refusal);
    if (comm->nranks < 2 || (comm->nranks > ALG_MAX_RANKS && !elsewhere)) {
        shim_setup_decline(setup, SHIM_WHY(RANKS), comm->nranks);
    } else if (!setup->rendezvous) {
        shim_setup_decline(setup, SHIM_WHY(NO_SEGMENT), strerror(-setup->join_error));
    } else if (!SHUNT_HAS_CUDA) {
        shim_setup_decline(setup, SHIM_WHY(NO_CUDA));
    } else if (here > comm->nranks) {
        shim_setup_decline(setup, SHIM_WHY(SHARED_ID));
    } else if (here != comm->nranks && !elsewhere) {
        shim_setup_decline(setup, SHIM_WHY(FEW_HERE), here, comm->nranks);
    } else if (refused) {
        shim_setup_decline(setup, refusal.reason, "%s", refusal.text);
    } else if (comm->config.launch_order) {
        shim_setup_decline(setup, SHIM_WHY(LAUNCH_ORDER));
    } else if (comm->config.cta_policy) {
        shim_setup_decline(setup, SHIM_WHY(CTA_POLICY));
    } else if (elsewhere && shim_nodes_refuses(&refusal)) {
        shim_setup_decline(setup, refusal.reason, "%s", refusal.text);
    } else {
        shim_setup_enter(setup, elsewhere ? STATE_MEET : STATE_IDENTITY);
    }
}

static void begin_cpu(shim_setup_t *setup)
{
    if (setup->request.regroup && !setup->request.publish)
        shim_setup_enter(setup, STATE_MEET);
    else if (!setup->rendezvous)
        shim_setup_decline(setup, SHIM_WHY(NO_SEGMENT), strerror(-setup->join_error));
    else
        shim_setup_enter(setup, setup->request.regroup ? STATE_REGROUP : STATE_IDENTITY);
}

void shim_setup_post_color(shim_setup_t *setup)
{
    regroup_t record = {setup->request.color, setup->request.order};
    int error = net_set_rank(setup->rendezvous, (uint32_t)setup->request.rank, (uint32_t)setup->request.nranks);
    if (!error)
        error = net_post(setup->rendezvous, STAGE_REGROUP, &record, sizeof(record));
    if (error)
        shim_setup_decline(setup, SHIM_WHY(SPLIT), strerror(-error));
}

/* Only for the thread that began the set-up: the poll has side effects, and another thread may be polling. False if the
 * real init has failed. */
static bool poll_real(shim_setup_t *setup)
{
    ncclResult_t state = ncclInProgress;
    ncclComm_t asked = setup->request.parent ? setup->request.parent : atomic_load(&setup->comm->handle);
    if (!asked)
        return true;
    if (shim_real()->ncclCommGetAsyncError(asked, &state) != ncclSuccess ||
        (state != ncclSuccess && state != ncclInProgress))
        return false;
    atomic_store(&setup->ready, state == ncclSuccess);
    return true;
}

bool shim_setup_begin(shim_setup_t *setup, bool own)
{
    if (!atomic_load(&setup->ready) && own && setup->finisher >= FINISHER_POLLS && !poll_real(setup)) {
        shim_setup_decline(setup, SHIM_WHY(INIT_FAILED));
        return true;
    }
    if (!atomic_load(&setup->ready))
        return false;
    if (!setup->request.cpu) {
        shim_setup_adopt(setup);
        ncclComm_t handle = atomic_load(&setup->comm->handle);
        if (!handle || shim_comm_find(handle) != setup->comm) {
            shim_setup_decline(setup, SHIM_WHY(NO_HANDLE));
            return true;
        }
    }
    setup->since_ns = shim_now_ns();
    if (setup->request.cpu)
        begin_cpu(setup);
    else
        begin_cuda(setup);
    return true;
}

net_key_t shim_setup_key_of_color(const net_key_t *parent, int color)
{
    const struct {
        net_key_t parent;
        int64_t color;
    } child = {*parent, color};
    return net_key_hash(&child, sizeof(child));
}

bool shim_setup_rejoin(shim_setup_t *setup, const net_key_t *key)
{
    const net_key_t local = shim_nodes_local_key(key);
    int error = net_join(&local, &setup->rendezvous);
    if (error)
        shim_setup_decline(setup, SHIM_WHY(NO_NODE_SEGMENT), strerror(-error));
    setup->since_ns = shim_now_ns();
    return error == 0;
}

void shim_setup_keep_count(shim_setup_t *setup)
{
    setup->request.number = UINT_MAX;
    setup->request.shrink = NULL;
}

bool shim_setup_take_colors(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    uint32_t nranks = 0, rank = 0;
    for (uint32_t r = 0; r < (uint32_t)setup->request.nranks; r++) {
        regroup_t other;
        if (shim_setup_read(setup, STAGE_REGROUP, r, &other, sizeof(other))) {
            shim_setup_decline(setup, SHIM_WHY(COLOUR), r);
            return false;
        }
        if (other.color != setup->request.color)
            continue;
        nranks++;
        rank += other.order < setup->request.order ||
                (other.order == setup->request.order && r < (uint32_t)setup->request.rank);
    }
    net_unlink(setup->rendezvous);
    setup->parents = setup->rendezvous;
    setup->rendezvous = NULL;
    shim_setup_keep_count(setup);
    if (setup->request.color == NCCL_SPLIT_NOCOLOR) {
        setup->result = ncclSuccess;
        setup->state = STATE_DONE;
        return false;
    }
    comm->rank = rank;
    comm->nranks = nranks;
    comm->device = (int)rank;
    comm->key = shim_setup_key_of_color(&setup->request.key, setup->request.color);
    return shim_setup_rejoin(setup, &comm->key);
}

bool shim_setup_parents_present(const shim_setup_t *setup)
{
    for (uint32_t r = 0; setup->parents && r < (uint32_t)setup->request.nranks; r++) {
        regroup_t other;
        size_t size;
        if (net_read(setup->parents, STAGE_REGROUP, r, &other, sizeof(other), &size) == 0 &&
            other.color == setup->request.color && !net_present(setup->parents, r))
            return false;
    }
    return setup->parents != NULL;
}
