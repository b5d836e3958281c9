/* SPDX-License-Identifier: Apache-2.0 */
/* meeting.c - see docs/nodes.md, "How they meet".
 * Each rank posts its record, reads those of all ranks, connects, and posts the result. Then each node's ranks set up
 * their team (stages.c) and report to a second meeting, which they joined before. So all ranks reach the same outcome,
 * unless a rank dies at the very end; then its peers see their connections close. Meetings block, so each set-up has a
 * thread for them. */
#include "shim/nodes/nodes.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/nodes/nodes.h"
#include "shim/base/key.h"
#include "shim/base/log.h"
#include "shim/nodes/invite.h"
#include "shim/nodes/rdma.h"
#include "shunt.h"

enum { ROUNDS = 2, AGREE_ROUNDS = 2, RECORD_LAYOUT = 5 };

/* A rank's first record, without padding. */
typedef struct record {
    uint32_t version, layout;
    net_key_t node, nccl_node;
    net_address_t relay, every;
    int32_t color, order;
    uint32_t blocking, reserved;
} record_t;

_Static_assert(sizeof(record_t) <= NET_ROUND_BYTES, "a record does not fit into a round");
_Static_assert((int)ALG_MAX_RANKS <= (int)NET_NETWORK_RANKS, "more ranks than a network has");

struct shim_meeting {
    shim_nodes_request_t request;
    net_invitation_t invitation;
    uint32_t stop; /* atomic */
    atomic_bool met, agreed;
    pthread_t thread;
    bool joined;
    shim_why_t *failed; /* where a failure is written: &outcome.failure; once `met`: &refusal */
    shim_why_t refusal;
    shim_nodes_outcome_t outcome;
    net_network_t *relay_sockets, *every_sockets; /* listen until the other ranks are connected */
    alg_relay_t *relay;                           /* owned; NULL: not connected */
    alg_nodes_t *every;                           /* owned; CPU device */
    net_meeting_t *last;                          /* the second meeting, if any */
    net_key_t plan;
    pthread_mutex_t lock;
    pthread_cond_t told;
    bool is_ready;
};

enum { TEAM_TAG = 't', LAST_TAG = 'l' };

static uint32_t waited_ms(const shim_nodes_request_t *request)
{
    const uint64_t waited = (net_now_ns() - request->began_ns) / 1000000;
    return waited < request->limit_ms ? (uint32_t)waited : request->limit_ms;
}

static void meeting_failed(shim_meeting_t *meeting, int error)
{
    char where[NET_ADDRESS_TEXT];
    net_address_write(&meeting->invitation.address, where);
    switch (error) {
    case -EEXIST:
        shim_why_write(meeting->failed, SHIM_WHY(RANK_TAKEN), meeting->request.rank);
        break;
    case -ESRCH:
        shim_why_write(meeting->failed, SHIM_WHY(NODES_DIED));
        break;
    case -EHOSTUNREACH:
        shim_why_write(meeting->failed, SHIM_WHY(NO_ANSWER), where, waited_ms(&meeting->request));
        break;
    case -ETIMEDOUT:
        shim_why_write(meeting->failed, SHIM_WHY(NODES_MISSING), meeting->request.nranks, where,
                       meeting->request.limit_ms);
        break;
    default:
        shim_why_write(meeting->failed, SHIM_WHY(NO_MEETING), where, strerror(-error));
    }
}

static bool on_cpu(const shim_nodes_request_t *request)
{
    return request->device < 0;
}

static int open_sockets(shim_meeting_t *meeting, record_t *record)
{
    const shim_nodes_request_t *request = &meeting->request;
    const net_interfaces_t wanted = shim_invite_interfaces();
    shim_rdma_t rdma;
    shim_rdma_read(request->device, &rdma);
    *record = (record_t){.version = SHUNT_VERSION_CODE,
                         .layout = RECORD_LAYOUT,
                         .node = request->place,
                         .nccl_node = request->nccl_node,
                         .color = request->color,
                         .order = request->order,
                         .blocking = request->blocking};
    int error = net_network_open(&wanted, &rdma.wish, &meeting->relay_sockets, &record->relay);
    if (!error && on_cpu(request))
        error = net_network_open(&wanted, &rdma.wish, &meeting->every_sockets, &record->every);
    return error;
}

/* Of one colour, in the split's order. */
typedef struct members {
    uint32_t count;
    uint32_t rank[NET_NETWORK_RANKS]; /* the members' numbers in the meeting */
    uint32_t node[NET_NETWORK_RANKS], node_rank[NET_NETWORK_RANKS];
} members_t;

