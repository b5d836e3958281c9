/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.c - see report.h.
 *
 * A saving is claimed for eager calls whose algorithm, class, type and size `shunt tune` measured on this machine. A
 * captured call counts once, though each replay of its graph runs it: its saving is reported separately, for one
 * replay.
 */
#include "tools/run/report.h"

#include <stdlib.h>
#include <string.h>

#include "tools/base/tool.h"

/* Sums of a table line's calls. */
typedef struct line {
    const tool_count_t *first;
    uint64_t calls, bytes, known; /* known: number of calls whose saving is known */
    double saved_us;
} line_t;

static uint64_t mean_bytes(const tool_count_t *row)
{
    return row->calls > 0 ? row->bytes / row->calls : 0;
}

static int order_of(const tool_count_t *row)
{
    return (int)alg_collective_find(row->collective); /* sends and receives last */
}

static int by_line(const void *a, const void *b)
{
    const tool_count_t *x = a, *y = b;
    if (order_of(x) != order_of(y)) {
        return order_of(x) - order_of(y);
    }
    int order = strcmp(x->collective, y->collective);
    if (order == 0 && strcmp(x->size, y->size) != 0) {
        order = mean_bytes(x) < mean_bytes(y) ? -1 : 1;
    }
    if (order == 0) {
        order = tool_count_is_taken(y) - tool_count_is_taken(x);
    }
    order = order != 0 ? order : strcmp(x->algorithm, y->algorithm);
    order = order != 0 ? order : -strcmp(x->how, y->how); /* eager before captured */
    return order != 0 ? order : strcmp(x->outcome, y->outcome);
}

static bool same_line(const tool_count_t *a, const tool_count_t *b)
{
    return strcmp(a->collective, b->collective) == 0 && strcmp(a->size, b->size) == 0 &&
           strcmp(a->algorithm, b->algorithm) == 0 && strcmp(a->how, b->how) == 0 &&
           strcmp(a->outcome, b->outcome) == 0;
}

static bool saved_each(const tool_times_t *times, const tool_count_t *row, double *us)
{
    tool_time_t like = {.collective = alg_collective_find(row->collective), .bytes = mean_bytes(row)};
    if (!tool_count_is_taken(row) || like.collective == ALG_COLLECTIVE_COUNT || like.bytes == 0) {
        return false;
    }
    snprintf(like.class_name, sizeof like.class_name, "%s", row->class_name);
    snprintf(like.types, sizeof like.types, "%s", alg_collective_reduces(like.collective) ? row->types : "any");
    snprintf(like.algorithm, sizeof like.algorithm, "%s", row->algorithm);
    return tool_times_saved(times, &like, us);
}

static void add(line_t *line, const tool_times_t *times, const tool_count_t *row)
{
    double us;
    line->calls += row->calls;
    line->bytes += row->bytes;
    if (saved_each(times, row, &us)) {
        line->known += row->calls;
        line->saved_us += us * (double)row->calls;
    }
}

static bool is_captured(const tool_count_t *row)
{
    return strcmp(row->how, "captured") == 0;
}

static const char *reason_of(const tool_count_t *row)
{
    return strncmp(row->outcome, "forwarded: ", 11) == 0 ? row->outcome + 11 : row->outcome;
}

static void print_line(FILE *out, const line_t *line)
{
    const tool_count_t *row = line->first;
    const bool taken = tool_count_is_taken(row), captured = is_captured(row);
    char each[16] = "-", all[16] = "-", calls[2][24] = {"-", "-"};
    if (line->known > 0) {
        tool_duration_text(line->saved_us / (double)line->known, each);
        if (!captured) {
            tool_duration_text(line->saved_us, all);
        }
    }
    snprintf(calls[taken ? 0 : 1], sizeof calls[0], "%llu", (unsigned long long)line->calls);
    fprintf(out, "  %-13s %11s %10s %10s %10s %10s  %s%s", row->collective, row->size, calls[0], calls[1], each, all,
            taken ? row->algorithm : reason_of(row), captured ? ", captured" : "");
    if (line->known > 0 && line->known < line->calls) {
        fprintf(out, " (saving known for %llu)", (unsigned long long)line->known);
    }
    fputc('\n', out);
}

static void print_sums(FILE *out, const tool_counts_t *counts, const tool_times_t *times, const line_t sums[2])
{
    char text[16], pinned[TOOL_ERROR_BYTES];
    fprintf(out, "shunt: %llu calls taken, %llu forwarded, by %u process%s of this node\n",
            (unsigned long long)counts->taken, (unsigned long long)counts->forwarded, counts->processes,
            counts->processes == 1 ? "" : "es");
    if (tool_counts_pin_text(counts, pinned, sizeof pinned)) {
        fprintf(out, "shunt: %s\n", pinned);
    }
    if (counts->taken == 0) {
        return;
    }
    if (times->count == 0) {
        fprintf(out, "shunt: the time saved is not known: `shunt tune` has not measured this machine beside NCCL\n");
        return;
    }
    if (sums[0].calls > 0) {
        tool_duration_text(sums[0].saved_us, text);
        fprintf(out,
                "shunt: saved %s of GPU time, all ranks together, by `shunt tune`'s measurements here: it measured "
                "%llu of the %llu eager calls' sizes\n",
                text, (unsigned long long)sums[0].known, (unsigned long long)sums[0].calls);
    }
    if (sums[1].calls > 0) {
        tool_duration_text(sums[1].saved_us, text);
        fprintf(out,
                "shunt: each replay of all that was captured saves %s, all ranks together; replays make no calls and "
                "are not counted\n",
                text);
    }
}

