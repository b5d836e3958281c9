/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/algorithms/experts_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/data.h"

enum { POISON = 0xa5 };

static void *zeroed(size_t bytes)
{
    void *p = calloc(1, bytes > 0 ? bytes : 1);
    if (p == NULL)
        abort();
    return p;
}

static uint32_t local_of(const experts_case_t *c)
{
    return c->shape.experts / c->shape.nranks;
}

static uint32_t keys_of(const experts_case_t *c)
{
    return c->rank_major ? 1 : c->top_k;
}

/* Received rows that `out` has places for. */
static size_t out_rows(const experts_case_t *c)
{
    return (size_t)c->shape.nranks * c->shape.most_tokens * (c->rank_major ? 1 : local_of(c));
}

/* ---- Drawing ---- */

alg_experts_shape_t experts_draw_shape(uint32_t nranks, uint32_t most_tokens, uint32_t most_bytes, uint64_t *state)
{
    alg_experts_shape_t s = {.nranks = nranks};
    const bool wide = data_below(state, 4) == 0;
    s.experts = nranks * (uint32_t)(1 + data_below(state, wide ? 16 : 6));
    s.most_tokens = 1 + (uint32_t)data_below(state, most_tokens);
    const uint32_t most = wide ? ALG_EXPERTS_TOP_K : 9, most_top_k = s.experts < most ? s.experts : most;
    s.most_top_k = data_below(state, 2) ? most_top_k : 1 + (uint32_t)data_below(state, most_top_k);
    s.row_bytes = 16 * (uint32_t)(1 + data_below(state, most_bytes / 16));
    s.exact = data_below(state, 2)        ? ALG_EXPERTS_EXACT_ALL
              : s.row_bytes / 16 % 2 == 0 ? ALG_EXPERTS_EXACT_FP32
                                          : ALG_EXPERTS_EXACT_NONE;
    return s;
}

static void draw_choices(experts_case_t *c, uint32_t r, uint64_t *state)
{
    const uint32_t hot = (uint32_t)data_below(state, c->shape.experts), habit = (uint32_t)data_below(state, 5);
    for (uint32_t i = 0; i < c->tokens[r] * c->top_k; i++) {
        int64_t e = (int64_t)data_below(state, c->shape.experts);
        if (habit == 1) /* a rank's experts alone */
            e = e % local_of(c) + hot / local_of(c) * local_of(c);
        if (habit == 2 && data_below(state, 2)) /* twice for one token, too */
            e = hot;
        if (habit >= 2 && data_below(state, 4) == 0)
            e = -1;
        if (habit == 4)
            e = -1;
        if (data_below(state, 16) == 0) /* no expert either */
            e = data_below(state, 2) ? (int64_t)c->shape.experts : -7;
        if (c->wide && data_below(state, 16) == 0)
            e = ((int64_t)1 << 32) + 1;
        c->choices[r][i] = e;
    }
}

static uint16_t bf16_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float bf16_to(uint16_t h)
{
    const uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void draw_rows(experts_case_t *c, uint32_t r, uint64_t *state)
{
    const size_t bytes = (size_t)c->tokens[r] * c->token_bytes * (c->recipe == ALG_EXPERTS_E4M3 ? 2 : 1);
    const bool escaped = data_below(state, 4) == 0;
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t word = (uint32_t)data_random(state);
        if (c->recipe == ALG_EXPERTS_E4M3) {
            const float size = ldexpf(1, (int)data_below(state, 24) - 12);
            const float a = ((float)(int32_t)word / 2147483648.0f) * size, b = data_below(state, 8) ? -a / 3 : 0;
            word = (uint32_t)bf16_of(a) << 16 | bf16_of(b);
        } else if (escaped && data_below(state, 2)) {
            word = data_escaped(data_random(state));
        }
        memcpy(c->rows[r] + i, &word, 4);
    }
    for (size_t i = 0; i < (size_t)c->tokens[r] * c->scale_bytes; i++)
        c->scales[r][i] = (uint8_t)data_random(state);
    for (uint32_t i = 0; i < c->tokens[r] * c->top_k; i++) {
        static const float exact[] = {1, 2, 0.5f, -1, 0};
        c->weights[r][i] = c->exact ? exact[data_below(state, 5)] : (float)data_below(state, 1000) / 1000;
    }
}

