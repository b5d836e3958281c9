/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows made from results: the range of sizes for a choice, which results share a row, and which rows and figures of
 * links an older table keeps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/base/times.h"
#include "tools/tune/tune.h"

enum { MOST_LINES = 16 };

static char folder[] = "/tmp/shunt-tune-XXXXXX";
static char path[64];
static const tune_options_t options = {.line = "a test"};
static const bench_machine_t machine = {.cpu = true};
static const sel_measured_t unmeasured;
static const sel_pinned_measured_t no_pinned;

static tune_result_t result(uint64_t bytes, const char *type, const char *choice, uint32_t blocks)
{
    tune_result_t made = {.ranks = 2,
                          .type = bench_type_find(type),
                          .bytes = bytes,
                          .machine = 7,
                          .class_name = "c-2",
                          .blocks = blocks,
                          .threads = blocks};
    snprintf(made.choice, sizeof made.choice, "%s", choice);
    return made;
}

static tune_result_t of(alg_collective_t collective, tune_result_t made)
{
    made.collective = collective;
    return made;
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Check the file's rows, except lines that contain the date; NULL-terminated. */
static void expect_rows(const char *const *rows)
{
    tune_rows_t read;
    assert_true(tune_rows_read(path, false, &read));
    assert_int_equal(read.machine, 7);
    for (uint32_t i = 0; i < read.count; i++) {
        char line[SEL_FILE_LINE_BYTES];
        sel_file_line(&read.row[i], line);
        assert_non_null(rows[i]);
        if (strncmp(line, rows[i], strlen(rows[i])) != 0)
            fail_msg("row %u: %swhere expected: %s", i, line, rows[i]);
    }
    assert_null(rows[read.count]);
    free(read.row);
}

static void reach(void **state)
{
    (void)state;
    const tune_result_t results[] = {
        result(1024, "float", "one", 4),  result(4096, "float", "one", 4),   result(16384, "float", "builtin", 0),
        result(65536, "float", "one", 4), result(262144, "float", "one", 8), result(1048576, "float", "nccl", 0),
    };
    assert_true(tune_table_write(path, &options, &machine, &unmeasured, &no_pinned, results, 6));
    expect_rows((const char *const[]){"allreduce,2,c-2,f4,0,8192,one,4,4,tune 20",
                                      "allreduce,2,c-2,f4,32769,131072,one,4,4,tune 20",
                                      "allreduce,2,c-2,f4,131073,524288,one,8,8,tune 20",
                                      "allreduce,2,c-2,f4,524289,1482910,nccl,0,0,tune 20", NULL});
}

static void alike(void **state)
{
    (void)state;
    unlink(path);
    const tune_result_t results[] = {
        result(1024, "float", "one", 4),
        result(1024, "bfloat16", "one", 4),
        result(1024, "int32", "two", 4),
        result(1024, "uint32", "one", 4), /* one kind: the last holds */
        of(ALG_ALL_GATHER, result(1024, "bfloat16", "one", 4)),
        of(ALG_REDUCE_SCATTER, result(1024, "bfloat16", "one", 4)),
    };
    assert_true(tune_table_write(path, &options, &machine, &unmeasured, &no_pinned, results, 6));
    expect_rows((const char *const[]){"allreduce,2,c-2,f2+f4+i4,0,1448,one,4,4,tune 20",
                                      "reducescatter,2,c-2,f2,0,1448,one,4,4,tune 20",
                                      "allgather,2,c-2,any,0,1448,one,4,4,tune 20", NULL});
}

/* For sizes without a built-in row, the measured choice is kept even if it equals the prediction. */
static void guesses(void **state)
{
    (void)state;
    unlink(path);
    tune_result_t results[] = {result(1024, "float", "builtin", 32), result(2048, "float", "one", 32),
                               result(4096, "float", "builtin", 32), result(8192, "float", "builtin", 0)};
    static const char *const guess[] = {"one", "two", "one", "nccl"};
    for (int i = 0; i < 4; i++) {
        results[i].guessed = true;
        snprintf(results[i].builtin, sizeof results[i].builtin, "%s", guess[i]);
    }
    assert_true(tune_table_write(path, &options, &machine, &unmeasured, &no_pinned, results, 4));
    expect_rows((const char *const[]){"allreduce,2,c-2,f4,0,5792,one,32,32,tune 20",
                                      "allreduce,2,c-2,f4,5793,11585,nccl,0,0,tune 20", NULL});
}

static void older_rows(void **state)
{
    (void)state;
    write_file("# shunt table 2\n# machine: 7\n"
               "allreduce,2,c-2,any,100,,old,1,1,s\n"
               "allreduce,2,other-2,any,0,,old,1,1,s\n"
               "alltoall,2,c-2,any,0,,old,1,1,s\n"
               "allreduce,3,c-2,any,0,,old,1,1,s\n"
               "nonsense\n");
    const tune_result_t results[] = {result(4096, "float", "builtin", 0)};
    assert_true(tune_table_write(path, &options, &machine, &unmeasured, &no_pinned, results, 1));
    expect_rows((const char *const[]){"allreduce,2,c-2,f1+f2+f8+i1+i2+i4+i8,2897,5792,old,1,1,s",
                                      "allreduce,2,c-2,any,100,2896,old,1,1,s", "allreduce,2,c-2,any,5793,,old,1,1,s",
                                      "allreduce,2,other-2,any,0,,old,1,1,s", "allreduce,3,c-2,any,0,,old,1,1,s",
                                      "alltoall,2,c-2,any,0,,old,1,1,s", NULL});
    /* Another machine's table does not count as an older one. */
    write_file("# shunt table 2\n# machine: 8\nallreduce,3,c-2,any,0,,old,1,1,s\n");
    assert_true(tune_table_write(path, &options, &machine, &unmeasured, &no_pinned, results, 1));
    expect_rows((const char *const[]){NULL});
}

/* Of overlapping rows, as a user may write them, the later one stays in force, though the rows are sorted anew. */
static void later_rows_hold(void **state)
{
    (void)state;
    write_file("# shunt table 2\n# machine: 7\n"
               "allreduce,2,c-2,any,1000,,all,1,1,by hand\n"
               "allreduce,2,c-2,f2,0,1999,few,1,1,by hand\n"
               "allreduce,2,c-2,any,500,999,short,1,1,by hand\n");
    const tune_result_t results[] = {of(ALG_ALL_GATHER, result(1024, "float", "builtin", 0))};
    assert_true(tune_table_write(path, &options, &machine, &unmeasured, &no_pinned, results, 1));
    static const struct {
        const char *type, *algorithm;
        uint64_t bytes;
    } expected[] = {{"bfloat16", "few", 100},    {"bfloat16", "short", 700}, {"bfloat16", "few", 1500},
                    {"bfloat16", "all", 2500},   {"float", "short", 700},    {"float", "all", 1500},
                    {"float", "all", UINT64_MAX}};
    tune_rows_t rows;
    assert_true(tune_rows_read(path, false, &rows));
    const sel_file_row_t like = {.collective = ALG_ALL_REDUCE, .ranks = 2, .class_name = "c-2"};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const int32_t type = bench_type_find(expected[i].type);
        const uint32_t kind = sel_kind((alg_type_t)bench_types[type].type);
        const sel_file_row_t *found = tune_rows_find(&rows, &like, kind, expected[i].bytes);
        assert_non_null(found);
        assert_string_equal(found->algorithm, expected[i].algorithm);
    }
    assert_null(tune_rows_find(&rows, &like, sel_kind(ALG_FLOAT32), 100));
    free(rows.row);
}

