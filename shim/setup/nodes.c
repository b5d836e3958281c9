/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodes.c - see nodes.h and docs/nodes.md, "How they meet".
 *
 * Each rank posts its record, reads those of all ranks, connects, and posts the result. Then each node's ranks set up
 * their team (stages.c) and report to a second meeting, which they joined before. So all ranks reach the same outcome,
 * unless a rank dies at the very end; then its peers see their connections close. Meetings block, so each set-up has a
 * thread for them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/clock.h"
#include "shim/base/device.h"
#include "shim/base/log.h"
#include "shim/base/nccl_env.h"
#include "shim/base/settings.h"
#include "shim/setup/rdma.h"
#include "shim/setup/setup.h"

enum { ROUNDS = 2, AGREE_ROUNDS = 2, RECORD_LAYOUT = 5 };

/* A rank's first record, without padding. */
typedef struct record {
    uint32_t version, layout;
    net_key_t node, nccl_node;  /* the node as Shunt and as NCCL identify it */
    net_address_t relay, every; /* where peers connect (sockets_t) */
    int32_t color, order;
    uint32_t blocking, reserved;
} record_t;

typedef struct ready {
    net_key_t plan;
} ready_t;

_Static_assert(sizeof(record_t) <= NET_ROUND_BYTES, "a record does not fit into a round");
_Static_assert((int)ALG_MAX_RANKS <= (int)NET_NETWORK_RANKS, "more ranks than a network has");

static atomic_bool g_alone;
static atomic_bool g_told; /* a bad NCCL_SOCKET_IFNAME was logged */

static atomic_bool g_encrypted;

void shim_nodes_encrypt(void)
{
    atomic_store(&g_encrypted, true);
}

bool shim_nodes_encrypted(void)
{
    return atomic_load(&g_encrypted);
}

bool shim_nodes_alone(void)
{
    return atomic_load(&g_alone);
}

struct shim_nodes {
    shim_nodes_request_t request;
    uint32_t stop; /* atomic; set by shim_nodes_end */
    atomic_bool met, agreed;
    pthread_t thread;
    shim_why_t *failed; /* where a failure is written: &outcome.failure, once `met` &refusal */
    shim_why_t refusal;
    shim_nodes_outcome_t outcome;
    net_meeting_t *last; /* the second meeting, if any */
    ready_t ready;       /* this rank's report, valid if is_ready */
    pthread_mutex_t lock;
    pthread_cond_t told;
    bool is_ready;
};

static net_interfaces_t interfaces(void)
{
    return (net_interfaces_t){shim_nccl_env("NCCL_SOCKET_IFNAME"), shim_nccl_env("NCCL_SOCKET_FAMILY")};
}

enum { TEAM_TAG = 't', LAST_TAG = 'l' };
enum { INVITATION_AT = sizeof(ncclUniqueId) - sizeof(net_invitation_t) };

void shim_nodes_invite(ncclUniqueId *id)
{
    static const net_invitation_t empty;
    net_invitation_t invitation;
    const net_interfaces_t wanted = interfaces();
    if (!shim_settings()->listen || shim_nodes_encrypted() || (!shim_cpu_mode() && !shim_identity_takes_nodes()))
        return; /* the ranks would not use an invitation (begin.c) */
    if (memcmp(id->internal + INVITATION_AT, &empty, sizeof(empty)) != 0)
        return;
    int error = net_invite(&wanted, &invitation);
    if (error == -ENODEV && wanted.names && !atomic_exchange(&g_told, true))
        shim_warn("NCCL_SOCKET_IFNAME=%.100s names no interface that is up and has an address here, so only ranks of "
                  "one node can meet; name one of `ip -brief address`",
                  wanted.names);
    else if (error)
        shim_info("no listener for this unique id (%s), so only ranks of one node can meet; check NCCL_SOCKET_IFNAME",
                  strerror(-error));
    else
        memcpy(id->internal + INVITATION_AT, &invitation, sizeof(invitation));
}

net_invitation_t shim_nodes_invitation(const ncclUniqueId *ids, int count)
{
    for (int i = 0; i < count; i++) {
        net_invitation_t invitation;
        memcpy(&invitation, ids[i].internal + INVITATION_AT, sizeof(invitation));
        if (net_invitation_valid(&invitation))
            return invitation;
    }
    return (net_invitation_t){0};
}

