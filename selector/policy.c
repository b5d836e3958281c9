/*
 * policy.c - the parser of policy.h's grammar. Any bytes are safe input.
 */
#include "selector/policy.h"

#include <stdio.h>
#include <string.h>

typedef struct reader {
    const char *text, *at;
    char *fault;
    size_t fault_bytes;
} reader_t;

static bool expected(const reader_t *r, const char *what)
{
    if (r->fault && r->fault_bytes)
        snprintf(r->fault, r->fault_bytes, "column %d: expected %s", (int)(r->at - r->text) + 1, what);
    return false;
}

/* Decimal digits with an optional K, M or G. */
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

static int registry_index(const char *name, size_t length)
{
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        if (strlen(alg_registry[i]->name) == length && strncmp(alg_registry[i]->name, name, length) == 0)
            return (int)i;
    }
    return -1;
}

static bool expected_algorithm(const reader_t *r, const char *others)
{
    char text[160];
    size_t used = (size_t)snprintf(text, sizeof text, "an algorithm (");
    for (uint32_t i = 0; i < alg_registry_count && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? ", " : "", alg_registry[i]->name);
    if (used < sizeof text)
        snprintf(text + used, sizeof text - used, ")%s", others);
    return expected(r, text);
}

/* A number of a grid, 1 to `most`. */
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

static bool read_what(reader_t *r, policy_item_t *item)
{
    const size_t length = strcspn(r->at, ":;");
    const int index = registry_index(r->at, length);
    if (index >= 0) {
        item->what = POLICY_ALGORITHM;
        item->algorithm = alg_registry[index];
    } else if (length == 4 && strncmp(r->at, "nccl", length) == 0) {
        item->what = POLICY_NCCL;
    } else if (length == 7 && strncmp(r->at, "builtin", length) == 0) {
        item->what = POLICY_BUILTIN;
    } else {
        return expected_algorithm(r, ", builtin or nccl");
    }
    r->at += length;
    if (index < 0 || *r->at != ':')
        return true;
    r->at++;
    return read_grid(r, item);
}

static bool read_exclusion(reader_t *r, policy_t *policy)
{
    const size_t length = strcspn(r->at, ";");
    const int index = registry_index(r->at, length);
    if (index < 0)
        return expected_algorithm(r, "");
    policy->excluded |= 1u << index;
    r->at += length;
    return true;
}

static bool read_item(reader_t *r, policy_t *policy)
{
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
    static const char prefix[] = "allreduce:";
    reader_t r = {text, text, fault, fault_bytes};
    policy_t parsed = {0};
    if (strlen(text) >= SEL_POLICY_BYTES)
        return expected(&r, "fewer than 256 characters");
    if (strncmp(text, prefix, sizeof prefix - 1) == 0)
        r.at += sizeof prefix - 1;
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
