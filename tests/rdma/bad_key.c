/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bad_key.c - libibverbs whose writes have a wrong key as soon as bad_key_on is
 * set. Loaded by SHUNT_IBV_SO.
 *
 * All other functions are libibverbs's: this library depends on it, so dlsym also finds them here. Posts are made
 * through a table in the device, so only the function that opens a device is replaced.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>

#include <infiniband/verbs.h>

_Atomic int bad_key_on;

static int (*g_post)(struct ibv_qp *queue, struct ibv_send_wr *request, struct ibv_send_wr **bad);

static int post(struct ibv_qp *queue, struct ibv_send_wr *request, struct ibv_send_wr **bad)
{
    for (struct ibv_send_wr *r = request; r && atomic_load(&bad_key_on); r = r->next)
        r->wr.rdma.rkey ^= 0x100;
    return g_post(queue, request, bad);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct ibv_context *(*open_device)(struct ibv_device *);
    *(void **)&open_device = dlsym(RTLD_NEXT, "ibv_open_device");
    struct ibv_context *context = open_device ? open_device(device) : NULL;
    if (context) {
        g_post = context->ops.post_send;
        context->ops.post_send = post;
    }
    return context;
}
