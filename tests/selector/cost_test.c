/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost model, checked on measured machines: the time of its choices against
 * the best of all algorithms, grids and the real NCCL, from the CSV files in
 * selector/measured.
 *
 * usage: cost_test RESULTS_FOLDER
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "selector/cost.h"

enum { MOST_FIGURES = 4096, LINE_BYTES = 512 };

/* One measured call. blocks 0: the real NCCL. */
typedef struct figure {
    unsigned ranks, blocks, threads;
    unsigned long long bytes;
    char algorithm[24];
    double us;
} figure_t;

static const char *folder;
static figure_t figures[MOST_FIGURES];
static int count;

static FILE *open_results(const char *name)
{
    char path[LINE_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s cannot be read", path);
    return file;
}

/* Read lines of gpus,bytes,type,algorithm,blocks,threads,us,... */
static void read_sweep(void)
{
    char line[LINE_BYTES];
    FILE *file = open_results("sweep-h200.csv");
    while (fgets(line, sizeof line, file) && count < MOST_FIGURES) {
        figure_t *f = &figures[count];
        count += sscanf(line, "%u,%llu,%*d,%23[^,],%u,%u,%lf", &f->ranks, &f->bytes, f->algorithm, &f->blocks,
                        &f->threads, &f->us) == 6;
    }
    fclose(file);
}

/* Read lines of ranks,mode,place,bytes,count,type,op,algorithm,us,algbw,busbw,wrong,nccl_us,ratio */
static void read_nccl(const char *name)
{
    char line[LINE_BYTES];
    FILE *file = open_results(name);
    while (fgets(line, sizeof line, file) && count < MOST_FIGURES) {
        figure_t *f = &figures[count];
        *f = (figure_t){.algorithm = "nccl"};
        count += sscanf(line, "%u,%*[^,],%*[^,],%llu,%*u,%*[^,],%*[^,],%*[^,],%*f,%*f,%*f,%*u,%lf", &f->ranks,
                        &f->bytes, &f->us) == 3;
    }
    fclose(file);
}

static int read_figures(void **state)
{
    (void)state;
    read_sweep();
    const int ours = count;
    read_nccl("graph-2-h200.csv");
    read_nccl("graph-4-h200.csv");
    return ours > 100 && count > ours + 20 ? 0 : -1;
}

static double best_of(unsigned ranks, unsigned long long bytes)
{
    double best = 0;
    for (int i = 0; i < count; i++) {
        const figure_t *f = &figures[i];
        if (f->ranks == ranks && f->bytes == bytes && (best == 0 || f->us < best))
            best = f->us;
    }
    return best;
}

/* With the nearest measured grid: the grids for short messages may have changed since the sweep. */
static double time_of(unsigned ranks, unsigned long long bytes, const sel_choice_t *choice)
{
    const char *name = choice->algorithm ? choice->algorithm->name : "nccl";
    uint32_t blocks = choice->blocks, threads = choice->threads;
    if (choice->algorithm)
        choice->algorithm->shape(bytes, ranks, &blocks, &threads);
    const figure_t *nearest = NULL;
    double least = 0;
    for (int i = 0; i < count; i++) {
        const figure_t *f = &figures[i];
        if (f->ranks != ranks || f->bytes != bytes || strcmp(f->algorithm, name) != 0)
            continue;
        double off = 0;
        if (choice->algorithm)
            off =
                fabs(log((double)f->blocks * f->threads / (blocks * threads))) + fabs(log((double)f->blocks / blocks));
        if (!nearest || off < least) {
            nearest = f;
            least = off;
        }
    }
    if (!nearest)
        fail_msg("%u ranks, %llu bytes: %s was not measured", ranks, bytes, name);
    return nearest->us;
}

/* Averaged over the measured sizes. */
static double cost_over_best(unsigned ranks)
{
    const sel_topology_t topology = {.link = SEL_LINK_NVSWITCH, .nranks = ranks, .arch = 90, .multiprocessors = 132};
    alg_map_t map;
    double sum = 0;
    int sizes = 0;
    assert_true(alg_map_init(&map, 64u << 20));
    for (unsigned long long bytes = 1024; bytes <= 64u << 20; bytes *= 2) {
        bool swept = false;
        for (int i = 0; i < count && !swept; i++)
            swept = figures[i].ranks == ranks && figures[i].bytes == bytes && figures[i].blocks;
        if (!swept)
            continue;
        const sel_choice_t choice = sel_cost_choose(&topology, &map, ALG_ALL_REDUCE, bytes);
        const double cost = time_of(ranks, bytes, &choice) / best_of(ranks, bytes) - 1;
        printf("%u ranks, %8llu bytes: %-8s %+.1f%%\n", ranks, bytes,
               choice.algorithm ? choice.algorithm->name : "nccl", 100 * cost);
        sum += cost;
        sizes++;
    }
    assert_true(sizes >= 5);
    return sum / sizes;
}

static void near_the_best(void **state)
{
    (void)state;
    assert_true(cost_over_best(2) <= 0.10);
    assert_true(cost_over_best(4) <= 0.10);
}

/* The model predicts no gain for links with few known figures, and none for messages that saturate the link. */
static void unsure(void **state)
{
    (void)state;
    static const sel_topology_t unknown[] = {
        {.link = SEL_LINK_BRIDGES, .nranks = 2, .arch = 89},
        {.link = SEL_LINK_PCIE, .nranks = 4, .arch = 75},
        {.link = SEL_LINK_BRIDGES, .nranks = 4, .arch = 80},
        {.link = SEL_LINK_NVSWITCH, .nranks = 8, .arch = 70},
    };
    alg_map_t map;
    assert_true(alg_map_init(&map, 64u << 20));
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        assert_null(sel_cost_choose(&unknown[i], &map, ALG_ALL_REDUCE, 1024).algorithm);
    for (uint32_t ranks = 2; ranks <= ALG_MAX_RANKS; ranks++) {
        const sel_topology_t switched = {.link = SEL_LINK_NVSWITCH, .nranks = ranks, .arch = 100};
        assert_non_null(sel_cost_choose(&switched, &map, ALG_ALL_REDUCE, 1024).algorithm);
        assert_null(sel_cost_choose(&switched, &map, ALG_ALL_REDUCE, 1 << 30).algorithm);
    }
}

/* The largest size for which the model chooses an algorithm; 0: none. */
static uint64_t last_taken(const sel_topology_t *topology)
{
    alg_map_t map;
    uint64_t last = 0;
    assert_true(alg_map_init(&map, 64u << 20));
    for (uint32_t i = 0; i < SEL_COST_BOUNDS; i++) {
        if (sel_cost_choose(topology, &map, ALG_ALL_REDUCE, sel_cost_bound(i)).algorithm)
            last = sel_cost_bound(i);
    }
    return last;
}

static sel_topology_t measured(sel_link_t link, uint32_t nranks, uint32_t gigabytes, uint32_t one_way_ns)
{
    return (sel_topology_t){.link = link,
                            .nranks = nranks,
                            .arch = 90,
                            .measured = {.bytes_per_us = gigabytes * 1000, .gpus = 4, .one_way_ns = one_way_ns}};
}

/* Measured figures replace the nominal ones, and are used for links that have none. */
static void measured_links(void **state)
{
    (void)state;
    alg_map_t map;
    assert_true(alg_map_init(&map, 64u << 20));
    const sel_topology_t nominal = {.link = SEL_LINK_NVSWITCH, .nranks = 4, .arch = 90};
    const sel_topology_t same = measured(SEL_LINK_NVSWITCH, 4, 390, 800);
    for (uint32_t i = 0; i < SEL_COST_BOUNDS; i++)
        assert_ptr_equal(sel_cost_choose(&same, &map, ALG_ALL_REDUCE, sel_cost_bound(i)).algorithm,
                         sel_cost_choose(&nominal, &map, ALG_ALL_REDUCE, sel_cost_bound(i)).algorithm);
    const sel_topology_t half = measured(SEL_LINK_NVSWITCH, 4, 195, 800);
    assert_true(last_taken(&half) < last_taken(&nominal) && last_taken(&half) > 0);

    /* A mesh among two of four GPUs has a third of what all four had. */
    const sel_topology_t pair = measured(SEL_LINK_MESH, 2, 300, 800),
                         switched = measured(SEL_LINK_NVSWITCH, 2, 100, 800);
    assert_int_equal(last_taken(&pair), last_taken(&switched));
    const sel_topology_t mesh = measured(SEL_LINK_MESH, 4, 390, 800), more = measured(SEL_LINK_MESH, 8, 390, 800);
    const sel_topology_t eight = measured(SEL_LINK_NVSWITCH, 8, 390, 800);
    assert_int_equal(last_taken(&mesh), last_taken(&nominal));
    assert_int_equal(last_taken(&more), last_taken(&eight)); /* another machine of its kind has more GPUs */

    static const sel_link_t slow[] = {SEL_LINK_BRIDGES, SEL_LINK_PCIE, SEL_LINK_PHB, SEL_LINK_SYS};
    for (size_t i = 0; i < sizeof slow / sizeof slow[0]; i++) {
        const sel_topology_t topology = measured(slow[i], 4, 20, 1500);
        const uint64_t last = last_taken(&topology);
        assert_true(last >= 8 << 10 && last <= 256 << 10); /* only starts are known; NCCL's ring may be faster */
    }
    sel_topology_t old = measured(SEL_LINK_PCIE, 4, 10, 1500);
    old.arch = 70; /* nothing is known of its kernels */
    assert_int_equal(last_taken(&old), 0);
}

/* On links with a long latency one-shot, which crosses once, is chosen for longer messages than two-shot, which crosses
 * twice. */
static void late_links(void **state)
{
    (void)state;
    alg_map_t map;
    assert_true(alg_map_init(&map, 64u << 20));
    uint64_t oneshot_to[2] = {0};
    for (int late = 0; late < 2; late++) {
        const sel_topology_t topology = measured(SEL_LINK_NVSWITCH, 4, 390, late ? 2800 : 800);
        for (uint32_t i = 0; i < SEL_COST_BOUNDS; i++) {
            const alg_algorithm_t *algorithm =
                sel_cost_choose(&topology, &map, ALG_ALL_REDUCE, sel_cost_bound(i)).algorithm;
            if (algorithm && strcmp(algorithm->name, "oneshot") == 0)
                oneshot_to[late] = sel_cost_bound(i);
        }
    }
    assert_true(oneshot_to[0] > 0 && oneshot_to[1] > oneshot_to[0]);
}

static const alg_algorithm_t *choose_shm(const sel_topology_t *topology, int collective, uint64_t bytes)
{
    alg_map_t map;
    assert_true(alg_map_init_shm(&map, 64u << 20));
    return sel_cost_choose(topology, &map, (alg_collective_t)collective, bytes).algorithm;
}

/* Through pinned memory the model takes short all-reduces, other collectives with a sufficient gain, and long messages
 * only if they were measured; and it never chooses an algorithm for a memory that the communicator lacks. */
static void through_pinned(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= ALG_MAX_RANKS; ranks++) {
        sel_topology_t topology = {.link = SEL_LINK_SYS, .memory = ALG_MEMORY_PINNED, .nranks = ranks, .arch = 89};
        for (int c = 0; c < ALG_SEND_RECV; c++) {
            assert_true(choose_shm(&topology, c, 1024) || c != ALG_ALL_REDUCE);
            assert_null(choose_shm(&topology, c, 64 << 20));
            for (uint32_t i = 0; i < SEL_COST_BOUNDS; i++) {
                const alg_algorithm_t *algorithm = choose_shm(&topology, c, sel_cost_bound(i));
                assert_true(!algorithm || algorithm->memory == ALG_MEMORY_PINNED);
            }
        }
        assert_null(choose_shm(&topology, ALG_SEND_RECV, 64 << 10));
        topology.arch = 75;
        assert_null(choose_shm(&topology, ALG_ALL_REDUCE, 1024));
    }
}

