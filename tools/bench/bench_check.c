/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_check.c - checks the output.
 *
 * Collectives that only move data get arbitrary bits, with runs of ones. Reductions are checked with two kinds of data:
 *
 * Exact data: numbers so small that every order of additions is exact in the type (integers: any bits, as they wrap),
 * so the output must equal the expected one bit by bit for every algorithm. Rounded data (all-reduce of floats): any
 * fractions; the ranks' outputs must have the same bits.
 *
 * Inputs are a function of (seed, rank, index), so each rank can compute all inputs. They repeat after a prime number
 * of elements: so a chunk in the wrong place is detected, and large outputs are checked at the speed of a memory
 * comparison.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/bench.h"

enum { PERIOD = 1048573, POISON = 0xA5 };

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static uint64_t random_bits(uint64_t seed, uint32_t rank, uint64_t index)
{
    return mix(mix(seed * 0x9e3779b97f4a7c15ull + rank + 1) + index);
}

static bool multiplies(const bench_case_t *one)
{
    return one->op->op == ncclProd && !one->op->premul;
}

static bool averages(const bench_case_t *one)
{
    return one->op->op == ncclAvg && !one->op->premul;
}

/* An exact value for a float: the sum over all ranks is an integer that the type represents exactly. */
static int exact_number(const bench_case_t *one, uint32_t nranks, uint64_t bits)
{
    static const int factors[] = {-2, -1, 1, 2};
    if (multiplies(one)) {
        return factors[bits & 3]; /* never 0: the sign of a zero product would matter */
    }
    uint64_t holds = 2ull << (one->type->mantissa < 10 ? one->type->mantissa : 10);
    uint64_t high = holds / nranks;
    return (int)(bits % (2 * high + 1)) - (int)high;
}

/* ---- Expected output of element `index` ---- */

static uint64_t expected_float(const bench_case_t *one, uint32_t nranks, uint64_t index)
{
    double result = 0;
    for (uint32_t rank = 0; rank < nranks; rank++) {
        double value = exact_number(one, nranks, random_bits(one->seed, rank, index));
        if (one->op->premul) {
            value *= bench_scalar(one->type, rank);
        }
        if (rank == 0) {
            result = value + 0.0; /* -0 + 0 is 0, as in a sum with other ranks' values */
        } else if (multiplies(one)) {
            result *= value;
        } else if (one->op->op == ncclMax && !one->op->premul) {
            result = fmax(result, value);
        } else if (one->op->op == ncclMin && !one->op->premul) {
            result = fmin(result, value);
        } else {
            result += value;
        }
    }
    return bench_encode(one->type, averages(one) ? result / nranks : result);
}

/* Truncate to the type's width; sign-extend signed types. */
static uint64_t wrap(const bench_type_t *type, uint64_t value)
{
    unsigned unused = 64 - 8u * type->bytes;
    return type->kind == BENCH_SIGNED ? (uint64_t)((int64_t)(value << unused) >> unused) : value << unused >> unused;
}

