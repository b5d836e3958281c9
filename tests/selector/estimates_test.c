/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The estimates for machines without measurements are conservative: with the built-in rows hidden, the model takes no
 * call that is slower than the real NCCL in a file of results. Rows apply only to the machines on which they were
 * measured.
 *
 * usage: estimates_test FOLDER_OF_RESULTS...
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "selector/built_in.h"
#include "selector/cost.h"
#include "selector/topology/topology.h"

enum { LINE_BYTES = 1024, MOST_COLUMNS = 32 };

static char *const *folders; /* ends with NULL */
static sel_plan_t plan;

/* ---- A file of results ------------------------------------------------------------ */

/* Positions of the columns; -1: there is none. */
typedef struct columns {
    int ranks, bytes, algorithm, builtin, us, nccl_us, collective;
} columns_t;

static int split(char *line, char *cell[MOST_COLUMNS])
{
    int cells = 0;
    line[strcspn(line, "\r\n")] = '\0';
    for (char *rest = line; rest && cells < MOST_COLUMNS;)
        cell[cells++] = strsep(&rest, ",");
    return cells;
}

static columns_t find_columns(char *cell[MOST_COLUMNS], int cells)
{
    columns_t found = {-1, -1, -1, -1, -1, -1, -1};
    const struct {
        const char *name;
        int *at;
    } wanted[] = {{"ranks", &found.ranks},         {"gpus", &found.ranks},           {"bytes", &found.bytes},
                  {"algorithm", &found.algorithm}, {"builtin", &found.builtin},      {"us", &found.us},
                  {"nccl_us", &found.nccl_us},     {"collective", &found.collective}};
    for (int c = 0; c < cells; c++) {
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
            if (strcmp(cell[c], wanted[i].name) == 0)
                *wanted[i].at = c;
        }
    }
    return found;
}

/* What the model cannot know, and why. */
typedef struct exception {
    const char *file, *cell;
} exception_t;
static const exception_t EXCEPTIONS[] = {
    {"roots-2-h200.csv", "each"},  /* a group of broadcasts or reduces, which had a kernel each before */
    {"ones-4-h200.csv", "reduce"}, /* earlier kernels, and data made to be slow (docs/limits.md) */
};
enum { EXCEPTION_COUNT = sizeof EXCEPTIONS / sizeof EXCEPTIONS[0] };

typedef struct totals {
    int files, calls, slower, taken, wrong;
    int excepted[EXCEPTION_COUNT];
} totals_t;

static bool is_exception(const char *file, char *cell[MOST_COLUMNS], int cells, totals_t *totals)
{
    for (int i = 0; i < EXCEPTION_COUNT; i++) {
        for (int c = 0; strcmp(file, EXCEPTIONS[i].file) == 0 && c < cells; c++) {
            if (strcmp(cell[c], EXCEPTIONS[i].cell) == 0) {
                totals->excepted[i]++;
                return true;
            }
        }
    }
    return false;
}

/* The model judges bands of sizes. */
static uint64_t band_begin(uint64_t bytes)
{
    uint64_t begin = 0;
    for (uint32_t i = 0; i < SEL_COST_BOUNDS && sel_cost_bound(i) <= bytes; i++)
        begin = sel_cost_bound(i);
    return begin;
}

static const alg_algorithm_t *estimate(unsigned ranks, bool shm, alg_collective_t collective, uint64_t bytes)
{
    const sel_topology_t topology = {.link = SEL_LINK_NVSWITCH,
                                     .memory = shm ? ALG_MEMORY_PINNED : ALG_MEMORY_PEER,
                                     .nranks = ranks,
                                     .arch = 90,
                                     .multiprocessors = 132,
                                     .lanes = 18};
    alg_map_t map;
    assert_true(shm ? alg_map_init_shm(&map, 80u << 20) : alg_map_init(&map, 80u << 20));
    return sel_cost_choose(&topology, &map, collective, band_begin(bytes)).algorithm;
}