/* Null if no call's saving is known. */
static void json_saved(tool_json_t *json, const char *name, const line_t *line)
{
    if (line->known > 0) {
        tool_json_value(json, name, "%.2f", line->saved_us);
    } else {
        tool_json_text(json, name, NULL);
    }
}

static void json_line(tool_json_t *json, const line_t *line)
{
    const tool_count_t *row = line->first;
    const bool taken = tool_count_is_taken(row);
    tool_json_begin(json, NULL, '{');
    tool_json_text(json, "collective", row->collective);
    tool_json_text(json, "bytes_each", row->size);
    tool_json_value(json, "calls", "%llu", (unsigned long long)line->calls);
    tool_json_value(json, "bytes", "%llu", (unsigned long long)line->bytes);
    tool_json_bool(json, "taken", taken);
    tool_json_text(json, "algorithm", taken ? row->algorithm : NULL);
    tool_json_text(json, "reason", taken ? NULL : reason_of(row));
    tool_json_bool(json, "captured", is_captured(row));
    tool_json_value(json, "measured_calls", "%llu", (unsigned long long)line->known);
    json_saved(json, "saved_us", line);
    tool_json_end(json, '}');
}

static void json_sums(tool_json_t *json, const tool_counts_t *counts, const line_t sums[2])
{
    tool_json_value(json, "processes", "%u", counts->processes);
    tool_json_value(json, "taken", "%llu", (unsigned long long)counts->taken);
    tool_json_value(json, "forwarded", "%llu", (unsigned long long)counts->forwarded);
    tool_json_word(json, "pinned", counts->pinned);
    json_saved(json, "saved_us", &sums[0]);
    json_saved(json, "replay_saved_us", &sums[1]);
}

static void report_lines(FILE *out, tool_json_t *json, const tool_counts_t *counts, const tool_times_t *times,
                         line_t sums[2])
{
    for (uint32_t i = 0; i < counts->count;) {
        line_t line = {.first = &counts->row[i]};
        for (; i < counts->count && same_line(line.first, &counts->row[i]); i++) {
            add(&line, times, &counts->row[i]);
        }
        print_line(out, &line);
        json_line(json, &line);
        if (tool_count_is_taken(line.first)) {
            line_t *sum = &sums[is_captured(line.first)];
            sum->calls += line.calls;
            sum->known += line.known;
            sum->saved_us += line.saved_us;
        }
    }
}

void tool_report_print(FILE *out, tool_json_t *json, tool_counts_t *counts, const tool_times_t *times)
{
    line_t sums[2] = {{0}, {0}}; /* eager, captured */
    tool_json_begin(json, "rows", '[');
    if (counts->count == 0) {
        fprintf(out, "shunt: no process made a call that Shunt saw, or none ended by itself (a signal or _exit, as of "
                     "Python's forked workers, leaves no counts); `shunt doctor -- CMD` looks for the reason\n");
    } else {
        qsort(counts->row, counts->count, sizeof counts->row[0], by_line);
        fprintf(out, "shunt: collectives of this run; saved: GPU time against NCCL's, all ranks together\n");
        fprintf(out, "  %-13s %11s %10s %10s %10s %10s  %s\n", "collective", "bytes each", "taken", "forwarded",
                "saved each", "saved", "algorithm, or reason");
        report_lines(out, json, counts, times, sums);
        print_sums(out, counts, times, sums);
    }
    tool_json_end(json, ']');
    json_sums(json, counts, sums);
    tool_waits_print(out, json, &counts->waits);
}

void tool_report_times(uint64_t machine, tool_times_t *times)
{
    tool_shunt_t shunt;
    shunt_setting_t setting;
    char error[TOOL_ERROR_BYTES], table[PATH_MAX] = "", path[PATH_MAX];
    *times = (tool_times_t){0};
    if (!tool_open_shunt(&shunt, NULL, error)) {
        return;
    }
    for (uint32_t i = 0; shunt.shunt_setting(i, &setting) == 0; i++) {
        if (strcmp(setting.name, "SHUNT_TABLE") == 0) {
            snprintf(table, sizeof table, "%s", setting.value);
        }
    }
    if (table[0] == '\0' && shunt.shunt_table_path(machine, table, sizeof table) != 0) {
        return;
    }
    tool_times_path(table, path);
    if (!tool_times_read(path, times) || times->machine != machine) {
        free(times->row);
        *times = (tool_times_t){0};
    }
}