static bool is_expert(const experts_case_t *c, int64_t e)
{
    return e >= 0 && e < c->shape.experts;
}

/* The first of a token's choices that is the same expert: these have one row. */
static uint32_t first_key(const experts_case_t *c, uint32_t s, uint32_t t, uint32_t k)
{
    uint32_t first = 0;
    while (c->choices[s][t * c->top_k + first] != c->choices[s][t * c->top_k + k])
        first++;
    return first;
}

/* Where each row lands: counted in order. */
static void place_rows(experts_case_t *c)
{
    const uint32_t n = c->shape.nranks, most = c->shape.most_tokens, keys = keys_of(c), local = local_of(c);
    for (uint32_t me = 0; me < n; me++) {
        uint32_t *count = zeroed((c->rank_major ? n : local) * sizeof *count);
        c->places[me] = zeroed(((size_t)n * most * keys + 1) * sizeof **c->places);
        for (uint32_t s = 0; s < n; s++) {
            for (uint32_t t = 0; t < c->tokens[s]; t++) {
                bool here = false;
                for (uint32_t k = 0; k < c->top_k; k++) {
                    const int64_t e = c->choices[s][t * c->top_k + k];
                    const bool mine = is_expert(c, e) && e / local == me;
                    here = here || mine;
                    int32_t *const place = &c->places[me][((size_t)s * most + t) * keys];
                    const uint32_t first = first_key(c, s, t, k);
                    if (!c->rank_major)
                        place[k] = !mine       ? -1
                                   : first < k ? place[first]
                                               : (int32_t)((e % local) * n * most + count[e % local]++);
                }
                if (c->rank_major)
                    c->places[me][(size_t)s * most + t] = here ? (int32_t)(s * most + count[s]++) : -1;
            }
        }
        free(count);
    }
}

void experts_case_draw(experts_case_t *c, const alg_experts_shape_t *shape, uint64_t *state)
{
    memset(c, 0, sizeof *c);
    c->shape = *shape;
    c->seed = data_random(state);
    c->top_k = data_below(state, 2) ? shape->most_top_k : 1 + (uint32_t)data_below(state, shape->most_top_k);
    c->rank_major = data_below(state, 2);
    c->wide = data_below(state, 2);
    c->global_ids = data_below(state, 2);
    c->round_scales = data_below(state, 2);
    c->exact = data_below(state, 2);
    c->nans = data_below(state, 8) == 0;
    c->token_bytes = 16 * (uint32_t)(1 + data_below(state, shape->row_bytes / 16));
    c->recipe = ALG_EXPERTS_BYTES;
    if (shape->row_bytes >= 528 && data_below(state, 3) == 0) {
        c->recipe = ALG_EXPERTS_E4M3;
        c->token_bytes = 512 * (uint32_t)(1 + data_below(state, shape->row_bytes / 528));
        c->scale_bytes = c->token_bytes / ALG_EXPERTS_BLOCK_ELEMENTS * 4;
    } else if (c->token_bytes < shape->row_bytes && data_below(state, 3) == 0) {
        c->scale_bytes = 16 * (uint32_t)(1 + data_below(state, (shape->row_bytes - c->token_bytes) / 16));
    }
    static const alg_type_t types[] = {ALG_BFLOAT16, ALG_FLOAT16, ALG_FLOAT32};
    c->type = types[data_below(state, 3)];
    c->combine_bytes = 16 * (uint32_t)(1 + data_below(state, shape->row_bytes / 16));
    for (uint32_t r = 0; r < shape->nranks; r++) {
        c->tokens[r] = data_below(state, 6) == 0 ? 0 : 1 + (uint32_t)data_below(state, shape->most_tokens);
        c->choices[r] = zeroed(c->tokens[r] * c->top_k * sizeof **c->choices);
        c->weights[r] = zeroed(c->tokens[r] * c->top_k * sizeof **c->weights);
        c->rows[r] = zeroed((size_t)c->tokens[r] * c->token_bytes * 2);
        c->scales[r] = zeroed((size_t)c->tokens[r] * c->scale_bytes);
        draw_choices(c, r, state);
        draw_rows(c, r, state);
    }
    place_rows(c);
}

