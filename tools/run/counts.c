/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counts.c - see counts.h.
 */
#include "tools/run/counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/base/folder.h"
#include "tools/base/keys.h"
#include "tools/base/tool.h"

enum { MANY_CAPTURED = 1000 };

bool tool_count_is_taken(const tool_count_t *count)
{
    return strcmp(count->how, "-") != 0;
}

static bool same_texts(const tool_count_t *a, const tool_count_t *b)
{
    return strcmp(a->collective, b->collective) == 0 && strcmp(a->class_name, b->class_name) == 0 &&
           strcmp(a->types, b->types) == 0 && strcmp(a->size, b->size) == 0 &&
           strcmp(a->algorithm, b->algorithm) == 0 && strcmp(a->how, b->how) == 0 &&
           strcmp(a->outcome, b->outcome) == 0;
}

static bool put(tool_counts_t *counts, const tool_count_t *row)
{
    for (uint32_t i = 0; i < counts->count; i++) {
        if (same_texts(&counts->row[i], row)) {
            counts->row[i].calls += row->calls;
            counts->row[i].bytes += row->bytes;
            return true;
        }
    }
    if (!tool_grow((void **)&counts->row, counts->count, &counts->capacity, sizeof *row)) {
        return false;
    }
    counts->row[counts->count++] = *row;
    return true;
}

/* Parse a log line with a process's machine, the calls of one row, their sum, or waits. Other lines have none of these
 * keys. */
static bool read_line(const char *line, tool_counts_t *counts)
{
    tool_count_t row = {0};
    const struct {
        const char *key;
        char *value;
        size_t capacity;
    } words[] = {{"collective", row.collective, sizeof row.collective},
                 {"class", row.class_name, sizeof row.class_name},
                 {"type", row.types, sizeof row.types},
                 {"bytes_each", row.size, sizeof row.size},
                 {"algorithm", row.algorithm, sizeof row.algorithm},
                 {"how", row.how, sizeof row.how}};
    const char *outcome = tool_key(line, "outcome");
    if (strncmp(line, "shunt: ", 7) != 0) {
        return true;
    }
    if (tool_key(line, "machine") != NULL) {
        counts->processes++;
        counts->machine = tool_key_number(line, "machine", 16);
    }
    counts->taken += tool_key_number(line, "taken", 10);
    counts->forwarded += tool_key_number(line, "forwarded", 10);
    (void)tool_key_word(line, "pinned", counts->pinned, sizeof counts->pinned);
    if (outcome == NULL) {
        return tool_waits_add(line, &counts->waits);
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        (void)tool_key_word(line, words[i].key, words[i].value, words[i].capacity);
    }
    snprintf(row.outcome, sizeof row.outcome, "%.*s", (int)strcspn(outcome, "\n"), outcome);
    row.calls = tool_key_number(line, "calls", 10);
    row.bytes = tool_key_number(line, "bytes", 10);
    return put(counts, &row);
}

void tool_counts_free(tool_counts_t *counts)
{
    free(counts->row);
    free(counts->waits.row);
    *counts = (tool_counts_t){0};
}

bool tool_counts_pin_text(const tool_counts_t *counts, char *text, size_t capacity)
{
    if (counts->pinned[0] == '\0') {
        return false;
    }
    snprintf(text, capacity,
             "%s pins NCCL; if that is for the same bits at every size, SHUNT_DETERMINISTIC=1 (`shunt run "
             "--deterministic`) gives them by Shunt's own kernels, several times as fast (docs/determinism.md)",
             counts->pinned);
    return true;
}

bool tool_counts_graphs_text(const tool_counts_t *counts, char *text, size_t capacity)
{
    uint64_t captured = 0;
    for (uint32_t i = 0; i < counts->count; i++) {
        const tool_count_t *row = &counts->row[i];
        const bool waits = strcmp(row->how, "captured") == 0 && strcmp(row->algorithm, "experts") != 0;
        captured += waits ? row->calls : 0;
    }
    if (captured < MANY_CAPTURED) {
        return false;
    }
    snprintf(text, capacity,
             "%llu calls were captured into graphs, each of which waits for earlier work of its communicators; "
             "where docs/settings.md says that it is safe, NCCL_GRAPH_MIXING_SUPPORT=0 makes small graphs faster",
             (unsigned long long)captured);
    return true;
}

bool tool_counts_add(const char *text, tool_counts_t *counts)
{
    bool good = true;
    for (const char *line = text; good && line[0] != '\0'; line += strcspn(line, "\n"), line += line[0] == '\n') {
        good = read_line(line, counts);
    }
    return good;
}

static bool add_file(const char *text, void *counts)
{
    return tool_counts_add(text, counts);
}

bool tool_counts_read(const char *folder, tool_counts_t *counts)
{
    *counts = (tool_counts_t){0};
    return tool_folder_each(folder, "stats.", add_file, counts);
}
