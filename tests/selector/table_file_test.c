/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table as text: valid input, refused input with the position of the fault, and written text that is read back
 * unchanged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "selector/table_file.h"

#define HEAD "# shunt table 2\n# machine: 00000000000000ff\n"
#define GOOD "allreduce,4,nvswitch-sm90-4,any,0,65536,oneshot,32,128,tune\n"

static sel_file_t open_text(const char *text)
{
    sel_file_t file;
    char fault[SEL_FILE_FAULT_BYTES];
    assert_true(sel_file_open(&file, text, strlen(text), fault));
    return file;
}

static void rows(void **state)
{
    (void)state;
    sel_file_t file =
        open_text(HEAD "# hardware: some\r\n\n"
                       "collective,ranks,class,types,from,to,algorithm,blocks,threads,source\n" GOOD "# between\n"
                       "reducescatter,2,host-2,f2+i8,65537,,nccl,0,0,by hand, on a Monday\r\n"
                       "allreduce,8,x,f1,18446744073709551615,18446744073709551615,later,1024,512,s");
    sel_file_row_t row;
    char fault[SEL_FILE_FAULT_BYTES];
    assert_int_equal(file.machine, 0xff);
    assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_ROW);
    assert_int_equal(row.ranks, 4);
    assert_string_equal(row.class_name, "nvswitch-sm90-4");
    assert_int_equal(row.kinds, SEL_ANY_KIND);
    assert_int_equal(row.to_bytes, 65536);
    assert_string_equal(row.algorithm, "oneshot");
    assert_int_equal(row.blocks, 32);
    assert_int_equal(row.threads, 128);
    assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_ROW);
    assert_int_equal(file.line, 8);
    assert_int_equal(row.collective, ALG_REDUCE_SCATTER);
    assert_int_equal(row.kinds, 1 << sel_kind(ALG_BFLOAT16) | 1 << sel_kind(ALG_UINT64));
    assert_true(row.to_bytes == UINT64_MAX);
    assert_string_equal(row.source, "by hand, on a Monday");
    assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_ROW);
    assert_int_equal(row.kinds, 1 << sel_kind(ALG_FLOAT8_E4M3));
    assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_END);
    assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_END);
}

/* In files of the first format, which distinguished eager from captured calls, rows for eager calls are skipped. */
static void first_format(void **state)
{
    (void)state;
    sel_file_t file = open_text("# shunt table 1\n# machine: 1\n"
                                "collective,ranks,class,mode,types,from,to,algorithm,blocks,threads,source\n"
                                "allreduce,4,c,eager,any,0,,twoshot,1,1,s\n"
                                "allreduce,4,c,captured,f2,0,,oneshot,1,1,s\n"
                                "allreduce,4,c,any,any,0,,staged,1,1,s\n"
                                "allreduce,4,c,sometimes,any,0,,staged,1,1,s\n");
    sel_file_row_t row;
    char fault[SEL_FILE_FAULT_BYTES];
    assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_ROW);
    assert_string_equal(row.algorithm, "oneshot");
    assert_int_equal(row.kinds, 1 << sel_kind(ALG_FLOAT16));
    assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_ROW);
    assert_string_equal(row.algorithm, "staged");
    assert_int_equal(row.kinds, SEL_ANY_KIND);
    assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_FAULT);
    assert_string_equal(fault, "7:15: expected eager, captured or any");
    assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_END);
}

enum { TEXT_BYTES = 512 };

/* A table with this line before its one valid row. */
static sel_file_t with_line(const char *line, char text[TEXT_BYTES])
{
    snprintf(text, TEXT_BYTES, HEAD "%s\n" GOOD, line);
    return open_text(text);
}

