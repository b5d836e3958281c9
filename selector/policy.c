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

/* The registry's index, or -1 for "nccl". */
static bool read_name(reader_t *r, bool nccl_allowed, int *index)
{
    const size_t length = strcspn(r->at, ";");
    *index = registry_index(r->at, length);
    if (*index < 0 && !(nccl_allowed && length == 4 && strncmp(r->at, "nccl", 4) == 0))
        return expected(r, nccl_allowed ? "an algorithm (oneshot, twoshot, staged) or nccl"
                                        : "an algorithm (oneshot, twoshot, staged)");
    r->at += length;
    return true;
}

static bool read_item(reader_t *r, policy_t *policy)
{
    int index;
    if (*r->at == '^') {
        r->at++;
        if (!read_name(r, false, &index))
            return false;
        policy->excluded |= 1u << index;
        return true;
    }
    policy_item_t item = {0, UINT64_MAX, NULL};
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
    if (!read_name(r, true, &index))
        return false;
    if (policy->items == POLICY_MAX_ITEMS)
        return expected(r, "at most 16 items");
    item.algorithm = index < 0 ? NULL : alg_registry[index];
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
