/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.h - inputs that any rank can compute for all ranks, the check of an output, and buffers with guards.
 *
 * An element is a pure function of case, rank and index, so a rank needs no data
 * of the others to know the expected result.
 */
#ifndef TEST_DATA_H
#define TEST_DATA_H

#include "reference.h"

/* On each side of a buffer. */
enum { DATA_GUARD_BYTES = 128 };

typedef enum data_kind {
    DATA_SMALL,  /* small integers and powers of two: exact in any order, except for avg and premulsum */
    DATA_RANDOM, /* floats in [-1, 1) (prod: 0.5 .. 2, both signs; avg, with an odd seed: sums are out of range);
                    integers of random bits */
    DATA_BITS, /* random bits with NaN, infinities, subnormals, both zeros, and runs of words that a library whose armed
                  memory is all-ones must not lose (data_escaped); with an odd seed sometimes nothing else */
    DATA_KINDS
} data_kind_t;

typedef struct data_case {
    ncclDataType_t type;
    ref_op_t op;
    data_kind_t kind;
    uint64_t seed;
    size_t count;
    int nranks;
} data_case_t;

/* splitmix64; *state is the seed. */
uint64_t data_random(uint64_t *state);
/* A word that kernels send with an escape, or would but for their constant: all-ones, DATA_ESCAPED, or a neighbour of
 * these (algorithms/device/mark.h; if the constants differ, its mutants are not found). By the last two bits. */
#define DATA_ESCAPED 0xff9d7fd3u
uint32_t data_escaped(uint64_t bits);
/* 0 .. limit-1 */
uint64_t data_below(uint64_t *state, uint64_t limit);

/* Write a rank's input, `count` elements, to any address. */
void data_fill(const data_case_t *c, int rank, void *input);
/* `count` elements of it, from element `first` on, to any address. */
void data_fill_part(const data_case_t *c, int rank, size_t first, size_t count, void *part);
/* Write a rank's scalar for REF_PREMUL: one element. */
void data_scalar(const data_case_t *c, int rank, void *scalar);
/* Check elements first, first + step, ... of an output. On a fault: false, one line in `fault`. */
bool data_right(const data_case_t *c, ref_precision_t precision, const void *output, size_t first, size_t step,
                char *fault, size_t fault_bytes);
/* The same with REF_STRICT for an all-reduce of several nodes (ref_right_on_nodes). */
bool data_right_on(const data_case_t *c, const int *node_of, const void *output, size_t first, size_t step, char *fault,
                   size_t fault_bytes);
/* The same if the placement of ranks is unknown: true if some placement, with as many ranks on each node, makes all
 * these elements right. */
bool data_right_on_nodes(const data_case_t *c, const void *output, size_t first, size_t step, char *fault,
                         size_t fault_bytes);
/* Fold bytes into a hash. */
uint64_t data_hash(uint64_t hash, const void *bytes, size_t size);

/* `size` bytes at `offset` (0 .. 64) from a 64-byte boundary, guards on both sides, all poisoned. */
typedef struct data_buffer {
    uint8_t *base;
    uint8_t *data;
    size_t size;
    size_t offset;
} data_buffer_t;
bool data_buffer_make(data_buffer_t *buffer, size_t size, size_t offset);
/* Whether the guards are unchanged. */
bool data_buffer_guarded(const data_buffer_t *buffer);
/* Whether nothing has been written. */
bool data_buffer_untouched(const data_buffer_t *buffer);
void data_buffer_free(data_buffer_t *buffer);

#endif