/* Numbers the nodes in the order of their first ranks. False: the nodes have unequal numbers of ranks, or too many. */
static bool number_nodes(members_t *members, const record_t *records, shim_nodes_outcome_t *outcome)
{
    uint32_t ranks_of[NET_NETWORK_RANKS] = {0};
    outcome->nodes = 0;
    for (uint32_t m = 0; m < members->count; m++) {
        uint32_t first = 0;
        while (memcmp(&records[members->rank[first]].node, &records[members->rank[m]].node, sizeof(net_key_t)))
            first++;
        members->node[m] = first == m ? outcome->nodes++ : members->node[first];
        members->node_rank[m] = ranks_of[members->node[m]]++;
    }
    outcome->node_ranks = ranks_of[0];
    for (uint32_t h = 1; h < outcome->nodes; h++) {
        if (ranks_of[h] != outcome->node_ranks)
            return false;
    }
    return outcome->nodes <= ALG_MAX_RANKS && outcome->node_ranks <= ALG_MAX_RANKS;
}

static void find_members(const shim_nodes_request_t *request, const record_t *records, members_t *members,
                         shim_nodes_outcome_t *outcome)
{
    const record_t *own = &records[request->rank];
    /* An init comes here if its ranks have not met in shared memory, so they are not on one node. */
    outcome->one_node = request->regroup;
    outcome->blocking = true;
    members->count = 0;
    for (uint32_t r = 0; r < request->nranks; r++) {
        if (request->regroup && records[r].color != own->color)
            continue;
        uint32_t at = members->count++;
        while (request->regroup && at > 0 && records[members->rank[at - 1]].order > records[r].order) {
            members->rank[at] = members->rank[at - 1];
            at--;
        }
        members->rank[at] = r;
        outcome->one_node = outcome->one_node && !memcmp(&records[r].node, &own->node, sizeof(own->node));
        outcome->blocking = outcome->blocking && records[r].blocking;
    }
    if (!number_nodes(members, records, outcome)) { /* if not, treat each rank as a node */
        outcome->nodes = members->count;
        outcome->node_ranks = 1;
        for (uint32_t m = 0; m < members->count; m++) {
            members->node[m] = m;
            members->node_rank[m] = 0;
        }
    }
    while (members->rank[outcome->rank] != request->rank)
        outcome->rank++;
    outcome->node = members->node[outcome->rank];
    outcome->node_rank = members->node_rank[outcome->rank];
    outcome->team = outcome->one_node ? request->child : shim_key_child(&request->child, TEAM_TAG, outcome->node);
}

/* With the ranks of the same number on other nodes. */
static int connect_relay(shim_meeting_t *meeting, const members_t *members, const record_t *records,
                         const net_limit_t *limit)
{
    const shim_nodes_outcome_t *outcome = &meeting->outcome;
    const shim_nodes_request_t *request = &meeting->request;
    net_address_t address[ALG_MAX_RANKS];
    const alg_device_t kind = on_cpu(request) ? ALG_DEVICE_CPU : ALG_DEVICE_CUDA;
    int error = alg_relay_create(kind, request->device, outcome->node, outcome->nodes, &meeting->relay);
    if (error)
        return error;
    for (uint32_t m = 0; m < members->count; m++) {
        if (members->node_rank[m] == outcome->node_rank)
            address[members->node[m]] = records[members->rank[m]].relay;
    }
    const net_landing_t landing = alg_relay_landing(meeting->relay);
    const net_key_t group = shim_key_child(&request->child, TEAM_TAG, outcome->node_rank);
    error = net_network_connect(meeting->relay_sockets, &meeting->invitation, &group, outcome->node, outcome->nodes,
                                address, &landing, limit);
    if (error)
        return error;
    char way[NET_WAY_TEXT];
    net_network_way(meeting->relay_sockets, way);
    shim_info("ranks of other nodes are reached by %s", way);
    error = alg_relay_connected(meeting->relay, meeting->relay_sockets);
    if (!error)
        meeting->relay_sockets = NULL;
    return error;
}

static int connect_every(shim_meeting_t *meeting, const members_t *members, const record_t *records,
                         const net_limit_t *limit)
{
    net_address_t address[NET_NETWORK_RANKS];
    if (!meeting->every_sockets)
        return 0;
    int error = alg_nodes_create(meeting->outcome.rank, members->count, &meeting->every);
    if (error)
        return error;
    for (uint32_t m = 0; m < members->count; m++)
        address[m] = records[members->rank[m]].every;
    const net_landing_t landing = alg_nodes_landing(meeting->every);
    error = net_network_connect(meeting->every_sockets, &meeting->invitation, &meeting->request.child,
                                meeting->outcome.rank, members->count, address, &landing, limit);
    if (error)
        return error;
    alg_nodes_connected(meeting->every, meeting->every_sockets);
    meeting->every_sockets = NULL;
    return 0;
}

