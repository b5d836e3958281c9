/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - see data.h. The caller owns all memory but that of a data_buffer_t. */
#include "data.h"

#include <float.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xa5, RUN_ELEMENTS = 32 };

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint64_t data_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15ull;
    return mix(*state);
}

uint64_t data_below(uint64_t *state, uint64_t limit)
{
    return data_random(state) % limit;
}

/* A rank's input, of which all elements can be computed. */
typedef struct source {
    const data_case_t *c;
    size_t bytes;  /* of an element */
    uint64_t draw; /* its first state */
    uint64_t runs; /* the same, of runs of words */
    uint64_t at;   /* the run that was drawn last, and its bits */
    uint64_t run;
    uint64_t values; /* what DATA_SMALL chooses from, 8 bytes each */
    const uint64_t *small;
} source_t;

static uint64_t draw_of(const data_case_t *c, int rank)
{
    return mix(c->seed + (uint64_t)rank * 0x9e3779b97f4a7c15ull);
}

static uint64_t bits_at(uint64_t draw, uint64_t index)
{
    return mix(draw + index * 0xd1342543de82ef95ull + 1);
}

/* The largest input whose sum over 8 ranks is exact in the type. */
static int64_t small_limit(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat8e5m2:
        return 1;
    case ncclFloat8e4m3:
        return 2;
    case ncclInt8:
    case ncclUint8:
        return 10;
    case ncclBfloat16:
        return 32;
    default:
        return 200;
    }
}

/* ---- Elements of DATA_SMALL, by type and whether they are multiplied */

enum { MOST_VALUES = 401 };
static uint64_t g_small[ncclNumTypes][2][MOST_VALUES];
static uint64_t g_values[ncclNumTypes][2];
static pthread_once_t g_small_once = PTHREAD_ONCE_INIT;

static void encode_small(ncclDataType_t type, bool product)
{
    static const double powers[4] = {1, -1, 2, 0.5};
    const bool chosen = product && ref_is_float(type);
    const int64_t limit = product ? 3 : small_limit(type);
    g_values[type][product] = chosen ? 4 : (uint64_t)(2 * limit + 1);
    for (uint64_t i = 0; i < g_values[type][product]; i++) {
        const int64_t value = (int64_t)i - limit;
        const double other = (double)(value < 0 && !ref_is_signed(type) ? -value : value);
        ref_encode(type, chosen ? powers[i] : other, &g_small[type][product][i]);
    }
}

static void encode_all_small(void)
{
    for (int type = 0; type < ncclNumTypes; type++) {
        encode_small((ncclDataType_t)type, false);
        encode_small((ncclDataType_t)type, true);
    }
}

/* 0.9 of the largest number of a type whose sums have no greater range; of others 1. */
static double most(ncclDataType_t type)
{
    return type == ncclFloat64 ? 0.9 * DBL_MAX : type == ncclFloat32 || type == ncclBfloat16 ? 0.9 * FLT_MAX : 1;
}

static void random_element(const data_case_t *c, uint64_t bits, void *element)
{
    double unit = (double)(bits >> 11) * 0x1p-53;
    if (!ref_is_float(c->type))
        memcpy(element, &bits, ref_bytes(c->type));
    else if (c->op == REF_AVG && c->seed % 2)
        ref_encode(c->type, (bits & 1 ? -1 : 1) * (0.5 + 0.5 * unit) * most(c->type), element);
    else if (c->op == REF_PROD)
        ref_encode(c->type, (bits & 1 ? -1 : 1) * (0.5 + 1.5 * unit), element);
    else
        ref_encode(c->type, 2 * unit - 1, element);
}

uint32_t data_escaped(uint64_t bits)
{
    return bits % 4 == 0 ? ~0u : bits % 4 == 1 ? ~1u : DATA_ESCAPED ^ (uint32_t)(bits % 2);
}

/* 8 bytes with the element at `index` of a run of words that escape, from its first byte on: runs of one word, mixed
 * ones, and in one case of 8 the whole buffer. */
static uint64_t run_bits(const source_t *s, uint64_t index, uint64_t run)
{
    uint32_t word[2];
    for (uint64_t i = 0; i < 2; i++) {
        const uint64_t at = index * s->bytes / sizeof(word[0]) + i;
        word[i] = data_escaped(run % 5 == 4 ? bits_at(s->runs, at + (1ull << 41)) : run % 5);
    }
    return ((uint64_t)word[1] << 32 | word[0]) >> (8 * (index * s->bytes % sizeof(word[0])));
}

static uint64_t run_at(source_t *s, uint64_t at)
{
    if (at != s->at) {
        s->at = at;
        s->run = bits_at(s->runs, at + (1ull << 40));
    }
    return s->run;
}

