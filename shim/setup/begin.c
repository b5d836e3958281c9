/* SPDX-License-Identifier: Apache-2.0 */
/* begin.c - a set-up's steps from the known handle to this rank's posted identity. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "shim/setup/setup.h"

int shim_setup_read(shim_setup_t *setup, uint32_t stage, uint32_t rank, void *record, size_t size)
{
    size_t got = 0;
    int error = net_read(setup->rendezvous, stage, rank, record, size, &got);
    return error ? error : got == size ? 0 : -EPROTO;
}

void shim_setup_store_handle(shim_setup_t *setup)
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
    setup->since_ns = net_now_ns();
    return error == 0;
}

void shim_setup_keep_count(shim_setup_t *setup)
{
    setup->request.number = UINT_MAX;
    setup->request.shrink = NULL;
}
