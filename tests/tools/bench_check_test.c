/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check of outputs in `shunt bench`, on collectives computed by their definition between threads: right outputs
 * pass in place and out of place, at any root, and each injected fault is detected.
 */
#include <getopt.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/bench/bench.h"

#if defined(__SANITIZE_ADDRESS__)
enum { BYTES = 3 << 20 };
#else
enum { BYTES = 7 << 20 };
#endif
enum { RANKS = 3, CALLS = 4 };

typedef enum fault { NONE, LAST_BIT, BEHIND, OTHER_ROOT, OTHER_BLOCK, UNASKED, FAULTS } fault_t;

static bench_shared_t shared;
static bench_options_t options = {.ranks = RANKS, .calls = CALLS, .check = true};
static bench_rank_t ranks[RANKS];
static pthread_barrier_t barrier;
static fault_t fault;
static bench_case_t now; /* the case that runs */
static uint64_t wrong[RANKS];
static bool done[RANKS];

/* ---- Functions that the checks call ---- */

bool bench_fail(bench_rank_t *rank, const char *format, ...)
{
    (void)rank;
    (void)format;
    return false;
}

void bench_barrier(bench_rank_t *rank)
{
    (void)rank;
    pthread_barrier_wait(&barrier);
}

void bench_tell_part(bench_rank_t *rank, uint64_t bytes, uint32_t part, uint32_t all)
{
    (void)rank, (void)bytes, (void)part, (void)all;
}

static uint64_t bits_at(const uint8_t *from, uint64_t index)
{
    uint64_t bits = 0;
    memcpy(&bits, from + index * now.type->bytes, now.type->bytes);
    return bits;
}

static uint64_t sum_at(uint64_t index)
{
    double number = 0;
    uint64_t integer = 0;
    for (int r = 0; r < RANKS; r++) {
        number += bench_decode(now.type, bits_at(ranks[r].input, index));
        integer += bits_at(ranks[r].input, index);
    }
    return now.type->kind == BENCH_FLOAT ? bench_encode(now.type, number) : integer;
}

/* Element `index` of block `block` of a rank's output. */
static uint64_t output_at(uint32_t rank, uint32_t root, uint32_t block, uint64_t index)
{
    switch (now.collective) {
    case ALG_ALL_REDUCE:
    case ALG_REDUCE:
        return sum_at(index);
    case ALG_REDUCE_SCATTER:
        return sum_at(rank * now.count + index);
    case ALG_ALL_GATHER:
    case ALG_GATHER:
        return bits_at(ranks[block].input, index);
    case ALG_ALL_TO_ALL:
        return bits_at(ranks[block].input, rank * now.count + index);
    case ALG_BROADCAST:
        return bits_at(ranks[root].input, index);
    case ALG_SEND_RECV:
        return bits_at(ranks[(rank + RANKS - 1) % RANKS].input, index);
    default:
        return bits_at(ranks[root].input, rank * now.count + index);
    }
}

static bool to_root_alone(void)
{
    return now.collective == ALG_REDUCE || now.collective == ALG_GATHER;
}

/* A rank's result, computed while no rank writes. */
static uint8_t *result_of(const bench_rank_t *rank, uint32_t root)
{
    const uint64_t count = bench_output_count(rank, &now);
    uint8_t *result = malloc(count * now.type->bytes);
    assert_non_null(result);
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t block = (uint32_t)(i / now.count), other = (block + 1) % RANKS;
        const uint64_t bits = output_at(rank->rank, root, fault == OTHER_BLOCK ? other : block, i % now.count);
        memcpy(result + i * now.type->bytes, &bits, now.type->bytes);
    }
    if (fault == LAST_BIT && rank->rank == 1)
        result[count * now.type->bytes - 1] ^= 0x80;
    return result;
}

bool bench_issue(bench_rank_t *rank, const bench_side_t *side, const bench_case_t *one, uint32_t call)
{
    (void)side;
    const uint32_t root = (bench_root(rank, one, call) + (fault == OTHER_ROOT)) % RANKS;
    const bool mine = !to_root_alone() || root == rank->rank || fault == UNASKED;
    bench_barrier(rank);
    uint8_t *result = result_of(rank, root);
    bench_barrier(rank);
    if (mine)
        memcpy(rank->output, result, bench_output_count(rank, one) * one->type->bytes);
    if (mine && fault == BEHIND)
        rank->guard[0] ^= 1;
    free(result);
    bench_barrier(rank);
    return true;
}

/* ---- Cases ---- */