/* Exchanges the ranks' errors. All ranks report the error of the lowest rank that failed. */
static void exchange_errors(shim_meeting_t *meeting, net_meeting_t *first, int32_t own, const net_limit_t *limit)
{
    int32_t all[NET_NETWORK_RANKS];
    int error = net_meeting_exchange(first, &own, sizeof(own), all, limit);
    shim_invite_note(error);
    for (uint32_t r = 0; !error && r < meeting->request.nranks; r++) {
        shim_invite_note(all[r]);
        if (all[r] && meeting->outcome.failure.reason == SEL_TAKEN)
            shim_why_write(meeting->failed, SHIM_WHY(NOT_CONNECTED), r, strerror(-all[r]));
    }
    if (error)
        meeting_failed(meeting, error);
}

/* Joins the second meeting, which has only the members. After its first round they notice when one of them dies. */
static int join_last(shim_meeting_t *meeting, const members_t *members, const net_limit_t *limit)
{
    const net_key_t key = shim_key_child(&meeting->request.child, LAST_TAG, 0);
    uint32_t here = 0, all[NET_NETWORK_RANKS];
    int error = net_meeting_join(&meeting->invitation, &key, meeting->outcome.rank, members->count, AGREE_ROUNDS, limit,
                                 &meeting->last);
    return error ? error : net_meeting_exchange(meeting->last, &here, sizeof(here), all, limit);
}

/* Whether NCCL sees one node where Shunt sees two (containers): NCCL may have faster paths there. */
static bool one_node_to_nccl(const shim_nodes_request_t *request, const record_t *records)
{
    for (uint32_t r = 1; r < request->nranks; r++) {
        for (uint32_t other = 0; other < r; other++) {
            if (memcmp(&records[r].node, &records[other].node, sizeof(net_key_t)) &&
                !memcmp(&records[r].nccl_node, &records[other].nccl_node, sizeof(net_key_t)))
                return true;
        }
    }
    return false;
}

/* Three quarters of the time left; the rest is for posting results. */
static net_limit_t limit_of_connecting(const net_limit_t *limit)
{
    const uint64_t now = net_now_ns();
    const uint64_t left = limit->deadline_ns > now ? limit->deadline_ns - now : 0;
    return (net_limit_t){now + left / 4 * 3 + 1, limit->stop};
}

static void met(shim_meeting_t *meeting, net_meeting_t *first, const record_t *records, const net_limit_t *limit)
{
    const shim_nodes_request_t *request = &meeting->request;
    shim_nodes_outcome_t *outcome = &meeting->outcome;
    for (uint32_t r = 0; r < request->nranks; r++) {
        if (records[r].version != SHUNT_VERSION_CODE || records[r].layout != RECORD_LAYOUT) {
            shim_why_write(meeting->failed, SHIM_WHY(VERSION), r, request->rank);
            return;
        }
    }
    if (!on_cpu(request) && one_node_to_nccl(request, records)) {
        shim_why_write(meeting->failed, SHIM_WHY(ONE_NODE));
        return;
    }
    members_t members;
    find_members(request, records, &members, outcome);
    const bool stays = !request->regroup || request->color != NCCL_SPLIT_NOCOLOR;
    outcome->nranks = stays ? members.count : 0;
    const bool across = stays && !outcome->one_node;
    const net_limit_t soon = limit_of_connecting(limit);
    int error = across ? connect_relay(meeting, &members, records, &soon) : 0;
    if (!error && across)
        error = connect_every(meeting, &members, records, &soon);
    exchange_errors(meeting, first, error, limit);
    if (!across || outcome->failure.reason != SEL_TAKEN)
        return;
    error = join_last(meeting, &members, limit);
    if (error)
        meeting_failed(meeting, error);
}

static void meet(shim_meeting_t *meeting)
{
    const shim_nodes_request_t *request = &meeting->request;
    const net_limit_t limit = {request->began_ns + request->limit_ms * UINT64_C(1000000), &meeting->stop};
    record_t own, records[NET_NETWORK_RANKS];
    net_meeting_t *first = NULL;
    int error = open_sockets(meeting, &own);
    if (error) {
        shim_why_write(meeting->failed, SHIM_WHY(NO_SOCKET), strerror(-error));
        return;
    }
    error =
        net_meeting_join(&meeting->invitation, &request->key, request->rank, request->nranks, ROUNDS, &limit, &first);
    if (!error)
        error = net_meeting_exchange(first, &own, sizeof(own), records, &limit);
    if (!error)
        met(meeting, first, records, &limit);
    net_meeting_leave(first);
    if (error) {
        meeting_failed(meeting, error);
        shim_invite_note(error);
    }
}