net_key_t shim_nodes_local_key(const net_key_t *key)
{
    const char *name = shim_nccl_env("NCCL_HOSTID");
    if (!name)
        return *key;
    const struct {
        net_key_t key, node;
    } whole = {*key, net_key_hash(name, strlen(name))};
    return net_key_hash(&whole, sizeof(whole));
}

net_key_t shim_nodes_team_key(const net_key_t *key, uint32_t node)
{
    const struct {
        net_key_t key;
        uint64_t tag, node;
    } whole = {*key, TEAM_TAG, node};
    return net_key_hash(&whole, sizeof(whole));
}

static uint32_t waited_ms(const shim_nodes_request_t *request)
{
    const uint64_t began_ns = request->deadline_ns - request->limit_ms * UINT64_C(1000000);
    const uint64_t waited = (shim_now_ns() - began_ns) / 1000000;
    return waited < request->limit_ms ? (uint32_t)waited : request->limit_ms;
}

static void meeting_failed(shim_nodes_t *nodes, int error)
{
    char where[NET_ADDRESS_TEXT];
    net_address_write(&nodes->request.invitation.address, where);
    switch (error) {
    case -EEXIST:
        shim_why_write(nodes->failed, SHIM_WHY(RANK_TAKEN), nodes->request.rank);
        break;
    case -ESRCH:
        shim_why_write(nodes->failed, SHIM_WHY(NODES_DIED));
        break;
    case -EHOSTUNREACH:
        shim_why_write(nodes->failed, SHIM_WHY(NO_ANSWER), where, waited_ms(&nodes->request));
        break;
    case -ETIMEDOUT:
        shim_why_write(nodes->failed, SHIM_WHY(NODES_MISSING), nodes->request.nranks, where, nodes->request.limit_ms);
        break;
    default:
        shim_why_write(nodes->failed, SHIM_WHY(NO_MEETING), where, strerror(-error));
    }
}

/* Sockets that listen until the other ranks are connected. */
typedef struct sockets {
    net_network_t *relay, *every; /* every: CPU device only; else NULL */
} sockets_t;

static void close_sockets(sockets_t *sockets)
{
    net_network_close(sockets->relay);
    net_network_close(sockets->every);
    *sockets = (sockets_t){NULL, NULL};
}

static int open_sockets(const shim_nodes_request_t *request, sockets_t *sockets, record_t *record)
{
    const net_interfaces_t wanted = interfaces();
    shim_rdma_t rdma;
    shim_rdma_read(request->device, &rdma);
    *sockets = (sockets_t){NULL, NULL};
    memset(record, 0, sizeof(*record));
    record->version = SHUNT_VERSION_CODE;
    record->layout = RECORD_LAYOUT;
    record->node = request->place;
    record->nccl_node = shim_identity_nccl_node();
    record->color = request->color;
    record->order = request->order;
    record->blocking = request->blocking;
    int error = net_network_open(&wanted, &rdma.wish, &sockets->relay, &record->relay);
    if (!error && request->kind == ALG_DEVICE_CPU)
        error = net_network_open(&wanted, &rdma.wish, &sockets->every, &record->every);
    if (error)
        close_sockets(sockets);
    return error;
}

/* The ranks of one colour, in the split's order. */
typedef struct members {
    uint32_t count, own;
    uint32_t rank[NET_NETWORK_RANKS]; /* the members' numbers in the meeting */
    bool one_node, blocking;
    uint32_t node[NET_NETWORK_RANKS], node_rank[NET_NETWORK_RANKS];
    uint32_t nodes, node_ranks;
} members_t;

