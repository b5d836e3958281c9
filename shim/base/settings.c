/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c - reads the settings of settings.def. The first caller logs complaints after all settings are read,
 * because the log level is a setting. */
#define _GNU_SOURCE
#include "shim/base/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "selector/selector.h"
#include "shim/base/conf.h"
#include "shim/base/file.h"
#include "shim/base/words.h"

enum { MAX_BLOCKS = 1024, MAX_TIMEOUT_MS = 86400000, FAULT_BYTES = 160, COMPLAINT_BYTES = 1536, PATH_BYTES = 4096 };
#define MIN_SCRATCH (UINT64_C(1) << 20) /* the minimum of alg_map_init */
#define MAX_SCRATCH (UINT64_C(16) << 30)

typedef bool (*parse_t)(const char *text, void *field);

static int name_index(const char *text, const char *const *names)
{
    for (int i = 0; names[i] != NULL; i++)
        if (shim_same_word(text, names[i]))
            return i;
    return -1;
}

/* `field` is an enumeration in the names' order. */
static bool parse_name(const char *text, const char *const *names, void *field)
{
    const int index = name_index(text, names);
    if (index >= 0)
        *(unsigned *)field = (unsigned)index;
    return index >= 0;
}

static bool parse_number(const char *text, uint64_t *number, const char **end)
{
    if (text[0] < '0' || text[0] > '9')
        return false;
    char *stop;
    errno = 0;
    *number = strtoull(text, &stop, 10);
    *end = stop;
    return errno == 0;
}

static bool parse_limited(const char *text, uint64_t limit, uint32_t *field)
{
    uint64_t number;
    const char *end;
    if (!parse_number(text, &number, &end) || *end != '\0' || number > limit)
        return false;
    *field = (uint32_t)number;
    return true;
}

static bool parse_DEVICE(const char *text, void *field)
{
    static const char *const names[] = {"auto", "cuda", "cpu", NULL};
    return parse_name(shim_same_word(text, "host") ? "cpu" : text, names, field); /* "host": old name of "cpu" */
}

static bool parse_TUNE(const char *text, void *field)
{
    static const char *const names[] = {"auto", "0", "1", NULL};
    return parse_name(text, names, field);
}

static bool parse_SWITCH(const char *text, void *field)
{
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        return false;
    *(bool *)field = text[0] == '1';
    return true;
}

static bool parse_TEXT(const char *text, void *field)
{
    *(const char **)field = text;
    return true;
}

static bool parse_POLICY(const char *text, void *field)
{
    if (!sel_policy_check(text, NULL, 0))
        return false;
    *(const char **)field = text;
    return true;
}

static bool parse_SIZE(const char *text, void *field)
{
    uint64_t number;
    const char *end;
    if (!parse_number(text, &number, &end) || number > MAX_SCRATCH)
        return false;
    static const char *const suffixes[] = {"", "K", "M", "G", NULL};
    int suffix = name_index(end, suffixes);
    if (suffix < 0)
        return false;
    number <<= 10 * suffix; /* at most 2^34 * 2^30 */
    if (number < MIN_SCRATCH || number > MAX_SCRATCH)
        return false;
    *(uint64_t *)field = number;
    return true;
}

static bool parse_COUNT(const char *text, void *field)
{
    return parse_limited(text, MAX_BLOCKS, field);
}

static bool parse_LIMIT(const char *text, void *field)
{
    return parse_limited(text, MAX_TIMEOUT_MS, field);
}

static bool parse_TIMEOUT(const char *text, void *field)
{
    if (shim_same_word(text, "auto")) {
        *(uint32_t *)field = SHIM_TIMEOUT_AUTO;
        return true;
    }
    return parse_limited(text, MAX_TIMEOUT_MS, field);
}

static bool parse_LEVEL(const char *text, void *field)
{
    static const char *const names[] = {"none", "warn", "info", "trace", NULL};
    return parse_name(text, names, field);
}

/* Shunt's word for NCCL's value; most are equal. */
static const char *translate(const char *variable, const char *text)
{
    if (strcmp(variable, "NCCL_DEBUG") != 0)
        return text;
    if (shim_same_word(text, "VERSION"))
        return "warn";
    if (shim_same_word(text, "ABORT"))
        return "info";
    return text;
}

