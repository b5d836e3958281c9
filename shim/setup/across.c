/* SPDX-License-Identifier: Apache-2.0 */
/* across.c - set-up on several nodes (docs/nodes.md, "How they meet"). Splits over several nodes begin with the
 * meeting. */
#include <stdlib.h>
#include <string.h>

#include "shim/base/clock.h"
#include "shim/setup/setup.h"

void shim_setup_begin_nodes(shim_setup_t *setup)
{
    const shim_setup_request_t *request = &setup->request;
    const bool asked = request->rank < 0; /* a child on GPUs: the real NCCL knows its rank */
    const uint64_t limit_ms = shim_setup_limit_ms(setup);
    const shim_nodes_request_t meeting = {.invitation = request->invitation,
                                          .key = request->key,
                                          .place = setup->comm->place,
                                          .rank = asked ? setup->comm->rank : (uint32_t)request->rank,
                                          .nranks = asked ? setup->comm->nranks : (uint32_t)request->nranks,
                                          .deadline_ns = setup->since_ns + limit_ms * UINT64_C(1000000),
                                          .limit_ms = (uint32_t)limit_ms,
                                          .blocking = request->config.blocking,
                                          .kind = setup->comm->ops->device,
                                          .device = setup->comm->device,
                                          .regroup = request->regroup,
                                          .color = request->color,
                                          .order = request->order};
    setup->nodes = shim_nodes_begin(&meeting);
    if (!setup->nodes)
        shim_setup_decline(setup, SHIM_WHY(NO_THREAD));
}

static void enter_team(shim_setup_t *setup, const shim_nodes_outcome_t *outcome)
{
    shim_comm_t *comm = setup->comm;
    setup->across = malloc(sizeof(*setup->across));
    if (!setup->across) {
        alg_relay_destroy(outcome->relay);
        alg_nodes_destroy(outcome->every);
        shim_setup_decline(setup, SHIM_WHY(NO_MEMORY));
        return;
    }
    *setup->across = *outcome;
    comm->rank = outcome->node_rank;
    comm->nranks = outcome->node_ranks;
    const net_key_t team = shim_nodes_team_key(&outcome->key, outcome->node);
    if (shim_setup_rejoin(setup, &team))
        shim_setup_enter(setup, STATE_IDENTITY);
}

static void met(shim_setup_t *setup, const shim_nodes_outcome_t *outcome)
{
    net_leave(setup->rendezvous);
    setup->rendezvous = NULL;
    shim_setup_keep_count(setup);
    if (outcome->nranks == 0) {
        setup->state = STATE_DONE;
        return;
    }
    setup->comm->key = outcome->key;
    setup->comm->rank = outcome->rank;
    setup->comm->nranks = outcome->nranks;
    if (!outcome->one_node)
        enter_team(setup, outcome);
    else if (shim_setup_rejoin(setup, &outcome->key))
        shim_setup_enter(setup, STATE_IDENTITY);
}

bool shim_setup_nodes_due(const shim_setup_t *setup)
{
    return setup->ops->nodes_ms > 0 && setup->state == STATE_IDENTITY && !setup->request.regroup && !setup->across &&
           net_invitation_valid(&setup->request.invitation) && net_count(setup->rendezvous) < setup->comm->nranks &&
           shim_now_ns() > setup->since_ns + setup->ops->nodes_ms * UINT64_C(1000000);
}

static void end_meeting(shim_setup_t *setup)
{
    shim_nodes_end(setup->nodes);
    setup->nodes = NULL;
}

void shim_setup_forget_across(shim_setup_t *setup)
{
    if (!setup->across)
        return;
    setup->comm->rank = setup->across->rank;
    setup->comm->nranks = setup->across->nranks;
    alg_relay_destroy(setup->across->relay);
    alg_nodes_destroy(setup->across->every);
    free(setup->across);
    setup->across = NULL;
}

bool shim_setup_step_agreement(shim_setup_t *setup)
{
    shim_why_t why;
    if (!shim_nodes_agreed(setup->nodes, &why)) {
        const uint64_t needed = atomic_load(&setup->needed_ns);
        setup->postpone |= shim_setup_waits_too_long(setup);
        if (needed == 0 || shim_now_ns() < needed + SHIM_SETTLE_LIMIT_MS * UINT64_C(1000000))
            return false;
        shim_why_write(&why, SHIM_WHY(NODE_AWAY)); /* leaving ends the meeting for all ranks */
    }
    if (why.reason != SEL_TAKEN)
        shim_setup_decline(setup, why.reason, "%s", why.text);
    else
        shim_setup_attach(setup);
    end_meeting(setup);
    return true;
}

bool shim_setup_step_meeting(shim_setup_t *setup)
{
    shim_nodes_outcome_t outcome;
    if (setup->state == STATE_EITHER && net_count(setup->rendezvous) >= setup->comm->nranks) {
        end_meeting(setup); /* all ranks are on this node; the last one was late */
        setup->state = STATE_IDENTITY;
        return false;
    }
    if (!shim_nodes_poll(setup->nodes, &outcome)) {
        setup->postpone |= shim_setup_waits_too_long(setup);
        return false;
    }
    if (outcome.failure.reason != SEL_TAKEN)
        shim_setup_decline(setup, outcome.failure.reason, "%s", outcome.failure.text);
    else
        met(setup, &outcome);
    if (!setup->across)
        end_meeting(setup);
    return true;
}