static bool less(const bench_type_t *type, uint64_t a, uint64_t b)
{
    return type->kind == BENCH_SIGNED ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t divide(const bench_type_t *type, uint64_t value, uint32_t by)
{
    return type->kind == BENCH_SIGNED ? (uint64_t)((int64_t)value / (int64_t)by) : value / by;
}

static uint64_t expected_integer(const bench_case_t *one, uint32_t nranks, uint64_t index)
{
    uint64_t result = 0;
    for (uint32_t rank = 0; rank < nranks; rank++) {
        uint64_t value = wrap(one->type, random_bits(one->seed, rank, index));
        if (one->op->premul) {
            value *= (uint64_t)bench_scalar(one->type, rank);
        }
        if (rank == 0) {
            result = value;
        } else if (multiplies(one)) {
            result *= value;
        } else if (one->op->op == ncclMax && !one->op->premul) {
            result = less(one->type, result, value) ? value : result;
        } else if (one->op->op == ncclMin && !one->op->premul) {
            result = less(one->type, value, result) ? value : result;
        } else {
            result += value;
        }
    }
    result = wrap(one->type, result);
    return averages(one) ? divide(one->type, result, nranks) : result;
}

static uint64_t input_bits(const bench_case_t *one, uint32_t rank, uint32_t nranks, uint64_t index)
{
    enum { RUN = 16, ONE_IN = 4096 };
    uint64_t bits = random_bits(one->seed, rank, index);
    if (!alg_collective_reduces(one->collective)) {
        return random_bits(one->seed, rank, ~(index / RUN)) % ONE_IN == 0 ? ~0ull : bits;
    }
    if (one->type->kind != BENCH_FLOAT) {
        return bits;
    }
    return bench_encode(one->type, exact_number(one, nranks, bits));
}

/* A value in +-[0.5, 2) that uses every bit of the fraction. */
static uint64_t rounded_bits(const bench_case_t *one, uint32_t rank, uint64_t index)
{
    const bench_type_t *type = one->type;
    uint64_t bits = random_bits(~one->seed, rank, index);
    uint64_t fraction = bits & ((1ull << type->mantissa) - 1);
    uint64_t exponent = (1ull << (type->exponent - 1)) - 1 - (bits >> 62 & 1);
    uint64_t sign = bits >> 63;
    return sign << (type->mantissa + type->exponent) | exponent << type->mantissa | fraction;
}

/* ---- Moving patterns to and from the device ---- */

typedef struct pattern {
    uint8_t *data;
    uint64_t count; /* elements before the pattern repeats */
} pattern_t;

typedef enum what { INPUT, ROUNDED, REDUCED } what_t;

/* Make the pattern of rank `of`'s input. */
static bool pattern_make(bench_rank_t *rank, const bench_case_t *one, what_t what, uint32_t of, pattern_t *pattern)
{
    size_t bytes = one->type->bytes;
    const uint64_t whole = bench_input_count(rank, one);
    pattern->count = whole < PERIOD ? whole : PERIOD;
    pattern->data = malloc(pattern->count * bytes);
    if (pattern->data == NULL) {
        return bench_fail(rank, "out of memory");
    }
    for (uint64_t i = 0; i < pattern->count; i++) {
        uint64_t bits = 0;
        if (what == INPUT) {
            bits = input_bits(one, of, rank->nranks, i);
        } else if (what == ROUNDED) {
            bits = rounded_bits(one, of, i);
        } else if (one->type->kind == BENCH_FLOAT) {
            bits = expected_float(one, rank->nranks, i);
        } else {
            bits = expected_integer(one, rank->nranks, i);
        }
        memcpy(pattern->data + i * bytes, &bits, bytes);
    }
    return true;
}

/* Poison the output and the guard behind it, then fill the input, which may lie in the output. */
static bool set_buffers(bench_rank_t *rank, const bench_case_t *one, what_t what)
{
    pattern_t pattern;
    if (!pattern_make(rank, one, what, rank->rank, &pattern)) {
        return false;
    }
    size_t bytes = one->type->bytes;
    const uint64_t count = bench_input_count(rank, one);
    bool done = rank->device->fill(rank, rank->output, POISON, bench_output_count(rank, one) * bytes) &&
                rank->device->fill(rank, rank->guard, POISON, BENCH_GUARD_BYTES);
    for (uint64_t i = 0; done && i < count; i += pattern.count) {
        uint64_t part = count - i < pattern.count ? count - i : pattern.count;
        done = rank->device->upload(rank, rank->input + i * bytes, pattern.data, part * bytes);
    }
    free(pattern.data);
    return done;
}

/* An average over a number of ranks that is not a power of two depends on where the division is rounded. Everything
 * else is exact. */
static double tolerance(const bench_case_t *one, uint32_t nranks)
{
    if (one->type->kind != BENCH_FLOAT || !averages(one) || (nranks & (nranks - 1)) == 0) {
        return 0;
    }
    uint64_t holds = 2ull << (one->type->mantissa < 10 ? one->type->mantissa : 10);
    return ldexp((double)(holds / nranks) * (nranks + 1), -one->type->mantissa);
}

static uint64_t count_wrong(const bench_case_t *one, const uint8_t *got, const uint8_t *want, uint64_t count,
                            double slack)
{
    size_t bytes = one->type->bytes;
    if (memcmp(got, want, count * bytes) == 0) {
        return 0;
    }
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t a = 0;
        uint64_t b = 0;
        memcpy(&a, got + i * bytes, bytes);
        memcpy(&b, want + i * bytes, bytes);
        bool near = slack > 0 && fabs(bench_decode(one->type, a) - bench_decode(one->type, b)) <= slack;
        wrong += a != b && !near;
    }
    return wrong;
}