static void raw_element(source_t *s, uint64_t index, uint64_t bits, void *element)
{
    const bool whole = s->c->seed % 8 == 7;
    const uint64_t run = run_at(s, whole ? 0 : index / RUN_ELEMENTS);
    if (ref_is_float(s->c->type) && bits >> 60 == 0)
        bits = bits & 1 ? 1ull << (8 * s->bytes - 1) : 0;
    if (run % 4 == 0 || whole)
        bits = run_bits(s, index, run / 4);
    ref_store(s->bytes, bits, element);
    /* An infinity of e5m2 has two right results under min and max: kept, or saturated by the conversion. So it is made
     * a NaN. */
    if (s->c->type == ncclFloat8e5m2 && (bits & 0x7f) == 0x7c)
        memset(element, 0x7f, 1);
}

static source_t source_of(const data_case_t *c, int rank)
{
    const bool product = c->op == REF_PROD;
    const int drawn = c->seed % 4 ? rank : 0; /* or maxima of integers would not escape */
    pthread_once(&g_small_once, encode_all_small);
    return (source_t){.c = c,
                      .bytes = ref_bytes(c->type),
                      .draw = draw_of(c, rank),
                      .runs = draw_of(c, drawn),
                      .at = UINT64_MAX,
                      .values = g_values[c->type][product],
                      .small = g_small[c->type][product]};
}

static void element_at(source_t *s, uint64_t index, void *element)
{
    const uint64_t bits = bits_at(s->draw, index);
    if (s->c->kind == DATA_SMALL)
        ref_store(s->bytes, s->small[bits % s->values], element);
    else if (s->c->kind == DATA_RANDOM)
        random_element(s->c, bits, element);
    else
        raw_element(s, index, bits, element);
}

void data_fill_part(const data_case_t *c, int rank, size_t first, size_t count, void *part)
{
    source_t s = source_of(c, rank);
    for (size_t i = 0; i < count; i++)
        element_at(&s, first + i, (uint8_t *)part + i * s.bytes);
}

void data_fill(const data_case_t *c, int rank, void *input)
{
    data_fill_part(c, rank, 0, c->count, input);
}

void data_scalar(const data_case_t *c, int rank, void *scalar)
{
    static const double exact[4] = {1, 2, -1, 0.5}, whole[4] = {1, 2, 3, 5};
    const uint64_t bits = bits_at(draw_of(c, rank), 1ull << 50);
    if (!ref_is_float(c->type))
        ref_encode(c->type, whole[bits & 3], scalar);
    else if (c->kind == DATA_SMALL)
        ref_encode(c->type, exact[bits & 3], scalar);
    else
        ref_encode(c->type, 0.25 + (double)(bits >> 11) * 0x1p-53, scalar);
}

/* All ranks' inputs and scalars. */
static void start(const data_case_t *c, source_t *from, uint64_t *scalars)
{
    for (int r = 0; r < c->nranks; r++) {
        from[r] = source_of(c, r);
        data_scalar(c, r, (uint8_t *)scalars + (size_t)r * from[r].bytes);
    }
}

/* ---- Expected results that the ranks of a process share */

/* As many as calls that ranks may lie apart. */
enum { KEPT = 8, KEPT_BYTES = 64 << 20 };

typedef struct kept {
    data_case_t c;
    uint8_t *expected;
} kept_t;
static kept_t g_kept[KEPT];
static unsigned g_kept_next;
static pthread_mutex_t g_kept_lock = PTHREAD_MUTEX_INITIALIZER;

static bool same_case(const data_case_t *a, const data_case_t *b)
{
    return a->type == b->type && a->op == b->op && a->kind == b->kind && a->seed == b->seed && a->count == b->count &&
           a->nranks == b->nranks;
}

static uint8_t *expect(const data_case_t *c)
{
    source_t from[REF_MAX_RANKS];
    uint64_t inputs[REF_MAX_RANKS], scalars[REF_MAX_RANKS];
    const size_t bytes = ref_bytes(c->type);
    uint8_t *expected = malloc(c->count * bytes);
    start(c, from, scalars);
    for (size_t i = 0; expected && i < c->count; i++) {
        for (int r = 0; r < c->nranks; r++)
            element_at(&from[r], i, (uint8_t *)inputs + (size_t)r * bytes);
        ref_reduce(c->type, c->op, c->nranks, inputs, scalars, expected + i * bytes);
    }
    return expected;
}

/* Whether all bits are those of the one right result. */
static bool is_expected(const data_case_t *c, const void *output)
{
    const size_t size = c->count * ref_bytes(c->type);
    pthread_mutex_lock(&g_kept_lock);
    kept_t *kept = NULL;
    for (unsigned i = 0; i < KEPT; i++)
        if (g_kept[i].expected && same_case(&g_kept[i].c, c))
            kept = &g_kept[i];
    if (!kept) {
        kept = &g_kept[g_kept_next++ % KEPT];
        free(kept->expected);
        *kept = (kept_t){*c, expect(c)};
    }
    const bool right = kept->expected && memcmp(kept->expected, output, size) == 0;
    pthread_mutex_unlock(&g_kept_lock);
    return right;
}

