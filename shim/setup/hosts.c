/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hosts.c - see hosts.h and docs/hosts.md, "How they meet".
 *
 * Each rank posts its record, reads those of all, connects, and posts the result. Then each host's ranks set up their
 * team (stages.c) and report to a second meeting, joined before. So all ranks reach the same outcome, unless one dies
 * at the very end; its peers then see their connections close. All this blocks, so a thread of each set-up does it.
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
    net_key_t host, nccl_host;  /* the host, to Shunt and to NCCL */
    net_address_t relay, every; /* where peers connect (sockets_t) */
    int32_t color, order;
    uint32_t blocking, reserved;
} record_t;

/* In the second meeting. */
typedef struct ready {
    net_key_t plan;
} ready_t;

_Static_assert(sizeof(record_t) <= NET_ROUND_BYTES, "a record does not fit into a round");
_Static_assert((int)ALG_MAX_RANKS <= (int)NET_NETWORK_RANKS, "more ranks than a network has");

static atomic_bool g_alone;
static atomic_bool g_told; /* of a bad NCCL_SOCKET_IFNAME */

static atomic_bool g_encrypted;

void shim_hosts_encrypt(void)
{
    atomic_store(&g_encrypted, true);
}

bool shim_hosts_encrypted(void)
{
    return atomic_load(&g_encrypted);
}

bool shim_hosts_alone(void)
{
    return atomic_load(&g_alone);
}

struct shim_hosts {
    shim_hosts_request_t request;
    uint32_t stop; /* atomic */
    atomic_bool met, agreed;
    pthread_t thread;
    shim_why_t *failed; /* &outcome.failure, later &refusal */
    shim_why_t refusal;
    shim_hosts_outcome_t outcome;
    net_meeting_t *last; /* the second meeting, if any */
    ready_t ready;       /* valid with `is_ready` */
    pthread_mutex_t lock;
    pthread_cond_t told;
    bool is_ready;
};

static net_interfaces_t interfaces(void)
{
    return (net_interfaces_t){shim_nccl_env("NCCL_SOCKET_IFNAME"), shim_nccl_env("NCCL_SOCKET_FAMILY")};
}

/* ---- Ids ----------------------------------------------------------------------------- */

enum { TEAM_TAG = 't', LAST_TAG = 'l' };
enum { INVITATION_AT = sizeof(ncclUniqueId) - sizeof(net_invitation_t) };

void shim_hosts_invite(ncclUniqueId *id)
{
    static const net_invitation_t empty;
    net_invitation_t invitation;
    const net_interfaces_t wanted = interfaces();
    if (!shim_settings()->listen || shim_hosts_encrypted() || (!shim_host_mode() && !shim_identity_takes_hosts()))
        return; /* ranks will use no invitation (begin.c) */
    if (memcmp(id->internal + INVITATION_AT, &empty, sizeof(empty)) != 0)
        return;
    int error = net_invite(&wanted, &invitation);
    if (error == -ENODEV && wanted.names && !atomic_exchange(&g_told, true))
        shim_warn("NCCL_SOCKET_IFNAME=%.100s names no interface that is up and has an address here, so only ranks of "
                  "one host can meet; name one of `ip -brief address`",
                  wanted.names);
    else if (error)
        shim_info("no listener for this unique id (%s), so only ranks of one host can meet; check NCCL_SOCKET_IFNAME",
                  strerror(-error));
    else
        memcpy(id->internal + INVITATION_AT, &invitation, sizeof(invitation));
}

net_invitation_t shim_hosts_invitation(const ncclUniqueId *ids, int count)
{
    for (int i = 0; i < count; i++) {
        net_invitation_t invitation;
        memcpy(&invitation, ids[i].internal + INVITATION_AT, sizeof(invitation));
        if (net_invitation_valid(&invitation))
            return invitation;
    }
    return (net_invitation_t){0};
}

