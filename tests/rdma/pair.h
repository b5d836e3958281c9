/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.h - a connected pair of queue pairs on two RDMA devices of one machine.
 *
 * For tests of RDMA's guarantees, without the project's code. The devices are those of scripts/rdma-vm. Every failure
 * of the set-up fails the test.
 */
#ifndef SHUNT_TESTS_RDMA_PAIR_H
#define SHUNT_TESTS_RDMA_PAIR_H

#include <infiniband/verbs.h>
#include <stdint.h>

enum { PAIR_BYTES = 65536, PAIR_GID = 1 /* the IPv4 address */ };

typedef struct pair_end {
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_cq *completions;
    struct ibv_qp *queue;
    struct ibv_mr *region;
    union ibv_gid gid;
    char *memory; /* PAIR_BYTES that the other end may write */
} pair_end_t;

typedef struct pair {
    pair_end_t end[2]; /* rxe0, rxe1 */
} pair_t;

/* Open the pair. An unacknowledged packet is sent again after 4.096 us * 2^timeout, `retries` times. */
void pair_open(pair_t *pair, uint8_t timeout, uint8_t retries);
void pair_close(pair_t *pair);

/* Write `bytes` from offset `from` of the own memory to offset `to` of the other end's, with a completion if
 * `signalled`. */
void pair_write(pair_t *pair, int from_end, uint64_t from, uint64_t to, uint32_t bytes, uint32_t key, int signalled);
uint32_t pair_key(const pair_t *pair, int of_end);

/* Waits for the next completion of an end. */
enum ibv_wc_status pair_completion(pair_t *pair, int of_end);

#endif
