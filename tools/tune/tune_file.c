/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_file.c - replaces a file atomically, and checks beforehand that it can. See tune.h.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/tune/tune.h"

static void make_folders(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(folder, 0755); /* an error shows when the file is opened */
        *slash = '/';
    }
}

enum { BESIDE_BYTES = PATH_MAX + 32, LEFT_SECONDS = 60, TABLE_BYTES = 64 << 10 /* a large one */ };

static const char beside_end[] = ".new-XXXXXX"; /* not a backup's suffix */

/* Create a file with a unique name in the folder of `path`. */
static int open_beside(const char *path, char beside[BESIDE_BYTES])
{
    snprintf(beside, BESIDE_BYTES, "%s%s", path, beside_end);
    make_folders(path);
    return mkostemp(beside, O_CLOEXEC);
}

/* Whether a name is a temporary one of open_beside, for the table or for a file beside it, such as its times. */
static bool is_beside(const char *name, const char *table)
{
    const size_t length = strlen(name), end = sizeof beside_end - 1, fixed = end - strlen("XXXXXX");
    return length >= strlen(table) + end && strncmp(name, table, strlen(table)) == 0 &&
           strncmp(name + length - end, beside_end, fixed) == 0;
}

/* Remove temporary files of this user that a killed process left: old ones, as writing takes less than a minute. */
static void remove_left(const char *path)
{
    char folder[PATH_MAX + 1];
    struct stat facts;
    const char *slash = strrchr(path, '/'), *table = slash != NULL ? slash + 1 : path;
    snprintf(folder, sizeof folder, "%.*s", (int)(table - path), path);
    DIR *listing = opendir(folder[0] != '\0' ? folder : ".");
    for (struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
        if (is_beside(entry->d_name, table) &&
            fstatat(dirfd(listing), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(facts.st_mode) &&
            facts.st_uid == geteuid() && time(NULL) - facts.st_mtime > LEFT_SECONDS) {
            (void)unlinkat(dirfd(listing), entry->d_name, 0);
        }
    }
    if (listing != NULL) {
        closedir(listing);
    }
}

bool tune_file_try(const char *path)
{
    char beside[BESIDE_BYTES];
    struct stat info;
    remove_left(path);
    int descriptor = open_beside(path, beside);
    int error = descriptor < 0 ? errno : 0;
    if (descriptor >= 0) {
        void (*const before)(int) = signal(SIGXFSZ, SIG_IGN);         /* of a limit on files' sizes */
        const int room = posix_fallocate(descriptor, 0, TABLE_BYTES); /* a full disk has room for an empty file */
        signal(SIGXFSZ, before);
        error = room == ENOSPC || room == EDQUOT || room == EFBIG ? room : 0;
        close(descriptor);
        (void)unlink(beside);
    }
    if (error == 0 && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        error = EISDIR;
    }
    if (error != 0) {
        fprintf(stderr,
                "shunt tune: the table %s cannot be written: %s; set SHUNT_CACHE_DIR to a folder that can, or --table "
                "FILE; nothing was measured\n",
                path, strerror(error));
    }
    return error == 0;
}

bool tune_file_replace(const char *path, bool (*write)(FILE *file, const void *context), const void *context)
{
    char beside[BESIDE_BYTES];
    FILE *file = NULL;
    const mode_t mask = umask(0);
    umask(mask);
    int descriptor = open_beside(path, beside);
    if (descriptor >= 0 && fchmod(descriptor, 0644 & ~mask) == 0) {
        file = fdopen(descriptor, "w");
    }
    bool done = file != NULL && write(file, context);
    int error = errno;
    if (file == NULL && descriptor >= 0) {
        close(descriptor);
    }
    if (file != NULL && fclose(file) != 0 && done) {
        done = false;
        error = errno;
    }
    if (done && rename(beside, path) != 0) {
        done = false;
        error = errno;
    }
    if (!done) {
        fprintf(stderr, "shunt tune: %s cannot be written: %s\n", path, strerror(error));
        (void)unlink(beside);
    }
    return done;
}
