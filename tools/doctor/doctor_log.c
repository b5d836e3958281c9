/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_log.c - reads the library's log (SHUNT_DEBUG=info) and gives advice.
 *
 * It parses lines with keys, written by shim/setup/cuda.c, verdict.c and shim/real/real.c. A reason that this command
 * does not know, since the library is of another version, gets no advice.
 */
#include <stdio.h>
#include <string.h>

#include "tools/base/folder.h"
#include "tools/base/keys.h"
#include "tools/doctor/doctor.h"

static const struct {
    const char *code, *advice;
} reasons[] = {
#define SEL_REASON(code, level, text, advice) {#code, advice},
#include "selector/reasons.def"
#undef SEL_REASON
};

static const char *advice_on(const char *line)
{
    char code[32] = "";
    (void)tool_key_word(line, "reason", code, sizeof code);
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (strcmp(reasons[i].code, code) == 0 && reasons[i].advice[0] != '\0') {
            return reasons[i].advice;
        }
    }
    return NULL;
}

static void add_line(doctor_lines_t *lines, const char *text, const char *advice)
{
    size_t length = strcspn(text, "\n");
    if (length >= DOCTOR_LINE_BYTES) {
        length = DOCTOR_LINE_BYTES - 1;
    }
    for (uint32_t i = 0; i < lines->count; i++) {
        if (strncmp(lines->text[i], text, length) == 0 && lines->text[i][length] == '\0') {
            lines->times[i]++;
            return;
        }
    }
    if (lines->count < DOCTOR_MOST_REASONS) {
        memcpy(lines->text[lines->count], text, length);
        lines->text[lines->count][length] = '\0';
        lines->advice[lines->count] = advice;
        lines->times[lines->count++] = 1;
    }
}

static const char *next_word(const char *at)
{
    at += strcspn(at, " \n");
    return at + (at[0] == ' ');
}

/* "shunt: host:pid:thread INFO text" */
static void add_entry(const char *line, doctor_log_t *log)
{
    const char *level = next_word(next_word(line)), *why = tool_key(line, "why"), *path = tool_key(line, "nccl_path");
    char verdict[16];
    if (tool_key_word(line, "verdict", verdict, sizeof verdict)) {
        log->attached += strcmp(verdict, "attached") == 0;
        if (why != NULL && strcmp(verdict, "forwarded") == 0) {
            add_line(&log->forwarded, why, advice_on(line));
        }
    } else if (path != NULL) {
        add_line(&log->real, path, NULL);
    } else if (strncmp(level, "WARN ", 5) == 0) {
        add_line(&log->warnings, level + 5, NULL);
    }
}

void doctor_log_add(const char *text, doctor_log_t *log)
{
    for (const char *line = text; line[0] != '\0';) {
        add_entry(line, log);
        line += strcspn(line, "\n");
        line += line[0] == '\n';
    }
}

static bool add_file(const char *text, void *log)
{
    doctor_log_add(text, log);
    return true;
}

void doctor_log_read(const char *folder, const char *prefix, doctor_log_t *log)
{
    memset(log, 0, sizeof *log);
    (void)tool_folder_each(folder, prefix, add_file, log);
}
