/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.h - queue pairs to other ranks, by libibverbs.
 *
 * Data is an RDMA write into the window, and the flag one of 8 bytes behind it on the same queue pair. A reader of
 * the flag sees the data because
 *   - a responder carries out the requests of a reliable connection in order;
 *   - PCIe keeps its posted writes in order, and memory is registered without IBV_ACCESS_RELAXED_ORDERING, so an
 *     acquire of the flag, by CPU or GPU, precedes reads of the data;
 *   - aligned 8 bytes are one write. A software device that copies bytes, from the first one on, shows a value between
 *     the old and the new flag, too small for a reader of the new one.
 * InfiniBand promises this only to a receiver that takes a completion. Polling memory relies on the devices (ConnectX
 * and similar), as NCCL, MSCCL++ and NVSHMEM do; not with MLX5_RELAXED_PACKET_ORDERING_ON, nor on devices without
 * reliable connections (EFA), which are not taken.
 *
 * Queue pairs end first, then registrations, then the caller frees. verbs_t owns its device context and all that
 * hangs on it.
 */
#ifndef SHUNT_NETWORK_VERBS_H
#define SHUNT_NETWORK_VERBS_H

#include "transport/network/network.h"

typedef struct verbs verbs_t;
struct put_head;

/* The best port. way[]: its name, or why there is none. */
int verbs_open(const net_rdma_t *wanted, verbs_t **verbs, char way[NET_WAY_TEXT]);
/* With peers that offer RDMA, which do the same. Where it fails, both sides use their connection, and why[] says why.
 * Errors are the connections'. */
int verbs_connect(net_network_t *network, uint32_t offers, const net_limit_t *limit, char why[NET_WAY_TEXT]);
const char *verbs_way(const verbs_t *verbs);
int verbs_put(net_network_t *network, uint32_t peer, const struct put_head *head, const void *data);
/* Take completions and look for new flags. *ended: bits of peers whose queue pair failed. True if data has moved. */
bool verbs_poll(net_network_t *network, uint32_t *ended);
/* Afterwards the peer's queue pair writes nothing. */
void verbs_end(verbs_t *verbs, uint32_t peer);
void verbs_close(verbs_t *verbs); /* NULL is allowed */

#endif