void experts_case_free(experts_case_t *c)
{
    for (uint32_t r = 0; r < c->shape.nranks; r++) {
        free(c->choices[r]);
        free(c->weights[r]);
        free(c->rows[r]);
        free(c->scales[r]);
        free(c->places[r]);
    }
}

/* ---- Values of combine ---- */

static uint32_t type_bytes(const experts_case_t *c)
{
    return c->type == ALG_FLOAT32 ? 4 : 2;
}

static float type_round(const experts_case_t *c, float f)
{
    return c->type == ALG_FLOAT32 || isnan(f) ? f : c->type == ALG_BFLOAT16 ? bf16_to(bf16_of(f)) : (float)(_Float16)f;
}

static void type_store(const experts_case_t *c, void *at, float f)
{
    const uint16_t bf16 = bf16_of(f);
    const _Float16 f16 = (_Float16)f;
    if (isnan(f)) {
        memset(at, 0xff, type_bytes(c));
        return;
    }
    memcpy(at,
           c->type == ALG_FLOAT32    ? (const void *)&f
           : c->type == ALG_BFLOAT16 ? (const void *)&bf16
                                     : &f16,
           type_bytes(c));
}

static float type_load(const experts_case_t *c, const void *at)
{
    float f;
    uint16_t h;
    _Float16 f16;
    memcpy(&h, at, 2);
    memcpy(&f16, at, 2);
    if (c->type == ALG_FLOAT32) {
        memcpy(&f, at, 4);
        return f;
    }
    return c->type == ALG_BFLOAT16 ? bf16_to(h) : (float)f16;
}

