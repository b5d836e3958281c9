/* SPDX-License-Identifier: Apache-2.0 */
/* pair.c - see pair.h. */
#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ibv_context *open_device(const char *name)
{
    int count;
    struct ibv_device **devices = ibv_get_device_list(&count);
    struct ibv_context *context = NULL;
    assert_non_null(devices);
    for (int i = 0; i < count && !context; i++) {
        if (strcmp(ibv_get_device_name(devices[i]), name) == 0)
            context = ibv_open_device(devices[i]);
    }
    ibv_free_device_list(devices);
    if (!context)
        fail_msg("no device %s: scripts/rdma-vm makes one", name);
    return context;
}

static void open_end(pair_end_t *end, const char *name)
{
    end->context = open_device(name);
    assert_int_equal(ibv_query_gid(end->context, 1, PAIR_GID, &end->gid), 0);
    end->domain = ibv_alloc_pd(end->context);
    assert_non_null(end->domain);
    end->completions = ibv_create_cq(end->context, 64, NULL, NULL, 0);
    assert_non_null(end->completions);
    end->memory = aligned_alloc(4096, PAIR_BYTES);
    assert_non_null(end->memory);
    memset(end->memory, 0, PAIR_BYTES);
    end->region = ibv_reg_mr(end->domain, end->memory, PAIR_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    assert_non_null(end->region);
    struct ibv_qp_init_attr made = {.send_cq = end->completions,
                                    .recv_cq = end->completions,
                                    .cap = {.max_send_wr = 32, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
                                    .qp_type = IBV_QPT_RC};
    end->queue = ibv_create_qp(end->domain, &made);
    assert_non_null(end->queue);
}

static void connect_end(pair_end_t *end, const pair_end_t *other, uint8_t timeout, uint8_t retries)
{
    struct ibv_qp_attr first = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct ibv_qp_attr ready = {.qp_state = IBV_QPS_RTR,
                                .path_mtu = IBV_MTU_1024,
                                .dest_qp_num = other->queue->qp_num,
                                .min_rnr_timer = 12,
                                .ah_attr = {.is_global = 1,
                                            .port_num = 1,
                                            .grh = {.dgid = other->gid, .sgid_index = PAIR_GID, .hop_limit = 2}}};
    struct ibv_qp_attr sending = {
        .qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = retries, .rnr_retry = 7, .max_rd_atomic = 1};
    assert_int_equal(
        ibv_modify_qp(end->queue, &first, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    assert_int_equal(ibv_modify_qp(end->queue, &ready,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
                     0);
    assert_int_equal(ibv_modify_qp(end->queue, &sending,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                       IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
}

void pair_open(pair_t *pair, uint8_t timeout, uint8_t retries)
{
    memset(pair, 0, sizeof(*pair));
    open_end(&pair->end[0], "rxe0");
    open_end(&pair->end[1], "rxe1");
    for (int i = 0; i < 2; i++)
        connect_end(&pair->end[i], &pair->end[1 - i], timeout, retries);
}

void pair_close(pair_t *pair)
{
    for (int i = 0; i < 2; i++) {
        pair_end_t *end = &pair->end[i];
        assert_int_equal(ibv_destroy_qp(end->queue), 0);
        assert_int_equal(ibv_dereg_mr(end->region), 0);
        assert_int_equal(ibv_destroy_cq(end->completions), 0);
        assert_int_equal(ibv_dealloc_pd(end->domain), 0);
        assert_int_equal(ibv_close_device(end->context), 0);
        free(end->memory);
    }
}

uint32_t pair_key(const pair_t *pair, int of_end)
{
    return pair->end[of_end].region->rkey;
}

void pair_write(pair_t *pair, int from_end, uint64_t from, uint64_t to, uint32_t bytes, uint32_t key, int signalled)
{
    pair_end_t *end = &pair->end[from_end];
    struct ibv_sge piece = {(uintptr_t)end->memory + from, bytes, end->region->lkey};
    struct ibv_send_wr request = {.opcode = IBV_WR_RDMA_WRITE,
                                  .sg_list = &piece,
                                  .num_sge = 1,
                                  .send_flags = signalled ? IBV_SEND_SIGNALED : 0,
                                  .wr.rdma = {(uintptr_t)pair->end[1 - from_end].memory + to, key}};
    struct ibv_send_wr *bad;
    assert_int_equal(ibv_post_send(end->queue, &request, &bad), 0);
}

enum ibv_wc_status pair_completion(pair_t *pair, int of_end)
{
    struct ibv_wc done;
    int count;
    do {
        count = ibv_poll_cq(pair->end[of_end].completions, 1, &done);
    } while (count == 0);
    assert_int_equal(count, 1);
    return done.status;
}
