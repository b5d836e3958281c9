/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_test.c - the JSON that the command writes is valid, whatever the texts are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/base/json.h"

static char *string_of(const char *text)
{
    char *out = NULL;
    size_t size = 0;
    tool_json_t json = {.file = open_memstream(&out, &size)};
    tool_json_text(&json, NULL, text);
    fclose(json.file);
    return out;
}

static void a_text_is_escaped(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {NULL, "null"},
        {"", "\"\""},
        {"a\"b\\c\n\t\x01", "\"a\\\"b\\\\c\\u000a\\u0009\\u0001\""},
        {"\u00b5\u20ac\U0001f600", "\"\u00b5\u20ac\U0001f600\""},
        {"\xff\x80", "\"\\ufffd\\ufffd\""},           /* no first byte */
        {"\xe2\x82", "\"\\ufffd\\ufffd\""},           /* cut off */
        {"\xc0\xaf", "\"\\ufffd\\ufffd\""},           /* too long for its value */
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""} /* half of a pair of UTF-16 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *out = string_of(cases[i][0]);
        assert_string_equal(out, cases[i][1]);
        free(out);
    }
}

static char *document_of(int lines)
{
    char *out = NULL;
    size_t size = 0;
    tool_json_t json = {.file = open_memstream(&out, &size), .lines = lines};
    tool_json_begin(&json, NULL, '{');
    tool_json_begin(&json, "none", '[');
    tool_json_end(&json, ']');
    tool_json_begin(&json, "list", '[');
    tool_json_value(&json, NULL, "%d", 1);
    tool_json_begin(&json, NULL, '{');
    tool_json_bool(&json, "good", true);
    tool_json_word(&json, "word", "");
    tool_json_end(&json, '}');
    tool_json_end(&json, ']');
    tool_json_end(&json, '}');
    fclose(json.file);
    return out;
}

static void members_are_parted_by_commas(void **state)
{
    (void)state;
    char *line = document_of(0), *lines = document_of(2);
    assert_string_equal(line, "{\"none\": [], \"list\": [1, {\"good\": true, \"word\": null}]}\n");
    assert_string_equal(lines, "{\n \"none\": [],\n \"list\": [\n  1,\n  {\"good\": true, \"word\": null}\n ]\n}\n");
    free(line);
    free(lines);
}

static void without_a_file_nothing_is_written(void **state)
{
    (void)state;
    tool_json_t json = {.file = NULL};
    tool_json_begin(&json, NULL, '{');
    tool_json_text(&json, "a", "b");
    tool_json_value(&json, "c", "%d", 1);
    tool_json_end(&json, '}');
    assert_int_equal(json.depth, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_escaped),
        cmocka_unit_test(members_are_parted_by_commas),
        cmocka_unit_test(without_a_file_nothing_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