/* A NaN whose bits are all ones, which the kernels take for what has not arrived. */
static float ones(void)
{
    const uint32_t bits = UINT32_MAX;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Element i of the row that a rank returns for a token's key. */
static float value_of(const experts_case_t *c, uint32_t me, uint32_t s, uint32_t t, uint32_t key, uint32_t i)
{
    if (c->nans && (i / 4 + t) % 5 == 0)
        return ones();
    uint64_t state = c->seed ^ ((((uint64_t)me * 8 + s) * 4096 + t) * 64 + key) * 0x9e3779b97f4a7c15u ^ i;
    const uint64_t bits = data_random(&state);
    return c->exact ? (float)(int)(bits % 7) - 3 : type_round(c, (float)(int32_t)bits / 2147483648.0f);
}

/* ---- A rank ---- */

void experts_rank_make(experts_rank_t *r, int rank, const experts_memory_t *memory, const alg_experts_shape_t *shape)
{
    memset(r, 0, sizeof *r);
    r->rank = rank;
    r->memory = memory;
    const size_t tokens = shape->most_tokens, all = tokens * shape->nranks;
    const size_t rows = all * (shape->experts / shape->nranks), wide = (size_t)shape->row_bytes;
    r->choices = memory->make(rank, tokens * shape->most_top_k * 8);
    r->weights = memory->make(rank, tokens * shape->most_top_k * 4);
    r->rows = memory->make(rank, tokens * wide * 2);
    r->scales = memory->make(rank, tokens * wide);
    r->out = memory->make(rank, rows * wide);
    r->out_scales = memory->make(rank, rows * wide + 4);
    r->out_weights = memory->make(rank, all * shape->most_top_k * 4);
    r->out_choices = memory->make(rank, all * shape->most_top_k * 4);
    r->counters = memory->make(rank, (shape->experts + shape->nranks) * 4);
    r->routes = memory->make(rank, alg_experts_routes_bytes(shape, shape->most_top_k));
    r->combine_rows = memory->make(rank, rows * wide);
    r->combine_out = memory->make(rank, tokens * wide);
}

void experts_rank_free(experts_rank_t *r)
{
    void *all[] = {r->choices,     r->weights,     r->rows,     r->scales, r->out,          r->out_scales,
                   r->out_weights, r->out_choices, r->counters, r->routes, r->combine_rows, r->combine_out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        r->memory->drop(r->rank, all[i]);
}

static void poison(const experts_rank_t *r, void *to, size_t bytes)
{
    uint8_t *from = malloc(bytes > 0 ? bytes : 1);
    if (from == NULL)
        abort();
    memset(from, POISON, bytes);
    r->memory->put(r->rank, to, from, bytes);
    free(from);
}

static void load_choices(const experts_rank_t *r, const experts_case_t *c)
{
    const uint32_t count = c->tokens[r->rank] * c->top_k;
    if (c->wide) {
        r->memory->put(r->rank, r->choices, c->choices[r->rank], count * 8);
        return;
    }
    int32_t *narrow = zeroed(count * sizeof *narrow);
    for (uint32_t i = 0; i < count; i++)
        narrow[i] = (int32_t)c->choices[r->rank][i];
    r->memory->put(r->rank, r->choices, narrow, count * 4);
    free(narrow);
}

/* Rows that nobody wants are poisoned: a kernel that adds one is found. */
static void load_combine_rows(experts_rank_t *r, const experts_case_t *c)
{
    const uint32_t me = (uint32_t)r->rank, keys = keys_of(c), elements = c->combine_bytes / type_bytes(c);
    const size_t bytes = out_rows(c) * c->combine_bytes;
    uint8_t *image = zeroed(bytes);
    memset(image, 0xff, bytes); /* NaN */
    for (uint32_t s = 0; s < c->shape.nranks; s++) {
        for (uint32_t i = 0; i < c->tokens[s] * keys; i++) {
            const int32_t row = c->places[me][(size_t)s * c->shape.most_tokens * keys + i];
            for (uint32_t j = 0; row >= 0 && j < elements; j++)
                type_store(c, image + (size_t)row * c->combine_bytes + j * type_bytes(c),
                           value_of(c, me, s, i / keys, c->rank_major ? 0 : first_key(c, s, i / keys, i % keys), j));
        }
    }
    r->memory->put(r->rank, r->combine_rows, image, bytes);
    r->combine_bytes = bytes;
    free(image);
}

void experts_rank_load(experts_rank_t *r, const experts_case_t *c)
{
    const uint32_t tokens = c->tokens[r->rank];
    const size_t all = (size_t)c->shape.nranks * c->shape.most_tokens * c->top_k * 4;
    load_choices(r, c);
    r->memory->put(r->rank, r->weights, c->weights[r->rank], (size_t)tokens * c->top_k * 4);
    r->memory->put(r->rank, r->rows, c->rows[r->rank],
                   (size_t)tokens * c->token_bytes * (c->recipe == ALG_EXPERTS_E4M3 ? 2 : 1));
    r->memory->put(r->rank, r->scales, c->scales[r->rank], (size_t)tokens * c->scale_bytes);
    load_combine_rows(r, c);
    poison(r, r->out, out_rows(c) * c->token_bytes);
    poison(r, r->out_weights, all);
    poison(r, r->out_choices, all);
    poison(r, r->counters, (c->rank_major ? c->shape.nranks : local_of(c)) * 4);
    poison(r, r->combine_out, (size_t)tokens * c->combine_bytes);
    const bool scales = c->scale_bytes > 0;
    /* Scales that dispatch makes may be aligned to 4 alone. */
    r->scales_at = (uint8_t *)r->out_scales + (c->recipe == ALG_EXPERTS_E4M3 ? 4 : 0);
    poison(r, r->scales_at, out_rows(c) * c->scale_bytes);
    r->dispatch = (alg_experts_call_t){.rank_major = c->rank_major,
                                       .phases = ALG_EXPERTS_BOTH,
                                       .tokens = tokens,
                                       .top_k = c->top_k,
                                       .choices = r->choices,
                                       .wide = c->wide,
                                       .weights = c->rank_major ? r->weights : NULL,
                                       .token_bytes = c->token_bytes,
                                       .scale_bytes = c->scale_bytes,
                                       .routes = r->routes,
                                       .rows = r->rows,
                                       .scales = scales && c->recipe == ALG_EXPERTS_BYTES ? r->scales : NULL,
                                       .out = r->out,
                                       .recipe = c->recipe,
                                       .round_scales = c->round_scales,
                                       .global_ids = c->global_ids,
                                       .out_scales = scales ? r->scales_at : NULL,
                                       .out_weights = c->rank_major ? r->out_weights : NULL,
                                       .out_choices = c->rank_major ? r->out_choices : NULL,
                                       .counters = r->counters,
                                       .blocks = 1};
    r->combine = r->dispatch;
    r->combine.combine = true;
    r->combine.weights = c->rank_major ? NULL : r->weights;
    r->combine.token_bytes = c->combine_bytes;
    r->combine.scale_bytes = 0;
    r->combine.rows = r->combine_rows;
    r->combine.out = r->combine_out;
    r->combine.type = c->type;
}

/* ---- Checks ---- */

static void *fetch(const experts_rank_t *r, const void *from, size_t bytes)
{
    void *to = zeroed(bytes);
    r->memory->get(r->rank, to, from, bytes);
    return to;
}

static float e4m3_of(uint8_t b)
{
    const int exponent = b >> 3 & 15, fraction = b & 7;
    const float magnitude = exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), exponent - 10);
    return b & 0x80 ? -magnitude : magnitude;
}