static void link_line(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        sel_measured_t link;
    } right[] = {
        {"# nothing of it", {0}},
        {"# link: 384.8 GB/s among 4 GPUs, one way 0.76 us", {384800, 4, 760, 0}},
        {"# link: 0.1 GB/s among 2 GPUs, one way 1000 us\r", {100, 2, 1000000, 0}},
        {"# link: 99999.999 GB/s among 8 GPUs, one way 0.010 us", {99999999, 8, 10, 0}},
        {"# link: 384.8 GB/s among 4 GPUs, one way 0.76 us, over nvswitch", {384800, 4, 760, SEL_LINK_NVSWITCH}},
        {"# link: 2.8 GB/s among 4 GPUs, one way 0.76 us, over sys\r", {2800, 4, 760, SEL_LINK_SYS}},
        {"# link: 1 GB/s among 2 GPUs, one way 1 us\n# link: 2 GB/s among 3 GPUs, one way 3 us", {2000, 3, 3000, 0}},
    };
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        char text[TEXT_BYTES], fault[SEL_FILE_FAULT_BYTES];
        sel_file_row_t row;
        sel_file_t file = with_line(right[i].line, text);
        assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_ROW);
        assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_END);
        assert_memory_equal(&file.link, &right[i].link, sizeof file.link);
    }
}

static void pinned_line(void **state)
{
    (void)state;
    char text[TEXT_BYTES], fault[SEL_FILE_FAULT_BYTES];
    sel_file_row_t row;
    sel_file_t file = with_line("# host: 30.1 GB/s stored, 36.25 GB/s loaded among 4 GPUs, one way 1.66 us", text);
    assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_ROW);
    assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_END);
    const sel_pinned_measured_t right = {30100, 36250, 4, 1660, 0, 0};
    assert_memory_equal(&file.pinned, &right, sizeof right);
    assert_int_equal(file.link.bytes_per_us, 0);
    file = with_line("# host: 30.1 GB/s stored, 36.25 GB/s loaded among 4 GPUs, one way 1.66 us, over phb", text);
    assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_ROW);
    assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_END);
    assert_int_equal(file.pinned.link, SEL_LINK_PHB);
}