/* A quick run does not change rows of other runs. */
static void rows_of_others(void **state)
{
    (void)state;
    write_file("# shunt table 2\n# machine: 7\nallreduce,2,c-2,any,0,,old,1,1,run 2026-11-21\n"
               "allreduce,2,d-2,any,0,99,old,1,1,run 2026-11-21\nallreduce,2,d-2,any,100,,old,1,1,tune 2026-11-21\n"
               "allreduce,2,e-2,any,0,,old,1,1,by hand\n");
    assert_false(tune_table_is_others(path, "c-2"));
    assert_true(tune_table_is_others(path, "d-2"));
    assert_true(tune_table_is_others(path, "e-2"));
    assert_false(tune_table_is_others(path, "f-2"));
    tune_rows_t rows;
    write_file("\xef\xbb\xbf# shunt table 2\n# machine: 7\n");
    assert_false(tune_rows_read(path, true, &rows));
    write_file(""); /* as of a full disk */
    assert_true(tune_rows_read(path, true, &rows));
    assert_false(tune_rows_read(path, false, &rows));
    unlink(path);
    assert_false(tune_table_is_others(path, "d-2"));
}

static void touch(const char *beside, time_t seconds)
{
    FILE *file = fopen(beside, "w");
    assert_non_null(file);
    fclose(file);
    const struct timeval old[2] = {{time(NULL) - seconds, 0}, {time(NULL) - seconds, 0}};
    assert_int_equal(utimes(beside, old), 0);
}