net_key_t shim_hosts_local_key(const net_key_t *key)
{
    const char *name = shim_nccl_env("NCCL_HOSTID");
    if (!name)
        return *key;
    const struct {
        net_key_t key, host;
    } whole = {*key, net_key_hash(name, strlen(name))};
    return net_key_hash(&whole, sizeof(whole));
}

net_key_t shim_hosts_team_key(const net_key_t *key, uint32_t host)
{
    const struct {
        net_key_t key;
        uint64_t tag, host;
    } whole = {*key, TEAM_TAG, host};
    return net_key_hash(&whole, sizeof(whole));
}

/* ---- The thread ----------------------------------------------------------------------- */

static uint32_t waited_ms(const shim_hosts_request_t *request)
{
    const uint64_t began_ns = request->deadline_ns - request->limit_ms * UINT64_C(1000000);
    const uint64_t waited = (shim_now_ns() - began_ns) / 1000000;
    return waited < request->limit_ms ? (uint32_t)waited : request->limit_ms;
}

static void meeting_failed(shim_hosts_t *hosts, int error)
{
    char where[NET_ADDRESS_TEXT];
    net_address_write(&hosts->request.invitation.address, where);
    switch (error) {
    case -EEXIST:
        shim_why_write(hosts->failed, SHIM_WHY(RANK_TAKEN), hosts->request.rank);
        break;
    case -ESRCH:
        shim_why_write(hosts->failed, SHIM_WHY(HOSTS_DIED));
        break;
    case -EHOSTUNREACH:
        shim_why_write(hosts->failed, SHIM_WHY(NO_ANSWER), where, waited_ms(&hosts->request));
        break;
    case -ETIMEDOUT:
        shim_why_write(hosts->failed, SHIM_WHY(HOSTS_MISSING), hosts->request.nranks, where, hosts->request.limit_ms);
        break;
    default:
        shim_why_write(hosts->failed, SHIM_WHY(NO_MEETING), where, strerror(-error));
    }
}

/* Listening, until the other ranks are connected. */
typedef struct sockets {
    net_network_t *relay, *every; /* every: host device only; else NULL */
} sockets_t;

static void close_sockets(sockets_t *sockets)
{
    net_network_close(sockets->relay);
    net_network_close(sockets->every);
    *sockets = (sockets_t){NULL, NULL};
}

static int open_sockets(const shim_hosts_request_t *request, sockets_t *sockets, record_t *record)
{
    const net_interfaces_t wanted = interfaces();
    shim_rdma_t rdma;
    shim_rdma_read(request->host_device ? -1 : request->device, &rdma);
    *sockets = (sockets_t){NULL, NULL};
    memset(record, 0, sizeof(*record));
    record->version = SHUNT_VERSION_CODE;
    record->layout = RECORD_LAYOUT;
    record->host = request->place;
    record->nccl_host = shim_identity_nccl_host();
    record->color = request->color;
    record->order = request->order;
    record->blocking = request->blocking;
    int error = net_network_open(&wanted, &rdma.wish, &sockets->relay, &record->relay);
    if (!error && request->host_device)
        error = net_network_open(&wanted, &rdma.wish, &sockets->every, &record->every);
    if (error)
        close_sockets(sockets);
    return error;
}

/* The ranks of one colour, in the split's order. */
typedef struct members {
    uint32_t count, own;
    uint32_t rank[NET_NETWORK_RANKS]; /* in the meeting */
    bool one_host, blocking;
    uint32_t host[NET_NETWORK_RANKS], host_rank[NET_NETWORK_RANKS];
    uint32_t hosts, host_ranks;
} members_t;

/* Number the hosts in the order of their first ranks. False: the hosts have unequally many ranks, or too many. */
static bool number_hosts(members_t *members, const record_t *records)
{
    uint32_t ranks_of[NET_NETWORK_RANKS] = {0};
    members->hosts = 0;
    for (uint32_t m = 0; m < members->count; m++) {
        uint32_t first = 0;
        while (memcmp(&records[members->rank[first]].host, &records[members->rank[m]].host, sizeof(net_key_t)))
            first++;
        members->host[m] = first == m ? members->hosts++ : members->host[first];
        members->host_rank[m] = ranks_of[members->host[m]]++;
    }
    members->host_ranks = ranks_of[0];
    for (uint32_t h = 1; h < members->hosts; h++) {
        if (ranks_of[h] != members->host_ranks)
            return false;
    }
    return members->hosts <= ALG_MAX_RANKS && members->host_ranks <= ALG_MAX_RANKS;
}

