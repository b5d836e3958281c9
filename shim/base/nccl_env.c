/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_env.c - reads NCCL's configuration files as the real NCCL does: NAME=value, untrimmed. Lines that begin with '#'
 * or lack '=' are skipped; of a name's lines the first holds. The list is never freed, because settings point into
 * it. */
#define _GNU_SOURCE
#include "shim/base/nccl_env.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/base/words.h"

#define SYSTEM_FILE "/etc/nccl.conf"

/* NCCL's limits for a line, and for a name or value. */
enum { LINE_BYTES = 4096, PART_BYTES = 1024 };

typedef struct entry {
    struct entry *next;
    const char *file;
    char name[PART_BYTES];
    char value[PART_BYTES];
} entry_t;

static entry_t *first_entry;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const entry_t *find(const char *name)
{
    for (const entry_t *entry = first_entry; entry != NULL; entry = entry->next)
        if (strcmp(entry->name, name) == 0)
            return entry;
    return NULL;
}

static void take_line(char *line, const char *file)
{
    line[strcspn(line, "\n")] = '\0';
    size_t length = strlen(line);
    if (length > 0 && line[length - 1] == '\r')
        line[length - 1] = '\0';
    char *equals = strchr(line, '=');
    if (line[0] == '#' || equals == NULL)
        return;
    *equals = '\0';
    entry_t *entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return;
    snprintf(entry->name, sizeof(entry->name), "%s", line);
    snprintf(entry->value, sizeof(entry->value), "%s", equals + 1);
    entry->file = file;
    if (find(entry->name) != NULL) {
        free(entry);
        return;
    }
    entry->next = first_entry;
    first_entry = entry;
}

/* Opens only regular files: a pipe would block, and a device may be endless. */
static FILE *open_file(const char *file)
{
    struct stat about;
    const int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *stream = fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? fdopen(fd, "r") : NULL;
    if (stream == NULL && fd >= 0)
        close(fd);
    return stream;
}

static void read_file(const char *file)
{
    FILE *stream = open_file(file);
    if (stream == NULL)
        return;
    char line[LINE_BYTES];
    while (fgets(line, sizeof(line), stream) != NULL)
        take_line(line, file);
    fclose(stream);
}

static void read_files(void)
{
    static char user_file[PART_BYTES];
    const char *named = secure_getenv("NCCL_CONF_FILE");
    const char *home = secure_getenv("HOME");
    if (named != NULL && named[0] != '\0')
        snprintf(user_file, sizeof(user_file), "%s", named);
    else if (home != NULL)
        snprintf(user_file, sizeof(user_file), "%s/.nccl.conf", home);
    if (user_file[0] != '\0')
        read_file(user_file);
    read_file(SYSTEM_FILE);
}

const char *shim_nccl_env_from(const char *name, const char **origin)
{
    const char *value = secure_getenv(name);
    if (value != NULL) {
        *origin = "environment";
        return value;
    }
    pthread_once(&once, read_files);
    const entry_t *entry = find(name);
    if (entry == NULL)
        return NULL;
    *origin = entry->file;
    return entry->value;
}

const char *shim_nccl_env(const char *name)
{
    const char *origin;
    return shim_nccl_env_from(name, &origin);
}

bool shim_nccl_env_is(const char *name, const char *value)
{
    const char *text = shim_nccl_env(name);
    return text != NULL && shim_same_word(text, value);
}

bool shim_nccl_env_names_something(const char *name)
{
    const char *text = shim_nccl_env(name);
    return text != NULL && text[0] != '\0' && !shim_same_word(text, "none");
}

bool shim_nccl_env_is_on(const char *name)
{
    const char *text = shim_nccl_env(name);
    return text && atoi(text) != 0;
}

bool shim_nccl_plugin_loaded(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (handle)
        dlclose(handle);
    return handle;
}