/* The row of an E4M3 dispatch: each scale is that of its block, each element within half a step of its value. */
static bool e4m3_right(const experts_case_t *c, uint32_t s, uint32_t t, const uint8_t *row, const float *scales)
{
    const uint16_t *in = (const uint16_t *)(void *)c->rows[s] + (size_t)t * c->token_bytes;
    for (uint32_t i = 0; i < c->token_bytes; i++) {
        float most = 1e-4f;
        const uint32_t block = i / ALG_EXPERTS_BLOCK_ELEMENTS;
        for (uint32_t j = 0; j < ALG_EXPERTS_BLOCK_ELEMENTS; j++)
            most = fmaxf(most, fabsf(bf16_to(in[block * ALG_EXPERTS_BLOCK_ELEMENTS + j])));
        float wanted = most * (1 / 448.0f);
        if (c->round_scales)
            wanted = exp2f(ceilf(log2f(wanted) - 1e-6f));
        const double x = bf16_to(in[i]), got = (double)e4m3_of(row[i]) * scales[block];
        if (scales[block] != wanted || fabs(got - x) > fmax(fabs(x) / 15.9, scales[block] * 0x1p-9))
            return false;
    }
    return true;
}

static bool row_right(const experts_case_t *c, uint32_t s, uint32_t t, const uint8_t *row, const uint8_t *scales)
{
    if (c->recipe == ALG_EXPERTS_E4M3)
        return e4m3_right(c, s, t, row, (const float *)(const void *)scales);
    return memcmp(row, c->rows[s] + (size_t)t * c->token_bytes, c->token_bytes) == 0 &&
           memcmp(scales, c->scales[s] + (size_t)t * c->scale_bytes, c->scale_bytes) == 0;
}

static bool is_poison(const uint8_t *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (from[i] != POISON)
            return false;
    }
    return true;
}

