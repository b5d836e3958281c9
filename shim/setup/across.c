/* SPDX-License-Identifier: Apache-2.0 */
/*
 * across.c - host mode: a set-up whose ranks are not all on this host.
 *
 * Ranks wait for each other in shared memory for a moment; where some are missing
 * then, they meet those of other hosts (hosts.c). A split of a communicator of several
 * hosts begins there.
 */
#include "shim/base/clock.h"
#include "shim/setup/setup.h"

void shim_setup_begin_hosts(shim_setup_t *setup)
{
    const shim_setup_request_t *request = &setup->request;
    const shim_hosts_request_t meeting = {.invitation = request->invitation,
                                          .key = request->key,
                                          .rank = (uint32_t)request->rank,
                                          .nranks = (uint32_t)request->nranks,
                                          .deadline_ns = setup->deadline_ns,
                                          .limit_ms = setup->limit_ms,
                                          .blocking = request->blocking,
                                          .regroup = request->regroup,
                                          .color = request->color,
                                          .order = request->order};
    setup->hosts = shim_hosts_begin(&meeting);
    if (!setup->hosts)
        shim_setup_decline(setup, "no thread to meet ranks of other hosts");
}

/* All ranks know of each other now. */
static void met(shim_setup_t *setup, const shim_hosts_outcome_t *outcome)
{
    net_leave(setup->rendezvous); /* of those on this host */
    setup->rendezvous = NULL;
    if (outcome->nranks == 0) {
        setup->done = true;
        return;
    }
    setup->comm->key = outcome->key;
    setup->comm->rank = outcome->rank;
    setup->comm->nranks = outcome->nranks;
    setup->comm->device = (int)outcome->rank;
    if (outcome->team)
        shim_setup_conclude_hosts(setup, outcome);
    else
        shim_setup_rejoin(setup);
}

/* The ranks on this host have had their time, and are not all. */
static bool is_due(const shim_setup_t *setup)
{
    return setup->request.host && !setup->request.regroup && !setup->hosts && setup->rendezvous &&
           setup->stage == STAGE_IDENTITY && net_invitation_valid(&setup->request.invitation) &&
           net_count(setup->rendezvous) < setup->comm->nranks &&
           shim_now_ns() > setup->since_ns + SHIM_HOSTS_MS * UINT64_C(1000000);
}

bool shim_setup_step_hosts(shim_setup_t *setup, bool *moved)
{
    shim_hosts_outcome_t outcome;
    if (is_due(setup))
        shim_setup_begin_hosts(setup);
    if (!setup->hosts)
        return setup->done;
    if (setup->rendezvous && net_count(setup->rendezvous) >= setup->comm->nranks) {
        shim_hosts_end(setup->hosts); /* the last of them was late, and is here */
        setup->hosts = NULL;
        return false;
    }
    if (!shim_hosts_poll(setup->hosts, &outcome))
        return setup->rendezvous == NULL;
    *moved = true;
    if (outcome.failure)
        shim_setup_decline(setup, "%s", outcome.failure);
    else
        met(setup, &outcome);
    shim_hosts_end(setup->hosts);
    setup->hosts = NULL;
    return true;
}