static void *body(void *argument)
{
    bench_rank_t *rank = argument;
    const uint32_t r = rank->rank;
    bench_run_t run;
    bench_place(rank, &now);
    done[r] = bench_check(rank, &now, &wrong[r]) &&
              bench_run_open(rank, &now, &rank->side[0], options.in_place ? 1 : CALLS, &run) &&
              bench_check_run(rank, &now, &run, &wrong[r]);
    return NULL;
}

static uint64_t wrong_elements(void)
{
    pthread_t thread[RANKS];
    memset(wrong, 0, sizeof wrong);
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, body, &ranks[r]), 0);
    uint64_t all = 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        pthread_join(thread[r], NULL);
        assert_true(done[r]);
        all += wrong[r];
    }
    return all;
}

static void set_case(alg_collective_t collective, const char *type, uint64_t bytes, uint32_t root, bool rotates)
{
    const bench_kind_t kind = {collective, bench_type_find(type), 0};
    now = (bench_case_t){.collective = collective,
                         .root = root,
                         .rotates = rotates,
                         .type = &bench_types[kind.type],
                         .op = &bench_ops[0],
                         .in_place = options.in_place,
                         .count = bench_count(&options, &kind, bytes),
                         .seed = 11};
}

static void right_ones(void **state)
{
    (void)state;
    fault = NONE;
    static const char *const types[] = {"bfloat16", "int32", "uint8", "double"};
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        for (int variant = 0; variant < 8; variant++) {
            options.in_place = variant & 1;
            options.skew = variant & 2;
            set_case((alg_collective_t)c, types[variant % 4], variant < 4 ? 24 : 12000, variant % RANKS, variant & 4);
            if (options.in_place && !bench_has_place(now.collective))
                continue;
            if (wrong_elements() != 0)
                fail_msg("%s, variant %d", alg_collective_name(now.collective), variant);
        }
    }
}

/* Long outputs pass, although inputs repeat and blocks begin at any place in them. */
static void long_ones(void **state)
{
    (void)state;
    fault = NONE;
    options.in_place = options.skew = false;
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        set_case((alg_collective_t)c, "int8", BYTES / 2, 1, false);
        if (wrong_elements() != 0)
            fail_msg("%s", alg_collective_name(now.collective));
    }
}

static bool can_have(fault_t which, alg_collective_t collective)
{
    if (which == OTHER_ROOT)
        return alg_collective_rooted(collective);
    if (which == OTHER_BLOCK)
        return collective == ALG_ALL_GATHER || collective == ALG_ALL_TO_ALL || collective == ALG_GATHER;
    return which != UNASKED || to_root_alone();
}

static void faults(void **state)
{
    (void)state;
    options.in_place = options.skew = false;
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        for (fault = NONE + 1; fault < FAULTS; fault++) {
            set_case((alg_collective_t)c, "bfloat16", 12000, 1, false);
            if (can_have(fault, now.collective) && wrong_elements() == 0)
                fail_msg("%s: fault %d was not seen", alg_collective_name(now.collective), (int)fault);
        }
    }
}

/* The kinds that a command line selects, as "collective type op" of the first, and their number. */
static uint32_t kinds(const char *line, const char *first)
{
    char words[200], *argv[16] = {"bench"};
    int argc = 1;
    bench_options_t parsed;
    bench_machine_t *machine = calloc(1, sizeof *machine);
    bench_kind_t kind;
    uint32_t count = 0;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    optind = 0;
    assert_non_null(machine);
    machine->cpu = true;
    machine->collectives = 0x1ff;
    assert_int_equal(bench_options_parse(&parsed, argc, argv), TOOL_OK);
    for (uint32_t at = 0; bench_next_kind(&parsed, machine, &at, &kind); count++) {
        char text[80];
        snprintf(text, sizeof text, "%s %s %s", alg_collective_name(kind.collective), bench_types[kind.type].name,
                 bench_ops[kind.op].name);
        if (count == 0)
            assert_string_equal(text, first);
    }
    free(machine);
    return count;
}

static void options_select_cases(void **state)
{
    (void)state;
    assert_int_equal(kinds("-g 2", "allreduce bfloat16 sum"), 1);
    assert_int_equal(kinds("--collective allgather -o all", "allgather bfloat16 sum"), 1);
    assert_int_equal(kinds("--collective reduce -o all -d float", "reduce float sum"), 6);
    assert_int_equal(kinds("--collective broadcast -d all -o max", "broadcast int8 sum"), 12);
    assert_int_equal(kinds("--collective all", "allreduce bfloat16 sum"), 9);
    assert_int_equal(kinds("--collective all --in-place -o max", "allreduce bfloat16 max"), 7);
}

