/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.h - the right result of a reduction, in plain C, independent of the
 * library under test.
 *
 * The rules for a call that Shunt serves itself (REF_STRICT):
 *   8- and 16-bit floats  each input is widened to fp32, combined in fp32 in rank order 0..n-1,
 *                         rounded once to the type (nearest even; fp8 saturates at its largest
 *                         finite value, as CUDA's __NV_SATFINITE does)
 *   fp32, fp64            combined in their own precision, in rank order
 *   integers              wrap; min and max by the type's sign
 *   avg, floats           each input is divided by p, the power of two that is at least n, then summed like sum to a;
 *                         the average is a + a * ((p - n) / n), where the quotient is rounded, and the rest once
 *   avg, integers         the wrapped sum divided by n, toward zero
 *   premulsum             each rank's product is rounded to the type, then summed like sum
 *   min, max              drop NaN, as fmin and fmax do; -0 is less than +0
 *   NaN                   all ones but the sign
 *   one rank              a copy of the bits; premulsum: the product
 * Results are compared bit by bit. (Of one rank a NaN equals every NaN, and +0 equals -0.)
 *
 * A call that the real NCCL serves may sum in another order and round after each step. REF_BOUND
 * takes an fp64 (long double) reference r and allows, with u the unit roundoff of the type,
 * m its smallest subnormal and S the sum of the magnitudes:
 *   sum, premulsum        (n + 1) u S + n m         (S of the products for premulsum)
 *   avg                   (n + 3) u S / n + n m     (NCCL rounds 1/n to the type first)
 *   prod                  2 n u |r| + n m
 *   min, max, integers    exact, but a NaN equals every NaN, and +0 equals -0
 * Under DATA_BITS (infinities, NaN, overflow) only integers, min and max can be compared that way.
 */
#ifndef TEST_REFERENCE_H
#define TEST_REFERENCE_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { REF_TYPES = 12, REF_MAX_RANKS = 8 };

/* The first five have the values of ncclRedOp_t. */
typedef enum ref_op { REF_SUM, REF_PROD, REF_MAX, REF_MIN, REF_AVG, REF_PREMUL, REF_OPS } ref_op_t;
typedef enum ref_precision { REF_STRICT, REF_BOUND } ref_precision_t;

size_t ref_bytes(ncclDataType_t type);
const char *ref_type_name(ncclDataType_t type);
const char *ref_op_name(ref_op_t op);
bool ref_is_float(ncclDataType_t type);
bool ref_is_signed(ncclDataType_t type);

/* Store the low `bytes` (1, 2, 4, 8) of `bits`. Each is a constant, since a call of memcpy costs more than most
 * conversions. */
static inline void ref_store(size_t bytes, uint64_t bits, void *element)
{
    switch (bytes) {
    case 1:
        memcpy(element, &bits, 1);
        break;
    case 2:
        memcpy(element, &bits, 2);
        break;
    case 4:
        memcpy(element, &bits, 4);
        break;
    default:
        memcpy(element, &bits, 8);
    }
}

/* One element as a number (64-bit integers lose low bits), and the nearest element to a number. */
double ref_value(ncclDataType_t type, const void *element);
void ref_encode(ncclDataType_t type, double value, void *element);

/* Reduce one element: `inputs` and `scalars` (only for REF_PREMUL) hold n elements in rank order. */
void ref_reduce(ncclDataType_t type, ref_op_t op, int n, const void *inputs, const void *scalars, void *result);
/* Whether `got` is right. */
bool ref_right(ncclDataType_t type, ref_op_t op, ref_precision_t precision, int n, const void *inputs,
               const void *scalars, const void *got);
/* The same with REF_STRICT for an all-reduce of several nodes with as many ranks each, rank r on node_of[r]: each
 * node's sum (of an average of floats: its average) follows the rules of one node, and is rounded; then the sums are
 * added the same way. Nodes are numbered by their first ranks. */
bool ref_right_on_nodes(ncclDataType_t type, ref_op_t op, int n, const int *node_of, const void *inputs,
                        const void *scalars, const void *got);

#endif
