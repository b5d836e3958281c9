/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_verbs.c - in place of libibverbs.so.1 (SHUNT_IBV_SO): RDMA among the processes of one machine.
 *
 * This file has devices, memory and completions. A queue pair (fake_verbs_queue.c) has two threads, as a device has two
 * engines: one sends posted requests, some time later, over a socket; the other one receives the peer's and writes into
 * memory. Each address (GID) and queue pair has a socket with its own name. Misuse ends the program: leaked objects, or
 * memory that is deregistered before the queue pair that wrote to it is destroyed.
 *
 * FAKE_VERBS, words with commas between: two (devices), down (its ports are), ib (InfiniBand), none (no device), memory
 * (none can be registered), first (the first write of each queue pair fails), lost
 * (it never completes), fail=N (the Nth write of a queue pair does).
 */
#define _GNU_SOURCE
#include "fake_verbs.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { MOST_MEMORY = 4096, MOST_DONE = 4096 };

const char *fake_option(const char *name)
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

void fake_count(struct ibv_context *context, int by)
{
    __atomic_add_fetch(&((context_t *)context)->objects, by, __ATOMIC_SEQ_CST);
}

static void make_devices(void)
{
    for (int i = 0; i < 2; i++) {
        snprintf(g_devices[i].name, sizeof(g_devices[i].name), "fake%d", i);
        g_devices[i].transport_type = IBV_TRANSPORT_IB;
    }
}

EXPORT struct ibv_device **ibv_get_device_list(int *number)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_devices);
    struct ibv_device **list = calloc(3, sizeof(*list));
    *number = fake_option("none") ? 0 : fake_option("two") ? 2 : 1;
    for (int i = 0; i < *number; i++)
        list[i] = &g_devices[i];
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
    made->base.ops.post_send = fake_post;
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
    port->state = number == 1 && !fake_option("down") ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    port->link_layer = fake_option("ib") ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
    port->active_mtu = IBV_MTU_1024;
    port->gid_tbl_len = 4;
    return 0;
}

/* As RoCE has them: of the link alone, then of IPv4; of each the first version, then the second. There is somebody at
 * the last address alone; of InfiniBand at the first one. */
EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                             uint32_t flags, size_t size)
{
    const bool ib = fake_option("ib"), four = index >= 2;
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
    fake_count(context, 1);
    return made;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
    fake_count(pd->context, -1);
    free(pd);
    return 0;
}

/* ---- Memory ------------------------------------------------------------------------------ */

typedef struct memory {
    struct ibv_mr base;
    int access;
    uint32_t writer; /* number of the queue pair that wrote to it; 0: none */
} memory_t;

static memory_t *g_memory[MOST_MEMORY];

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
    if (fake_option("memory")) {
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
    fake_count(pd->context, 1);
    return &made->base;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *memory)
{
    MUST(!fake_is_alive(((memory_t *)memory)->writer));
    pthread_mutex_lock(&g_lock);
    g_memory[memory->lkey] = NULL;
    pthread_mutex_unlock(&g_lock);
    fake_count(memory->context, -1);
    free(memory);
    return 0;
}

bool fake_may(uint32_t key, uint64_t at, uint64_t bytes, int access, const struct ibv_pd *pd, uint32_t writer)
{
    pthread_mutex_lock(&g_lock);
    memory_t *memory = key < MOST_MEMORY ? g_memory[key] : NULL;
    const uint64_t from = memory ? (uintptr_t)memory->base.addr : 0;
    const bool may = memory && memory->base.pd == pd && (memory->access & access) == access && at >= from &&
                     bytes <= memory->base.length && at - from <= memory->base.length - bytes;
    if (may && writer)
        memory->writer = writer;
    pthread_mutex_unlock(&g_lock);
    return may;
}

EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "another one";
}

/* ---- Completions ------------------------------------------------------------------------- */

typedef struct completions {
    struct ibv_cq base;
    pthread_mutex_t lock;
    struct ibv_wc done[MOST_DONE];
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
    fake_count(context, 1);
    return &made->base;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
    fake_count(cq->context, -1);
    free(cq);
    return 0;
}

void fake_complete(struct ibv_cq *cq, const struct ibv_wc *one)
{
    completions_t *queue = (completions_t *)cq;
    pthread_mutex_lock(&queue->lock);
    MUST(queue->last - queue->first < MOST_DONE);
    queue->done[queue->last++ % MOST_DONE] = *one;
    pthread_mutex_unlock(&queue->lock);
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *done)
{
    completions_t *queue = (completions_t *)cq;
    int got = 0;
    pthread_mutex_lock(&queue->lock);
    while (got < most && queue->first != queue->last)
        done[got++] = queue->done[queue->first++ % MOST_DONE];
    pthread_mutex_unlock(&queue->lock);
    return got;
}