static void check_row(const char *file, const columns_t *at, char *cell[MOST_COLUMNS], totals_t *totals)
{
    const unsigned ranks = (unsigned)strtoul(cell[at->ranks], NULL, 10);
    const uint64_t bytes = strtoull(cell[at->bytes], NULL, 10);
    const double us = strtod(cell[at->us], NULL), nccl_us = strtod(cell[at->nccl_us], NULL);
    const char *name = cell[at->algorithm];
    if (at->builtin >= 0 && strcmp(name, "builtin") == 0)
        name = cell[at->builtin];
    const alg_collective_t collective = at->collective < 0 ? ALG_ALL_REDUCE : alg_collective_find(cell[at->collective]);
    const alg_algorithm_t *measured = collective < ALG_COLLECTIVE_COUNT ? alg_find(collective, name) : NULL;
    if (!measured || measured->memory == ALG_MEMORY_NETWORK || us <= 0 || nccl_us <= 0)
        return; /* the real NCCL served the call */
    totals->calls++;
    totals->slower += us > nccl_us;
    if (estimate(ranks, measured->memory == ALG_MEMORY_PINNED, collective, bytes) != measured)
        return;
    totals->taken++;
    if (us > nccl_us) {
        totals->wrong++;
        print_error("%s: %u ranks, %s of %llu bytes: %s takes %.1f us, NCCL %.1f\n", file, ranks,
                    alg_collective_name(collective), (unsigned long long)bytes, name, us, nccl_us);
    }
}

static void check_file(const char *folder, const char *name, totals_t *totals)
{
    char path[LINE_BYTES], line[LINE_BYTES], *cell[MOST_COLUMNS];
    columns_t at = {0};
    int columns = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#')
            continue;
        const int cells = split(line, cell);
        if (columns == 0) {
            columns = cells;
            at = find_columns(cell, cells);
            if (at.ranks < 0 || at.bytes < 0 || at.algorithm < 0 || at.us < 0 || at.nccl_us < 0)
                break;
            totals->files++;
        } else if (cells == columns && !is_exception(name, cell, cells, totals)) {
            check_row(name, &at, cell, totals);
        }
    }
    fclose(file);
}

static void modest(void **state)
{
    (void)state;
    totals_t totals = {0};
    for (char *const *folder = folders; *folder; folder++) {
        DIR *listing = opendir(*folder);
        assert_non_null(listing);
        for (struct dirent *entry; (entry = readdir(listing));) {
            const char *dot = strrchr(entry->d_name, '.');
            if (dot && strcmp(dot, ".csv") == 0)
                check_file(*folder, entry->d_name, &totals);
        }
        closedir(listing);
    }
    print_message("%d files, %d of our calls, %d slower than NCCL's; %d are estimated to be faster\n", totals.files,
                  totals.calls, totals.slower, totals.taken);
    assert_true(totals.files >= 30 && totals.calls >= 2000 && totals.slower > 0 && totals.taken >= 1000);
    assert_int_equal(totals.wrong, 0);
    for (int i = 0; i < EXCEPTION_COUNT; i++)
        assert_true(totals.excepted[i] > 0);
}

/* ---- Bands, numbers of GPUs, machines ---------------------------------------------- */

static sel_topology_t switched(uint32_t ranks, uint32_t arch, uint32_t multiprocessors, uint32_t lanes)
{
    return (sel_topology_t){
        .link = SEL_LINK_NVSWITCH, .nranks = ranks, .arch = arch, .multiprocessors = multiprocessors, .lanes = lanes};
}

static bool leads(const sel_topology_t *topology, alg_collective_t collective, uint64_t bytes)
{
    alg_map_t map;
    double time = sel_cost_to_beat(topology, collective, bytes);
    assert_true(alg_map_init(&map, 80u << 20));
    return sel_cost_fastest(topology, &map, collective, bytes, &time) != NULL;
}

