/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sizes of a quick run: with fake times, its table forwards the sizes at which NCCL is faster, whatever the speed
 * of Shunt's kernels, and takes most of the others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/tune/tune.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

static char folder[] = "/tmp/shunt-points-XXXXXX";
static char path[64];

/* Microseconds: ours starts early, NCCL has the higher rate. */
static double ours_us(double slow, uint64_t bytes)
{
    return slow * (2 + (double)bytes / 250e3);
}

static double nccl_us(uint64_t bytes)
{
    return 8 + (double)bytes / 330e3;
}

static const char *faster(double slow, uint64_t bytes)
{
    return nccl_us(bytes) < ours_us(slow, bytes) ? "nccl" : bytes <= 256 * KIB ? "oneshot" : "twoshot";
}

static int by_bytes(const void *a, const void *b)
{
    const tune_result_t *x = a, *y = b;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Measures as a rank does; the results are in order. */
static uint32_t run(double slow, tune_points_t *points, tune_result_t result[TUNE_MOST_POINTS])
{
    *points = (tune_points_t){.from_bytes = KIB, .to_bytes = 64 * MIB};
    uint32_t count = 0;
    for (int fine = 0; fine < 2; fine++) {
        for (uint64_t bytes; (bytes = tune_points_next(points, fine == 0)) != 0;) {
            assert_true(count < TUNE_MOST_POINTS);
            tune_result_t *made = &result[count++];
            *made = (tune_result_t){
                .ranks = 2, .bytes = bytes, .machine = 7, .class_name = "c-2", .quick = true, .guessed = true};
            made->blocks = made->threads = strcmp(faster(slow, bytes), "nccl") == 0 ? 0 : 32;
            snprintf(made->choice, sizeof made->choice, "%s", faster(slow, bytes));
            tune_points_add(points, bytes, made->choice);
        }
    }
    qsort(result, count, sizeof result[0], by_bytes);
    return count;
}

static void narrow_ranges(void **state)
{
    (void)state;
    tune_points_t points;
    tune_result_t result[TUNE_MOST_POINTS];
    const uint32_t count = run(1, &points, result);
    assert_true(count <= 12); /* a sweep of powers of two has 17 */
    assert_int_equal(points.point[0].bytes, KIB);
    assert_int_equal(points.point[count - 1].bytes, 64 * MIB);
    for (uint32_t i = 0; i + 1 < count; i++) {
        const tune_point_t *a = &points.point[i], *b = &points.point[i + 1];
        assert_true(a->bytes < b->bytes);
        assert_true(strcmp(a->choice, b->choice) == 0 || b->bytes <= 2 * a->bytes);
    }
    assert_int_equal(tune_points_next(&points, false), 0);
}

static void coarse_sizes_are_counted(void **state)
{
    (void)state;
    assert_int_equal(tune_points_coarse(KIB, 64 * MIB), 5);
    assert_int_equal(tune_points_coarse(KIB, 256 * KIB), 3);
    assert_int_equal(tune_points_coarse(KIB, KIB), 1);
}

/* The table forwards the sizes at which NCCL is faster, if Shunt is twice as slow as usual, or slower at every size. */
static void a_table_forwards_what_nccl_wins(void **state)
{
    (void)state;
    static const double slow[] = {1, 2, 8};
    static const tune_options_t options = {.line = "a test"};
    static const bench_machine_t machine = {.nccl_version = 22809};
    static const sel_measured_t link;
    static const sel_pinned_measured_t pinned;
    uint32_t taken[3] = {0}, won[3] = {0};
    for (int i = 0; i < 3; i++) {
        tune_points_t points;
        tune_result_t result[TUNE_MOST_POINTS];
        tune_rows_t rows;
        const uint32_t count = run(slow[i], &points, result);
        (void)unlink(path);
        assert_true(tune_table_write(path, &options, &machine, &link, &pinned, result, count));
        assert_true(tune_rows_read(path, false, &rows));
        assert_int_equal(rows.measured, 1);
        assert_string_equal(rows.of[0].class_name, "c-2");
        assert_int_equal(rows.of[0].nccl, 22809);
        const sel_file_row_t like = {.ranks = 2, .class_name = "c-2"};
        for (uint64_t bytes = KIB; bytes <= 64 * MIB; bytes += bytes / 7) {
            for (uint32_t kind = 0; kind < SEL_KINDS; kind++) { /* one type was measured for all */
                const sel_file_row_t *row = tune_rows_find(&rows, &like, kind, bytes);
                assert_non_null(row);
                const bool ours = strcmp(row->algorithm, "nccl") != 0, wins = ours_us(slow[i], bytes) < nccl_us(bytes);
                assert_true(wins || !ours);
                taken[i] += ours;
                won[i] += wins;
            }
        }
        free(rows.row);
    }
    assert_true(taken[0] > taken[1] && taken[1] > 0 && taken[2] == 0);
    assert_true(taken[0] * 10 >= won[0] * 9 && taken[1] * 10 >= won[1] * 9);
}

static uint32_t nccl_of(const tune_rows_t *rows, const char *class_name)
{
    uint32_t version = 0;
    for (uint32_t i = 0; i < rows->measured; i++) {
        version = strcmp(rows->of[i].class_name, class_name) == 0 ? rows->of[i].nccl : version;
    }
    return version;
}

/* Each version of NCCL has a line; the rows belong to the last one of a class. */
static void versions(void **state)
{
    (void)state;
    static const tune_options_t options = {.line = "a test"};
    static const uint32_t measured[] = {22809, 22907, 22809, 22907, 23000};
    static const uint32_t lines[] = {1, 3, 3, 3, 4}; /* with the other one of this test */
    const sel_measured_t link = {0};
    const sel_pinned_measured_t pinned = {0};
    tune_points_t points;
    tune_result_t result[TUNE_MOST_POINTS];
    const uint32_t count = run(1, &points, result);
    (void)unlink(path);
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
        const bench_machine_t machine = {.nccl_version = (int)measured[i]};
        tune_rows_t rows;
        assert_true(tune_table_write(path, &options, &machine, &link, &pinned, result, count));
        assert_true(tune_rows_read(path, false, &rows));
        assert_int_equal(rows.measured, lines[i]);
        assert_int_equal(nccl_of(&rows, "c-2"), measured[i]);
        const uint32_t whole = rows.count;
        free(rows.row);
        /* Another NCCL's rows for sizes that were not measured again are gone, the same one's stay. */
        assert_true(tune_table_write(path, &options, &machine, &link, &pinned, result, 1));
        assert_true(tune_rows_read(path, false, &rows));
        assert_true(rows.count >= whole && whole > 1);
        free(rows.row);
        const bench_machine_t another = {.nccl_version = 1};
        assert_true(tune_table_write(path, &options, &another, &link, &pinned, result, 1));
        assert_true(tune_rows_read(path, false, &rows));
        assert_int_equal(rows.count, 1);
        free(rows.row);
        assert_true(tune_table_write(path, &options, &machine, &link, &pinned, result, count));
    }
    for (uint32_t i = 0; i < 3 * SEL_FILE_CLASSES; i++) { /* more classes than there is room for */
        const bench_machine_t machine = {.nccl_version = 22809};
        tune_rows_t rows;
        snprintf(result[0].class_name, sizeof result[0].class_name, "class%u-2", i);
        assert_true(tune_table_write(path, &options, &machine, &link, &pinned, result, 1));
        assert_true(tune_rows_read(path, false, &rows));
        assert_true(rows.measured <= SEL_FILE_CLASSES);
        assert_int_equal(nccl_of(&rows, result[0].class_name), 22809);
        free(rows.row);
    }
}

