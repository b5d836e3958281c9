/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_nccl.h - the fake NCCL's functions as the tests see them.
 *
 * Deliberately not NCCL's prototypes: a trampoline must carry any. So neither side
 * includes nccl.h.
 */
#ifndef SHUNT_TESTS_FAKE_NCCL_H
#define SHUNT_TESTS_FAKE_NCCL_H

#include <stdint.h>

enum { FAKE_INTEGERS = 12, FAKE_FLOATS = 12, FAKE_VERSION_CODE = 23199 };

typedef struct fake_triple {
    int64_t a, b, c;
} fake_triple_t;

/* The recorded call. */
typedef struct fake_seen {
    int64_t integer[FAKE_INTEGERS];
    double real[FAKE_FLOATS];
    fake_triple_t triple;
    int aligned; /* the stack was a multiple of 16 at the call */
    int twin;    /* 1: it was the pnccl function */
} fake_seen_t;

#define FAKE_MANY_PARAMETERS                                                                                        \
    fake_seen_t *seen, int64_t i0, int64_t i1, int64_t i2, int64_t i3, int64_t i4, double f0, double f1, double f2, \
        double f3, double f4, double f5, double f6, double f7, double f8, double f9, double f10, double f11,        \
        int64_t i5, int64_t i6, int64_t i7, int64_t i8, int64_t i9, int64_t i10, int64_t i11, fake_triple_t triple

/* More arguments of every class than there are registers. */
int ncclDevCommCreate(FAKE_MANY_PARAMETERS);
int pncclDevCommCreate(FAKE_MANY_PARAMETERS);
/* Returned through memory that the caller names. */
fake_triple_t ncclTeamCft(int64_t a, int64_t b, int64_t c);
/* The number of vector registers is passed too. */
double ncclParamGet(int count, ...);
/* Return argument + 1 .. argument + 4. */
int ncclParamGetI8(int argument);
int pncclParamGetI8(int argument);
int ncclParamGetI16(int argument);
int ncclParamGetI32(int argument);
/* Missing in the library. */
int ncclCommGrow(void);
int ncclDevCommDestroy(void);

/* Of a fake newer than Shunt: it calls ncclBroadcast itself. */
int ncclNewest(void *buffer);
int pncclNewest(void *buffer);

/* Looked up in the fake only: the address of ncclGetErrorString as its code sees it, and of ncclGetLastError as its
 * data does. */
void *fake_address_in_code(void);
void *fake_address_in_data(void);

#endif
