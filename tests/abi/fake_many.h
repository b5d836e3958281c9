/* SPDX-License-Identifier: Apache-2.0 */
/* fake_many.h - a function with more arguments of every class than there are registers, and what it saw. */
#ifndef SHUNT_TESTS_FAKE_MANY_H
#define SHUNT_TESTS_FAKE_MANY_H

#include <stdint.h>
#include <string.h>

enum { FAKE_INTEGERS = 12, FAKE_FLOATS = 12 };

typedef struct fake_triple {
    int64_t a, b, c;
} fake_triple_t;

/* The recorded call. */
typedef struct fake_seen {
    int64_t integer[FAKE_INTEGERS];
    double real[FAKE_FLOATS];
    fake_triple_t triple;
    int aligned;      /* the stack was a multiple of 16 at the call */
    int twin;         /* 1: it was the pnccl function */
    const char *name; /* of the function, where it says so */
} fake_seen_t;

#define FAKE_MANY_PARAMETERS                                                                                        \
    fake_seen_t *seen, int64_t i0, int64_t i1, int64_t i2, int64_t i3, int64_t i4, double f0, double f1, double f2, \
        double f3, double f4, double f5, double f6, double f7, double f8, double f9, double f10, double f11,        \
        int64_t i5, int64_t i6, int64_t i7, int64_t i8, int64_t i9, int64_t i10, int64_t i11, fake_triple_t triple

#define FAKE_MANY_ARGUMENTS \
    seen, i0, i1, i2, i3, i4, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, i5, i6, i7, i8, i9, i10, i11, triple

/* Of the function that calls it. */
static inline __attribute__((always_inline)) void fake_see(FAKE_MANY_PARAMETERS)
{
    const int64_t integer[] = {i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11};
    const double real[] = {f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11};
    memcpy(seen->integer, integer, sizeof integer);
    memcpy(seen->real, real, sizeof real);
    seen->triple = triple;
    seen->aligned = (uintptr_t)__builtin_frame_address(0) % 16 == 0;
}

#endif
