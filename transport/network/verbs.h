/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.h - queue pairs to other ranks, by libibverbs. Private to this folder.
 *
 * Data is an RDMA write into the window, and the flag another one of 8 bytes behind it
 * on the same queue pair. Why a reader that sees the flag sees the data:
 *   - A responder carries out the requests of a reliable connection in their order.
 *   - Its writes reach memory in the order in which it makes them, as PCIe keeps posted
 *     writes in order, for memory is registered without IBV_ACCESS_RELAXED_ORDERING. So
 *     a CPU's or a GPU's acquire of the flag is followed by reads of the data.
 *   - Aligned 8 bytes are one write to memory. A device in software that copies bytes,
 *     from the first one on, shows a value between the old flag and the new one, which
 *     is too small for a reader that waits for the new one.
 * The InfiniBand specification promises the order only to a receiver that takes a
 * completion. That memory may be polled is a property of the devices (ConnectX and
 * similar ones); NCCL's ready-to-receive entries, MSCCL++ and NVSHMEM rely on it, too. It does not hold where the user
 * turns it off (MLX5_RELAXED_PACKET_ORDERING_ON), nor for devices without reliable connections in order (EFA), which
 * are not taken.
 *
 * A queue pair ends before what it may write to: first all queue pairs, then the
 * registrations, then the caller frees.
 *
 * Memory: verbs_t owns its device context and all that hangs on it, and the copies of
 * what is put from unregistered memory.
 */
#ifndef SHUNT_NETWORK_VERBS_H
#define SHUNT_NETWORK_VERBS_H

#include "transport/network/network.h"

typedef struct verbs verbs_t;
struct put_head;

/* The best port. way[]: it, or why there is none. */
int verbs_open(const net_rdma_t *wanted, verbs_t **verbs, char way[NET_WAY_TEXT]);
/* Queue pairs to the peers that offer it, which do the same. 0, though all may fail: then why[] says so, and the pair
 * uses its connection, on both sides. Else an error of the connections. */
int verbs_connect(net_network_t *network, uint32_t offers, const net_limit_t *limit, char why[NET_WAY_TEXT]);
const char *verbs_way(const verbs_t *verbs);
/* 0, -EINVAL beside the window, or -ECONNRESET. */
int verbs_put(net_network_t *network, uint32_t peer, const struct put_head *head, const void *data);
/* Take completions, and look for new flags. Peers whose bit is set in *ended have a queue pair that failed. True if
 * data has moved. */
bool verbs_poll(net_network_t *network, uint32_t *ended);
/* The peer's queue pair ends: nothing is written by it from now on. */
void verbs_end(verbs_t *verbs, uint32_t peer);
void verbs_close(verbs_t *verbs); /* NULL is fine */

#endif
