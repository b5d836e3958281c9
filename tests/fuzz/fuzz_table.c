/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_table.c - a table's file: any bytes give rows, or faults of one line with
 * their position; a row and the link are within their limits, and are read back as
 * they were written.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "selector/table_file.h"

static void expect(int so)
{
    if (!so)
        abort();
}

static void expect_fault(const char *fault)
{
    const size_t digits = strspn(fault, "0123456789");
    expect(digits > 0 && fault[digits] == ':' && strstr(fault, ": expected ") != NULL && strchr(fault, '\n') == NULL);
}

/* Check that a row is within its limits, and that its text is read back as the same row. */
static void try_row(const sel_file_row_t *row)
{
    char text[3 * SEL_FILE_LINE_BYTES], fault[SEL_FILE_FAULT_BYTES];
    sel_file_row_t again;
    sel_file_t file;
    expect(row->ranks >= 2 && row->ranks <= ALG_MAX_RANKS && row->kinds != 0);
    expect(row->blocks <= SEL_MOST_BLOCKS && row->threads <= SEL_MOST_THREADS && row->from_bytes <= row->to_bytes);
    expect((row->blocks == 0) == (strcmp(row->algorithm, "nccl") == 0));
    sel_file_head(1, text);
    sel_file_line(row, text + strlen(text));
    expect(sel_file_open(&file, text, strlen(text), fault));
    expect(sel_file_next(&file, &again, fault) == SEL_FILE_ROW);
    expect(memcmp(row, &again, sizeof again) == 0);
}

static void try_link(const sel_measured_t *link)
{
    char text[3 * SEL_FILE_LINE_BYTES], fault[SEL_FILE_FAULT_BYTES];
    sel_file_row_t row;
    sel_file_t file;
    if (link->bytes_per_us == 0)
        return;
    expect(link->gpus >= 2 && link->gpus <= ALG_MAX_RANKS && link->one_way_ns > 0);
    sel_file_head(1, text);
    sel_file_link(link, text + strlen(text));
    expect(sel_file_open(&file, text, strlen(text), fault));
    expect(sel_file_next(&file, &row, fault) == SEL_FILE_END);
    expect(memcmp(link, &file.link, sizeof *link) == 0);
}

static void try_pinned(const sel_pinned_measured_t *pinned)
{
    char text[3 * SEL_FILE_LINE_BYTES], fault[SEL_FILE_FAULT_BYTES];
    sel_file_row_t row;
    sel_file_t file;
    if (pinned->store_bytes_per_us == 0)
        return;
    expect(pinned->load_bytes_per_us > 0 && pinned->gpus >= 2 && pinned->gpus <= ALG_MAX_RANKS &&
           pinned->one_way_ns > 0);
    sel_file_head(1, text);
    sel_file_pinned(pinned, text + strlen(text));
    expect(sel_file_open(&file, text, strlen(text), fault));
    expect(sel_file_next(&file, &row, fault) == SEL_FILE_END);
    expect(memcmp(pinned, &file.pinned, sizeof *pinned) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sel_file_t file;
    sel_file_row_t row;
    char fault[SEL_FILE_FAULT_BYTES] = "";
    if (!sel_file_open(&file, (const char *)data, size, fault)) {
        expect_fault(fault);
        return 0;
    }
    for (sel_file_step_t step; (step = sel_file_next(&file, &row, fault)) != SEL_FILE_END;) {
        if (step == SEL_FILE_ROW)
            try_row(&row);
        else
            expect_fault(fault);
    }
    try_link(&file.link);
    try_pinned(&file.pinned);
    return 0;
}
