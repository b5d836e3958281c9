/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - what fakes of NVIDIA's library and of Shunt's service note about their calls. Each argument is a word; an
 * argument that a function lacks is 0.
 */
#ifndef SHUNT_TESTS_EP_RECORD_H
#define SHUNT_TESTS_EP_RECORD_H

#include <stdint.h>

#include "shim/experts/nccl_ep.h"

enum { RECORD_WORDS = 7, RECORD_VERSION = 12345 };

typedef struct record {
    int calls;
    uint64_t word[RECORD_WORDS]; /* of the last call */
} record_t;

/* In the fake library: the record of ncclEp<name>; the result that its functions return. */
typedef record_t *record_find_t(const char *name);
typedef void record_return_t(ncclResult_t result);

#define WORD(argument) ((uint64_t)(uintptr_t)(argument))
/* Groups and handles that the fakes give out; the pointers lead nowhere. */
#define REAL_GROUP ((ncclEpGroup_t)0x1001)
#define REAL_HANDLE ((ncclEpHandle_t)0x2001)

#endif
