/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The savings in `shunt run --report`, from statistics and measured times: which calls are added up, between which
 * sizes a time is known, the gain of a captured call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/run/report.h"

static tool_time_t a_time(uint64_t bytes, double us, double nccl_us)
{
    return (tool_time_t){.collective = ALG_ALL_REDUCE,
                         .class_name = "c-2",
                         .types = "f2",
                         .algorithm = "one",
                         .bytes = bytes,
                         .us = us,
                         .nccl_us = nccl_us};
}

static void known_between_sizes(void **state)
{
    (void)state;
    tool_times_t times = {0};
    double us = 0;
    const tool_time_t rows[] = {a_time(1024, 1, 4), a_time(4096, 4, 16), a_time(1 << 20, 100, 90)};
    for (int i = 0; i < 3; i++)
        assert_true(tool_times_put(&times, &rows[i]));
    tool_time_t like = a_time(2048, 0, 0);
    assert_true(tool_times_saved(&times, &like, &us));
    assert_float_equal(us, 8 - 2, 1e-9);
    like.bytes = 4096;
    assert_true(tool_times_saved(&times, &like, &us));
    assert_float_equal(us, 12, 1e-9);
    like.bytes = 1 << 20; /* slower than NCCL: a loss */
    assert_true(tool_times_saved(&times, &like, &us));
    assert_float_equal(us, -10, 1e-9);
    static const uint64_t unknown[] = {1023, 4097, 65536, (1 << 20) + 1};
    for (int i = 0; i < 4; i++) {
        like.bytes = unknown[i];
        assert_false(tool_times_saved(&times, &like, &us));
    }
    /* Measured again: the later figure counts. */
    const tool_time_t again = a_time(4096, 5, 16);
    assert_true(tool_times_put(&times, &again));
    assert_int_equal(times.count, 3);
    free(times.row);
}

static void other_cases(void **state)
{
    (void)state;
    tool_times_t times = {0};
    double us;
    const tool_time_t row = a_time(1024, 1, 4);
    assert_true(tool_times_put(&times, &row));
    tool_time_t other[4] = {row, row, row, row};
    other[0].collective = ALG_BROADCAST;
    strcpy(other[1].class_name, "c-3");
    strcpy(other[2].types, "f4");
    strcpy(other[3].algorithm, "two");
    for (int i = 0; i < 4; i++)
        assert_false(tool_times_saved(&times, &other[i], &us));
    free(times.row);
}

static char *print(const char *text, const tool_times_t *times)
{
    tool_counts_t counts = {0};
    char *out = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&out, &size);
    tool_json_t json = {.file = NULL};
    assert_true(tool_counts_add(text, &counts));
    tool_report_print(stream, &json, &counts, times);
    fclose(stream);
    tool_counts_free(&counts);
    return out;
}

static const char process[] =
    "shunt: process=host:7 machine=00000000000000ff\n"
    "shunt: collective=allreduce class=c-2 type=f2 bytes_each=1K-2K calls=100 bytes=102400 algorithm=one how=eager "
    "reason=TAKEN outcome=taken\n"
    "shunt: collective=allreduce class=c-2 type=f2 bytes_each=1K-2K calls=3 bytes=3072 algorithm=one how=captured "
    "reason=TAKEN outcome=taken\n"
    "shunt: collective=allreduce class=c-2 type=f2 bytes_each=64M-128M calls=2 bytes=134217728 algorithm=nccl how=- "
    "reason=TABLE outcome=forwarded: the table says so\n"
    "shunt: collective=send class=c-2 type=i1 bytes_each=1K-2K calls=4 bytes=4096 algorithm=nccl how=- "
    "reason=COLLECTIVE outcome=forwarded: no such algorithm\n"
    "shunt: taken=103 forwarded=6\n"
    "a line of the program's, taken=9 outcome=none\n";

static void sums(void **state)
{
    (void)state;
    tool_times_t times = {.machine = 255};
    const tool_time_t row = a_time(1024, 1, 4);
    char twice[2 * sizeof process];
    assert_true(tool_times_put(&times, &row));
    snprintf(twice, sizeof twice, "%s%s", process, process);
    char *text = print(twice, &times);
    assert_non_null(strstr(text, "allreduce           1K-2K        200          -    3.00 us  600.00 us  one\n"));
    assert_non_null(
        strstr(text, "allreduce           1K-2K          6          -    3.00 us          -  one, captured\n"));
    assert_non_null(strstr(text, "64M-128M          -          4          -          -  the table says so\n"));
    assert_non_null(strstr(text, "send                1K-2K          -          8          -          -  no such"));
    assert_non_null(strstr(text, "206 calls taken, 12 forwarded, by 2 processes"));
    assert_non_null(strstr(text, "saved 600.00 us of GPU time"));
    assert_non_null(strstr(text, "measured 200 of the 200 eager calls"));
    assert_non_null(strstr(text, "each replay of all that was captured saves 18.00 us"));
    free(text);
    free(times.row);
}