typedef struct row {
    parse_t parse;
    size_t offset;
    const char *variable, *fallback, *initial, *unit, *allowed, *help;
} row_t;

static const row_t rows[] = {
#define SHIM_SETTING(kind, field, variable, fallback, initial, unit, allowed, help) \
    {parse_##kind, offsetof(shim_settings_t, field), variable, fallback, initial, unit, allowed, help},
#include "shim/base/settings.def"
#undef SHIM_SETTING
};
enum { ROWS = SHIM_SETTING_COUNT, MOST_COMPLAINTS = ROWS + SHIM_CONF_FILES * (SHIM_CONF_MOST_FAULTS + 1) };

static shim_settings_t settings;
static const char *values[ROWS];
static const char *origins[ROWS];
static shim_conf_t files[SHIM_CONF_FILES];
static char *complaints[MOST_COMPLAINTS];
static uint32_t complaint_count;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic(const shim_settings_t *) ready; /* lets the fast path skip pthread_once */
static atomic_bool complained;

static void *field_of(const row_t *row)
{
    return (char *)&settings + row->offset;
}

typedef struct source {
    const char *text, *origin;
    uint32_t line, column; /* place in a shunt.conf; 0 for other sources */
} source_t;

static void keep_complaint(const char *line)
{
    char *copy = complaint_count < MOST_COMPLAINTS ? strdup(line) : NULL;
    if (copy != NULL)
        complaints[complaint_count++] = copy;
}

static void complain(uint32_t index, const source_t *source)
{
    const row_t *row = &rows[index];
    char line[COMPLAINT_BYTES], details[FAULT_BYTES] = "";
    const char *fault = details;
    uint32_t column = 1;
    int used = 0, skip = 0;
    if (row->parse == parse_POLICY)
        (void)sel_policy_check(source->text, details, sizeof(details));
    if (source->line > 0) {
        /* The fault's column counts from the value's start. */
        if (sscanf(fault, "column %u: %n", &column, &skip) == 1)
            fault += skip;
        used =
            snprintf(line, sizeof(line), "%.900s:%u:%u: ", source->origin, source->line, source->column + column - 1);
    }
    snprintf(line + used, sizeof(line) - (size_t)used,
             "%s=%.200s is not allowed (%s%sallowed: %s%s%s); using the default, %s", row->variable, source->text,
             fault, fault[0] != '\0' ? "; " : "", row->allowed, row->unit[0] != '\0' ? " " : "", row->unit,
             row->initial[0] != '\0' ? row->initial : "empty");
    keep_complaint(line);
}

/* Of numbers and words an empty value means "not set". */
static bool is_value(const row_t *row, const char *text)
{
    return text != NULL && (text[0] != '\0' || row->parse == parse_TEXT || row->parse == parse_POLICY);
}

/* In the environment, else in Shunt's files, else in NCCL's. */
static bool find_source(uint32_t index, source_t *source)
{
    const row_t *row = &rows[index];
    *source = (source_t){.text = secure_getenv(row->variable), .origin = "environment"};
    for (int i = 0; i < SHIM_CONF_FILES && !is_value(row, source->text); i++) {
        const shim_conf_value_t *value = &files[i].value[index];
        *source = (source_t){value->text, files[i].path, value->line, value->column};
    }
    if (is_value(row, source->text))
        return true;
    *source = (source_t){0};
    source->text = shim_nccl_env_from(row->variable, &source->origin);
    return is_value(row, source->text);
}

static bool use(uint32_t index, const char *text, const char *origin)
{
    /* A copy, since the environment may change. */
    char *copy = strdup(text);
    if (copy == NULL)
        return false;
    if (!rows[index].parse(copy, field_of(&rows[index]))) {
        free(copy);
        return false;
    }
    values[index] = copy;
    origins[index] = origin;
    return true;
}

static void use_default(uint32_t index)
{
    const row_t *row = &rows[index];
    row->parse(row->initial, field_of(row));
    values[index] = row->initial;
    origins[index] = "default";
}

static void read_row(uint32_t index)
{
    const row_t *row = &rows[index];
    source_t source;
    use_default(index);
    if (find_source(index, &source)) {
        if (!use(index, source.text, source.origin))
            complain(index, &source);
        return;
    }
    const char *text = row->fallback[0] != '\0' ? shim_nccl_env(row->fallback) : NULL;
    /* NCCL itself reports wrong values of its variables. */
    if (is_value(row, text))
        use(index, translate(row->fallback, text), row->fallback);
}

/* SHUNT_DETERMINISTIC=1 removes the cap of NCCL_MAX_CTAS (pins.h). */
static void lift_cap(void)
{
    if (settings.deterministic && origins[SHIM_SETTING_max_ctas] == rows[SHIM_SETTING_max_ctas].fallback) {
        free((char *)values[SHIM_SETTING_max_ctas]); /* made by `use`, not published yet */
        use_default(SHIM_SETTING_max_ctas);
    }
}

static void read_all(void)
{
    shim_conf_read(files, keep_complaint);
    for (uint32_t i = 0; i < ROWS; i++)
        read_row(i);
    lift_cap();
    atomic_store_explicit(&ready, &settings, memory_order_release);
}

static void write_complaints(void)
{
    for (uint32_t i = 0; i < complaint_count; i++) {
        shim_warn("%s", complaints[i]);
        free(complaints[i]);
    }
}

const shim_settings_t *shim_settings(void)
{
    const shim_settings_t *known = atomic_load_explicit(&ready, memory_order_acquire);
    if (__builtin_expect(known != NULL && atomic_load_explicit(&complained, memory_order_relaxed), 1))
        return known;
    pthread_once(&once, read_all);
    if (!atomic_exchange(&complained, true))
        write_complaints();
    return &settings;
}

const char *shim_setting_nccl_path(void)
{
    const char *path = shim_settings()->nccl_path;
    return path[0] != '\0' ? path : NULL;
}

uint64_t shim_setting_timeout_ns(uint32_t usual_ms)
{
    uint32_t timeout_ms = shim_settings()->timeout_ms;
    if (timeout_ms == SHIM_TIMEOUT_AUTO)
        timeout_ms = usual_ms;
    return timeout_ms * UINT64_C(1000000);
}

bool shim_setting_stats(void)
{
    const char *stats = shim_settings()->stats;
    return stats[0] != '\0' && strcmp(stats, "0") != 0;
}

bool shim_setting_row(uint32_t index, shunt_setting_t *row)
{
    shim_settings();
    if (index >= ROWS)
        return false;
    *row = (shunt_setting_t){.name = rows[index].variable,
                             .value = values[index],
                             .origin = origins[index],
                             .initial = rows[index].initial,
                             .help = rows[index].help};
    return true;
}

static size_t append(char *path, size_t capacity, size_t length, const char *text)
{
    if (length < capacity)
        snprintf(path + length, capacity - length, "%s", text);
    return length + strlen(text);
}

bool shim_setting_expand(const char *pattern, char *path, size_t capacity)
{
    char host[256] = "localhost", pid[24];
    gethostname(host, sizeof(host) - 1);
    for (char *c = host; *c != '\0'; c++)
        if (*c == '/' || *c == '%')
            *c = '-';
    snprintf(pid, sizeof(pid), "%d", (int)getpid());

    size_t length = 0;
    for (const char *c = pattern; *c != '\0'; c++) {
        char one[2] = {*c, '\0'};
        const char *piece = one;
        if (c[0] == '%' && (c[1] == 'h' || c[1] == 'p' || c[1] == '%')) {
            c++;
            piece = *c == 'h' ? host : *c == 'p' ? pid : "%";
        }
        length = append(path, capacity, length, piece);
    }
    return length > 0 && length < capacity;
}

int shim_setting_open(const char *pattern, const char **why)
{
    char path[PATH_BYTES];
    *why = "its name is too long";
    return shim_setting_expand(pattern, path, sizeof(path)) ? shim_file_open(path, O_WRONLY | O_APPEND, why) : -1;
}