/* A quick run's row covers sizes within a factor of two if a built-in row decides otherwise, as built-in rows rest on
 * more sizes. */
static void built_in_rows_hold_between(void **state)
{
    (void)state;
    static const tune_options_t options = {.line = "a test"};
    static const bench_machine_t machine = {.nccl_version = 22809};
    const sel_measured_t link = {0};
    const sel_pinned_measured_t pinned = {0};
    tune_rows_t rows;
    tune_result_t result[3];
    for (int i = 0; i < 3; i++) {
        result[i] = (tune_result_t){.ranks = 2, .machine = 7, .class_name = "c-2", .quick = true};
        result[i].bytes = MIB << 4 * i;
        snprintf(result[i].choice, sizeof result[i].choice, "%s", i == 1 ? "nccl" : TUNE_BUILTIN);
        snprintf(result[i].builtin, sizeof result[i].builtin, "twoshot");
    }
    (void)unlink(path);
    assert_true(tune_table_write(path, &options, &machine, &link, &pinned, result, 3));
    assert_true(tune_rows_read(path, false, &rows));
    assert_int_equal(rows.count, 1);
    assert_string_equal(rows.row[0].algorithm, "nccl");
    assert_true(rows.row[0].from_bytes == 8 * MIB && rows.row[0].to_bytes == 32 * MIB);
    free(rows.row);
}

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/table.csv", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(narrow_ranges),
        cmocka_unit_test(coarse_sizes_are_counted),
        cmocka_unit_test(a_table_forwards_what_nccl_wins),
        cmocka_unit_test(versions),
        cmocka_unit_test(built_in_rows_hold_between),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