static void agree(shim_meeting_t *meeting)
{
    const net_limit_t limit = {0, &meeting->stop};
    net_key_t all[NET_NETWORK_RANKS];
    pthread_mutex_lock(&meeting->lock);
    while (!meeting->is_ready && !__atomic_load_n(&meeting->stop, __ATOMIC_ACQUIRE))
        pthread_cond_wait(&meeting->told, &meeting->lock);
    pthread_mutex_unlock(&meeting->lock);
    if (!meeting->is_ready)
        return;
    int error = net_meeting_exchange(meeting->last, &meeting->plan, sizeof(meeting->plan), all, &limit);
    for (uint32_t r = 1; !error && r < meeting->outcome.nranks && meeting->refusal.reason == SEL_TAKEN; r++) {
        if (memcmp(&all[r], &all[0], sizeof(all[0])))
            shim_why_write(meeting->failed, SHIM_WHY(NODES_DIFFER), r);
    }
    if (error)
        meeting_failed(meeting, error);
}

static void *run(void *argument)
{
    shim_meeting_t *meeting = argument;
    meet(meeting);
    net_network_close(meeting->relay_sockets);
    net_network_close(meeting->every_sockets);
    const bool agrees = meeting->last && meeting->outcome.failure.reason == SEL_TAKEN;
    meeting->failed = &meeting->refusal;
    atomic_store(&meeting->met, true);
    if (agrees)
        agree(meeting);
    net_meeting_leave(meeting->last);
    atomic_store(&meeting->agreed, true);
    return NULL;
}

shim_meeting_t *shim_nodes_begin(const shim_nodes_request_t *request)
{
    shim_meeting_t *meeting = calloc(1, sizeof(*meeting));
    if (!meeting)
        return NULL;
    meeting->request = *request;
    meeting->invitation = shim_invite_open(&request->invitation);
    meeting->failed = &meeting->outcome.failure;
    pthread_mutex_init(&meeting->lock, NULL);
    pthread_cond_init(&meeting->told, NULL);
    if (net_thread_start(&meeting->thread, run, meeting)) {
        free(meeting);
        return NULL;
    }
    return meeting;
}

const shim_nodes_outcome_t *shim_nodes_met(const shim_meeting_t *meeting)
{
    return atomic_load(&meeting->met) ? &meeting->outcome : NULL;
}

void shim_nodes_agree(shim_meeting_t *meeting, const net_key_t *plan)
{
    pthread_mutex_lock(&meeting->lock);
    meeting->plan = *plan;
    meeting->is_ready = true;
    pthread_cond_signal(&meeting->told);
    pthread_mutex_unlock(&meeting->lock);
}

bool shim_nodes_agreed(const shim_meeting_t *meeting, shim_why_t *why)
{
    if (!atomic_load(&meeting->agreed))
        return false;
    *why = meeting->refusal;
    return true;
}

static void end_thread(shim_meeting_t *meeting)
{
    if (meeting->joined)
        return;
    pthread_mutex_lock(&meeting->lock);
    __atomic_store_n(&meeting->stop, 1, __ATOMIC_RELEASE);
    pthread_cond_signal(&meeting->told);
    pthread_mutex_unlock(&meeting->lock);
    pthread_join(meeting->thread, NULL);
    meeting->joined = true;
}

void shim_nodes_serve(shim_meeting_t *meeting, alg_team_t *team, alg_control_t *control)
{
    end_thread(meeting);
    alg_relay_serve(meeting->relay, team, control);
    if (meeting->every)
        alg_nodes_serve(meeting->every, team);
}

void shim_nodes_call(shim_meeting_t *meeting, const alg_team_t *team, const alg_call_t *call, bool captured)
{
    if (meeting && call->collective == ALG_ALL_REDUCE)
        alg_relay_call(meeting->relay, team, call, captured);
}

void shim_nodes_flush(shim_meeting_t *meeting)
{
    if (meeting)
        alg_relay_flush(meeting->relay);
}

const char *shim_nodes_fault(const shim_meeting_t *meeting)
{
    const char *fault = meeting ? alg_relay_fault(meeting->relay) : NULL;
    return !fault && meeting && meeting->every ? alg_nodes_fault(meeting->every) : fault;
}

void shim_nodes_end(shim_meeting_t *meeting)
{
    if (!meeting)
        return;
    end_thread(meeting);
    pthread_cond_destroy(&meeting->told);
    pthread_mutex_destroy(&meeting->lock);
    alg_relay_destroy(meeting->relay);
    alg_nodes_destroy(meeting->every);
    free(meeting);
}