bool data_right(const data_case_t *c, ref_precision_t precision, const void *output, size_t first, size_t step,
                char *fault, size_t fault_bytes)
{
    source_t from[REF_MAX_RANKS];
    uint64_t inputs[REF_MAX_RANKS], scalars[REF_MAX_RANKS], expected = 0;
    size_t bytes = ref_bytes(c->type);
    const uint8_t *got;

    if (precision == REF_STRICT && c->nranks > 1 && first == 0 && step == 1 && c->count * bytes <= KEPT_BYTES &&
        is_expected(c, output))
        return true;
    start(c, from, scalars);
    for (size_t i = first; i < c->count; i += step) {
        got = (const uint8_t *)output + i * bytes;
        for (int r = 0; r < c->nranks; r++)
            element_at(&from[r], i, (uint8_t *)inputs + (size_t)r * bytes);
        if (ref_right(c->type, c->op, precision, c->nranks, inputs, scalars, got))
            continue;
        ref_reduce(c->type, c->op, c->nranks, inputs, scalars, &expected);
        snprintf(fault, fault_bytes, "%s %s kind %d seed %llu count %zu ranks %d: element %zu is %.17g, not %.17g",
                 ref_type_name(c->type), ref_op_name(c->op), c->kind, (unsigned long long)c->seed, c->count, c->nranks,
                 i, ref_value(c->type, got), ref_value(c->type, &expected));
        return false;
    }
    return true;
}

bool data_right_on(const data_case_t *c, const int *node_of, const void *output, size_t first, size_t step, char *fault,
                   size_t fault_bytes)
{
    source_t from[REF_MAX_RANKS];
    uint64_t inputs[REF_MAX_RANKS], scalars[REF_MAX_RANKS];
    const size_t bytes = ref_bytes(c->type);
    start(c, from, scalars);
    for (size_t i = first; i < c->count; i += step) {
        for (int r = 0; r < c->nranks; r++)
            element_at(&from[r], i, (uint8_t *)inputs + (size_t)r * bytes);
        const uint8_t *got = (const uint8_t *)output + i * bytes;
        if (ref_right_on_nodes(c->type, c->op, c->nranks, node_of, inputs, scalars, got))
            continue;
        snprintf(fault, fault_bytes, "%s %s kind %d seed %llu count %zu: element %zu is %.17g", ref_type_name(c->type),
                 ref_op_name(c->op), c->kind, (unsigned long long)c->seed, c->count, i, ref_value(c->type, got));
        return false;
    }
    return true;
}

/* The ranks below `rank` are placed on nodes of `each` ranks; try all placements of the others. */
static bool right_for_some(const data_case_t *c, int *node_of, int rank, int each, const uint8_t *output, size_t first,
                           size_t step)
{
    int on[REF_MAX_RANKS + 1] = {0}, nodes = 0;
    char fault[256];
    if (rank == c->nranks)
        return data_right_on(c, node_of, output, first, step, fault, sizeof(fault));
    for (int r = 0; r < rank; r++) {
        on[node_of[r]]++;
        nodes = node_of[r] >= nodes ? node_of[r] + 1 : nodes;
    }
    for (int node = 0; node <= nodes && node * each < c->nranks; node++) {
        if (on[node] == each)
            continue;
        node_of[rank] = node;
        if (right_for_some(c, node_of, rank + 1, each, output, first, step))
            return true;
    }
    return false;
}

bool data_right_on_nodes(const data_case_t *c, const void *output, size_t first, size_t step, char *fault,
                         size_t fault_bytes)
{
    int node_of[REF_MAX_RANKS];
    if (data_right(c, REF_STRICT, output, first, step, fault, fault_bytes))
        return true;
    for (int each = 2; each < c->nranks; each++) {
        if (c->nranks % each == 0 && right_for_some(c, node_of, 0, each, output, first, step))
            return true;
    }
    return false;
}

uint64_t data_hash(uint64_t hash, const void *bytes, size_t size)
{
    const uint8_t *p = bytes;
    uint64_t word;
    for (; size >= sizeof(word); p += sizeof(word), size -= sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        hash = mix(hash ^ word) + 0x9e3779b97f4a7c15ull;
    }
    for (; size; p++, size--)
        hash = mix(hash ^ *p) + 1;
    return hash;
}

bool data_buffer_make(data_buffer_t *buffer, size_t size, size_t offset)
{
    size_t total = (2 * DATA_GUARD_BYTES + 64 + size + 63) / 64 * 64;
    uint8_t *base = aligned_alloc(64, total);
    if (!base)
        return false;
    memset(base, POISON, total);
    *buffer = (data_buffer_t){.base = base, .data = base + DATA_GUARD_BYTES + offset, .size = size, .offset = offset};
    return true;
}

static bool poisoned(const uint8_t *from, const uint8_t *to)
{
    for (; from < to; from++)
        if (*from != POISON)
            return false;
    return true;
}

bool data_buffer_guarded(const data_buffer_t *buffer)
{
    const uint8_t *end = buffer->data + buffer->size;
    return poisoned(buffer->base, buffer->data) && poisoned(end, end + DATA_GUARD_BYTES);
}

bool data_buffer_untouched(const data_buffer_t *buffer)
{
    return poisoned(buffer->base, buffer->data + buffer->size + DATA_GUARD_BYTES);
}

void data_buffer_free(data_buffer_t *buffer)
{
    free(buffer->base);
    buffer->base = NULL;
}