/* Numbers the nodes in the order of their first ranks. False: the nodes have unequal numbers of ranks, or too many. */
static bool number_nodes(members_t *members, const record_t *records)
{
    uint32_t ranks_of[NET_NETWORK_RANKS] = {0};
    members->nodes = 0;
    for (uint32_t m = 0; m < members->count; m++) {
        uint32_t first = 0;
        while (memcmp(&records[members->rank[first]].node, &records[members->rank[m]].node, sizeof(net_key_t)))
            first++;
        members->node[m] = first == m ? members->nodes++ : members->node[first];
        members->node_rank[m] = ranks_of[members->node[m]]++;
    }
    members->node_ranks = ranks_of[0];
    for (uint32_t h = 1; h < members->nodes; h++) {
        if (ranks_of[h] != members->node_ranks)
            return false;
    }
    return members->nodes <= ALG_MAX_RANKS && members->node_ranks <= ALG_MAX_RANKS;
}

static members_t find_members(const shim_nodes_request_t *request, const record_t *records)
{
    /* An init comes here if its ranks have not met in shared memory, so they are not on one node. */
    members_t members = {.one_node = request->regroup, .blocking = true};
    const record_t *own = &records[request->rank];
    for (uint32_t r = 0; r < request->nranks; r++) {
        if (request->regroup && records[r].color != own->color)
            continue;
        uint32_t at = members.count++;
        while (request->regroup && at > 0 && records[members.rank[at - 1]].order > records[r].order) {
            members.rank[at] = members.rank[at - 1];
            at--;
        }
        members.rank[at] = r;
        members.one_node = members.one_node && !memcmp(&records[r].node, &own->node, sizeof(own->node));
        members.blocking = members.blocking && records[r].blocking;
    }
    while (members.rank[members.own] != request->rank)
        members.own++;
    if (!number_nodes(&members, records)) { /* if not, treat each rank as a node */
        members.nodes = members.count;
        members.node_ranks = 1;
        for (uint32_t m = 0; m < members.count; m++) {
            members.node[m] = m;
            members.node_rank[m] = 0;
        }
    }
    return members;
}

static net_key_t key_of_members(const shim_nodes_request_t *request)
{
    return request->regroup ? shim_setup_key_of_color(&request->key, request->color) : request->key;
}

/* Connects this rank with ranks of the same number on the other nodes. */
static int connect_relay(shim_nodes_t *nodes, const members_t *members, const record_t *records, sockets_t *sockets,
                         const net_limit_t *limit)
{
    shim_nodes_outcome_t *outcome = &nodes->outcome;
    const shim_nodes_request_t *request = &nodes->request;
    net_address_t address[ALG_MAX_RANKS];
    int error = alg_relay_create(request->kind, request->device, outcome->node, outcome->nodes, &outcome->relay);
    if (error)
        return error;
    for (uint32_t m = 0; m < members->count; m++) {
        if (members->node_rank[m] == outcome->node_rank)
            address[members->node[m]] = records[members->rank[m]].relay;
    }
    const net_landing_t landing = alg_relay_landing(outcome->relay);
    const net_key_t group = shim_nodes_team_key(&outcome->key, outcome->node_rank);
    error = net_network_connect(sockets->relay, &nodes->request.invitation, &group, outcome->node, outcome->nodes,
                                address, &landing, limit);
    if (error)
        return error;
    char way[NET_WAY_TEXT];
    net_network_way(sockets->relay, way);
    shim_info("ranks of other nodes are reached by %s", way);
    error = alg_relay_connected(outcome->relay, sockets->relay);
    if (!error)
        sockets->relay = NULL;
    return error;
}

static int connect_every(shim_nodes_t *nodes, const members_t *members, const record_t *records, sockets_t *sockets,
                         const net_limit_t *limit)
{
    shim_nodes_outcome_t *outcome = &nodes->outcome;
    net_address_t address[NET_NETWORK_RANKS];
    if (!sockets->every)
        return 0;
    int error = alg_nodes_create(members->own, members->count, &outcome->every);
    if (error)
        return error;
    for (uint32_t m = 0; m < members->count; m++)
        address[m] = records[members->rank[m]].every;
    const net_landing_t landing = alg_nodes_landing(outcome->every);
    error = net_network_connect(sockets->every, &nodes->request.invitation, &outcome->key, members->own, members->count,
                                address, &landing, limit);
    if (error)
        return error;
    alg_nodes_connected(outcome->every, sockets->every);
    sockets->every = NULL;
    return 0;
}

