/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_queue.h - a port and its queue pairs, for verbs*.c. */
#ifndef SHUNT_NETWORK_VERBS_QUEUE_H
#define SHUNT_NETWORK_VERBS_QUEUE_H

#include <infiniband/verbs.h>

#include "transport/network/link.h"

#define VERBS_CALLS(X)  \
    X(get_device_list)  \
    X(free_device_list) \
    X(open_device)      \
    X(close_device)     \
    X(query_device)     \
    X(query_port)       \
    X(alloc_pd)         \
    X(dealloc_pd)       \
    X(reg_mr) X(dereg_mr) X(create_cq) X(destroy_cq) X(create_qp) X(modify_qp) X(destroy_qp) X(wc_status_str)

typedef struct verbs_calls {
#define VERBS_MEMBER(name) __typeof__(ibv_##name) *name;
    VERBS_CALLS(VERBS_MEMBER)
#undef VERBS_MEMBER
    __typeof__(_ibv_query_gid_ex) *query_gid; /* since rdma-core 33 */
} verbs_calls_t;

/* Opens the library once. NULL if it is missing or too old; why[] says so. */
const verbs_calls_t *verbs_calls(const char *library, char why[NET_WAY_TEXT]);

typedef struct verbs_queue {
    struct ibv_qp *qp;            /* NULL: none, or ended */
    struct ibv_mr *window, *flag; /* the peer writes here */
    uint8_t *copy;                /* copy of data from an unregistered source; else NULL */
    size_t copy_bytes;
    struct ibv_mr *copy_key;
    uint32_t inline_bytes;
    uint64_t seen;
    /* Where this rank writes at the peer: */
    uint64_t to_window, to_flag;
    uint32_t window_key, flag_key;
} verbs_queue_t;

struct verbs {
    const verbs_calls_t *calls;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    pid_t process; /* a forked child owns none of this */
    uint8_t port;
    struct ibv_port_attr attributes;
    int gid_index;
    union ibv_gid gid;
    int service_level, traffic_class, pkey_index, timeout, retries;
    struct ibv_mr *source; /* registered; put without a copy */
    verbs_queue_t queue[NET_NETWORK_RANKS];
    char way[48];
};

/* Posts `data` (may be NULL), then the flag with a completion. 0 or -ECONNRESET. */
int verbs_post(verbs_t *verbs, uint32_t peer, struct ibv_send_wr *data, uint64_t flag);
/* Call after verbs_end. */
void verbs_unregister(verbs_t *verbs, uint32_t peer);

#endif