static bool rows_right(const experts_rank_t *r, const experts_case_t *c, char *fault, size_t fault_bytes)
{
    const uint32_t keys = keys_of(c), most = c->shape.most_tokens;
    uint8_t *out = fetch(r, r->out, out_rows(c) * c->token_bytes);
    uint8_t *scales = fetch(r, r->scales_at, out_rows(c) * c->scale_bytes);
    bool *seen = zeroed(out_rows(c)), right = true;
    for (uint32_t i = 0; i < c->shape.nranks * most * keys && right; i++) {
        const uint32_t s = i / (most * keys), t = i / keys % most;
        const int32_t row = t < c->tokens[s] ? c->places[r->rank][i] : -1;
        if (row < 0)
            continue;
        seen[row] = true;
        right = row_right(c, s, t, out + (size_t)row * c->token_bytes, scales + (size_t)row * c->scale_bytes);
        if (!right)
            snprintf(fault, fault_bytes, "rank %d: row %d is not token %u of rank %u", r->rank, row, t, s);
    }
    for (size_t i = 0; i < out_rows(c) && right; i++) {
        right = seen[i] || (is_poison(out + i * c->token_bytes, c->token_bytes) &&
                            is_poison(scales + i * c->scale_bytes, c->scale_bytes));
        if (!right)
            snprintf(fault, fault_bytes, "rank %d: row %zu was written, though no token has it", r->rank, i);
    }
    free(out);
    free(scales);
    free(seen);
    return right;
}

static bool counters_right(const experts_rank_t *r, const experts_case_t *c, char *fault, size_t fault_bytes)
{
    const uint32_t n = c->rank_major ? c->shape.nranks : local_of(c), keys = keys_of(c), most = c->shape.most_tokens;
    const uint32_t of_one = c->rank_major ? most : c->shape.nranks * most;
    int32_t *count = fetch(r, r->counters, n * 4);
    bool right = true;
    for (uint32_t i = 0; i < n; i++) {
        int32_t wanted = 0;
        for (uint32_t j = 0; j < c->shape.nranks * most * keys; j++) {
            const uint32_t s = j / (most * keys), t = j / keys % most;
            const int32_t row = t < c->tokens[s] ? c->places[r->rank][j] : -1;
            const bool again = !c->rank_major && row >= 0 && first_key(c, s, t, j % keys) < j % keys;
            wanted += row >= 0 && !again && (uint32_t)row / of_one == i;
        }
        if (count[i] != wanted) {
            snprintf(fault, fault_bytes, "rank %d: counter %u is %d, not %d", r->rank, i, count[i], wanted);
            right = false;
        }
    }
    free(count);
    return right;
}

/* Rank-major: the choices and weights of each received token; no choices where there is none. */
static bool metadata_right(const experts_rank_t *r, const experts_case_t *c, char *fault, size_t fault_bytes)
{
    const uint32_t most = c->shape.most_tokens, places = c->shape.nranks * most;
    int32_t *choices = fetch(r, r->out_choices, (size_t)places * c->top_k * 4);
    float *weights = fetch(r, r->out_weights, (size_t)places * c->top_k * 4);
    bool *seen = zeroed(places), right = true;
    for (uint32_t i = 0; i < places && right; i++) {
        const uint32_t s = i / most, t = i % most;
        const int32_t row = t < c->tokens[s] ? c->places[r->rank][i] : -1;
        for (uint32_t k = 0; row >= 0 && k < c->top_k; k++) {
            const int64_t e = c->choices[s][t * c->top_k + k];
            const bool mine = is_expert(c, e) && e / local_of(c) == r->rank;
            const int64_t wanted = !mine ? -1 : c->global_ids ? e : e % local_of(c);
            const size_t at = (size_t)row * c->top_k + k;
            seen[row] = true;
            right = right && choices[at] == wanted && weights[at] == c->weights[s][t * c->top_k + k];
        }
    }
    for (uint32_t i = 0; i < places * c->top_k; i++)
        right = right && (seen[i / c->top_k] || choices[i] == -1);
    if (!right)
        snprintf(fault, fault_bytes, "rank %d: choices or weights of received tokens are wrong", r->rank);
    free(choices);
    free(weights);
    free(seen);
    return right;
}