/* Temporary files of killed processes are removed, but not that of a running one, nor other files. */
static void what_was_left_goes(void **state)
{
    (void)state;
    static const struct {
        const char *end;
        time_t seconds;
        bool stays;
    } files[] = {{".new-aB3xYz", 70, false}, {".times.new-aB3xYz", 70, false},
                 {".new-aB3xYz", 30, true},  {".backup", 70, true},
                 {".times", 70, true},       {"", 70, true}};
    assert_true(tune_file_try(path));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char beside[128];
        snprintf(beside, sizeof beside, "%s%s", path, files[i].end);
        touch(beside, files[i].seconds);
        assert_true(tune_file_try(path));
        assert_int_equal(access(beside, F_OK) == 0, files[i].stays);
        unlink(beside);
    }
}

static void expect_link(uint32_t bytes_per_us, uint32_t gpus, uint32_t one_way_ns, uint32_t loaded)
{
    const uint32_t over = one_way_ns == 760 ? SEL_LINK_PHB : 0; /* older tables do not say */
    const sel_measured_t link = {bytes_per_us, gpus, one_way_ns, over};
    const sel_pinned_measured_t pinned = loaded ? (sel_pinned_measured_t){50000, loaded, 2, 1660, over, 0} : no_pinned;
    tune_rows_t read;
    assert_true(tune_rows_read(path, false, &read));
    assert_memory_equal(&read.link, &link, sizeof link);
    assert_memory_equal(&read.pinned, &pinned, sizeof pinned);
    free(read.row);
}

/* New measurements of the links replace the older figures, which stay without new ones. */
static void links(void **state)
{
    (void)state;
    unlink(path);
    const tune_result_t results[] = {result(4096, "float", "one", 1)};
    const sel_measured_t measured = {384812, 4, 760, SEL_LINK_PHB};
    const sel_pinned_measured_t pinned = {50000, 40000, 2, 1660, SEL_LINK_PHB, 0};
    assert_true(tune_table_write(path, &options, &machine, &unmeasured, &no_pinned, results, 1));
    expect_link(0, 0, 0, 0);
    write_file("# shunt table 2\n# machine: 7\n# link: 20.5 GB/s among 2 GPUs, one way 1 us\n"
               "# host: 50 GB/s stored, 30 GB/s loaded among 2 GPUs, one way 1.66 us\n");
    assert_true(tune_table_write(path, &options, &machine, &unmeasured, &no_pinned, results, 1));
    expect_link(20500, 2, 1000, 30000);
    assert_true(tune_table_write(path, &options, &machine, &measured, &pinned, results, 1));
    expect_link(384812, 4, 760, 40000);
    write_file("# shunt table 2\n# machine: 8\n# link: 20.5 GB/s among 2 GPUs, one way 1 us\n");
    assert_true(tune_table_write(path, &options, &machine, &unmeasured, &no_pinned, results, 1));
    expect_link(0, 0, 0, 0); /* they were another machine's */
}

