/* SPDX-License-Identifier: Apache-2.0 */
/* fake_verbs_queue.c - the queue pairs of fake_verbs.c. */
#define _GNU_SOURCE
#include "fake_verbs.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ROOM = 16, LATE_US = 200, MOST_INLINE = 64 };

typedef struct posted {
    uint64_t id, at, to;
    uint32_t bytes, own_key, key;
    bool told;
    bool here; /* `data` has the bytes */
    uint8_t data[MOST_INLINE];
} posted_t;

typedef struct queue {
    struct ibv_qp base;
    union ibv_gid own, peer;
    uint32_t peer_queue;
    pthread_t sender, receiver;
    bool receives, sends; /* the threads run */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool ends;
    int listener, out, in;
    posted_t posted[ROOM];
    uint32_t first, last, writes;
    bool broken;
    struct queue *next;
} queue_t;

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static queue_t *g_queues; /* under g_lock */
static uint32_t g_queue_number = 16;

bool fake_is_alive(uint32_t queue)
{
    pthread_mutex_lock(&g_lock);
    const queue_t *one = g_queues;
    while (one && one->base.qp_num != queue)
        one = one->next;
    pthread_mutex_unlock(&g_lock);
    return one;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *wanted)
{
    if (wanted->cap.max_inline_data > MOST_INLINE) {
        errno = EINVAL;
        return NULL;
    }
    queue_t *made = calloc(1, sizeof(*made));
    made->base = (struct ibv_qp){.context = pd->context, .pd = pd, .send_cq = wanted->send_cq};
    made->listener = made->out = made->in = -1;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->wake, NULL);
    pthread_mutex_lock(&g_lock);
    made->base.qp_num = g_queue_number++;
    made->next = g_queues;
    g_queues = made;
    pthread_mutex_unlock(&g_lock);
    fake_count(pd->context, 1);
    return &made->base;
}

