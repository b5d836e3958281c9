/*
 * settings.c - `shunt settings`: every setting with its default and meaning, as
 * text or as the Markdown table of docs/settings.md. The library's own table is
 * the only source.
 */
#include "tool.h"

#include <stdio.h>
#include <string.h>

static const char help[] = "usage: shunt settings [--markdown]\n\n"
                           "Lists Shunt's settings (environment variables): default and meaning.\n"
                           "--markdown writes the table of docs/settings.md.\n";

/* A bar would end the cell. */
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

int tool_settings(int argc, char **argv)
{
    bool table = argc == 2 && strcmp(argv[1], "--markdown") == 0;
    bool asked = false;
    if (!table) {
        int fault = tool_no_arguments("settings", argc, argv, &asked);
        if (fault != TOOL_OK) {
            return fault;
        }
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
    if (table) {
        printf("| variable | default | meaning |\n|---|---|---|\n");
    }
    shunt_setting_t setting;
    for (uint32_t i = 0; shunt.shunt_setting(i, &setting) == 0; i++) {
        if (table) {
            markdown(&setting);
        } else {
            printf("%s (default: %s)\n    %s\n", setting.name, setting.initial[0] != '\0' ? setting.initial : "none",
                   setting.help);
        }
    }
    return TOOL_OK;
}