static const char waits[] = "shunt: communicator=%s ranks=3 late_rank=%u waits=%u waited_us=%u lengths_ms=%s\n";

static void waits_are_summed(void **state)
{
    (void)state;
    static const struct {
        const char *communicator;
        unsigned rank, waits, waited_us;
        const char *lengths;
    } lines[] = {{"00000000000000aa", 1, 2, 3500, "1:1,2:1"},
                 {"00000000000000bb", 2, 1, 9000, "8:1"},
                 {"00000000000000aa", 0, 1, 2500, "2:1"},
                 {"00000000000000aa", 1, 3, 7000000, "2:1,32768:2"}};
    const tool_times_t times = {0};
    char text[2048];
    size_t length = (size_t)snprintf(text, sizeof text, "%s", process);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, waits, lines[i].communicator, lines[i].rank,
                                   lines[i].waits, lines[i].waited_us, lines[i].lengths);
    char *told = print(text, &times);
    assert_non_null(strstr(told, "shunt: late ranks: "));
    assert_non_null(
        strstr(told, "\n  00000000000000aa      1 of 3          5     7.00 s  1-2 ms: 1, 2-4 ms: 2, 32768- ms: 2\n"
                     "  00000000000000aa      0 of 3          1    2.50 ms  2-4 ms: 1\n"
                     "  00000000000000bb      2 of 3          1    9.00 ms  8-16 ms: 1\n"));
    free(told);
    told = print(process, &times);
    assert_null(strstr(told, "late"));
    free(told);
}

static void many_captured(void **state)
{
    (void)state;
    static const char line[] = "shunt: collective=allreduce class=c-2 type=f2 bytes_each=1K-2K calls=500 "
                               "bytes=512000 algorithm=oneshot how=%s reason=TAKEN outcome=taken\n";
    char text[512], told[512];
    tool_counts_t counts = {0};
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text, line, i % 2 == 0 ? "eager" : "captured");
        assert_true(tool_counts_add(text, &counts));
        assert_int_equal(tool_counts_graphs_text(&counts, told, sizeof told), i == 3);
    }
    assert_int_equal(strncmp(told, "1000 calls were captured", 24), 0);
    assert_non_null(strstr(told, "NCCL_GRAPH_MIXING_SUPPORT=0"));
    tool_counts_free(&counts);
}

static void pinned(void **state)
{
    (void)state;
    const tool_times_t times = {0};
    char more[3 * sizeof process];
    snprintf(more, sizeof more, "%sshunt: taken=0 forwarded=1 pinned=NCCL_PROTO\n%s", process, process);
    char *text = print(more, &times);
    assert_non_null(strstr(text, "\nshunt: NCCL_PROTO pins NCCL; if that is for the same bits"));
    assert_non_null(strstr(text, "SHUNT_DETERMINISTIC=1 (`shunt run --deterministic`)"));
    free(text);
    text = print(process, &times);
    assert_null(strstr(text, "pins NCCL"));
    free(text);
}

static void nothing_measured(void **state)
{
    (void)state;
    const tool_times_t times = {0};
    char *text = print(process, &times);
    assert_null(strstr(text, "saves"));
    assert_non_null(strstr(text, "is not known: `shunt tune` has not measured this machine"));
    free(text);
    text = print("a program's own\nlines\n", &times);
    assert_non_null(strstr(text, "no process made a call"));
    free(text);
}

static void a_file_and_back(void **state)
{
    (void)state;
    char path[] = "/tmp/shunt-times-XXXXXX";
    tool_times_t times = {.machine = 0xabc}, read;
    const tool_time_t rows[] = {a_time(1024, 1.5, 4), a_time(4096, 4, 16)};
    for (int i = 0; i < 2; i++)
        assert_true(tool_times_put(&times, &rows[i]));
    FILE *file = fdopen(mkstemp(path), "w");
    assert_non_null(file);
    tool_times_write(file, &times);
    fputs("allreduce,c-2,f2,0,one,1,1\nallreduce,c-2,f2,1024,one,nan,1\nnonsense\nx,c-2,f2,1,one,1,1\n", file);
    fclose(file);
    assert_true(tool_times_read(path, &read));
    assert_int_equal(read.count, 2);
    assert_int_equal(read.machine, 0xabc);
    assert_float_equal(read.row[0].us, 1.5, 1e-9);
    free(read.row);
    free(times.row);
    file = fopen(path, "w");
    fputs("# shunt table 2\n", file);
    fclose(file);
    assert_false(tool_times_read(path, &read));
    remove(path);
    assert_false(tool_times_read(path, &read));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_between_sizes), cmocka_unit_test(other_cases),      cmocka_unit_test(sums),
        cmocka_unit_test(nothing_measured),    cmocka_unit_test(pinned),           cmocka_unit_test(many_captured),
        cmocka_unit_test(a_file_and_back),     cmocka_unit_test(waits_are_summed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