/* After a time-out later set-ups do not wait for other nodes. The first rank to time out leaves, which the others see
 * as -ESRCH. */
static void note_absence(int error)
{
    if (error == -ETIMEDOUT || error == -ESRCH || error == -EHOSTUNREACH)
        atomic_store(&g_alone, true);
}

/* Exchanges the ranks' errors. All ranks report the error of the lowest rank that failed. */
static void exchange_errors(shim_nodes_t *nodes, net_meeting_t *meeting, int32_t own, const net_limit_t *limit)
{
    int32_t all[NET_NETWORK_RANKS];
    int error = net_meeting_exchange(meeting, &own, sizeof(own), all, limit);
    note_absence(error);
    for (uint32_t r = 0; !error && r < nodes->request.nranks; r++) {
        note_absence(all[r]);
        if (all[r] && nodes->outcome.failure.reason == SEL_TAKEN)
            shim_why_write(nodes->failed, SHIM_WHY(NOT_CONNECTED), r, strerror(-all[r]));
    }
    if (error)
        meeting_failed(nodes, error);
}

/* Joins the second meeting, which has only the members. After its first round the members notice when one of them
 * dies. */
static int join_last(shim_nodes_t *nodes, const members_t *members, const net_limit_t *limit)
{
    const struct {
        net_key_t key;
        int64_t tag;
    } whole = {nodes->outcome.key, LAST_TAG};
    const net_key_t key = net_key_hash(&whole, sizeof(whole));
    uint32_t here = 0, all[NET_NETWORK_RANKS];
    int error = net_meeting_join(&nodes->request.invitation, &key, members->own, members->count, AGREE_ROUNDS, limit,
                                 &nodes->last);
    return error ? error : net_meeting_exchange(nodes->last, &here, sizeof(here), all, limit);
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
    const uint64_t now = shim_now_ns();
    const uint64_t left = limit->deadline_ns > now ? limit->deadline_ns - now : 0;
    return (net_limit_t){now + left / 4 * 3 + 1, limit->stop};
}

static void met(shim_nodes_t *nodes, net_meeting_t *meeting, const record_t *records, sockets_t *sockets,
                const net_limit_t *limit)
{
    const shim_nodes_request_t *request = &nodes->request;
    shim_nodes_outcome_t *outcome = &nodes->outcome;
    for (uint32_t r = 0; r < request->nranks; r++) {
        if (records[r].version != SHUNT_VERSION_CODE || records[r].layout != RECORD_LAYOUT) {
            shim_why_write(nodes->failed, SHIM_WHY(VERSION), r, request->rank);
            return;
        }
    }
    if (request->kind == ALG_DEVICE_CUDA && one_node_to_nccl(request, records)) {
        shim_why_write(nodes->failed, SHIM_WHY(ONE_NODE));
        return;
    }
    const members_t members = find_members(request, records);
    const bool stays = !request->regroup || request->color != NCCL_SPLIT_NOCOLOR;
    outcome->key = key_of_members(request);
    outcome->rank = members.own;
    outcome->nranks = stays ? members.count : 0;
    outcome->blocking = members.blocking;
    outcome->one_node = members.one_node;
    outcome->node = members.node[members.own];
    outcome->nodes = members.nodes;
    outcome->node_rank = members.node_rank[members.own];
    outcome->node_ranks = members.node_ranks;
    const bool across = stays && !members.one_node;
    const net_limit_t soon = limit_of_connecting(limit);
    int error = across ? connect_relay(nodes, &members, records, sockets, &soon) : 0;
    if (!error && across)
        error = connect_every(nodes, &members, records, sockets, &soon);
    exchange_errors(nodes, meeting, error, limit);
    if (!across || outcome->failure.reason != SEL_TAKEN)
        return;
    error = join_last(nodes, &members, limit);
    if (error)
        meeting_failed(nodes, error);
}

