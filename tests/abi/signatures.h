/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signatures.h - the functions of signatures.def: as recorder.c defines them, and as test_signatures.c calls them.
 *
 * SIGNATURE(n, name, types...): n arguments, each P (pointer), Z (64 bits), I (int, enum), D (an ncclUniqueId by
 * value). Arguments are numbered from the last one, 1.
 */
#ifndef SHUNT_TESTS_SIGNATURES_H
#define SHUNT_TESTS_SIGNATURES_H

#include <stdint.h>

enum { RECORD_WORDS = 12, RECORD_VERSION = 23299, RECORD_RESULT = 3 /* ncclInternalError: outputs are not read */ };

typedef struct record {
    const char *name;
    int calls;
    uint64_t word[RECORD_WORDS]; /* of the last call */
} record_t;

/* In the recorder: what was called by this name. */
typedef const record_t *record_find_t(const char *name);

typedef struct id128 {
    uint64_t word[16];
} id128_t;

#define TYPE_P void *
#define TYPE_Z uint64_t
#define TYPE_I int
#define TYPE_D id128_t
#define WORD_P(a) (uint64_t)(uintptr_t)(a)
#define WORD_Z(a) (a)
#define WORD_I(a) (uint64_t)(int64_t)(a)
#define WORD_D(a) id_word(a)

/* Every word of the id counts. */
static inline uint64_t id_word(id128_t id)
{
    uint64_t sum = 0;
    for (int i = 0; i < 16; i++)
        sum = sum * 31 + id.word[i];
    return sum;
}

/* what(type, number) for each argument, with commas between. */
#define EACH_0(what)
#define EACH_1(what, A) what(A, 1)
#define EACH_2(what, A, ...) what(A, 2), EACH_1(what, __VA_ARGS__)
#define EACH_3(what, A, ...) what(A, 3), EACH_2(what, __VA_ARGS__)
#define EACH_4(what, A, ...) what(A, 4), EACH_3(what, __VA_ARGS__)
#define EACH_5(what, A, ...) what(A, 5), EACH_4(what, __VA_ARGS__)
#define EACH_6(what, A, ...) what(A, 6), EACH_5(what, __VA_ARGS__)
#define EACH_7(what, A, ...) what(A, 7), EACH_6(what, __VA_ARGS__)
#define EACH_8(what, A, ...) what(A, 8), EACH_7(what, __VA_ARGS__)
#define EACH_9(what, A, ...) what(A, 9), EACH_8(what, __VA_ARGS__)
#define EACH_10(what, A, ...) what(A, 10), EACH_9(what, __VA_ARGS__)
#define EACH_11(what, A, ...) what(A, 11), EACH_10(what, __VA_ARGS__)

#define PARAMETER(A, number) TYPE_##A a##number
#define WORD(A, number) WORD_##A(a##number)

#endif
