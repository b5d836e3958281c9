/* SPDX-License-Identifier: Apache-2.0 */
/* nodes.h - communication between nodes: the relay, for all-reduce kernels on both devices, and the CPU device's
 * network of all ranks, for other collectives. Both own the memory in which data lands, so each is created before
 * its network connects, and gets the network afterwards. */
#ifndef SHUNT_NODES_H
#define SHUNT_NODES_H

#include "algorithms/algorithm.h"
#include "transport/network/network.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * ---- The relay (relay.c) ----
 * The proxy (proxy.c), a thread of the process, sends what kernels post to ranks of the same number on other nodes. It
 * makes no CUDA call, and sleeps while no call is in flight, but polls relays of captured calls: the host does not see
 * a graph's calls.
 */
typedef struct alg_relay alg_relay_t;

int alg_relay_create(alg_device_t device, int ordinal, uint32_t node, uint32_t nodes, alg_relay_t **relay);
net_landing_t alg_relay_landing(const alg_relay_t *relay);
/* Takes the network, whose ranks are the nodes. The proxy serves it at once: the system ends connections that nobody
 * reads. -EAGAIN: no thread started; the caller keeps the network. */
int alg_relay_connected(alg_relay_t *relay, net_network_t *network);
/* Serves this team's calls. An abort or a timed-out wait ends the connections; the end of one that a call needs ends
 * the call (ALG_STATUS_PEER_LEFT). `control` must outlive the relay. */
void alg_relay_serve(alg_relay_t *relay, alg_team_t *team, alg_control_t *control);
/* Why RDMA lost a node, or NULL. */
const char *alg_relay_fault(const alg_relay_t *relay);
/* Before the launch or capture of `call`. */
void alg_relay_call(alg_relay_t *relay, const alg_team_t *team, const alg_call_t *call, bool captured);
/* Waits, at most 5 s, until all that kernels posted is sent. */
void alg_relay_flush(alg_relay_t *relay);
/* Flushes. No call may be in flight; NULL is fine. */
void alg_relay_destroy(alg_relay_t *relay);

/* Number of kernels of a call of alg_nodes_exchange. */
uint64_t alg_exchange_kernels(const alg_team_t *team, const alg_call_t *call);

/* ---- The network (network.cc), CPU device ---- */

typedef struct alg_nodes alg_nodes_t;

int alg_nodes_create(uint32_t rank, uint32_t nranks, alg_nodes_t **nodes);
net_landing_t alg_nodes_landing(const alg_nodes_t *nodes);
void alg_nodes_connected(alg_nodes_t *nodes, net_network_t *network);
/* Serves alg_network's calls on `team`, whose abort word and time limit end their waits. */
void alg_nodes_serve(alg_nodes_t *nodes, alg_team_t *team);
const char *alg_nodes_fault(const alg_nodes_t *nodes);
/* No call may be in flight; NULL is fine. */
void alg_nodes_destroy(alg_nodes_t *nodes);

#ifdef __cplusplus
}
#endif
#endif