static members_t find_members(const shim_hosts_request_t *request, const record_t *records)
{
    /* The ranks of an init have not met in shared memory, so they are not on one host. */
    members_t members = {.one_host = request->regroup, .blocking = true};
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
        members.one_host = members.one_host && !memcmp(&records[r].host, &own->host, sizeof(own->host));
        members.blocking = members.blocking && records[r].blocking;
    }
    while (members.rank[members.own] != request->rank)
        members.own++;
    if (!number_hosts(&members, records)) { /* each rank then counts as a host */
        members.hosts = members.count;
        members.host_ranks = 1;
        for (uint32_t m = 0; m < members.count; m++) {
            members.host[m] = m;
            members.host_rank[m] = 0;
        }
    }
    return members;
}

static net_key_t key_of_members(const shim_hosts_request_t *request)
{
    return request->regroup ? shim_setup_key_of_color(&request->key, request->color) : request->key;
}

/* Connects the ranks of this number on all hosts. */
static int connect_relay(shim_hosts_t *hosts, const members_t *members, const record_t *records, sockets_t *sockets,
                         const net_limit_t *limit)
{
    shim_hosts_outcome_t *outcome = &hosts->outcome;
    const alg_device_t device = hosts->request.host_device ? ALG_DEVICE_HOST : ALG_DEVICE_CUDA;
    net_address_t address[ALG_MAX_RANKS];
    int error = alg_relay_create(device, hosts->request.device, outcome->host, outcome->hosts, &outcome->relay);
    if (error)
        return error;
    for (uint32_t m = 0; m < members->count; m++) {
        if (members->host_rank[m] == outcome->host_rank)
            address[members->host[m]] = records[members->rank[m]].relay;
    }
    const net_landing_t landing = alg_relay_landing(outcome->relay);
    const net_key_t group = shim_hosts_team_key(&outcome->key, outcome->host_rank);
    error = net_network_connect(sockets->relay, &hosts->request.invitation, &group, outcome->host, outcome->hosts,
                                address, &landing, limit);
    if (error)
        return error;
    char way[NET_WAY_TEXT];
    net_network_way(sockets->relay, way);
    shim_info("ranks of other hosts are reached by %s", way);
    error = alg_relay_connected(outcome->relay, sockets->relay);
    if (!error)
        sockets->relay = NULL;
    return error;
}

static int connect_every(shim_hosts_t *hosts, const members_t *members, const record_t *records, sockets_t *sockets,
                         const net_limit_t *limit)
{
    shim_hosts_outcome_t *outcome = &hosts->outcome;
    net_address_t address[NET_NETWORK_RANKS];
    if (!sockets->every)
        return 0;
    int error = alg_hosts_create(members->own, members->count, &outcome->every);
    if (error)
        return error;
    for (uint32_t m = 0; m < members->count; m++)
        address[m] = records[members->rank[m]].every;
    const net_landing_t landing = alg_hosts_landing(outcome->every);
    error = net_network_connect(sockets->every, &hosts->request.invitation, &outcome->key, members->own, members->count,
                                address, &landing, limit);
    if (error)
        return error;
    alg_hosts_connected(outcome->every, sockets->every);
    sockets->every = NULL;
    return 0;
}

/* The first rank to time out leaves, and the others see it. */
static void note_absence(int error)
{
    if (error == -ETIMEDOUT || error == -ESRCH || error == -EHOSTUNREACH)
        atomic_store(&g_alone, true);
}

