/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_none.c - replaces verbs*.c in builds without libibverbs' headers. */
#include <errno.h>
#include <stdio.h>

#include "transport/network/link.h"

int verbs_open(const net_rdma_t *wanted, verbs_t **verbs, char way[NET_WAY_TEXT])
{
    (void)wanted;
    (void)verbs;
    snprintf(way, NET_WAY_TEXT, "built without libibverbs");
    return -ENOSYS;
}

int verbs_connect(net_network_t *network, uint32_t offers, const net_limit_t *limit, char why[NET_WAY_TEXT])
{
    (void)network;
    (void)offers;
    (void)limit;
    (void)why;
    return -ENOSYS;
}

const char *verbs_way(const verbs_t *verbs)
{
    (void)verbs;
    return "";
}

int verbs_put(net_network_t *network, uint32_t peer, const put_head_t *head, const void *data)
{
    (void)network;
    (void)peer;
    (void)head;
    (void)data;
    return -ENOSYS;
}

bool verbs_poll(net_network_t *network, uint32_t *ended)
{
    (void)network;
    *ended = 0;
    return false;
}

void verbs_end(verbs_t *verbs, uint32_t peer)
{
    (void)verbs;
    (void)peer;
}

void verbs_close(verbs_t *verbs)
{
    (void)verbs;
}