static socklen_t name_of(const union ibv_gid *gid, uint32_t queue, struct sockaddr_un *name)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    int used = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "fake-verbs-%u-", queue);
    for (int i = 0; i < 16; i++)
        used += snprintf(name->sun_path + 1 + used, sizeof(name->sun_path) - 1 - (size_t)used, "%02x", gid->raw[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
}

typedef struct request {
    uint64_t to;
    uint32_t bytes, key;
} request_t;

static bool move_all(int socket, void *bytes, size_t size, bool out)
{
    for (size_t done = 0; done < size;) {
        uint8_t *at = (uint8_t *)bytes + done;
        const ssize_t some = out ? send(socket, at, size - done, MSG_NOSIGNAL) : recv(socket, at, size - done, 0);
        if (some <= 0)
            return false;
        done += (size_t)some;
    }
    return true;
}

/* Write received bytes to memory: a flag with one store, other data with memcpy. */
static void land(uint64_t to, const uint8_t *data, uint32_t bytes)
{
    uint64_t word;
    memcpy(&word, data, bytes == sizeof(word) ? sizeof(word) : 0);
    if (bytes == sizeof(word) && to % sizeof(word) == 0)
        __atomic_store_n((uint64_t *)(uintptr_t)to, word, __ATOMIC_RELEASE);
    else
        memcpy((void *)(uintptr_t)to, data, bytes);
}

/* Serves the peer. */
static void *receive(void *argument)
{
    queue_t *queue = argument;
    request_t request;
    const int in = accept(queue->listener, NULL, NULL);
    pthread_mutex_lock(&queue->lock);
    queue->in = in;
    bool serves = in >= 0 && !queue->ends;
    pthread_mutex_unlock(&queue->lock);
    while (serves && move_all(in, &request, sizeof(request), false)) {
        uint8_t *data = malloc(request.bytes);
        uint32_t status = IBV_WC_SUCCESS;
        serves = move_all(in, data, request.bytes, false);
        if (serves) {
            const bool allowed = fake_may(request.key, request.to, request.bytes, IBV_ACCESS_REMOTE_WRITE,
                                          queue->base.pd, queue->base.qp_num);
            if (allowed)
                land(request.to, data, request.bytes);
            status = allowed ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR;
            serves = move_all(in, &status, sizeof(status), true);
        }
        free(data);
    }
    return NULL;
}

static uint32_t carry_out(queue_t *queue, posted_t *posted)
{
    request_t request = {posted->to, posted->bytes, posted->key};
    uint32_t status;
    const char *fail = fake_option("fail");
    queue->writes++;
    if ((queue->writes == 1 && fake_option("first")) || (fail && queue->writes == strtoul(fail, NULL, 10)))
        return IBV_WC_RETRY_EXC_ERR;
    if (queue->writes % 3 == 0)
        usleep(LATE_US);
    const bool allowed = posted->here || fake_may(posted->own_key, posted->at, posted->bytes, 0, queue->base.pd, 0);
    if (!allowed)
        return IBV_WC_LOC_PROT_ERR;
    if (queue->out < 0) {
        struct sockaddr_un name;
        const socklen_t size = name_of(&queue->peer, queue->peer_queue, &name);
        const int out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        pthread_mutex_lock(&queue->lock);
        queue->out = out;
        const bool ends = queue->ends;
        pthread_mutex_unlock(&queue->lock);
        if (ends || connect(out, (struct sockaddr *)&name, size) != 0)
            return IBV_WC_RETRY_EXC_ERR; /* what a peer that is not ready loses is never sent again here */
    }
    void *data = posted->here ? posted->data : (void *)(uintptr_t)posted->at;
    return move_all(queue->out, &request, sizeof(request), true) && move_all(queue->out, data, posted->bytes, true) &&
                   move_all(queue->out, &status, sizeof(status), false)
               ? status
               : IBV_WC_RETRY_EXC_ERR;
}

/* Carries out what was posted. */
static void *send_posted(void *argument)
{
    queue_t *queue = argument;
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        while (queue->first == queue->last && !queue->ends)
            pthread_cond_wait(&queue->wake, &queue->lock);
        if (queue->ends)
            break;
        posted_t posted = queue->posted[queue->first % ROOM];
        pthread_mutex_unlock(&queue->lock);
        const uint32_t status = queue->broken ? IBV_WC_WR_FLUSH_ERR : carry_out(queue, &posted);
        const bool lost = queue->writes == 1 && fake_option("lost");
        queue->broken = queue->broken || status != IBV_WC_SUCCESS;
        pthread_mutex_lock(&queue->lock);
        queue->first++;
        if (!queue->ends && !lost && (posted.told || status != IBV_WC_SUCCESS)) {
            const struct ibv_wc one = {.wr_id = posted.id, .status = status, .qp_num = queue->base.qp_num};
            fake_complete(queue->base.send_cq, &one);
        }
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

int fake_post(struct ibv_qp *qp, struct ibv_send_wr *write, struct ibv_send_wr **bad)
{
    queue_t *queue = (queue_t *)qp;
    int error = 0;
    pthread_mutex_lock(&queue->lock);
    for (; write && !error; write = write->next) {
        posted_t *posted = &queue->posted[queue->last % ROOM];
        *bad = write;
        error = qp->state != IBV_QPS_RTS ? EINVAL : queue->last - queue->first == ROOM ? ENOMEM : 0;
        if (error)
            break;
        MUST(write->opcode == IBV_WR_RDMA_WRITE && write->num_sge == 1);
        *posted = (posted_t){.id = write->wr_id,
                             .at = write->sg_list->addr,
                             .bytes = write->sg_list->length,
                             .own_key = write->sg_list->lkey,
                             .to = write->wr.rdma.remote_addr,
                             .key = write->wr.rdma.rkey,
                             .told = write->send_flags & IBV_SEND_SIGNALED,
                             .here = write->send_flags & IBV_SEND_INLINE};
        MUST(!posted->here || posted->bytes <= MOST_INLINE);
        if (posted->here)
            memcpy(posted->data, (const void *)(uintptr_t)posted->at, posted->bytes);
        queue->last++;
    }
    pthread_cond_signal(&queue->wake);
    pthread_mutex_unlock(&queue->lock);
    return error;
}

/* Begin to receive the peer's writes. */
static int begin_receiving(queue_t *queue, const struct ibv_qp_attr *attributes)
{
    struct sockaddr_un name;
    struct ibv_gid_entry entry;
    if (queue->base.qp_num % 2)
        usleep(10 * LATE_US); /* its peer is ready sooner */
    MUST(fake_option("ib") || attributes->ah_attr.is_global);
    _ibv_query_gid_ex(queue->base.context, 1, fake_option("ib") ? 0 : 3, &entry, 0, sizeof(entry));
    queue->own = entry.gid;
    queue->peer = attributes->ah_attr.grh.dgid;
    queue->peer_queue = attributes->dest_qp_num;
    const socklen_t size = name_of(&queue->own, queue->base.qp_num, &name);
    queue->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(bind(queue->listener, (struct sockaddr *)&name, size) == 0 && listen(queue->listener, 1) == 0);
    queue->receives = pthread_create(&queue->receiver, NULL, receive, queue) == 0;
    queue->base.state = IBV_QPS_RTR;
    return queue->receives ? 0 : ENOMEM;
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    queue_t *queue = (queue_t *)qp;
    MUST(mask & IBV_QP_STATE);
    if (attributes->qp_state == IBV_QPS_INIT && qp->state == IBV_QPS_RESET) {
        qp->state = IBV_QPS_INIT;
        return attributes->port_num == 1 && attributes->qp_access_flags == IBV_ACCESS_REMOTE_WRITE ? 0 : EINVAL;
    }
    if (attributes->qp_state == IBV_QPS_RTR && qp->state == IBV_QPS_INIT)
        return begin_receiving(queue, attributes);
    if (attributes->qp_state != IBV_QPS_RTS || qp->state != IBV_QPS_RTR || attributes->timeout > 31 ||
        attributes->retry_cnt > 7)
        return EINVAL;
    queue->sends = pthread_create(&queue->sender, NULL, send_posted, queue) == 0;
    qp->state = IBV_QPS_RTS;
    return queue->sends ? 0 : ENOMEM;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
    queue_t *queue = (queue_t *)qp;
    pthread_mutex_lock(&queue->lock);
    queue->ends = true;
    pthread_cond_signal(&queue->wake);
    shutdown(queue->listener, SHUT_RDWR);
    shutdown(queue->out, SHUT_RDWR);
    shutdown(queue->in, SHUT_RDWR);
    pthread_mutex_unlock(&queue->lock);
    if (queue->sends)
        pthread_join(queue->sender, NULL);
    if (queue->receives)
        pthread_join(queue->receiver, NULL);
    close(queue->listener);
    close(queue->out);
    close(queue->in);
    pthread_mutex_lock(&g_lock);
    queue_t **at = &g_queues;
    while (*at != queue)
        at = &(*at)->next;
    *at = queue->next;
    pthread_mutex_unlock(&g_lock);
    fake_count(qp->context, -1);
    free(queue);
    return 0;
}