/* The first failed rank decides for all. */
static void settle(shim_hosts_t *hosts, net_meeting_t *meeting, int32_t own, const net_limit_t *limit)
{
    int32_t all[NET_NETWORK_RANKS];
    int error = net_meeting_exchange(meeting, &own, sizeof(own), all, limit);
    note_absence(error);
    for (uint32_t r = 0; !error && r < hosts->request.nranks; r++) {
        note_absence(all[r]);
        if (all[r] && hosts->outcome.failure.reason == SEL_TAKEN)
            shim_why_write(hosts->failed, SHIM_WHY(NOT_CONNECTED), r, strerror(-all[r]));
    }
    if (error)
        meeting_failed(hosts, error);
}

/* Join the second meeting, of the members only. After its first round a death is noticed. */
static int join_last(shim_hosts_t *hosts, const members_t *members, const net_limit_t *limit)
{
    const struct {
        net_key_t key;
        int64_t tag;
    } whole = {hosts->outcome.key, LAST_TAG};
    const net_key_t key = net_key_hash(&whole, sizeof(whole));
    uint32_t here = 0, all[NET_NETWORK_RANKS];
    int error = net_meeting_join(&hosts->request.invitation, &key, members->own, members->count, AGREE_ROUNDS, limit,
                                 &hosts->last);
    return error ? error : net_meeting_exchange(hosts->last, &here, sizeof(here), all, limit);
}

