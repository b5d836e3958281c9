/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.c - `shunt settings`: every setting with its default and meaning, as
 * text, as the Markdown table of docs/settings.md, or as a part of the manual
 * page. The library's own table is the only source.
 */
#include "tools/info/info.h"

#include <stdio.h>
#include <string.h>

#include "tools/base/tool.h"

static const char help[] =
    "usage: shunt settings [--markdown | --man]\n\n"
    "Lists Shunt's settings (environment variables, or lines of shunt.conf): default and meaning.\n\n"
    "  --markdown    as the table of docs/settings.md\n"
    "  --man         as a part of the manual page\n"
    "  --help        print this\n";

static void text(const shunt_setting_t *setting)
{
    printf("%s (default: %s)\n    %s\n", setting->name, setting->initial[0] != '\0' ? setting->initial : "none",
           setting->help);
}

/* Bars are escaped, as they end a cell. */
static void cell(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|') {
            putchar('\\');
        }
        putchar(*text);
    }
}

static void markdown(const shunt_setting_t *setting)
{
    printf("| `%s` | ", setting->name);
    if (setting->initial[0] != '\0') {
        printf("`");
        cell(setting->initial);
        printf("`");
    }
    printf(" | ");
    cell(setting->help);
    printf(" |\n");
}

/* Print text of a manual page, escaped for roff. */
static void roff(const char *words)
{
    for (; *words != '\0'; words++) {
        if (*words == '\\' || *words == '-') {
            printf("%s", *words == '-' ? "\\-" : "\\e");
        } else if (*words != '`') { /* drop Markdown's code marks */
            putchar(*words);
        }
    }
}

/* The text never begins a line, where roff would take its dot or apostrophe for a macro. */
static void man(const shunt_setting_t *setting)
{
    printf(".TP\n.B %s\n", setting->name);
    printf("(default: ");
    roff(setting->initial[0] != '\0' ? setting->initial : "none");
    printf(") ");
    roff(setting->help);
    printf("\n");
}

int tool_settings(int argc, char **argv)
{
    void (*write)(const shunt_setting_t *) = text;
    const bool asked = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (argc == 2 && strcmp(argv[1], "--markdown") == 0) {
        write = markdown;
    } else if (argc == 2 && strcmp(argv[1], "--man") == 0) {
        write = man;
    } else if (argc > 1 && !asked) {
        return tool_usage("settings", "unknown argument %s", argv[1]);
    }
    if (asked) {
        fputs(help, stdout);
        return TOOL_OK;
    }
    tool_shunt_t shunt;
    char error[TOOL_ERROR_BYTES];
    if (!tool_open_shunt(&shunt, NULL, error)) {
        fprintf(stderr, "shunt settings: %s\n", error);
        return TOOL_FAILED;
    }
    if (write == markdown) {
        printf("| variable | default | meaning |\n|---|---|---|\n");
    }
    shunt_setting_t setting;
    for (uint32_t i = 0; shunt.shunt_setting(i, &setting) == 0; i++) {
        write(&setting);
    }
    return TOOL_OK;
}
