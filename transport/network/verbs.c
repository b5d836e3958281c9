/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.c - see verbs.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/network/verbs_queue.h"

enum { AT_ONCE = 16 };

const char *verbs_way(const verbs_t *verbs)
{
    return verbs->way;
}

int verbs_post(verbs_t *verbs, uint32_t peer, struct ibv_send_wr *data, uint64_t flag)
{
    const verbs_queue_t *queue = &verbs->queue[peer];
    /* inline data may change after the call */
    struct ibv_sge piece = {.addr = (uintptr_t)&flag, .length = sizeof(flag)};
    struct ibv_send_wr last = {.wr_id = peer,
                               .sg_list = &piece,
                               .num_sge = 1,
                               .opcode = IBV_WR_RDMA_WRITE,
                               .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED,
                               .wr.rdma = {queue->to_flag, queue->flag_key}};
    struct ibv_send_wr *bad;
    if (data)
        data->next = &last;
    return ibv_post_send(queue->qp, data ? data : &last, &bad) ? -ECONNRESET : 0;
}

int verbs_put(net_network_t *network, uint32_t peer, const put_head_t *head, const void *data)
{
    const uint64_t offset = head->offset, bytes = head->bytes;
    verbs_t *verbs = network->verbs;
    verbs_queue_t *queue = &verbs->queue[peer];
    const net_landing_t *landing = &network->landing;
    const uintptr_t at = (uintptr_t)data, from = (uintptr_t)landing->source;
    if (bytes > landing->window_bytes || offset > landing->window_bytes - bytes)
        return -EINVAL;
    struct ibv_sge piece = {.addr = at, .length = (uint32_t)bytes};
    struct ibv_send_wr write = {.wr_id = peer,
                                .sg_list = &piece,
                                .num_sge = 1,
                                .opcode = IBV_WR_RDMA_WRITE,
                                .wr.rdma = {queue->to_window + offset, queue->window_key}};
    if (bytes <= queue->inline_bytes) {
        write.send_flags = IBV_SEND_INLINE;
    } else if (queue->copy) {
        memcpy(queue->copy + offset, data, bytes);
        piece.addr = (uintptr_t)queue->copy + offset;
        piece.lkey = queue->copy_key->lkey;
    } else {
        if (at < from || bytes > landing->source_bytes || at - from > landing->source_bytes - bytes)
            return -EINVAL;
        piece.lkey = verbs->source->lkey;
    }
    const int error = verbs_post(verbs, peer, bytes > 0 ? &write : NULL, head->flag);
    if (!error)
        link_give(&network->link[peer], head, data);
    return error;
}

static void note_failure(net_network_t *network, uint32_t peer, const struct ibv_wc *done, uint32_t *ended)
{
    if (!network->fault[0])
        snprintf(network->fault, sizeof(network->fault), "an RDMA write by %s ended with \"%.80s\" (completion %d)",
                 network->verbs->way, network->verbs->calls->wc_status_str(done->status), (int)done->status);
    *ended |= UINT32_C(1) << peer;
}

bool verbs_poll(net_network_t *network, uint32_t *ended)
{
    verbs_t *verbs = network->verbs;
    struct ibv_wc done[AT_ONCE];
    bool moved = false;
    *ended = 0;
    const int count = ibv_poll_cq(verbs->cq, AT_ONCE, done);
    for (int i = 0; i < count; i++) {
        const uint32_t peer = (uint32_t)done[i].wr_id;
        const verbs_queue_t *queue = &verbs->queue[peer];
        if (!queue->qp || queue->qp->qp_num != done[i].qp_num)
            continue; /* from an ended queue pair */
        if (done[i].status == IBV_WC_SUCCESS)
            link_sent(&network->link[peer]);
        else
            note_failure(network, peer, &done[i], ended);
        moved = true;
    }
    for (uint32_t r = 0; r < network->nranks; r++) {
        verbs_queue_t *queue = &verbs->queue[r];
        const uint64_t flag = queue->qp ? __atomic_load_n(&network->landing.flags[r], __ATOMIC_RELAXED) : queue->seen;
        moved |= flag != queue->seen;
        queue->seen = flag;
    }
    return moved;
}

/* Afterwards all data acknowledged to the peer is in memory: the device acknowledges after its last write. */
void verbs_end(verbs_t *verbs, uint32_t peer)
{
    verbs_queue_t *queue = &verbs->queue[peer];
    if (queue->qp)
        verbs->calls->destroy_qp(queue->qp);
    queue->qp = NULL;
}

static void unregister(const verbs_t *verbs, struct ibv_mr **memory)
{
    if (*memory)
        verbs->calls->dereg_mr(*memory);
    *memory = NULL;
}

void verbs_unregister(verbs_t *verbs, uint32_t peer)
{
    verbs_queue_t *queue = &verbs->queue[peer];
    unregister(verbs, &queue->window);
    unregister(verbs, &queue->flag);
    unregister(verbs, &queue->copy_key);
    if (queue->copy)
        munmap(queue->copy, queue->copy_bytes);
    queue->copy = NULL;
}

void verbs_close(verbs_t *verbs)
{
    if (!verbs || verbs->process != getpid())
        return;
    for (uint32_t r = 0; r < NET_NETWORK_RANKS; r++)
        verbs_end(verbs, r);
    for (uint32_t r = 0; r < NET_NETWORK_RANKS; r++)
        verbs_unregister(verbs, r);
    unregister(verbs, &verbs->source);
    if (verbs->cq)
        verbs->calls->destroy_cq(verbs->cq);
    if (verbs->pd)
        verbs->calls->dealloc_pd(verbs->pd);
    if (verbs->context)
        verbs->calls->close_device(verbs->context);
    free(verbs);
}