/* The figures of links can be written before any result, for the ranks that will measure, and the rows stay. */
static void links_alone(void **state)
{
    (void)state;
    unlink(path);
    const sel_measured_t measured = {384812, 4, 760, SEL_LINK_PHB};
    const sel_pinned_measured_t pinned = {50000, 40000, 2, 1660, SEL_LINK_PHB, 0};
    const bench_machine_t gpus = {.fingerprint = 7};
    const tune_result_t results[] = {result(4096, "float", "one", 1)};
    static const char *const row[] = {"allreduce,2,c-2,f4,", NULL};
    assert_true(tune_table_write(path, &options, &gpus, &measured, &pinned, NULL, 0));
    expect_rows(&row[1]);
    expect_link(384812, 4, 760, 40000);
    assert_true(tune_table_write(path, &options, &gpus, &unmeasured, &no_pinned, results, 1));
    assert_true(tune_table_write(path, &options, &gpus, &measured, &no_pinned, NULL, 0));
    expect_rows(row);
    expect_link(384812, 4, 760, 40000);
}

static int make_folder(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a/table.csv", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    path[strlen(folder) + 2] = '\0';
    return rmdir(path) == 0 && rmdir(folder) == 0 ? 0 : -1; /* nothing else is left */
}

/* Times are written only if NCCL was measured, and only Shunt's; the table's choice replaces the built-in one of the
 * same name. */
static void times(void **state)
{
    (void)state;
    char beside[PATH_MAX];
    tool_times_t read;
    tune_result_t results[] = {result(1024, "float", "one", 4), result(4096, "float", "builtin", 0),
                               result(16384, "float", "nccl", 0), result(65536, "float", "one", 4)};
    for (int i = 0; i < 4; i++) {
        snprintf(results[i].builtin, sizeof results[i].builtin, "%s", i == 0 ? "one" : "two");
        results[i].seconds = 1e-6;
        results[i].builtin_seconds = 2e-6;
        results[i].nccl_seconds = i < 3 ? 5e-6 : 0;
    }
    tool_times_path(path, beside);
    assert_true(tune_times_write(path, results, 4));
    assert_true(tool_times_read(beside, &read));
    assert_int_equal(read.machine, 7);
    static const struct {
        const char *algorithm;
        uint64_t bytes;
        double us;
    } expected[] = {{"one", 1024, 1}, {"two", 4096, 2}, {"two", 16384, 2}};
    assert_int_equal(read.count, 3);
    for (uint32_t i = 0; i < read.count; i++) {
        assert_string_equal(read.row[i].algorithm, expected[i].algorithm);
        assert_int_equal(read.row[i].bytes, expected[i].bytes);
        assert_float_equal(read.row[i].us, expected[i].us, 1e-3);
        assert_float_equal(read.row[i].nccl_us, 5, 1e-3);
        assert_string_equal(read.row[i].types, "f4");
    }
    free(read.row);
    /* Another run: rows that it did not measure stay; another machine's are removed. */
    assert_true(tune_times_write(path, results + 1, 1));
    assert_true(tool_times_read(beside, &read));
    assert_int_equal(read.count, 3);
    free(read.row);
    results[1].machine = 8;
    assert_true(tune_times_write(path, results + 1, 1));
    assert_true(tool_times_read(beside, &read));
    assert_int_equal(read.count, 1);
    free(read.row);
    unlink(beside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reach),
                                       cmocka_unit_test(alike),
                                       cmocka_unit_test(guesses),
                                       cmocka_unit_test(older_rows),
                                       cmocka_unit_test(later_rows_hold),
                                       cmocka_unit_test(rows_of_others),
                                       cmocka_unit_test(what_was_left_goes),
                                       cmocka_unit_test(links),
                                       cmocka_unit_test(links_alone),
                                       cmocka_unit_test(times)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
