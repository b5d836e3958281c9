/* SPDX-License-Identifier: Apache-2.0 */
/* across.c - set-up on several nodes (docs/nodes.md, "How they meet"). Splits over nodes begin with the meeting. */
#include "shim/setup/setup.h"

static net_key_t key_of_child(const shim_setup_request_t *request)
{
    return request->regroup ? shim_setup_key_of_color(&request->key, request->color) : request->key;
}

void shim_setup_begin_nodes(shim_setup_t *setup)
{
    const shim_setup_request_t *request = &setup->request;
    const bool asked = request->rank < 0; /* a child on GPUs: the real NCCL knows its rank */
    const shim_nodes_request_t meeting = {.invitation = request->invitation,
                                          .key = request->key,
                                          .child = key_of_child(request),
                                          .place = setup->comm->place,
                                          .nccl_node = shim_identity_nccl_node(),
                                          .rank = asked ? setup->comm->rank : (uint32_t)request->rank,
                                          .nranks = asked ? setup->comm->nranks : (uint32_t)request->nranks,
                                          .began_ns = setup->since_ns,
                                          .limit_ms = (uint32_t)shim_setup_limit_ms(setup),
                                          .blocking = request->config.blocking,
                                          .device = setup->comm->device,
                                          .regroup = request->regroup,
                                          .color = request->color,
                                          .order = request->order};
    setup->nodes = shim_nodes_begin(&meeting);
    if (!setup->nodes)
        shim_setup_decline(setup, SHIM_WHY(NO_THREAD));
}

static void met(shim_setup_t *setup, const shim_nodes_outcome_t *outcome)
{
    shim_comm_t *comm = setup->comm;
    net_leave(setup->rendezvous);
    setup->rendezvous = NULL;
    shim_setup_keep_count(setup);
    if (outcome->nranks == 0) {
        setup->state = STATE_DONE;
        return;
    }
    comm->key = key_of_child(&setup->request);
    setup->across = outcome->one_node ? NULL : outcome;
    comm->rank = setup->across ? outcome->node_rank : outcome->rank;
    comm->nranks = setup->across ? outcome->node_ranks : outcome->nranks;
    if (shim_setup_rejoin(setup, &outcome->team))
        shim_setup_enter(setup, STATE_IDENTITY);
}

bool shim_setup_nodes_due(const shim_setup_t *setup)
{
    return setup->ops->nodes_ms > 0 && setup->state == STATE_IDENTITY && !setup->request.regroup && !setup->across &&
           setup->request.invitation.given && net_count(setup->rendezvous) < setup->comm->nranks &&
           net_now_ns() > setup->since_ns + setup->ops->nodes_ms * UINT64_C(1000000);
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
    setup->across = NULL;
}

bool shim_setup_step_agreement(shim_setup_t *setup)
{
    shim_why_t why;
    if (!shim_nodes_agreed(setup->nodes, &why)) {
        const uint64_t needed = atomic_load(&setup->needed_ns);
        setup->postpone |= shim_setup_waits_too_long(setup);
        if (needed == 0 || net_now_ns() < needed + SHIM_SETTLE_LIMIT_MS * UINT64_C(1000000))
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
    if (setup->state == STATE_EITHER && net_count(setup->rendezvous) >= setup->comm->nranks) {
        end_meeting(setup); /* all ranks are on this node; the last one was late */
        setup->state = STATE_IDENTITY;
        return false;
    }
    const shim_nodes_outcome_t *outcome = shim_nodes_met(setup->nodes);
    if (!outcome) {
        setup->postpone |= shim_setup_waits_too_long(setup);
        return false;
    }
    if (outcome->failure.reason != SEL_TAKEN)
        shim_setup_decline(setup, outcome->failure.reason, "%s", outcome->failure.text);
    else
        met(setup, outcome);
    if (!setup->across)
        end_meeting(setup);
    return true;
}
