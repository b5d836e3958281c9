/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.h - sizes, inputs and the check of an output of each collective, for tests of kernels and of the library.
 *
 * A data_case_t's count is that of NCCL's entry point; its operator applies to
 * collectives that reduce.
 */
#ifndef TEST_COLLECTIVE_H
#define TEST_COLLECTIVE_H

#include "algorithms/algorithm.h"
#include "data.h"

enum { COLL_COUNT = ALG_SEND_RECV }; /* messages are not collectives: messages.h */

typedef struct coll {
    alg_collective_t collective;
    uint32_t root;
    data_case_t c;
} coll_t;

/* Whether the collective has an operator; below: a root. (The library's own functions for this are not public.) */
bool coll_reduces(const coll_t *k);
bool coll_rooted(const coll_t *k);
/* Whether every rank gets the same output. */
bool coll_alike(const coll_t *k);
/* Elements of the rank's buffer; 0: this rank does not use it. */
size_t coll_input_count(const coll_t *k, uint32_t rank);
size_t coll_output_count(const coll_t *k, uint32_t rank);
/* Position of the input in place: elements from the output's start (for a rank that uses both), or, negative, position
 * of the output in the input. */
ptrdiff_t coll_in_place_at(const coll_t *k, uint32_t rank);
void coll_fill(const coll_t *k, uint32_t rank, void *input);
/* Check an output; moved data is compared bit for bit. On a fault: false, and one line in `fault`. */
bool coll_right(const coll_t *k, uint32_t rank, const void *output, char *fault, size_t fault_bytes);

#endif
