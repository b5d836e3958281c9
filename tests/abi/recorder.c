/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder.c - a libnccl.so.2 with every name that Shunt exports, which records the arguments of each call: for treated
 * names by their signature, for forwarded names all argument registers and stack words.
 */
#include "fake_many.h"
#include "signatures.h"

#include <string.h>

enum { MOST_NAMES = 128 };

static record_t g_record[MOST_NAMES];

const record_t *record_find(const char *name)
{
    int i = 0;
    while (i < MOST_NAMES - 1 && g_record[i].name && strcmp(g_record[i].name, name) != 0)
        i++;
    g_record[i].name = name;
    return &g_record[i];
}

static int take(const char *name, const uint64_t *word, size_t bytes)
{
    record_t *record = (record_t *)record_find(name);
    record->calls++;
    memset(record->word, 0, sizeof(record->word));
    memcpy(record->word, word, bytes);
    return RECORD_RESULT;
}

#define SIGNATURE(n, name, ...)                                                 \
    int name(EACH_##n(PARAMETER, ##__VA_ARGS__));                               \
    int name(EACH_##n(PARAMETER, ##__VA_ARGS__))                                \
    {                                                                           \
        const uint64_t word[RECORD_WORDS] = {n, EACH_##n(WORD, ##__VA_ARGS__)}; \
        return take(#name, word, sizeof(word));                                 \
    }
#include "signatures.def"

#define RECORD_MANY(function, of, is_twin) \
    int function(FAKE_MANY_PARAMETERS);    \
    int function(FAKE_MANY_PARAMETERS)     \
    {                                      \
        fake_see(FAKE_MANY_ARGUMENTS);     \
        seen->name = #of;                  \
        seen->twin = is_twin;              \
        return (int)sizeof(#function) - 1; \
    }
#define SHIM_FORWARD(name) RECORD_MANY(name, name, 0) RECORD_MANY(p##name, name, 1)
#define SHIM_FORWARD_ONLY(name) RECORD_MANY(name, name, 0)
#include "shim/names/names.def"

int ncclGetVersion(int *version)
{
    *version = RECORD_VERSION;
    return 0;
}

const char *ncclGetErrorString(int code)
{
    return code == RECORD_RESULT ? "recorded" : "another error";
}

const char *ncclGetLastError(void *comm)
{
    take("ncclGetLastError", (uint64_t[]){(uint64_t)(uintptr_t)comm}, sizeof(uint64_t));
    return "recorded last error";
}