/* A wrong row is reported with its position, and the others still apply. */
static void wrong_rows(void **state)
{
    (void)state;
    static const struct {
        const char *line, *fault;
    } wrong[] = {
        {"allgathers,4,c,any,0,1,oneshot,1,1,s", "3:1: expected allreduce or another"},
        {"allreduce,1,c,any,0,1,oneshot,1,1,s", "3:11: expected a number of ranks"},
        {"allreduce,9,c,any,0,1,oneshot,1,1,s", "3:11: expected a number of ranks"},
        {"allreduce,4,,any,0,1,oneshot,1,1,s", "3:13: expected a class"},
        {"allreduce,4,12345678901234567890123456789012,any,0,1,oneshot,1,1,s", "3:13: expected a class"},
        {"allreduce,4,c\x01,any,0,1,oneshot,1,1,s", "3:13: expected a class"},
        {"allreduce,4,c,f3,0,1,oneshot,1,1,s", "3:15: expected any, or some"},
        {"allreduce,4,c,f2+,0,1,oneshot,1,1,s", "3:15: expected any, or some"},
        {"allreduce,4,c,any,,1,oneshot,1,1,s", "3:19: expected a number of bytes"},
        {"allreduce,4,c,any,-1,1,oneshot,1,1,s", "3:19: expected a number of bytes"},
        {"allreduce,4,c,any,18446744073709551616,1,oneshot,1,1,s", "3:19: expected a number of bytes"},
        {"allreduce,4,c,any,2,1,oneshot,1,1,s", "3:21: expected nothing, or"},
        {"allreduce,4,c,any,0,1,,1,1,s", "3:23: expected an algorithm"},
        {"allreduce,4,c,any,0,1,oneshot,0,1,s", "3:31: expected blocks"},
        {"allreduce,4,c,any,0,1,oneshot,1025,1,s", "3:31: expected blocks"},
        {"allreduce,4,c,any,0,1,nccl,1,0,s", "3:28: expected blocks"},
        {"allreduce,4,c,any,0,1,oneshot,1,1025,s", "3:33: expected threads"},
        {"allreduce,4,c,any,0,1,oneshot,1,1,", "3:35: expected a source"},
        {"allreduce,4,c,any,0,1,oneshot,1,1", "3:34: expected ',' and more"},
        {"allreduce", "3:10: expected ',' and more"},
        {",,,,,,,,,,", "3:1: expected allreduce"},
        {"# link: ", "3:9: expected a rate"},
        {"# link: 390", "3:9: expected a rate"},
        {"# link: -390 GB/s among 4 GPUs, one way 0.7 us", "3:9: expected a rate"},
        {"# link: nan GB/s among 4 GPUs, one way 0.7 us", "3:9: expected a rate"},
        {"# link: inf GB/s among 4 GPUs, one way 0.7 us", "3:9: expected a rate"},
        {"# link: .5 GB/s among 4 GPUs, one way 0.7 us", "3:9: expected a rate"},
        {"# link: 0,5 GB/s among 4 GPUs, one way 0.7 us", "3:9: expected a rate"},
        {"# link: 3.9e2 GB/s among 4 GPUs, one way 0.7 us", "3:9: expected a rate"},
        {"# link: 390.1234 GB/s among 4 GPUs, one way 0.7 us", "3:9: expected a rate"},
        {"# link: 0.099 GB/s among 4 GPUs, one way 0.7 us", "3:9: expected a rate"},
        {"# link: 100000 GB/s among 4 GPUs, one way 0.7 us", "3:9: expected a rate"},
        {"# link: 18446744073709551615 GB/s among 4 GPUs, one way 0.7 us", "3:9: expected a rate"},
        {"# link: 390 MB/s among 4 GPUs, one way 0.7 us", "3:9: expected a rate"},
        {"# link: 390 GB/s among 1 GPUs, one way 0.7 us", "3:24: expected a number of GPUs"},
        {"# link: 390 GB/s among 9 GPUs, one way 0.7 us", "3:24: expected a number of GPUs"},
        {"# link: 390 GB/s among 2.5 GPUs, one way 0.7 us", "3:24: expected a number of GPUs"},
        {"# link: 390 GB/s among 4 GPUs", "3:24: expected a number of GPUs"},
        {"# link: 390 GB/s among 4 GPUs, one way ", "3:40: expected a time"},
        {"# link: 390 GB/s among 4 GPUs, one way 0 us", "3:40: expected a time"},
        {"# link: 390 GB/s among 4 GPUs, one way 1000.001 us", "3:40: expected a time"},
        {"# link: 390 GB/s among 4 GPUs, one way 0.7 us.", "3:40: expected a time"},
        {"# link: 390 GB/s among 4 GPUs, one way 0.7 us,", "3:46: expected nothing, or"},
        {"# link: 390 GB/s among 4 GPUs, one way 0.7 us, over ", "3:46: expected nothing, or"},
        {"# link: 390 GB/s among 4 GPUs, one way 0.7 us, over host", "3:46: expected nothing, or"},
        {"# measured: nvswitch-sm90-2", "3:13: expected a class, \", nccl \""},
        {"# measured: nvswitch-sm90-2, nccl 2.28", "3:13: expected a class, \", nccl \""},
        {"# measured: , nccl 22809", "3:13: expected a class, \", nccl \""},
        {"# link: 390 GB/s among 4 GPUs, one way 0.7 us, over mesh-sm80-4", "3:46: expected nothing, or"},
        {"# host: 30 GB/s among 4 GPUs, one way 0.7 us", "3:9: expected a rate"},
        {"# host: 30 GB/s stored, 0 GB/s loaded among 4 GPUs, one way 0.7 us", "3:25: expected a rate"},
        {"# host: 30 GB/s stored, 36 GB/s loaded among 9 GPUs, one way 0.7 us", "3:46: expected a number of GPUs"},
        {"# host: 30 GB/s stored, 36 GB/s loaded among 4 GPUs, one way 0.7", "3:62: expected a time"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[TEXT_BYTES], fault[SEL_FILE_FAULT_BYTES];
        sel_file_row_t row;
        sel_file_t file = with_line(wrong[i].line, text);
        assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_FAULT);
        if (strncmp(fault, wrong[i].fault, strlen(wrong[i].fault)) != 0)
            fail_msg("%s: %s", wrong[i].line, fault);
        assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_ROW);
        assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_END);
        assert_int_equal(file.link.bytes_per_us, 0);
    }
}

