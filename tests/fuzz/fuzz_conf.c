/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_conf.c - shunt.conf's parser: any bytes give values that are texts within
 * the file, and a bounded number of faults, each with its place.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/conf.h"

static const char path[] = "fuzz.conf";
static int told;

static void expect(int so)
{
    if (!so)
        abort();
}

static void complain(const char *line)
{
    expect(strncmp(line, "fuzz.conf:", 10) == 0);
    told++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    shim_conf_t conf = {.path = path};
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    told = 0;
    shim_conf_parse(&conf, text, size, complain);
    expect(told <= SHIM_CONF_MOST_FAULTS + 1);
    for (int i = 0; i < SHIM_SETTING_COUNT; i++) {
        const shim_conf_value_t *value = &conf.value[i];
        if (value->text == NULL)
            continue;
        expect(value->text >= text && value->text + strlen(value->text) <= text + size);
        expect(strchr(value->text, '\n') == NULL && value->line > 0 && value->column > 0);
    }
    free(text);
    return 0;
}
