/* SPDX-License-Identifier: Apache-2.0 */
/*
 * across.c - set-up of ranks on several hosts (docs/hosts.md, "How they meet"). Splits of such a communicator begin
 * with the meeting.
 */
#include <stdlib.h>
#include <string.h>

#include "shim/base/clock.h"
#include "shim/setup/setup.h"

void shim_setup_begin_hosts(shim_setup_t *setup)
{
    const shim_setup_request_t *request = &setup->request;
    const bool asked = request->rank < 0; /* a child on GPUs: the real NCCL has given its rank */
    if (!request->host) {
        setup->limit_ms = SHIM_HOSTS_LIMIT_MS;
        setup->deadline_ns = setup->since_ns + SHIM_HOSTS_LIMIT_MS * UINT64_C(1000000);
    }
    const shim_hosts_request_t meeting = {.invitation = request->invitation,
                                          .key = request->key,
                                          .place = setup->comm->place,
                                          .rank = asked ? setup->comm->rank : (uint32_t)request->rank,
                                          .nranks = asked ? setup->comm->nranks : (uint32_t)request->nranks,
                                          .deadline_ns = setup->deadline_ns,
                                          .limit_ms = setup->limit_ms,
                                          .blocking = request->config.blocking,
                                          .host_device = request->host,
                                          .device = setup->comm->device,
                                          .regroup = request->regroup,
                                          .color = request->color,
                                          .order = request->order};
    setup->hosts = shim_hosts_begin(&meeting);
    if (!setup->hosts)
        shim_setup_decline(setup, SHIM_WHY(NO_THREAD));
}

static void enter_team(shim_setup_t *setup, const shim_hosts_outcome_t *outcome)
{
    shim_comm_t *comm = setup->comm;
    setup->across = malloc(sizeof(*setup->across));
    if (!setup->across) {
        alg_relay_destroy(outcome->relay);
        alg_hosts_destroy(outcome->every);
        shim_setup_decline(setup, SHIM_WHY(NO_MEMORY));
        return;
    }
    *setup->across = *outcome;
    comm->rank = outcome->host_rank;
    comm->nranks = outcome->host_ranks;
    const net_key_t team = shim_hosts_team_key(&outcome->key, outcome->host);
    shim_setup_rejoin(setup, &team);
}

static void met(shim_setup_t *setup, const shim_hosts_outcome_t *outcome)
{
    net_leave(setup->rendezvous); /* of this host's ranks */
    setup->rendezvous = NULL;
    setup->met = true;
    if (outcome->nranks == 0) {
        setup->done = true;
        return;
    }
    setup->comm->key = outcome->key;
    setup->comm->rank = outcome->rank;
    setup->comm->nranks = outcome->nranks;
    if (setup->request.host)
        setup->comm->device = (int)outcome->rank;
    if (outcome->one_host)
        shim_setup_rejoin(setup, &outcome->key);
    else
        enter_team(setup, outcome);
}

/* The wait for this host's ranks is over and some are missing. */
static bool is_due(const shim_setup_t *setup)
{
    return setup->request.host && !setup->request.regroup && !setup->hosts && !setup->across && setup->rendezvous &&
           setup->stage == STAGE_IDENTITY && net_invitation_valid(&setup->request.invitation) &&
           net_count(setup->rendezvous) < setup->comm->nranks &&
           shim_now_ns() > setup->since_ns + SHIM_HOSTS_MS * UINT64_C(1000000);
}

static void end_meeting(shim_setup_t *setup)
{
    shim_hosts_end(setup->hosts);
    setup->hosts = NULL;
}

/* On GPUs an init or poll must not wait for a rank whose program has not called yet: that program may wait for this
 * rank. */
static void postpone(shim_setup_t *setup)
{
    const uint64_t away_ms = setup->patient ? SHIM_POLLS_MS : SHIM_AWAY_MS;
    if (!setup->request.host && !setup->told && shim_now_ns() > setup->since_ns + away_ms * UINT64_C(1000000))
        setup->postpone = true;
}

void shim_setup_forget_across(shim_setup_t *setup)
{
    if (!setup->across)
        return;
    setup->comm->rank = setup->across->rank;
    setup->comm->nranks = setup->across->nranks;
    alg_relay_destroy(setup->across->relay);
    alg_hosts_destroy(setup->across->every);
    free(setup->across);
    setup->across = NULL;
}

static bool step_agreement(shim_setup_t *setup, bool *moved)
{
    shim_why_t why;
    if (!shim_hosts_agreed(setup->hosts, &why)) {
        const uint64_t needed = atomic_load(&setup->needed_ns);
        postpone(setup);
        if (needed == 0 || shim_now_ns() < needed + SHIM_SETTLE_LIMIT_MS * UINT64_C(1000000))
            return true;
        shim_why_write(&why, SHIM_WHY(HOST_AWAY)); /* leaving ends the meeting for all ranks */
    }
    *moved = true;
    if (why.reason != SEL_TAKEN)
        shim_setup_decline(setup, why.reason, "%s", why.text);
    else
        shim_setup_attach(setup);
    end_meeting(setup);
    return true;
}

static bool step_meeting(shim_setup_t *setup, bool *moved)
{
    shim_hosts_outcome_t outcome;
    if (setup->request.host && setup->rendezvous && net_count(setup->rendezvous) >= setup->comm->nranks) {
        end_meeting(setup); /* all ranks are on this host; the last was late */
        return false;
    }
    if (!shim_hosts_poll(setup->hosts, &outcome)) {
        postpone(setup);
        return !setup->request.host || setup->rendezvous == NULL;
    }
    *moved = true;
    if (outcome.failure.reason != SEL_TAKEN)
        shim_setup_decline(setup, outcome.failure.reason, "%s", outcome.failure.text);
    else
        met(setup, &outcome);
    if (!setup->across)
        end_meeting(setup);
    return true;
}

bool shim_setup_step_hosts(shim_setup_t *setup, bool *moved)
{
    if (is_due(setup))
        shim_setup_begin_hosts(setup);
    if (!setup->hosts)
        return setup->done;
    if (setup->agreeing)
        return step_agreement(setup, moved);
    return setup->across ? setup->done : step_meeting(setup, moved);
}
