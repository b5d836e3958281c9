/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_verbs.c - in place of libibverbs.so.1 (SHUNT_IBV_SO): RDMA among the processes of one machine.
 *
 * A queue pair has two threads, as a device has two engines: one carries out what was posted, some time later, by
 * a socket; the other one serves the peer's, and writes into memory. Each address (GID) and queue pair has a socket of
 * its own name. What a caller may not do ends the program: objects left over, memory whose registration ends before
 * the queue pair that wrote to it.
 *
 * FAKE_VERBS, words with commas between: two (devices), down (its ports are), ib (InfiniBand), none (no device), memory
 * (none can be registered), first (the first write of each queue pair fails), lost
 * (it never completes), fail=N (the Nth write of a queue pair does).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#define EXPORT __attribute__((visibility("default")))

enum { ROOM = 16, MOST_MEMORY = 4096, LATE_US = 200, MOST_INLINE = 64 };

#define MUST(condition)                                                          \
    do {                                                                         \
        if (!(condition)) {                                                      \
            fprintf(stderr, "fake_verbs.c:%d: not: %s\n", __LINE__, #condition); \
            abort();                                                             \
        }                                                                        \
    } while (0)

static const char *option(const char *name)
{
    const char *text = getenv("FAKE_VERBS");
    const size_t length = strlen(name);
    while (text && *text) {
        if (strncmp(text, name, length) == 0 && strchr(",=", text[length]))
            return text + length + (text[length] == '=');
        text = strchr(text, ',');
        text += text != NULL;
    }
    return NULL;
}

/* ---- Devices ----------------------------------------------------------------------------- */

static struct ibv_device g_devices[2];
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t g_number;

typedef struct context {
    struct ibv_context base;
    uint32_t number; /* of its address */
    int objects;
} context_t;

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *done);
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *write, struct ibv_send_wr **bad);

static void count(struct ibv_context *context, int by)
{
    __atomic_add_fetch(&((context_t *)context)->objects, by, __ATOMIC_SEQ_CST);
}

EXPORT struct ibv_device **ibv_get_device_list(int *number)
{
    struct ibv_device **list = calloc(3, sizeof(*list));
    *number = option("none") ? 0 : option("two") ? 2 : 1;
    pthread_mutex_lock(&g_lock);
    for (int i = 0; i < *number; i++) {
        snprintf(g_devices[i].name, sizeof(g_devices[i].name), "fake%d", i);
        g_devices[i].transport_type = IBV_TRANSPORT_IB;
        list[i] = &g_devices[i];
    }
    pthread_mutex_unlock(&g_lock);
    return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    context_t *made = calloc(1, sizeof(*made));
    made->base.device = device;
    made->base.ops.poll_cq = poll_cq;
    made->base.ops.post_send = post_send;
    made->number = (uint32_t)getpid() << 10 | (__atomic_fetch_add(&g_number, 1, __ATOMIC_SEQ_CST) & 0x3ff);
    return &made->base;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
    MUST(((context_t *)context)->objects == 0);
    free(context);
    return 0;
}

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes)
{
    (void)context;
    memset(attributes, 0, sizeof(*attributes));
    attributes->phys_port_cnt = 2; /* of which the second one is down */
    return 0;
}

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t number, struct _compat_ibv_port_attr *attributes)
{
    struct ibv_port_attr *port = (struct ibv_port_attr *)attributes;
    (void)context;
    port->state = number == 1 && !option("down") ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    port->link_layer = option("ib") ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
    port->active_mtu = IBV_MTU_1024;
    port->gid_tbl_len = 4;
    return 0;
}

/* As RoCE has them: of the link alone, then of IPv4; of each the first version, then the second. There is somebody at
 * the last address alone; of InfiniBand at the first one. */
EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                             uint32_t flags, size_t size)
{
    const bool ib = option("ib"), four = index >= 2;
    (void)flags;
    (void)size;
    if (index > 3)
        return ENODATA;
    *entry = (struct ibv_gid_entry){.gid_index = index, .port_num = port};
    entry->gid_type = ib ? IBV_GID_TYPE_IB : index % 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
    entry->gid.raw[0] = four ? 0 : 0xfe;
    entry->gid.raw[1] = four ? 0 : 0x80;
    entry->gid.raw[10] = entry->gid.raw[11] = four ? 0xff : 0;
    memcpy(&entry->gid.raw[12], &((context_t *)context)->number, 4);
    return 0;
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *made = calloc(1, sizeof(*made));
    made->context = context;
    count(context, 1);
    return made;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
    count(pd->context, -1);
    free(pd);
    return 0;
}

/* ---- Memory ------------------------------------------------------------------------------ */

typedef struct memory {
    struct ibv_mr base;
    int access;
    int writer; /* number of the queue pair that wrote to it; 0: none */
} memory_t;

