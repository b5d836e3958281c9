/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multihost.h - a team whose ranks are on several hosts, on the host device.
 *
 * It has no scratch: its ranks reach each other by a network (transport/network/),
 * and its algorithms are alg_network's.
 */
#ifndef SHUNT_MULTIHOST_H
#define SHUNT_MULTIHOST_H

#include "algorithms/algorithm.h"
#include "transport/network/network.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ALG_HOSTS_SEGMENT = 256 << 10,                /* bytes that a rank sends to a peer in one step */
    ALG_HOSTS_WINDOW = 2 * (int)ALG_HOSTS_SEGMENT /* of net_network_open */
};

typedef struct alg_hosts alg_hosts_t;

/* Takes the network, whose ranks are all connected. -ENOMEM. */
int alg_hosts_create(net_network_t *network, uint32_t rank, uint32_t nranks, alg_hosts_t **hosts);
/* For launch_host of alg_network's algorithms; its control has this rank's abort. */
alg_team_t *alg_hosts_team(alg_hosts_t *hosts);
/* No call may be under way. NULL is fine. */
void alg_hosts_destroy(alg_hosts_t *hosts);

#ifdef __cplusplus
}
#endif
#endif
