/* SPDX-License-Identifier: Apache-2.0 */
/* conf.c - values point into the files' texts. Of a name's lines the first holds, as in NCCL's files. */
#define _GNU_SOURCE
#include "shim/base/conf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef SHIM_CONF_SYSTEM_FILE /* tests override it */
#define SHIM_CONF_SYSTEM_FILE "/etc/shunt.conf"
#endif

enum { FILE_BYTES = 65536, PATH_BYTES = 1024, LINE_BYTES = PATH_BYTES + 256 };

static const char *const names[SHIM_SETTING_COUNT] = {
#define SHIM_SETTING(kind, field, variable, fallback, initial, unit, allowed, help) variable,
#include "shim/base/settings.def"
#undef SHIM_SETTING
};

typedef struct reader {
    shim_conf_t *conf;
    shim_conf_complain_t complain;
    uint32_t line, faults;
    const char *start;
} reader_t;

static void fault(reader_t *reader, const char *at, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void fault(reader_t *reader, const char *at, const char *format, ...)
{
    if (reader->faults++ > SHIM_CONF_MOST_FAULTS)
        return;
    char text[LINE_BYTES];
    int used = snprintf(text, sizeof(text), "%.900s:%u:%u: ", reader->conf->path, reader->line,
                        (uint32_t)(at - reader->start) + 1);
    va_list arguments;
    va_start(arguments, format);
    if (reader->faults > SHIM_CONF_MOST_FAULTS)
        snprintf(text + used, sizeof(text) - (size_t)used, "more than %d faults; the others are not reported",
                 SHIM_CONF_MOST_FAULTS);
    else
        vsnprintf(text + used, sizeof(text) - (size_t)used, format, arguments);
    va_end(arguments);
    reader->complain(text);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static char *end_of(char *line, char *end)
{
    for (char *c = line; c < end; c++) {
        if (*c == '#' && (c == line || is_blank(c[-1])))
            end = c;
    }
    while (end > line && is_blank(end[-1]))
        end--;
    return end;
}

static int index_of(const char *name, size_t length)
{
    for (int i = 0; i < SHIM_SETTING_COUNT; i++) {
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
            return i;
    }
    return -1;
}

static const char *control_in(const char *text, const char *end)
{
    for (; text < end; text++) {
        if ((unsigned char)*text < ' ' && *text != '\t')
            return text;
    }
    return NULL;
}

static void take_line(reader_t *reader, char *line, char *end)
{
    end = end_of(line, end);
    while (line < end && is_blank(*line))
        line++;
    if (line == end)
        return;
    const char *control = control_in(line, end);
    if (control != NULL) {
        fault(reader, control, "expected text, found the control character %d; the line is skipped", *control);
        return;
    }
    char *equals = memchr(line, '=', (size_t)(end - line));
    if (equals == NULL) {
        fault(reader, end, "expected NAME=value; the line is skipped");
        return;
    }
    const char *name_end = end_of(line, equals);
    int index = index_of(line, (size_t)(name_end - line));
    if (index < 0) {
        fault(reader, line, "expected the name of a setting, not \"%.*s\" (see `shunt settings`); the line is skipped",
              (int)(name_end - line < 80 ? name_end - line : 80), line);
        return;
    }
    shim_conf_value_t *value = &reader->conf->value[index];
    if (value->text != NULL) {
        fault(reader, line, "%s is set twice; line %u is used, this one is skipped", names[index], value->line);
        return;
    }
    char *text = equals + 1;
    while (text < end && is_blank(*text))
        text++;
    *end = '\0';
    *value = (shim_conf_value_t){text, reader->line, (uint32_t)(text - reader->start) + 1};
}

void shim_conf_parse(shim_conf_t *conf, char *text, size_t size, shim_conf_complain_t complain)
{
    reader_t reader = {.conf = conf, .complain = complain};
    char *last = text + size;
    for (char *line = text; line < last;) {
        char *end = memchr(line, '\n', (size_t)(last - line));
        end = end != NULL ? end : last;
        reader.line++;
        reader.start = line;
        take_line(&reader, line, end);
        line = end + 1;
    }
}

/* Whether this user may not enter the folder, like /root in a container. */
static bool out_of_reach(const char *path)
{
    char folder[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    int length = slash != NULL ? snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path) : 0;
    return length > 0 && (size_t)length < sizeof(folder) && faccessat(AT_FDCWD, folder, X_OK, AT_EACCESS) != 0 &&
           errno == EACCES;
}

/* Reads fewer than `capacity` bytes and returns their number. -1: failure, with the reason in *error (NULL: no
 * file). */
static ssize_t load(const char *path, char *text, size_t capacity, const char **error)
{
    struct stat about;
    ssize_t size = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not wait for a writer */
    int opened = fd >= 0 ? 0 : errno;
    bool none = opened == ENOENT || opened == ENOTDIR || (opened == EACCES && out_of_reach(path));
    *error = opened == 0 || none ? NULL : strerror(opened);
    if (fd < 0)
        return -1;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || (size_t)about.st_size >= capacity)
        *error = "expected a file of less than 64 KiB";
    else if ((size = read(fd, text, capacity - 1)) < 0)
        *error = strerror(errno);
    close(fd);
    return size;
}

static void read_file(shim_conf_t *conf, char *text, shim_conf_complain_t complain)
{
    const char *error;
    ssize_t size = load(conf->path, text, FILE_BYTES, &error);
    if (error != NULL) {
        char line[LINE_BYTES];
        snprintf(line, sizeof(line), "%.900s:1:1: %s; the file is not used", conf->path, error);
        complain(line);
    }
    if (size > 0)
        shim_conf_parse(conf, text, (size_t)size, complain);
}

static bool user_path(char *path, size_t capacity)
{
    const char *config = secure_getenv("XDG_CONFIG_HOME"), *home = secure_getenv("HOME");
    int length = -1;
    if (config != NULL && config[0] == '/') /* the XDG specification ignores other paths */
        length = snprintf(path, capacity, "%s/shunt/shunt.conf", config);
    else if (home != NULL && home[0] == '/')
        length = snprintf(path, capacity, "%s/.config/shunt/shunt.conf", home);
    return length > 0 && (size_t)length < capacity;
}

void shim_conf_read(shim_conf_t conf[SHIM_CONF_FILES], shim_conf_complain_t complain)
{
    static char text[SHIM_CONF_FILES][FILE_BYTES], path[PATH_BYTES];
    memset(conf, 0, SHIM_CONF_FILES * sizeof(*conf));
    if (user_path(path, sizeof(path))) {
        conf[0].path = path;
        read_file(&conf[0], text[0], complain);
    }
    conf[1].path = SHIM_CONF_SYSTEM_FILE;
    read_file(&conf[1], text[1], complain);
}
