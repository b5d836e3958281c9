/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hosts.c - ranks of several hosts find each other (host device).
 *
 * The id carries the address of a listener in the process that made it
 * (transport/network/). Ranks that have not all met on this host go there: each
 * posts who it is, where it listens and what it wants; each learns the same of all,
 * connects to them, and posts how that went. So all ranks come to one outcome, but
 * for one that dies at the very end, whose peers see their connections end.
 *
 * All this waits, so each meeting has a thread; the set-up polls it. The thread owns
 * what it makes until the outcome is taken.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/log.h"
#include "shim/base/nccl_env.h"
#include "shim/base/settings.h"
#include "shim/setup/setup.h"

enum { ROUNDS = 2, RECORD_LAYOUT = 1 };

/* What a rank posts first. Plain data without padding. */
typedef struct record {
    uint32_t version, layout;
    net_key_t host;
    net_address_t address;
    int32_t color, order;
    uint32_t blocking, reserved;
} record_t;

_Static_assert(sizeof(record_t) <= NET_ROUND_BYTES, "a record does not fit into a round");
_Static_assert((int)ALG_MAX_RANKS <= (int)NET_NETWORK_RANKS, "more ranks than a network has");

struct shim_hosts {
    shim_hosts_request_t request;
    uint32_t stop; /* atomically */
    atomic_bool over;
    pthread_t thread;
    char failure[160];
    shim_hosts_outcome_t outcome;
};

static net_interfaces_t interfaces(void)
{
    return (net_interfaces_t){shim_nccl_env("NCCL_SOCKET_IFNAME"), shim_nccl_env("NCCL_SOCKET_FAMILY")};
}

/* ---- Ids ----------------------------------------------------------------------------- */

enum { INVITATION_AT = sizeof(ncclUniqueId) - sizeof(net_invitation_t) };