bool experts_dispatch_right(const experts_rank_t *r, const experts_case_t *c, char *fault, size_t fault_bytes)
{
    return rows_right(r, c, fault, fault_bytes) && counters_right(r, c, fault, fault_bytes) &&
           (!c->rank_major || metadata_right(r, c, fault, fault_bytes));
}

/* The sum that a token must get, and the sum of magnitudes, for its tolerance. */
static double wanted_of(const experts_case_t *c, uint32_t me, uint32_t t, uint32_t i, double *magnitude)
{
    const uint32_t keys = keys_of(c), most = c->shape.most_tokens;
    double sum = 0;
    *magnitude = 0;
    for (uint32_t r = 0; r < c->shape.nranks; r++) {
        for (uint32_t k = 0; k < keys; k++) {
            if (c->places[r][((size_t)me * most + t) * keys + k] < 0)
                continue;
            const double weight = c->rank_major ? 1 : c->weights[me][t * c->top_k + k];
            const double x = weight * value_of(c, r, me, t, c->rank_major ? 0 : first_key(c, me, t, k), i);
            sum += x;
            *magnitude += fabs(x);
        }
    }
    return sum;
}

static float term_of(const experts_case_t *c, uint32_t me, uint32_t t, uint32_t k, uint32_t i, float sum)
{
    const uint32_t r = (uint32_t)(c->choices[me][t * c->top_k + k] / local_of(c));
    return fmaf(value_of(c, r, me, t, c->rank_major ? 0 : first_key(c, me, t, k), i),
                c->rank_major ? 1 : c->weights[me][t * c->top_k + k], sum);
}

/* The bits that it must have: in the order of choices, rank-major in that of ranks as they are chosen first. */
static float rows_of(const experts_case_t *c, uint32_t me, uint32_t t, uint32_t i)
{
    uint32_t seen = 0;
    float sum = 0;
    for (uint32_t k = 0; k < c->top_k; k++) {
        const int64_t e = c->choices[me][t * c->top_k + k];
        if (!is_expert(c, e) || (c->rank_major && (seen >> (e / local_of(c)) & 1)))
            continue;
        seen |= 1u << (e / local_of(c));
        sum = term_of(c, me, t, k, i, sum);
    }
    return type_round(c, sum);
}

/* Where ranks send sums: in the order of ranks, and of choices in each. */
static float sums_of(const experts_case_t *c, uint32_t me, uint32_t t, uint32_t i)
{
    float sum = 0;
    for (uint32_t r = 0; r < c->shape.nranks; r++) {
        float of_rank = 0;
        for (uint32_t k = 0; k < c->top_k; k++) {
            const int64_t e = c->choices[me][t * c->top_k + k];
            if (is_expert(c, e) && e / local_of(c) == r)
                of_rank = term_of(c, me, t, k, i, of_rank);
        }
        sum += of_rank;
    }
    return type_round(c, sum);
}