/* Every size that is taken has the required gain: the ends of the bands, and sizes between. */
static void a_lead_in_the_whole_band(void **state)
{
    (void)state;
    alg_map_t map;
    int taken = 0;
    assert_true(alg_map_init(&map, 80u << 20));
    for (uint32_t arch = 80; arch <= 100; arch += 10) {
        for (uint32_t ranks = 2; ranks <= ALG_MAX_RANKS; ranks++) {
            const sel_topology_t topology = switched(ranks, arch, 108, 12);
            for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
                for (uint32_t i = 0; i + 1 < SEL_COST_BOUNDS; i++) {
                    const uint64_t first = sel_cost_bound(i), last = sel_cost_bound(i + 1) - 1;
                    if (!sel_cost_choose(&topology, &map, (alg_collective_t)c, first).algorithm)
                        continue;
                    taken++;
                    for (int part = 0; part <= 4; part++)
                        assert_true(leads(&topology, (alg_collective_t)c, first + (last - first) * (uint64_t)part / 4));
                }
            }
        }
    }
    assert_true(taken > 100);
}

static bool takes(const sel_topology_t *topology, alg_collective_t collective, const char *name, uint64_t from)
{
    const sel_settings_t settings = {.scratch_bytes = 80u << 20};
    sel_plan_init(&plan, topology, &settings);
    sel_row_t row;
    for (uint32_t i = 0; sel_plan_row(&plan, collective, 0, i, &row); i++) {
        if (row.to_bytes >= from && row.rule.algorithm && strcmp(row.rule.algorithm->name, name) == 0)
            return true;
    }
    return false;
}

/* The model takes no call of a kind that was never measured: on more than four GPUs, and on three and four of
 * generations other than sm_90, neither groups of rooted collectives in two steps nor long messages. On three and four
 * of sm_90 both are slower from some size on. */
static void nothing_that_never_ran(void **state)
{
    (void)state;
    for (uint32_t ranks = 3; ranks <= ALG_MAX_RANKS; ranks++) {
        for (uint32_t arch = 80; arch <= 100; arch += 10) {
            const sel_topology_t topology = switched(ranks, arch, 0, 0);
            assert_true(takes(&topology, ALG_SEND_RECV, "pairs", 0));
            assert_false(takes(&topology, ALG_SEND_RECV, "pairs", (ranks <= 4 ? 24u << 20 : 4u << 20) + 1));
            const bool measured = ranks <= 4 && arch == 90;
            const uint64_t broadcast = ranks == 3 ? 24 : 8, reduce = ranks == 3 ? 8 : 5; /* MiB */
            assert_false(takes(&topology, ALG_BROADCAST, "twoshot", measured ? (broadcast << 20) + 1 : 0));
            assert_false(takes(&topology, ALG_REDUCE, "twoshot", measured ? (reduce << 20) + 1 : 0));
        }
    }
    const sel_topology_t two = switched(2, 90, 132, 18);
    assert_true(takes(&two, ALG_SEND_RECV, "pairs", (24u << 20) + 1));
}

/* Between two nodes, which were measured with one and two GPUs up to 1 MB, only such calls are taken. */
static void two_nodes(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= ALG_MAX_RANKS; ranks += 2) {
        sel_topology_t topology = switched(ranks, 90, 132, 18);
        topology.memory = ALG_MEMORY_NETWORK;
        topology.nodes = 2;
        assert_int_equal(takes(&topology, ALG_ALL_REDUCE, "exchange", 0), ranks <= 4);
        assert_false(takes(&topology, ALG_ALL_REDUCE, "exchange", (1u << 20) + 1));
    }
}

/* The largest all-reduce that is taken. */
static uint64_t last_taken(const sel_topology_t *topology)
{
    const sel_settings_t settings = {.scratch_bytes = 80u << 20};
    sel_plan_init(&plan, topology, &settings);
    sel_row_t row;
    uint64_t last = 0;
    for (uint32_t i = 0; sel_plan_row(&plan, ALG_ALL_REDUCE, 0, i, &row); i++)
        last = row.rule.algorithm ? row.to_bytes : last;
    return last;
}

