/* SPDX-License-Identifier: Apache-2.0 */
/* policy.c - the parser of policy.h's grammar. Any bytes are safe input. */
#include "selector/policy.h"

#include <stdio.h>
#include <string.h>

typedef struct reader {
    const char *text, *at;
    char *fault;
    size_t fault_bytes;
    uint32_t scope; /* bit c: later items apply to this collective */
} reader_t;

enum { ALL_COLLECTIVES = (1 << ALG_COLLECTIVE_COUNT) - 1 };

static bool expected(const reader_t *r, const char *what)
{
    if (r->fault && r->fault_bytes)
        snprintf(r->fault, r->fault_bytes, "column %d: expected %s", (int)(r->at - r->text) + 1, what);
    return false;
}

static bool read_size(reader_t *r, uint64_t *bytes)
{
    uint64_t value = 0;
    if (*r->at < '0' || *r->at > '9')
        return expected(r, "a size such as 64K");
    for (; *r->at >= '0' && *r->at <= '9'; r->at++) {
        if (value > (UINT64_MAX >> 31) / 10)
            return expected(r, "a smaller number");
        value = value * 10 + (uint64_t)(*r->at - '0');
    }
    int shift = 0;
    switch (*r->at) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    }
    if (shift)
        r->at++;
    *bytes = value << shift;
    return true;
}

static bool equals(const char *name, const char *at, size_t length)
{
    return strlen(name) == length && strncmp(name, at, length) == 0;
}

static bool in_scope(const reader_t *r, const alg_algorithm_t *algorithm)
{
    return r->scope >> algorithm->collective & 1;
}

/* Bits, by index in alg_registry; 0: none. */
static uint64_t find_algorithms(const reader_t *r, size_t length)
{
    uint64_t found = 0;
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        if (in_scope(r, alg_registry[i]) && equals(alg_registry[i]->name, r->at, length))
            found |= UINT64_C(1) << i;
    }
    return found;
}

static bool expected_algorithm(const reader_t *r, const char *others)
{
    char text[160] = "an algorithm (";
    const size_t start = strlen(text);
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        const size_t used = strlen(text);
        if (in_scope(r, alg_registry[i]) && !strstr(text + start, alg_registry[i]->name))
            snprintf(text + used, sizeof text - used, "%s%s", used > start ? ", " : "", alg_registry[i]->name);
    }
    const size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s)%s", used == start ? "this collective has none" : "", others);
    return expected(r, text);
}

static bool read_count(reader_t *r, uint32_t most, const char *what, uint16_t *count)
{
    uint32_t value = 0;
    const char *start = r->at;
    for (; *r->at >= '0' && *r->at <= '9' && value <= most; r->at++)
        value = value * 10 + (uint32_t)(*r->at - '0');
    if (value == 0 || value > most) {
        r->at = start;
        return expected(r, what);
    }
    *count = (uint16_t)value;
    return true;
}

static bool read_grid(reader_t *r, policy_item_t *item)
{
    if (!read_count(r, SEL_MOST_BLOCKS, "blocks from 1 to 1024", &item->blocks))
        return false;
    if (*r->at != 'x')
        return expected(r, "'x' and threads");
    r->at++;
    return read_count(r, SEL_MOST_THREADS, "threads from 1 to 1024", &item->threads);
}

static void take_algorithms(uint64_t found, policy_item_t *item)
{
    item->collectives = 0;
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        if (found >> i & 1) {
            item->algorithm = alg_registry[i]->name;
            item->collectives |= UINT32_C(1) << alg_registry[i]->collective;
        }
    }
}

static bool read_what(reader_t *r, policy_item_t *item)
{
    const size_t length = strcspn(r->at, ":;");
    const uint64_t found = find_algorithms(r, length);
    item->collectives = r->scope;
    if (found) {
        item->what = POLICY_ALGORITHM;
        take_algorithms(found, item);
    } else if (length == 4 && strncmp(r->at, "nccl", length) == 0) {
        item->what = POLICY_NCCL;
    } else if (length == 7 && strncmp(r->at, "builtin", length) == 0) {
        item->what = POLICY_BUILTIN;
    } else {
        return expected_algorithm(r, ", builtin or nccl");
    }
    r->at += length;
    if (!found || *r->at != ':')
        return true;
    r->at++;
    return read_grid(r, item);
}

static bool read_exclusion(reader_t *r, policy_t *policy)
{
    const size_t length = strcspn(r->at, ";");
    const uint64_t found = find_algorithms(r, length);
    if (!found)
        return expected_algorithm(r, "");
    policy->excluded |= found;
    r->at += length;
    return true;
}

static void read_scope(reader_t *r)
{
    const size_t length = strcspn(r->at, ":;=");
    uint32_t scope = equals("all", r->at, length) ? ALL_COLLECTIVES : 0;
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        if (equals(alg_collective_name((alg_collective_t)c), r->at, length))
            scope = UINT32_C(1) << c;
    }
    if (!scope || r->at[length] != ':')
        return;
    r->scope = scope;
    r->at += length + 1;
}

static bool read_item(reader_t *r, policy_t *policy)
{
    read_scope(r);
    if (*r->at == '\0')
        return true; /* an empty item, as after a ';' */
    if (*r->at == '^') {
        r->at++;
        return read_exclusion(r, policy);
    }
    policy_item_t item = {.to = UINT64_MAX};
    if (*r->at >= '0' && *r->at <= '9') {
        if (!read_size(r, &item.from))
            return false;
        if (*r->at != '-')
            return expected(r, "'-'");
        r->at++;
        if (*r->at != '=') {
            uint64_t end;
            if (!read_size(r, &end))
                return false;
            if (end <= item.from)
                return expected(r, "an upper bound above the lower one before this point");
            item.to = end - 1;
        }
        if (*r->at != '=')
            return expected(r, "'='");
        r->at++;
    }
    if (!read_what(r, &item))
        return false;
    if (policy->items == POLICY_MAX_ITEMS)
        return expected(r, "at most 16 items");
    policy->item[policy->items++] = item;
    return true;
}

bool policy_parse(const char *text, policy_t *policy, char *fault, size_t fault_bytes)
{
    reader_t r = {text, text, fault, fault_bytes, ALL_COLLECTIVES};
    policy_t parsed = {0};
    if (strlen(text) >= SEL_POLICY_BYTES)
        return expected(&r, "fewer than 256 characters");
    while (*r.at) {
        if (!read_item(&r, &parsed))
            return false;
        if (*r.at == ';')
            r.at++;
        else if (*r.at)
            return expected(&r, "';' or the end");
    }
    *policy = parsed;
    return true;
}

bool sel_policy_check(const char *policy, char *fault, size_t fault_bytes)
{
    policy_t parsed;
    return policy_parse(policy, &parsed, fault, fault_bytes);
}