static bool sends_sums(const experts_case_t *c, uint32_t me)
{
    const bool exact =
        c->shape.exact == ALG_EXPERTS_EXACT_ALL || (c->shape.exact == ALG_EXPERTS_EXACT_FP32 && c->type == ALG_FLOAT32);
    return !c->rank_major && !exact && c->top_k > 2 * c->shape.nranks && c->tokens[me] * c->top_k > 128;
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

bool experts_combine_right(const experts_rank_t *r, const experts_case_t *c, char *fault, size_t fault_bytes)
{
    /* Half a step of the result, and the fp32 sums' own errors. */
    const double step = c->type == ALG_BFLOAT16 ? 0x1p-8 : c->type == ALG_FLOAT16 ? 0x1p-11 : 0x1p-24;
    const uint32_t elements = c->combine_bytes / type_bytes(c), tokens = c->tokens[r->rank], me = (uint32_t)r->rank;
    uint8_t *out = fetch(r, r->combine_out, (size_t)tokens * c->combine_bytes);
    bool right = true;
    for (uint32_t t = 0; t < tokens && right; t++) {
        for (uint32_t i = 0; i < elements && right; i++) {
            double magnitude;
            const double wanted = wanted_of(c, me, t, i, &magnitude);
            const double bits = sends_sums(c, me) ? sums_of(c, me, t, i) : rows_of(c, me, t, i);
            const double got = type_load(c, out + (size_t)t * c->combine_bytes + i * type_bytes(c));
            right = same(got, bits) &&
                    (c->exact || isnan(wanted)
                         ? same(got, wanted)
                         : fabs(got - wanted) <= fabs(wanted) * step + magnitude * 0x1p-20 + 0x1p-25); /* subnormals */
            if (!right)
                snprintf(fault, fault_bytes, "rank %d: element %u of token %u is %g, not %g (%g in fp32)", r->rank, i,
                         t, got, wanted, bits);
        }
    }
    free(out);
    return right;
}

/* ---- Programs ---- */

void experts_program_draw(experts_program_t *p, const alg_experts_shape_t *shape, uint64_t *state)
{
    /* What a case does next: even: dispatch, combine; odd: receive what it has sent. */
    uint32_t next[EXPERTS_CASES] = {0}, room[EXPERTS_CASES], taken = 0, sent = 0, left = EXPERTS_CASES;
    p->steps = 0;
    for (uint32_t i = 0; i < EXPERTS_CASES; i++)
        experts_case_draw(&p->cases[i], shape, state);
    while (left > 0) {
        const uint32_t i = (uint32_t)data_below(state, EXPERTS_CASES);
        if (next[i] == 4)
            continue;
        experts_step_t *const step = &p->step[p->steps++];
        *step = (experts_step_t){i, next[i] >= 2, ALG_EXPERTS_BOTH};
        const uint32_t its_room = (p->sent + sent) % alg_experts_staged(shape);
        if (next[i] % 2 == 1) {
            step->phases = ALG_EXPERTS_RECEIVE;
            taken &= ~(1u << room[i]);
            next[i]++;
        } else if (!(taken >> its_room & 1) && data_below(state, 2)) {
            step->phases = ALG_EXPERTS_SEND;
            room[i] = its_room;
            taken |= 1u << its_room;
            sent++;
            next[i]++;
        } else {
            next[i] += 2;
        }
        left -= next[i] == 4;
    }
    p->sent += sent;
}

void experts_program_free(experts_program_t *p)
{
    for (uint32_t i = 0; i < EXPERTS_CASES; i++)
        experts_case_free(&p->cases[i]);
}

alg_experts_call_t experts_step_call(const experts_step_t *step, const experts_rank_t *ranks, uint32_t blocks)
{
    alg_experts_call_t call = step->combine ? ranks[step->of].combine : ranks[step->of].dispatch;
    call.phases = step->phases;
    call.blocks = blocks;
    return call;
}

void experts_step_spoil(const experts_step_t *step, const experts_rank_t *ranks)
{
    const experts_rank_t *const r = &ranks[step->of];
    const size_t rows = (size_t)r->dispatch.tokens * r->dispatch.token_bytes;
    if (step->combine) {
        poison(r, r->combine_rows, r->combine_bytes);
        return;
    }
    poison(r, r->rows, r->dispatch.recipe == ALG_EXPERTS_E4M3 ? 2 * rows : rows);
    if (r->dispatch.scales)
        poison(r, r->scales, (size_t)r->dispatch.tokens * r->dispatch.scale_bytes);
    poison(r, r->choices, (size_t)r->dispatch.tokens * r->dispatch.top_k * (r->dispatch.wide ? 8 : 4));
    if (r->dispatch.weights)
        poison(r, r->weights, (size_t)r->dispatch.tokens * r->dispatch.top_k * 4);
}

bool experts_program_right(const experts_program_t *p, const experts_rank_t *ranks, char *fault, size_t fault_bytes)
{
    for (uint32_t i = 0; i < EXPERTS_CASES; i++) {
        if (!experts_dispatch_right(&ranks[i], &p->cases[i], fault, fault_bytes) ||
            !experts_combine_right(&ranks[i], &p->cases[i], fault, fault_bytes))
            return false;
    }
    return true;
}