static memory_t *g_memory[MOST_MEMORY];

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
    if (option("memory")) {
        errno = ENOMEM;
        return NULL;
    }
    memory_t *made = calloc(1, sizeof(*made));
    made->base = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = at, .length = bytes};
    made->access = access;
    pthread_mutex_lock(&g_lock);
    uint32_t key = 1;
    while (key < MOST_MEMORY && g_memory[key])
        key++;
    MUST(key < MOST_MEMORY);
    g_memory[key] = made;
    pthread_mutex_unlock(&g_lock);
    made->base.lkey = made->base.rkey = key;
    count(pd->context, 1);
    return &made->base;
}

static bool is_alive(int queue);

EXPORT int ibv_dereg_mr(struct ibv_mr *memory)
{
    MUST(!is_alive(((memory_t *)memory)->writer));
    pthread_mutex_lock(&g_lock);
    g_memory[memory->lkey] = NULL;
    pthread_mutex_unlock(&g_lock);
    count(memory->context, -1);
    free(memory);
    return 0;
}

/* Under the lock. */
static bool may(uint32_t key, uint64_t at, uint64_t bytes, int access, const struct ibv_pd *pd)
{
    const memory_t *memory = key < MOST_MEMORY ? g_memory[key] : NULL;
    const uint64_t from = memory ? (uintptr_t)memory->base.addr : 0;
    return memory && memory->base.pd == pd && (memory->access & access) == access && at >= from &&
           bytes <= memory->base.length && at - from <= memory->base.length - bytes;
}

/* ---- Completions ------------------------------------------------------------------------- */

typedef struct completions {
    struct ibv_cq base;
    pthread_mutex_t lock;
    struct ibv_wc done[4096];
    uint32_t first, last;
} completions_t;

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int size, void *own, struct ibv_comp_channel *channel,
                                    int vector)
{
    (void)size;
    (void)own;
    (void)channel;
    (void)vector;
    completions_t *made = calloc(1, sizeof(*made));
    made->base.context = context;
    pthread_mutex_init(&made->lock, NULL);
    count(context, 1);
    return &made->base;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
    count(cq->context, -1);
    free(cq);
    return 0;
}

static void complete(struct ibv_cq *cq, const struct ibv_wc *one)
{
    completions_t *queue = (completions_t *)cq;
    pthread_mutex_lock(&queue->lock);
    MUST(queue->last - queue->first < 4096);
    queue->done[queue->last++ % 4096] = *one;
    pthread_mutex_unlock(&queue->lock);
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *done)
{
    completions_t *queue = (completions_t *)cq;
    int got = 0;
    pthread_mutex_lock(&queue->lock);
    while (got < most && queue->first != queue->last)
        done[got++] = queue->done[queue->first++ % 4096];
    pthread_mutex_unlock(&queue->lock);
    return got;
}

/* ---- Queue pairs ------------------------------------------------------------------------- */

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

static queue_t *g_queues; /* under g_lock */
static uint32_t g_queue_number = 16;

static bool is_alive(int queue)
{
    pthread_mutex_lock(&g_lock);
    const queue_t *one = g_queues;
    while (one && (int)one->base.qp_num != queue)
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
    count(pd->context, 1);
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

/* A flag is one store; data is not. */
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
            pthread_mutex_lock(&g_lock);
            const bool allowed = may(request.key, request.to, request.bytes, IBV_ACCESS_REMOTE_WRITE, queue->base.pd);
            if (allowed)
                g_memory[request.key]->writer = (int)queue->base.qp_num;
            pthread_mutex_unlock(&g_lock);
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
    const char *fail = option("fail");
    queue->writes++;
    if ((queue->writes == 1 && option("first")) || (fail && queue->writes == strtoul(fail, NULL, 10)))
        return IBV_WC_RETRY_EXC_ERR;
    if (queue->writes % 3 == 0)
        usleep(LATE_US);
    pthread_mutex_lock(&g_lock);
    const bool allowed = posted->here || may(posted->own_key, posted->at, posted->bytes, 0, queue->base.pd);
    pthread_mutex_unlock(&g_lock);
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
        const bool lost = queue->writes == 1 && option("lost");
        queue->broken = queue->broken || status != IBV_WC_SUCCESS;
        pthread_mutex_lock(&queue->lock);
        queue->first++;
        if (!queue->ends && !lost && (posted.told || status != IBV_WC_SUCCESS)) {
            const struct ibv_wc one = {.wr_id = posted.id, .status = status, .qp_num = queue->base.qp_num};
            complete(queue->base.send_cq, &one);
        }
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *write, struct ibv_send_wr **bad)
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

/* From now on the peer's writes come through. */
static int begin_receiving(queue_t *queue, const struct ibv_qp_attr *attributes)
{
    struct sockaddr_un name;
    struct ibv_gid_entry entry;
    MUST(option("ib") || attributes->ah_attr.is_global);
    _ibv_query_gid_ex(queue->base.context, 1, option("ib") ? 0 : 3, &entry, 0, sizeof(entry));
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
    count(qp->context, -1);
    free(queue);
    return 0;
}