/* With more links, or more multiprocessors to use them, the model never takes fewer calls. */
static void links_and_multiprocessors(void **state)
{
    (void)state;
    sel_topology_t mesh = {.link = SEL_LINK_MESH, .nranks = 4, .arch = 80, .multiprocessors = 108};
    uint64_t last = last_taken(&mesh);
    for (mesh.lanes = 1; mesh.lanes <= 4; mesh.lanes++) {
        assert_true(last_taken(&mesh) >= last);
        last = last_taken(&mesh);
    }
    assert_true(last >= 1u << 20); /* 12 links of each A100 */
    const sel_topology_t part = switched(2, 80, 16, 12), whole = switched(2, 80, 108, 12);
    assert_true(last_taken(&part) < last_taken(&whole) && last_taken(&part) > 0);
}

/* Rows of HGX boards with H100 or H200 serve these alone: each row decides there, and none on H20 and H800. */
/* The rows of a class and collective are in ascending order, and the last one has no limit. */
static void rows_ascend(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < sel_built_in_count; i++) {
        const sel_built_in_t *row = &sel_built_in[i], *next = NULL;
        for (uint32_t k = i + 1; k < sel_built_in_count && !next; k++) {
            const bool same = sel_built_in[k].collective == row->collective;
            next = same && strcmp(sel_built_in[k].class_name, row->class_name) == 0 ? &sel_built_in[k] : NULL;
        }
        if (next ? next->to_bytes <= row->to_bytes : row->to_bytes != UINT64_MAX)
            fail_msg("%s, %s, to %llu", alg_collective_name(row->collective), row->class_name,
                     (unsigned long long)row->to_bytes);
    }
}

static void rows_of_measured_machines(void **state)
{
    (void)state;
    static const sel_settings_t settings = {.scratch_bytes = 1u << 30};
    static sel_plan_t other;
    int rows = 0;
    for (uint32_t i = 0; i < sel_built_in_count; i++) {
        const sel_built_in_t *row = &sel_built_in[i];
        unsigned ranks;
        if (sscanf(row->class_name, "nvswitch-sm90-%u", &ranks) != 1)
            continue;
        rows++;
        for (int known = 0; known < 2; known++) {
            const sel_topology_t topology = switched(ranks, 90, known ? 132 : 0, known ? 18 : 0);
            sel_plan_init(&plan, &topology, &settings);
            const uint64_t bytes = (row->to_bytes < 1u << 30 ? row->to_bytes : 1u << 30) / 64 * 64;
            const sel_query_t query = {row->collective, ALG_FLOAT32, ALG_SUM,
                                       bytes / 4 / alg_collective_blocks(row->collective, ranks), false};
            const sel_choice_t choice = sel_choose(&plan, &query);
            const bool nccl = strcmp(row->algorithm, "nccl") == 0;
            assert_string_equal(choice.source, row->source);
            assert_string_equal(choice.algorithm ? choice.algorithm->name : "nccl", nccl ? "nccl" : row->algorithm);
        }
        const sel_topology_t h20 = switched(ranks, 90, 78, 18), h800 = switched(ranks, 90, 132, 8);
        sel_plan_init(&plan, &h20, &settings);
        sel_plan_init(&other, &h800, &settings);
        for (uint32_t k = 0; k < plan.rules; k++)
            assert_int_equal(strncmp(plan.rule[k].source, "selector/", 9) == 0, false);
        for (uint32_t k = 0; k < other.rules; k++)
            assert_int_equal(strncmp(other.rule[k].source, "selector/", 9) == 0, false);
    }
    assert_true(rows > 60);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER_OF_RESULTS...\n", argv[0]);
        return 2;
    }
    folders = argv + 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modest),
        cmocka_unit_test(a_lead_in_the_whole_band),
        cmocka_unit_test(nothing_that_never_ran),
        cmocka_unit_test(two_nodes),
        cmocka_unit_test(links_and_multiprocessors),
        cmocka_unit_test(rows_ascend),
        cmocka_unit_test(rows_of_measured_machines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