static void no_tables(void **state)
{
    (void)state;
    static const struct {
        const char *text, *fault;
    } wrong[] = {
        {"", "1:1: expected \"# shunt table 2\""},
        {"# shunt table 3\n# machine: 1\n" GOOD, "1:1: expected \"# shunt table 2\""},
        {"# shunt table 2\n" GOOD, "2:1: expected \"# machine: \""},
        {"# shunt table 2\n# machine: 0x1\n" GOOD, "2:12: expected a fingerprint"},
        {"# shunt table 2\n# machine: \n", "2:12: expected a fingerprint"},
        {"# shunt table 2\n# machine: 12345678901234567\n", "2:12: expected a fingerprint"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char fault[SEL_FILE_FAULT_BYTES];
        sel_file_t file;
        assert_false(sel_file_open(&file, wrong[i].text, strlen(wrong[i].text), fault));
        if (strncmp(fault, wrong[i].fault, strlen(wrong[i].fault)) != 0)
            fail_msg("%s: %s", wrong[i].text, fault);
    }
    static char large[SEL_FILE_MOST_BYTES + 1] = HEAD;
    char fault[SEL_FILE_FAULT_BYTES];
    sel_file_t file;
    assert_false(sel_file_open(&file, large, sizeof large, fault));
}

static void written_is_read(void **state)
{
    (void)state;
    static const sel_file_row_t written[] = {
        {ALG_ALL_REDUCE, "nvswitch-sm90-4", 4, SEL_ANY_KIND, 0, 65536, "oneshot", 32, 128, "tune 2026-11-21"},
        {ALG_ALL_TO_ALL, "nvswitch-sm90-2-mc", 2, 0x02, 65537, UINT64_MAX, "nccl", 0, 0, "a, b"},
        {ALG_BROADCAST, "host-8", 8, 0x84, 1, 1, "staged", 1024, 512, "x"},
        {ALG_SCATTER, "host-8", 8, 0x66, 1, 1, "staged", 1024, 512, "x"},
    };
    char text[8 * SEL_FILE_LINE_BYTES], fault[SEL_FILE_FAULT_BYTES];
    static const sel_measured_t link = {384812, 4, 1007, SEL_LINK_MESH}, never = {1, 4, 760, 0};
    static const sel_pinned_measured_t pinned = {51000, 50001, 2, 1660, 0, 0}, none = {0};
    sel_file_head(UINT64_C(0xfedcba9876543210), text);
    sel_file_link(&link, text + strlen(text));
    assert_non_null(strstr(text, "\n# link: 384.812 GB/s among 4 GPUs, one way 1.007 us, over mesh\n"));
    sel_file_pinned(&pinned, text + strlen(text));
    assert_non_null(strstr(text, "\n# host: 51.000 GB/s stored, 50.001 GB/s loaded among 2 GPUs, one way 1.660 us\n"));
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++)
        sel_file_line(&written[i], text + strlen(text));
    sel_file_t file = open_text(text);
    assert_true(file.machine == UINT64_C(0xfedcba9876543210));
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
        sel_file_row_t row;
        assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_ROW);
        assert_memory_equal(&row, &written[i], sizeof row);
    }
    sel_file_row_t row;
    assert_int_equal(sel_file_next(&file, &row, fault), SEL_FILE_END);
    assert_memory_equal(&file.link, &link, sizeof link);
    assert_memory_equal(&file.pinned, &pinned, sizeof pinned);
    sel_file_pinned(&none, text);
    assert_string_equal(text, "");
    sel_file_link(&never, text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows),           cmocka_unit_test(first_format),
                                       cmocka_unit_test(link_line),      cmocka_unit_test(pinned_line),
                                       cmocka_unit_test(wrong_rows),     cmocka_unit_test(no_tables),
                                       cmocka_unit_test(written_is_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
