/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - see json.h.
 */
#include "tools/base/json.h"

#include <stdarg.h>
#include <stdint.h>

/* Length of the UTF-8 sequence at `text`, which is not empty; 0: no valid sequence begins there. */
static int sequence_bytes(const unsigned char *text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const int bytes = text[0] < 0x80             ? 1
                      : (text[0] & 0xe0) == 0xc0 ? 2
                      : (text[0] & 0xf0) == 0xe0 ? 3
                      : (text[0] & 0xf8) == 0xf0 ? 4
                                                 : 0;
    if (bytes < 2) {
        return bytes;
    }
    uint32_t point = text[0] & (0x7fu >> bytes);
    for (int i = 1; i < bytes; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
        point = point << 6 | (text[i] & 0x3fu);
    }
    const bool surrogate = point >= 0xd800 && point <= 0xdfff;
    return point >= least[bytes] && point <= 0x10ffff && !surrogate ? bytes : 0;
}

static void put_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        const int bytes = sequence_bytes(at);
        if (*at == '"' || *at == '\\') {
            fprintf(file, "\\%c", *at);
        } else if (*at < 0x20) {
            fprintf(file, "\\u%04x", *at);
        } else if (bytes > 0) {
            fwrite(at, 1, (size_t)bytes, file);
        } else {
            fputs("\\ufffd", file);
        }
        at += bytes > 0 ? bytes : 1;
    }
    fputc('"', file);
}

static void begin_member(tool_json_t *json, const char *name)
{
    if (json->filled) {
        fputc(',', json->file);
    }
    if (json->depth > 0 && json->depth <= json->lines) {
        fprintf(json->file, "\n%*s", json->depth, "");
    } else if (json->filled) {
        fputc(' ', json->file);
    }
    if (name != NULL) {
        put_string(json->file, name);
        fputs(": ", json->file);
    }
    json->filled = true;
}

void tool_json_begin(tool_json_t *json, const char *name, char bracket)
{
    if (json->file == NULL) {
        return;
    }
    begin_member(json, name);
    fputc(bracket, json->file);
    json->depth++;
    json->filled = false;
}

void tool_json_end(tool_json_t *json, char bracket)
{
    if (json->file == NULL) {
        return;
    }
    if (json->filled && json->depth <= json->lines) {
        fprintf(json->file, "\n%*s", json->depth - 1, "");
    }
    fputc(bracket, json->file);
    json->depth--;
    json->filled = true;
    if (json->depth == 0) {
        fputc('\n', json->file);
    }
}

void tool_json_text(tool_json_t *json, const char *name, const char *text)
{
    if (text == NULL) {
        tool_json_value(json, name, "null");
    } else if (json->file != NULL) {
        begin_member(json, name);
        put_string(json->file, text);
    }
}

void tool_json_word(tool_json_t *json, const char *name, const char *text)
{
    tool_json_text(json, name, text != NULL && text[0] != '\0' ? text : NULL);
}

void tool_json_value(tool_json_t *json, const char *name, const char *format, ...)
{
    if (json->file == NULL) {
        return;
    }
    begin_member(json, name);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(json->file, format, arguments);
    va_end(arguments);
}

void tool_json_bool(tool_json_t *json, const char *name, bool value)
{
    tool_json_value(json, name, "%s", value ? "true" : "false");
}