/* Count a wrong element if the guard was overwritten. */
static bool check_guard(bench_rank_t *rank, uint64_t *wrong)
{
    uint8_t guard[BENCH_GUARD_BYTES];
    uint8_t poison[BENCH_GUARD_BYTES];
    memset(poison, POISON, sizeof poison);
    if (!rank->device->download(rank, guard, rank->guard, sizeof guard)) {
        return false;
    }
    *wrong += memcmp(guard, poison, sizeof guard) != 0;
    return true;
}

static bool compare_part(bench_rank_t *rank, const bench_case_t *one, const pattern_t *pattern, uint64_t from,
                         uint64_t at, uint64_t *wrong)
{
    const size_t bytes = one->type->bytes;
    const double slack = alg_collective_reduces(one->collective) ? tolerance(one, rank->nranks) : 0;
    uint8_t *got = malloc(pattern->count * bytes);
    bool done = got != NULL || bench_fail(rank, "out of memory");
    for (uint64_t i = 0, part; done && i < one->count; i += part) {
        const uint64_t first = (from + i) % pattern->count; /* a part ends at the pattern's end */
        part = pattern->count - first < one->count - i ? pattern->count - first : one->count - i;
        done = rank->device->download(rank, got, rank->output + (at + i) * bytes, part * bytes);
        if (done) {
            *wrong += count_wrong(one, got, pattern->data + first * bytes, part, slack);
        }
    }
    free(got);
    return done;
}

/* Compare a block with data `what` of rank `of`, from its element `from` on. */
static bool compare_block(bench_rank_t *rank, const bench_case_t *one, what_t what, uint32_t of, uint64_t from,
                          uint32_t block, uint64_t *wrong)
{
    pattern_t pattern;
    if (!pattern_make(rank, one, what, of, &pattern)) {
        return false;
    }
    const bool done = compare_part(rank, one, &pattern, from, block * one->count, wrong);
    free(pattern.data);
    return done;
}

/* Only a reduce's or gather's root may change its output. Not checked in place, where it overlaps the input. */
static bool compare_untouched(bench_rank_t *rank, const bench_case_t *one, uint64_t *wrong)
{
    const size_t bytes = one->type->bytes;
    pattern_t poison = {.data = malloc(one->count * bytes), .count = one->count};
    bool done = poison.data != NULL || bench_fail(rank, "out of memory");
    if (done) {
        memset(poison.data, POISON, one->count * bytes);
    }
    for (uint64_t at = 0; done && !one->in_place && at < bench_output_count(rank, one); at += one->count) {
        done = compare_part(rank, one, &poison, 0, at, wrong);
    }
    free(poison.data);
    return done;
}