/* The usual lines of nccl-tests. */
static bench_options_t parsed(const char *line)
{
    char words[200], *argv[24] = {"bench"};
    int argc = 1;
    bench_options_t result;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    optind = 0;
    assert_int_equal(bench_options_parse(&result, argc, argv), TOOL_OK);
    return result;
}

static void lines_of_nccl_tests(void **state)
{
    (void)state;
    bench_options_t line = parsed("-b 8 -e 128M -f 2 -g 8");
    assert_true(line.from_bytes == 8 && line.to_bytes == 128 << 20 && line.factor == 2 && line.ranks == 8);
    assert_true(bench_next_size(&line, 8) == 16 && line.check && !line.in_place && !line.both_places);
    line = parsed("-b 1G -e 1G -n 20 -c 0");
    assert_true(line.from_bytes == 1 << 30 && line.to_bytes == 1 << 30 && line.calls == 20 && !line.check);
    line = parsed("-d all -o all");
    assert_true(line.type == -1 && line.op == -1);
    line = parsed("-z 1 -G 10");
    assert_true(line.blocking && line.graph);
    line = parsed("-z 0 -G 0 -m 4 -t 2 -g 3 -i 1M -F file.csv -p 0 -a 3");
    assert_true(!line.blocking && !line.graph && line.grouped == 4 && line.ranks == 6 && line.step_bytes == 1 << 20);
    assert_true(bench_next_size(&line, 8) == 8 + (1 << 20));
    assert_string_equal(line.csv, "file.csv");
    line = parsed("-i 1M -f 2"); /* there, too, the factor wins */
    assert_true(bench_next_size(&line, 8) == 16);
    line = parsed("-t 1");
    assert_true(line.ranks == 0);
    line = parsed(
        "--minbytes 8 --maxbytes 8K --stepbytes 8 --nthreads 2 --iters 3 --warmup_iters 4 --agg_iters 5 --root 1");
    assert_true(line.from_bytes == 8 && line.to_bytes == 8192 && line.step_bytes == 8 && line.ranks == 2);
    assert_true(line.calls == 3 && line.warmup == 4 && line.grouped == 5 && line.root == 1);
}

static void places(void **state)
{
    (void)state;
    const char *const lines[] = {"-g 2", "--place in", "--in-place", "--place both"};
    const bool out[] = {true, false, false, true}, in[] = {false, true, true, true};
    for (int i = 0; i < 4; i++) {
        const bench_options_t line = parsed(lines[i]);
        assert_true(bench_measures_place(&line, ALG_ALL_REDUCE, false) == out[i]);
        assert_true(bench_measures_place(&line, ALG_ALL_REDUCE, true) == in[i]);
        assert_true(!bench_measures_place(&line, ALG_SEND_RECV, true));
    }
}

static void bus_factors(void **state)
{
    (void)state;
    assert_true(bench_bus_factor(ALG_ALL_REDUCE, 4) == 1.5 && bench_bus_factor(ALG_ALL_GATHER, 4) == 0.75);
    assert_true(bench_bus_factor(ALG_SCATTER, 2) == 0.5 && bench_bus_factor(ALG_ALL_TO_ALL, 2) == 0.5);
    assert_true(bench_bus_factor(ALG_BROADCAST, 4) == 1 && bench_bus_factor(ALG_REDUCE, 8) == 1);
    assert_true(bench_bus_factor(ALG_SEND_RECV, 4) == 1);
}

static int make_ranks(void **state)
{
    (void)state;
    pthread_barrier_init(&barrier, NULL, RANKS);
    for (uint32_t r = 0; r < RANKS; r++) {
        bench_rank_t *rank = &ranks[r];
        *rank = (bench_rank_t){.options = &options,
                               .shared = &shared,
                               .rank = r,
                               .nranks = RANKS,
                               .device = &bench_device_cpu,
                               .comms = 1,
                               .sides = 1};
        for (int i = 0; i < 2; i++) {
            if (!bench_device_cpu.allocate(rank, BYTES + BENCH_GUARD_BYTES, &rank->memory[i]))
                return -1;
        }
    }
    return 0;
}

static int free_ranks(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < RANKS; r++) {
        for (int i = 0; i < 2; i++)
            bench_device_cpu.release(&ranks[r], ranks[r].memory[i]);
    }
    pthread_barrier_destroy(&barrier);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_ones),           cmocka_unit_test(long_ones),           cmocka_unit_test(faults),
        cmocka_unit_test(options_select_cases), cmocka_unit_test(lines_of_nccl_tests), cmocka_unit_test(places),
        cmocka_unit_test(bus_factors)};
    return cmocka_run_group_tests(tests, make_ranks, free_ranks);
}
