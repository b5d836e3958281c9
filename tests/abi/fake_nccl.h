/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_nccl.h - the fake NCCL's functions as the tests see them.
 *
 * The prototypes deliberately differ from NCCL's, since a trampoline must pass any arguments. So neither side includes
 * nccl.h.
 */
#ifndef SHUNT_TESTS_FAKE_NCCL_H
#define SHUNT_TESTS_FAKE_NCCL_H

#include <stdint.h>

#include "fake_many.h"

enum { FAKE_VERSION_CODE = 23199 };

/* More arguments of every class than there are argument registers. */
int ncclDevCommCreate(FAKE_MANY_PARAMETERS);
int pncclDevCommCreate(FAKE_MANY_PARAMETERS);
/* Returned through memory that the caller names. */
fake_triple_t ncclTeamCft(int64_t a, int64_t b, int64_t c);
/* The number of vector registers is passed too. */
double ncclParamGet(int count, ...);
/* The five return argument + 1 to argument + 4. */
int ncclParamGetI8(int argument);
int pncclParamGetI8(int argument);
int ncclParamGetI16(int argument);
int ncclParamGetI32(int argument);
/* Not defined in the fake library. */
int ncclCommGrow(void);
int ncclDevCommDestroy(void);

/* Defined in a fake newer than Shunt; calls ncclBroadcast itself. */
int ncclNewest(void *buffer);
int pncclNewest(void *buffer);

/* Looked up in the fake only: the address of ncclGetErrorString as its code sees it, and of ncclGetLastError as its
 * data does. */
void *fake_address_in_code(void);
void *fake_address_in_data(void);

/* Likewise: make the pipe of NCCL's RAS thread, and an exit handler that writes to it. Its ends, or NULL. */
const int *fake_ras_starts(void);

#endif
