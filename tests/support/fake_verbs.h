/* SPDX-License-Identifier: Apache-2.0 */
/* fake_verbs.h - what fake_verbs.c and fake_verbs_queue.c have in common. */
#ifndef SHUNT_TESTS_FAKE_VERBS_H
#define SHUNT_TESTS_FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#define EXPORT __attribute__((visibility("default")))

#define MUST(condition)                                                          \
    do {                                                                         \
        if (!(condition)) {                                                      \
            fprintf(stderr, "%s:%d: not: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                            \
        }                                                                        \
    } while (0)

/* The word of FAKE_VERBS behind this name; NULL: it is not there. */
const char *fake_option(const char *name);
void fake_count(struct ibv_context *context, int by);
/* Whether queue pairs of `pd` may access the bytes; if so, records queue pair `writer` (0: none) as writing to them. */
bool fake_may(uint32_t key, uint64_t at, uint64_t bytes, int access, const struct ibv_pd *pd, uint32_t writer);
void fake_complete(struct ibv_cq *cq, const struct ibv_wc *one);
bool fake_is_alive(uint32_t queue);
int fake_post(struct ibv_qp *qp, struct ibv_send_wr *write, struct ibv_send_wr **bad);

#endif
