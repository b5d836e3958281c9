/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.h - queue pairs to other ranks, by libibverbs. Private to this folder.
 * Data is an RDMA write into the window, and the flag a second one of 8 bytes on the same queue pair. A thread that
 * acquires the flag sees the data: a reliable connection executes requests in order, PCIe keeps posted writes in order,
 * as memory is registered without IBV_ACCESS_RELAXED_ORDERING, and aligned 8 bytes are one write. That memory may be
 * polled is a property of the devices (ConnectX and similar), not of the specification; MLX5_RELAXED_PACKET_ORDERING_ON
 * breaks it (docs/lab/proofs.md).
 * All queue pairs are freed first, then the registrations, then the caller's memory. verbs_t owns its device context,
 * and the copies of data put from unregistered memory. */
#ifndef SHUNT_NETWORK_VERBS_H
#define SHUNT_NETWORK_VERBS_H

#include "transport/network/network.h"

typedef struct verbs verbs_t;
struct put_head;

/* Opens the best port. way[]: its name, or why there is none. */
int verbs_open(const net_rdma_t *wanted, verbs_t **verbs, char way[NET_WAY_TEXT]);
/* Makes queue pairs to the peers that offer RDMA. 0 even if all fail: why[] then says why, and both sides use sockets.
 * Otherwise an error of a connection. */
int verbs_connect(net_network_t *network, uint32_t offers, const net_limit_t *limit, char why[NET_WAY_TEXT]);
const char *verbs_way(const verbs_t *verbs);
/* 0, -EINVAL outside the window, or -ECONNRESET. */
int verbs_put(net_network_t *network, uint32_t peer, const struct put_head *head, const void *data);
/* Takes completions and checks for new flags. *ended: bits of peers whose queue pair failed. True if data has moved. */
bool verbs_poll(net_network_t *network, uint32_t *ended);
/* Ends the peer's queue pair, which then writes nothing. */
void verbs_end(verbs_t *verbs, uint32_t peer);
void verbs_close(verbs_t *verbs); /* NULL is allowed */

#endif