void shim_hosts_invite(ncclUniqueId *id)
{
    net_invitation_t invitation;
    const net_interfaces_t wanted = interfaces();
    int error = net_invite(&wanted, &invitation);
    if (error)
        shim_info("this id has no address, so ranks of other hosts cannot meet: %s", strerror(-error));
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

/* ---- The thread ----------------------------------------------------------------------- */

static void failed(shim_hosts_t *hosts, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void failed(shim_hosts_t *hosts, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(hosts->failure, sizeof(hosts->failure), format, arguments);
    va_end(arguments);
    hosts->outcome.failure = hosts->failure;
}

static void meeting_failed(shim_hosts_t *hosts, int error)
{
    char where[NET_ADDRESS_TEXT];
    net_address_write(&hosts->request.invitation.address, where);
    switch (error) {
    case -EEXIST:
        failed(hosts, "rank %u was taken already", hosts->request.rank);
        break;
    case -ESRCH:
        failed(hosts, "a rank of several hosts died or gave up during set-up");
        break;
    case -ETIMEDOUT:
        failed(hosts, "not all of its %u ranks came to this host, or to %s, within %u ms", hosts->request.nranks, where,
               hosts->request.limit_ms);
        break;
    default:
        failed(hosts, "ranks of several hosts cannot meet at %s: %s", where, strerror(-error));
    }
}

static record_t own_record(const shim_hosts_request_t *request, const net_address_t *address)
{
    record_t record;
    memset(&record, 0, sizeof(record));
    record.version = SHUNT_VERSION_CODE;
    record.layout = RECORD_LAYOUT;
    record.host = shim_identity_host();
    record.address = *address;
    record.color = request->color;
    record.order = request->order;
    record.blocking = request->blocking;
    return record;
}

/* Those who stay together, in their order. */
typedef struct members {
    uint32_t count, own;
    uint32_t rank[ALG_MAX_RANKS]; /* of the group that meets */
    bool one_host, blocking;
} members_t;

static members_t find_members(const shim_hosts_request_t *request, const record_t *records)
{
    /* Ranks of an init that come here have not met in shared memory, so they are not on one host. */
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
    return members;
}

static net_key_t key_of_members(const shim_hosts_request_t *request)
{
    return request->regroup ? shim_setup_key_of_color(&request->key, request->color) : request->key;
}

static int connect_members(shim_hosts_t *hosts, const members_t *members, const record_t *records,
                           net_network_t *network, const net_limit_t *limit)
{
    net_address_t address[ALG_MAX_RANKS];
    for (uint32_t m = 0; m < members->count; m++)
        address[m] = records[members->rank[m]].address;
    return net_network_connect(network, &hosts->request.invitation, &hosts->outcome.key, members->own, members->count,
                               address, ALG_HOSTS_WINDOW, limit);
}

/* The network is taken, or closed. */
static int make_team(shim_hosts_t *hosts, const members_t *members, const record_t *records, net_network_t *network,
                     const net_limit_t *limit)
{
    int error = connect_members(hosts, members, records, network, limit);
    if (!error)
        error = alg_hosts_create(network, members->own, members->count, &hosts->outcome.team);
    if (error)
        net_network_close(network);
    return error;
}

/* How it went for everyone; the first one's trouble is everyone's. */
static void settle(shim_hosts_t *hosts, net_meeting_t *meeting, int32_t own, const net_limit_t *limit)
{
    int32_t all[NET_NETWORK_RANKS];
    int error = net_meeting_exchange(meeting, &own, sizeof(own), all, limit);
    for (uint32_t r = 0; !error && r < hosts->request.nranks; r++) {
        if (all[r] && !hosts->outcome.failure)
            failed(hosts, "rank %u could not connect to the others: %s", r, strerror(-all[r]));
    }
    if (error)
        meeting_failed(hosts, error);
}

static void met(shim_hosts_t *hosts, net_meeting_t *meeting, const record_t *records, net_network_t *network,
                const net_limit_t *limit)
{
    const shim_hosts_request_t *request = &hosts->request;
    for (uint32_t r = 0; r < request->nranks; r++) {
        if (records[r].version != SHUNT_VERSION_CODE || records[r].layout != RECORD_LAYOUT) {
            failed(hosts, "rank %u runs another version of Shunt", r);
            net_network_close(network);
            return;
        }
    }
    const members_t members = find_members(request, records);
    const bool stays = !request->regroup || request->color != NCCL_SPLIT_NOCOLOR;
    int error = 0;
    hosts->outcome.key = key_of_members(request);
    hosts->outcome.rank = members.own;
    hosts->outcome.nranks = stays ? members.count : 0;
    hosts->outcome.blocking = members.blocking;
    if (stays && !members.one_host)
        error = make_team(hosts, &members, records, network, limit);
    else
        net_network_close(network);
    settle(hosts, meeting, error, limit);
}

static void meet(shim_hosts_t *hosts)
{
    const shim_hosts_request_t *request = &hosts->request;
    const net_limit_t limit = {request->deadline_ns, &hosts->stop};
    const net_interfaces_t wanted = interfaces();
    record_t records[NET_NETWORK_RANKS];
    net_network_t *network;
    net_meeting_t *meeting;
    net_address_t address;
    int error = net_network_open(&wanted, &network, &address);
    if (error) {
        failed(hosts, "no socket for ranks of other hosts: %s", strerror(-error));
        return;
    }
    error =
        net_meeting_join(&request->invitation, &request->key, request->rank, request->nranks, ROUNDS, &limit, &meeting);
    if (error) {
        net_network_close(network);
        meeting_failed(hosts, error);
        return;
    }
    const record_t own = own_record(request, &address);
    error = net_meeting_exchange(meeting, &own, sizeof(own), records, &limit);
    if (error) {
        net_network_close(network);
        meeting_failed(hosts, error);
    } else {
        met(hosts, meeting, records, network, &limit);
    }
    net_meeting_leave(meeting);
}

static void *run(void *argument)
{
    shim_hosts_t *hosts = argument;
    meet(hosts);
    atomic_store(&hosts->over, true);
    return NULL;
}

/* ---- For the set-up -------------------------------------------------------------------- */

shim_hosts_t *shim_hosts_begin(const shim_hosts_request_t *request)
{
    shim_hosts_t *hosts = calloc(1, sizeof(*hosts));
    if (!hosts)
        return NULL;
    hosts->request = *request;
    /* The program's signals are for the program's threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&hosts->thread, NULL, run, hosts) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!started) {
        free(hosts);
        return NULL;
    }
    return hosts;
}

bool shim_hosts_poll(shim_hosts_t *hosts, shim_hosts_outcome_t *outcome)
{
    if (!atomic_load(&hosts->over))
        return false;
    *outcome = hosts->outcome;
    if (!outcome->failure)
        hosts->outcome.team = NULL;
    return true;
}

void shim_hosts_end(shim_hosts_t *hosts)
{
    if (!hosts)
        return;
    __atomic_store_n(&hosts->stop, 1, __ATOMIC_RELEASE);
    pthread_join(hosts->thread, NULL);
    alg_hosts_destroy(hosts->outcome.team);
    free(hosts);
}
