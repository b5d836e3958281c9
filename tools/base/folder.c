/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.c - see folder.h.
 */
#include "tools/base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 16 << 20 };

bool tool_folder_make(const char *command, char path[PATH_MAX])
{
    const char *root = secure_getenv("TMPDIR");
    snprintf(path, PATH_MAX, "%.3000s/shunt-XXXXXX", root != NULL && root[0] == '/' ? root : "/tmp");
    if (mkdtemp(path) != NULL) {
        return true;
    }
    fprintf(stderr, "shunt %s: %s: %s; set TMPDIR to a folder that can be written\n", command, path, strerror(errno));
    return false;
}

static bool name_in(const char *folder, const char *name, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

void tool_folder_remove(const char *folder)
{
    char path[PATH_MAX];
    DIR *open = opendir(folder);
    for (struct dirent *entry; open != NULL && (entry = readdir(open)) != NULL;) {
        if (name_in(folder, entry->d_name, path)) {
            (void)unlink(path); /* fails, as it should, for the entries . and .. */
        }
    }
    if (open != NULL) {
        closedir(open);
    }
    (void)rmdir(folder);
}

/* A file's text, malloc'd; NULL: unreadable. */
static char *text_of(const char *path)
{
    struct stat info;
    FILE *file = fopen(path, "re");
    char *text = NULL;
    if (file == NULL || fstat(fileno(file), &info) != 0) {
        goto close_file;
    }
    const size_t bytes = info.st_size < MOST_BYTES ? (size_t)info.st_size : MOST_BYTES;
    text = malloc(bytes + 1);
    if (text != NULL) {
        text[fread(text, 1, bytes, file)] = '\0';
    }
close_file:
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

bool tool_folder_each(const char *folder, const char *prefix, bool (*visit)(const char *text, void *context),
                      void *context)
{
    char path[PATH_MAX];
    struct stat info;
    DIR *open = opendir(folder);
    bool good = open != NULL;
    for (struct dirent *entry; good && (entry = readdir(open)) != NULL;) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || !name_in(folder, entry->d_name, path) ||
            lstat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
            continue;
        }
        char *text = text_of(path);
        good = text != NULL && visit(text, context);
        free(text);
    }
    if (open != NULL) {
        closedir(open);
    }
    return good;
}