static void meet(shim_nodes_t *nodes)
{
    const shim_nodes_request_t *request = &nodes->request;
    const net_limit_t limit = {request->deadline_ns, &nodes->stop};
    record_t own, records[NET_NETWORK_RANKS];
    sockets_t sockets;
    net_meeting_t *meeting;
    int error = open_sockets(request, &sockets, &own);
    if (error) {
        shim_why_write(nodes->failed, SHIM_WHY(NO_SOCKET), strerror(-error));
        return;
    }
    error =
        net_meeting_join(&request->invitation, &request->key, request->rank, request->nranks, ROUNDS, &limit, &meeting);
    if (!error) {
        error = net_meeting_exchange(meeting, &own, sizeof(own), records, &limit);
        if (!error)
            met(nodes, meeting, records, &sockets, &limit);
        net_meeting_leave(meeting);
    }
    if (error) {
        meeting_failed(nodes, error);
        note_absence(error);
    }
    close_sockets(&sockets);
}

static void agree(shim_nodes_t *nodes)
{
    const net_limit_t limit = {0, &nodes->stop};
    ready_t all[NET_NETWORK_RANKS];
    pthread_mutex_lock(&nodes->lock);
    while (!nodes->is_ready && !__atomic_load_n(&nodes->stop, __ATOMIC_ACQUIRE))
        pthread_cond_wait(&nodes->told, &nodes->lock);
    pthread_mutex_unlock(&nodes->lock);
    if (!nodes->is_ready)
        return;
    int error = net_meeting_exchange(nodes->last, &nodes->ready, sizeof(nodes->ready), all, &limit);
    for (uint32_t r = 1; !error && r < nodes->outcome.nranks && nodes->refusal.reason == SEL_TAKEN; r++) {
        if (memcmp(&all[r], &all[0], sizeof(all[0])))
            shim_why_write(nodes->failed, SHIM_WHY(NODES_DIFFER), r);
    }
    if (error)
        meeting_failed(nodes, error);
}

static void *run(void *argument)
{
    shim_nodes_t *nodes = argument;
    meet(nodes);
    const bool agrees = nodes->last && nodes->outcome.failure.reason == SEL_TAKEN;
    nodes->failed = &nodes->refusal;
    atomic_store(&nodes->met, true);
    if (agrees)
        agree(nodes);
    net_meeting_leave(nodes->last);
    atomic_store(&nodes->agreed, true);
    return NULL;
}

shim_nodes_t *shim_nodes_begin(const shim_nodes_request_t *request)
{
    shim_nodes_t *nodes = calloc(1, sizeof(*nodes));
    if (!nodes)
        return NULL;
    nodes->request = *request;
    nodes->failed = &nodes->outcome.failure;
    pthread_mutex_init(&nodes->lock, NULL);
    pthread_cond_init(&nodes->told, NULL);
    if (net_thread_start(&nodes->thread, run, nodes)) {
        free(nodes);
        return NULL;
    }
    return nodes;
}

bool shim_nodes_poll(shim_nodes_t *nodes, shim_nodes_outcome_t *outcome)
{
    if (!atomic_load(&nodes->met))
        return false;
    *outcome = nodes->outcome;
    if (outcome->failure.reason == SEL_TAKEN) {
        nodes->outcome.relay = NULL;
        nodes->outcome.every = NULL;
    }
    return true;
}

void shim_nodes_agree(shim_nodes_t *nodes, const net_key_t *plan)
{
    pthread_mutex_lock(&nodes->lock);
    nodes->ready.plan = *plan;
    nodes->is_ready = true;
    pthread_cond_signal(&nodes->told);
    pthread_mutex_unlock(&nodes->lock);
}

bool shim_nodes_agreed(const shim_nodes_t *nodes, shim_why_t *why)
{
    if (!atomic_load(&nodes->agreed))
        return false;
    *why = nodes->refusal;
    return true;
}

void shim_nodes_end(shim_nodes_t *nodes)
{
    if (!nodes)
        return;
    pthread_mutex_lock(&nodes->lock);
    __atomic_store_n(&nodes->stop, 1, __ATOMIC_RELEASE);
    pthread_cond_signal(&nodes->told);
    pthread_mutex_unlock(&nodes->lock);
    pthread_join(nodes->thread, NULL);
    pthread_cond_destroy(&nodes->told);
    pthread_mutex_destroy(&nodes->lock);
    alg_nodes_destroy(nodes->outcome.every);
    alg_relay_destroy(nodes->outcome.relay);
    free(nodes);
}
