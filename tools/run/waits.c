/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits.c - see waits.h.
 */
#include "tools/run/waits.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tools/base/keys.h"
#include "tools/base/tool.h"

/* "1:2,64:10" means two waits of 1 to 2 ms and ten of 64 to 128 ms. */
static void read_lengths(const char *text, uint64_t lengths[TOOL_WAIT_LENGTHS])
{
    char *end = (char *)text;
    do {
        const uint64_t from_ms = strtoull(text, &end, 10);
        const uint64_t waits = *end == ':' ? strtoull(end + 1, &end, 10) : 0;
        const int length = from_ms != 0 ? 63 - __builtin_clzll(from_ms) : 0;
        lengths[length < TOOL_WAIT_LENGTHS ? length : TOOL_WAIT_LENGTHS - 1] += waits;
        text = end + 1;
    } while (*end == ',');
}

/* The row of this rank, or a new one; NULL: out of memory. */
static tool_wait_t *find_row(tool_waits_t *waits, uint64_t communicator, uint32_t rank)
{
    for (uint32_t i = 0; i < waits->count; i++) {
        if (waits->row[i].communicator == communicator && waits->row[i].rank == rank) {
            return &waits->row[i];
        }
    }
    if (!tool_grow((void **)&waits->row, waits->count, &waits->capacity, sizeof waits->row[0])) {
        return NULL;
    }
    waits->row[waits->count] = (tool_wait_t){.communicator = communicator, .rank = rank};
    return &waits->row[waits->count++];
}

bool tool_waits_add(const char *line, tool_waits_t *waits)
{
    const char *lengths = tool_key(line, "lengths_ms");
    if (lengths == NULL || tool_key(line, "late_rank") == NULL) {
        return true;
    }
    tool_wait_t *row =
        find_row(waits, tool_key_number(line, "communicator", 16), (uint32_t)tool_key_number(line, "late_rank", 10));
    if (row == NULL) {
        return false;
    }
    row->ranks = (uint32_t)tool_key_number(line, "ranks", 10);
    row->waits += tool_key_number(line, "waits", 10);
    row->waited_us += tool_key_number(line, "waited_us", 10);
    read_lengths(lengths, row->lengths);
    return true;
}

static int by_wait(const void *a, const void *b)
{
    const tool_wait_t *x = a, *y = b;
    if (x->most_us != y->most_us) {
        return x->most_us > y->most_us ? -1 : 1;
    }
    if (x->communicator != y->communicator) {
        return x->communicator < y->communicator ? -1 : 1;
    }
    if (x->waited_us != y->waited_us) {
        return x->waited_us > y->waited_us ? -1 : 1;
    }
    return x->rank < y->rank ? -1 : 1;
}

/* Sort twice: by communicator, while most_us is 0; then communicators by their longest wait. */
static void sort(tool_waits_t *waits)
{
    tool_wait_t *row = waits->row;
    for (uint32_t i = 0; i < waits->count; i++) {
        row[i].most_us = 0;
    }
    qsort(row, waits->count, sizeof *row, by_wait);
    for (uint32_t i = 0; i < waits->count; i++) {
        const bool same = i > 0 && row[i].communicator == row[i - 1].communicator;
        row[i].most_us = same ? row[i - 1].most_us : row[i].waited_us;
    }
    qsort(row, waits->count, sizeof *row, by_wait);
}

static void length_text(uint32_t length, char text[32])
{
    if (length == TOOL_WAIT_LENGTHS - 1) {
        snprintf(text, 32, "%u- ms", 1u << length);
    } else {
        snprintf(text, 32, "%u-%u ms", 1u << length, 2u << length);
    }
}

static void print_row(FILE *out, const tool_wait_t *row)
{
    char waited[16], rank[24], length[32];
    const char *comma = "";
    tool_duration_text((double)row->waited_us, waited);
    snprintf(rank, sizeof rank, "%u of %u", row->rank, row->ranks);
    fprintf(out, "  %016" PRIx64 " %11s %10" PRIu64 " %10s  ", row->communicator, rank, row->waits, waited);
    for (uint32_t i = 0; i < TOOL_WAIT_LENGTHS; i++) {
        if (row->lengths[i] != 0) {
            length_text(i, length);
            fprintf(out, "%s%s: %" PRIu64, comma, length, row->lengths[i]);
            comma = ", ";
        }
    }
    fputc('\n', out);
}

static void json_row(tool_json_t *json, const tool_wait_t *row)
{
    char communicator[24];
    snprintf(communicator, sizeof communicator, "%016" PRIx64, row->communicator);
    tool_json_begin(json, NULL, '{');
    tool_json_text(json, "communicator", communicator);
    tool_json_value(json, "ranks", "%u", row->ranks);
    tool_json_value(json, "rank", "%u", row->rank);
    tool_json_value(json, "waits", "%" PRIu64, row->waits);
    tool_json_value(json, "waited_us", "%" PRIu64, row->waited_us);
    tool_json_begin(json, "lengths", '[');
    for (uint32_t i = 0; i < TOOL_WAIT_LENGTHS; i++) {
        if (row->lengths[i] != 0) {
            tool_json_begin(json, NULL, '{');
            tool_json_value(json, "from_ms", "%u", 1u << i);
            tool_json_value(json, "waits", "%" PRIu64, row->lengths[i]);
            tool_json_end(json, '}');
        }
    }
    tool_json_end(json, ']');
    tool_json_end(json, '}');
}

void tool_waits_print(FILE *out, tool_json_t *json, tool_waits_t *waits)
{
    tool_json_begin(json, "waits", '[');
    if (waits->count > 0) {
        sort(waits);
        fprintf(out, "shunt: late ranks: how long calls waited for each, all ranks together (waits of 1 ms or more)\n");
        fprintf(out, "  %-16s %11s %10s %10s  %s\n", "communicator", "late rank", "waits", "waited",
                "how many of which length");
    }
    for (uint32_t i = 0; i < waits->count; i++) {
        print_row(out, &waits->row[i]);
        json_row(json, &waits->row[i]);
    }
    tool_json_end(json, ']');
}