/* Two hosts for Shunt but one for NCCL (containers), which may have faster paths. */
static bool one_host_to_nccl(const shim_hosts_request_t *request, const record_t *records)
{
    for (uint32_t r = 1; r < request->nranks; r++) {
        for (uint32_t other = 0; other < r; other++) {
            if (memcmp(&records[r].host, &records[other].host, sizeof(net_key_t)) &&
                !memcmp(&records[r].nccl_host, &records[other].nccl_host, sizeof(net_key_t)))
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

static void met(shim_hosts_t *hosts, net_meeting_t *meeting, const record_t *records, sockets_t *sockets,
                const net_limit_t *limit)
{
    const shim_hosts_request_t *request = &hosts->request;
    shim_hosts_outcome_t *outcome = &hosts->outcome;
    for (uint32_t r = 0; r < request->nranks; r++) {
        if (records[r].version != SHUNT_VERSION_CODE || records[r].layout != RECORD_LAYOUT) {
            shim_why_write(hosts->failed, SHIM_WHY(VERSION), r, request->rank);
            return;
        }
    }
    if (!request->host_device && one_host_to_nccl(request, records)) {
        shim_why_write(hosts->failed, SHIM_WHY(ONE_HOST));
        return;
    }
    const members_t members = find_members(request, records);
    const bool stays = !request->regroup || request->color != NCCL_SPLIT_NOCOLOR;
    outcome->key = key_of_members(request);
    outcome->rank = members.own;
    outcome->nranks = stays ? members.count : 0;
    outcome->blocking = members.blocking;
    outcome->one_host = members.one_host;
    outcome->host = members.host[members.own];
    outcome->hosts = members.hosts;
    outcome->host_rank = members.host_rank[members.own];
    outcome->host_ranks = members.host_ranks;
    const bool across = stays && !members.one_host;
    const net_limit_t soon = limit_of_connecting(limit);
    int error = across ? connect_relay(hosts, &members, records, sockets, &soon) : 0;
    if (!error && across)
        error = connect_every(hosts, &members, records, sockets, &soon);
    settle(hosts, meeting, error, limit);
    if (!across || outcome->failure.reason != SEL_TAKEN)
        return;
    error = join_last(hosts, &members, limit);
    if (error)
        meeting_failed(hosts, error);
}

static void meet(shim_hosts_t *hosts)
{
    const shim_hosts_request_t *request = &hosts->request;
    const net_limit_t limit = {request->deadline_ns, &hosts->stop};
    record_t own, records[NET_NETWORK_RANKS];
    sockets_t sockets;
    net_meeting_t *meeting;
    int error = open_sockets(request, &sockets, &own);
    if (error) {
        shim_why_write(hosts->failed, SHIM_WHY(NO_SOCKET), strerror(-error));
        return;
    }
    error =
        net_meeting_join(&request->invitation, &request->key, request->rank, request->nranks, ROUNDS, &limit, &meeting);
    if (!error) {
        error = net_meeting_exchange(meeting, &own, sizeof(own), records, &limit);
        if (!error)
            met(hosts, meeting, records, &sockets, &limit);
        net_meeting_leave(meeting);
    }
    if (error) {
        meeting_failed(hosts, error);
        note_absence(error);
    }
    close_sockets(&sockets);
}

static void agree(shim_hosts_t *hosts)
{
    const net_limit_t limit = {0, &hosts->stop};
    ready_t all[NET_NETWORK_RANKS];
    pthread_mutex_lock(&hosts->lock);
    while (!hosts->is_ready && !__atomic_load_n(&hosts->stop, __ATOMIC_ACQUIRE))
        pthread_cond_wait(&hosts->told, &hosts->lock);
    pthread_mutex_unlock(&hosts->lock);
    if (!hosts->is_ready)
        return;
    int error = net_meeting_exchange(hosts->last, &hosts->ready, sizeof(hosts->ready), all, &limit);
    for (uint32_t r = 1; !error && r < hosts->outcome.nranks && hosts->refusal.reason == SEL_TAKEN; r++) {
        if (memcmp(&all[r], &all[0], sizeof(all[0])))
            shim_why_write(hosts->failed, SHIM_WHY(HOSTS_DIFFER), r);
    }
    if (error)
        meeting_failed(hosts, error);
}

static void *run(void *argument)
{
    shim_hosts_t *hosts = argument;
    meet(hosts);
    const bool agrees = hosts->last && hosts->outcome.failure.reason == SEL_TAKEN;
    hosts->failed = &hosts->refusal;
    atomic_store(&hosts->met, true);
    if (agrees)
        agree(hosts);
    net_meeting_leave(hosts->last);
    atomic_store(&hosts->agreed, true);
    return NULL;
}

/* ---- For the set-up -------------------------------------------------------------------- */

shim_hosts_t *shim_hosts_begin(const shim_hosts_request_t *request)
{
    shim_hosts_t *hosts = calloc(1, sizeof(*hosts));
    if (!hosts)
        return NULL;
    hosts->request = *request;
    hosts->failed = &hosts->outcome.failure;
    pthread_mutex_init(&hosts->lock, NULL);
    pthread_cond_init(&hosts->told, NULL);
    if (net_thread_start(&hosts->thread, run, hosts)) {
        free(hosts);
        return NULL;
    }
    return hosts;
}

bool shim_hosts_poll(shim_hosts_t *hosts, shim_hosts_outcome_t *outcome)
{
    if (!atomic_load(&hosts->met))
        return false;
    *outcome = hosts->outcome;
    if (outcome->failure.reason == SEL_TAKEN) {
        hosts->outcome.relay = NULL;
        hosts->outcome.every = NULL;
    }
    return true;
}

void shim_hosts_agree(shim_hosts_t *hosts, const net_key_t *plan)
{
    pthread_mutex_lock(&hosts->lock);
    hosts->ready.plan = *plan;
    hosts->is_ready = true;
    pthread_cond_signal(&hosts->told);
    pthread_mutex_unlock(&hosts->lock);
}

bool shim_hosts_agreed(const shim_hosts_t *hosts, shim_why_t *why)
{
    if (!atomic_load(&hosts->agreed))
        return false;
    *why = hosts->refusal;
    return true;
}

void shim_hosts_end(shim_hosts_t *hosts)
{
    if (!hosts)
        return;
    pthread_mutex_lock(&hosts->lock);
    __atomic_store_n(&hosts->stop, 1, __ATOMIC_RELEASE);
    pthread_cond_signal(&hosts->told);
    pthread_mutex_unlock(&hosts->lock);
    pthread_join(hosts->thread, NULL);
    pthread_cond_destroy(&hosts->told);
    pthread_mutex_destroy(&hosts->lock);
    alg_hosts_destroy(hosts->outcome.every);
    alg_relay_destroy(hosts->outcome.relay);
    free(hosts);
}