/* With the figures of H200 the model is close to the measurements (selector/measured/shm-*-2-h200.csv), and every call
 * that it takes was faster than NCCL. */
static void near_the_pinned(void **state)
{
    (void)state;
    const sel_topology_t two = {
        .link = SEL_LINK_NVSWITCH,
        .memory = ALG_MEMORY_PINNED,
        .nranks = 2,
        .arch = 90,
        .pinned = {.store_bytes_per_us = 51000, .load_bytes_per_us = 50000, .gpus = 2, .one_way_ns = 1660}};
    assert_string_equal(choose_shm(&two, ALG_ALL_REDUCE, 1024)->name, "shm-oneshot");
    assert_string_equal(choose_shm(&two, ALG_ALL_REDUCE, 16 << 10)->name, "shm-oneshot");
    assert_non_null(choose_shm(&two, ALG_ALL_REDUCE, 64 << 10));
    assert_null(choose_shm(&two, ALG_SEND_RECV, 1 << 20));

    /* ranks,mode,place,bytes,count,type,op,algorithm,us,algbw,busbw,wrong,nccl_us,ratio,collective */
    char line[LINE_BYTES], algorithm[24], collective[24];
    int taken = 0, rows = 0;
    FILE *file = open_results("shm-collectives-2-h200.csv");
    while (fgets(line, sizeof line, file)) {
        unsigned long long bytes;
        double us, nccl_us;
        if (sscanf(line, "2,graph,out,%llu,%*u,%*[^,],%*[^,],%23[^,],%lf,%*f,%*f,%*u,%lf,%*f,%23[a-z]", &bytes,
                   algorithm, &us, &nccl_us, collective) != 5)
            continue;
        rows++;
        const alg_algorithm_t *const chosen = choose_shm(&two, alg_collective_find(collective), bytes);
        if (!chosen || strcmp(chosen->name, algorithm) != 0)
            continue; /* the file has no time of another one */
        taken++;
        if (us > nccl_us)
            fail_msg("%s of %llu bytes", collective, bytes);
    }
    fclose(file);
    assert_true(rows >= 80 && taken >= 20);
}