static bool compare_output(bench_rank_t *rank, const bench_case_t *one, uint32_t calls, uint64_t *wrong)
{
    const uint64_t own = (uint64_t)rank->rank * one->count;
    const uint32_t last = bench_root(rank, one, calls - 1);
    bool root = false;
    for (uint32_t call = 0; call < calls && call < rank->nranks; call++) {
        root = root || bench_root(rank, one, call) == rank->rank;
    }
    switch (one->collective) {
    case ALG_ALL_REDUCE:
        return compare_block(rank, one, REDUCED, 0, 0, 0, wrong);
    case ALG_REDUCE_SCATTER:
        return compare_block(rank, one, REDUCED, 0, own, 0, wrong);
    case ALG_REDUCE:
        return root ? compare_block(rank, one, REDUCED, 0, 0, 0, wrong) : compare_untouched(rank, one, wrong);
    case ALG_BROADCAST:
        return compare_block(rank, one, INPUT, last, 0, 0, wrong);
    case ALG_SEND_RECV:
        return compare_block(rank, one, INPUT, (rank->rank + rank->nranks - 1) % rank->nranks, 0, 0, wrong);
    case ALG_SCATTER:
        return compare_block(rank, one, INPUT, last, own, 0, wrong);
    default:
        break;
    }
    if (one->collective == ALG_GATHER && !root) {
        return compare_untouched(rank, one, wrong);
    }
    bool done = true;
    for (uint32_t block = 0; done && block < rank->nranks; block++) {
        const uint64_t from = one->collective == ALG_ALL_TO_ALL ? own : 0;
        done = compare_block(rank, one, INPUT, block, from, block, wrong);
    }
    return done;
}

static bool compare_expected(bench_rank_t *rank, const bench_case_t *one, uint32_t calls, uint64_t *wrong)
{
    return compare_output(rank, one, calls, wrong) && check_guard(rank, wrong);
}

/* Rank 0 publishes its output by windows; the others count elements that differ. */
static bool compare_ranks(bench_rank_t *rank, const bench_case_t *one, uint64_t *wrong)
{
    uint8_t *own = malloc(BENCH_WINDOW_BYTES);
    bool done = own != NULL || bench_fail(rank, "out of memory");
    size_t bytes = one->type->bytes;
    uint64_t total = one->count * bytes;
    for (uint64_t at = 0; done && at < total; at += BENCH_WINDOW_BYTES) {
        uint64_t part = total - at < BENCH_WINDOW_BYTES ? total - at : BENCH_WINDOW_BYTES;
        uint8_t *to = rank->rank == 0 ? rank->shared->window : own;
        done = rank->device->download(rank, to, rank->output + at, part);
        if (rank->rank == 0) {
            rank->shared->window_bytes = part;
        }
        bench_barrier(rank);
        if (rank->rank == 0) {
            rank->shared->window_bytes = 0;
        }
        if (done && rank->rank != 0) {
            *wrong += count_wrong(one, own, rank->shared->window, part / bytes, 0);
        }
        bench_barrier(rank);
    }
    free(own);
    return done;
}

static bool one_call(bench_rank_t *rank, const bench_case_t *one)
{
    bench_run_t run;
    if (!bench_run_open(rank, one, &rank->side[0], 1, &run)) {
        return false;
    }
    bool done = bench_run_start(rank, one, &run) && rank->device->wait(rank);
    bench_run_close(rank, &run);
    return done;
}

bool bench_check(bench_rank_t *rank, const bench_case_t *one, uint64_t *wrong)
{
    if (one->collective == ALG_ALL_REDUCE && one->type->kind == BENCH_FLOAT) {
        if (!set_buffers(rank, one, ROUNDED) || !one_call(rank, one) || !compare_ranks(rank, one, wrong)) {
            return false;
        }
    }
    return set_buffers(rank, one, INPUT) && one_call(rank, one) && compare_expected(rank, one, 1, wrong);
}

bool bench_check_run(bench_rank_t *rank, const bench_case_t *one, const bench_run_t *run, uint64_t *wrong)
{
    return set_buffers(rank, one, INPUT) && bench_run_start(rank, one, run) && rank->device->wait(rank) &&
           compare_expected(rank, one, run->calls, wrong);
}
