/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multihost.h - how the ranks of several hosts reach each other: the relay, for all-reduce kernels of both devices, and
 * on the host device the network of all ranks, for the other collectives.
 *
 * What comes from other hosts lands in memory of either, so each is made before the network connects (alg_*_landing),
 * and takes the network afterwards.
 */
#ifndef SHUNT_MULTIHOST_H
#define SHUNT_MULTIHOST_H

#include "algorithms/algorithm.h"
#include "transport/network/network.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * ---- The relay (relay.c) ----------------------------------------------------------
 *
 * One thread a process, the proxy, serves all relays: it sends what kernels lay out to the ranks of the same number on
 * the other hosts. It makes no call of CUDA, polls while calls are under way, and sleeps when there are none. Graphs
 * begin calls without a word to the host, so an idle relay that has been captured is looked at every 50 us, and after
 * 0.1 s every 0.5 ms.
 */
typedef struct alg_relay alg_relay_t;

/* The rank's kernels run on `device`. */
int alg_relay_create(alg_device_t device, int ordinal, uint32_t host, uint32_t hosts, alg_relay_t **relay);
net_landing_t alg_relay_landing(const alg_relay_t *relay);
/* Takes the network, whose ranks are the hosts, all connected. From now on the proxy serves it: another host's first
 * calls may come long before this rank's set-up ends, and the system ends connections that nobody reads. -EAGAIN: there
 * is no thread, and the network stays the caller's. */
int alg_relay_connected(alg_relay_t *relay, net_network_t *network);
/* For this team's calls, whose abort, or wait that ran out of time, ends the connections; a connection that ends while
 * a call needs it ends the call (ALG_STATUS_PEER_LEFT). The control words outlive the relay. */
void alg_relay_serve(alg_relay_t *relay, alg_team_t *team, alg_control_t *control);
/* Why other hosts were lost, if RDMA said so; else NULL. */
const char *alg_relay_fault(const alg_relay_t *relay);
/* Before a call is launched, or captured. */
void alg_relay_call(alg_relay_t *relay, const alg_team_t *team, const alg_call_t *call, bool captured);
/* Wait until all that kernels have laid out is sent, which may be after their end. Gives up after 5 s. */
void alg_relay_flush(alg_relay_t *relay);
/* No call may be under way. Flushes. NULL is fine. */
void alg_relay_destroy(alg_relay_t *relay);

/* Kernels of a call of alg_hosts_exchange. */
uint64_t alg_exchange_kernels(const alg_team_t *team, const alg_call_t *call);

/* ---- The network of all ranks (network.cc), host device ----------------------------- */

typedef struct alg_hosts alg_hosts_t;

int alg_hosts_create(uint32_t rank, uint32_t nranks, alg_hosts_t **hosts);
net_landing_t alg_hosts_landing(const alg_hosts_t *hosts);
/* Takes the network, whose ranks are all connected. */
void alg_hosts_connected(alg_hosts_t *hosts, net_network_t *network);
/* For alg_network's calls on `team`, whose abort and time limit hold. */
void alg_hosts_serve(alg_hosts_t *hosts, alg_team_t *team);
const char *alg_hosts_fault(const alg_hosts_t *hosts);
/* No call may be under way. NULL is fine. */
void alg_hosts_destroy(alg_hosts_t *hosts);

#ifdef __cplusplus
}
#endif
#endif