/* On four GPUs, for which only NCCL's times are known, the model predicts a gain for every call that it takes. */
static void four_through_the_pinned(void **state)
{
    (void)state;
    const sel_topology_t four = {
        .link = SEL_LINK_NVSWITCH,
        .memory = ALG_MEMORY_PINNED,
        .nranks = 4,
        .arch = 90,
        .pinned = {.store_bytes_per_us = 30000, .load_bytes_per_us = 36000, .gpus = 4, .one_way_ns = 1660}};
    char line[LINE_BYTES], collective[24];
    int taken = 0, rows = 0;
    alg_map_t map;
    assert_true(alg_map_init_shm(&map, 64u << 20));
    FILE *file = open_results("shm-nccl-4-h200.csv");
    while (fgets(line, sizeof line, file)) {
        unsigned long long bytes;
        double nccl_us, most = INFINITY;
        if (sscanf(line, "%23[a-z],4,%llu,%lf", collective, &bytes, &nccl_us) != 3)
            continue;
        rows++;
        const alg_collective_t which = alg_collective_find(collective);
        if (!sel_cost_choose(&four, &map, which, bytes).algorithm)
            continue;
        taken++;
        (void)sel_cost_fastest(&four, &map, which, bytes, &most);
        if (most > 0.9 * nccl_us)
            fail_msg("%s of %llu bytes: %.1f us predicted, NCCL takes %.1f", collective, bytes, most, nccl_us);
    }
    fclose(file);
    assert_true(rows >= 14 && taken >= 7);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s RESULTS_FOLDER\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(near_the_best),          cmocka_unit_test(unsure),
                                       cmocka_unit_test(measured_links),         cmocka_unit_test(late_links),
                                       cmocka_unit_test(through_pinned),         cmocka_unit_test(near_the_pinned),
                                       cmocka_unit_test(four_through_the_pinned)};
    return cmocka_run_group_tests(tests, read_figures, NULL);
}
