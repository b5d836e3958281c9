/* SPDX-License-Identifier: Apache-2.0 */
/*
 * behind.c - finds the NCCL that a program would load without Shunt, and whether it has functions that Shunt lacks.
 *
 * A program linked against a newer NCCL than this Shunt does not start with our library in NCCL's place: the dynamic
 * linker misses the newer names. `shunt run` then preloads the real library behind ours, so that the linker finds
 * them.
 *
 * The NCCL depends on the program. SHUNT_NCCL_PATH has priority. Otherwise an ELF file's dynamic linker is run with
 * --list, which runs no code of the program. For other programs, such as Python or a script's, the library's own search
 * decides, which includes Python's wheels.
 */
#include "tools/run/behind.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/real/real_parts.h"

enum { MOST_INTERPRETERS = 4, LINE_BYTES = 256, MOST_HEADERS = 64 };

/* Make a path absolute but keep its links: a virtual environment's Python is a link. */
static bool absolute(const char *name, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    int length = name[0] == '/'                  ? snprintf(path, PATH_MAX, "%s", name)
                 : getcwd(folder, sizeof folder) ? snprintf(path, PATH_MAX, "%s/%s", folder, name)
                                                 : -1;
    return length > 0 && length < PATH_MAX && access(path, X_OK) == 0;
}

static bool find_command(const char *command, char path[PATH_MAX])
{
    if (strchr(command, '/') != NULL) {
        return absolute(command, path);
    }
    const char *list = secure_getenv("PATH");
    for (size_t length; list != NULL && *list != '\0'; list += length + (list[length] != '\0')) {
        char name[PATH_MAX];
        length = strcspn(list, ":");
        struct stat info;
        int bytes = snprintf(name, sizeof name, "%.*s/%s", (int)length, length > 0 ? list : ".", command);
        if (bytes < (int)sizeof name && absolute(name, path) && stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
            return true;
        }
    }
    return false;
}

/* The interpreter in a script's first line; false if the file is not a script. */
static bool interpreter_of(const char *script, char path[PATH_MAX])
{
    char line[LINE_BYTES] = "";
    int file = open(script, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t bytes = file >= 0 ? read(file, line, sizeof line - 1) : -1;
    if (file >= 0) {
        close(file);
    }
    if (bytes < 3 || strncmp(line, "#!", 2) != 0) {
        return false;
    }
    line[strcspn(line, "\n")] = '\0';
    char *rest = NULL;
    const char *word = strtok_r(line + 2, " \t", &rest);
    const char *slash = word != NULL ? strrchr(word, '/') : NULL;
    if (slash != NULL && strcmp(slash, "/env") == 0) {
        do {
            word = strtok_r(NULL, " \t", &rest);
        } while (word != NULL && (word[0] == '-' || strchr(word, '=') != NULL));
    }
    return word != NULL && find_command(word, path);
}

/* The dynamic linker that an ELF file for this architecture names; false if it names none. */
static bool linker_of(const char *program, char path[PATH_MAX])
{
    ElfW(Ehdr) elf;
    bool found = false;
    int file = open(program, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        return false;
    }
    bool good = pread(file, &elf, sizeof elf, 0) == sizeof elf && memcmp(elf.e_ident, ELFMAG, SELFMAG) == 0 &&
                elf.e_ident[EI_CLASS] == ELFCLASS64 && elf.e_phentsize == sizeof(ElfW(Phdr));
    for (int i = 0; good && !found && i < elf.e_phnum && i < MOST_HEADERS; i++) {
        ElfW(Phdr) part;
        good = pread(file, &part, sizeof part, (off_t)(elf.e_phoff + (size_t)i * sizeof part)) == sizeof part;
        if (good && part.p_type == PT_INTERP && part.p_filesz > 1 && part.p_filesz <= PATH_MAX) {
            found = pread(file, path, part.p_filesz, (off_t)part.p_offset) == (ssize_t)part.p_filesz &&
                    path[part.p_filesz - 1] == '\0';
        }
    }
    close(file);
    return found;
}

/* Parse " libnccl.so.2 => /path/libnccl.so.2 (0x...)", or the same without the arrow. */
static bool nccl_in(char *line, char path[PATH_MAX])
{
    char *start = strchr(line, '/'), *end = start != NULL ? strstr(start, " (0x") : NULL;
    if (end == NULL || end - start >= PATH_MAX) {
        return false;
    }
    *end = '\0';
    if (strncmp(strrchr(start, '/'), "/libnccl.so", 11) != 0) {
        return false;
    }
    memcpy(path, start, (size_t)(end - start) + 1);
    return true;
}

static bool read_list(int from, char path[PATH_MAX])
{
    char *line = NULL;
    size_t capacity = 0;
    bool found = false;
    FILE *stream = fdopen(from, "r");
    while (stream != NULL && getline(&line, &capacity, stream) > 0) {
        found = found || nccl_in(line, path);
    }
    free(line);
    if (stream != NULL) {
        fclose(stream);
    } else {
        close(from);
    }
    return found;
}

static bool query_linker(const char *linker, const char *program, char path[PATH_MAX])
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(ends[1], STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execl(linker, linker, "--list", program, (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    bool found = child > 0 && read_list(ends[0], path);
    if (child < 0) {
        close(ends[0]);
    }
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    return found;
}

/* Whether the file is a real NCCL, not another Shunt. */
static bool is_real(const char *name, char real[PATH_MAX])
{
    char why[128];
    return realpath(name, real) != NULL && shim_elf_check(real, why, sizeof why);
}

static bool is_real_in(const char *folder, char real[PATH_MAX])
{
    char name[PATH_MAX + 16];
    snprintf(name, sizeof name, "%s/libnccl.so.2", folder);
    return is_real(name, real);
}

static bool search(const char *executed, char real[PATH_MAX])
{
    shim_folders_t folders = {0};
    bool found = false;
    shim_find_folders(&folders, executed);
    for (size_t i = 0; i < folders.count && !found; i++) {
        found = is_real_in(folders.path[i], real);
    }
    shim_folders_free(&folders);
    return found;
}

static bool find_real(const char *command, char real[PATH_MAX])
{
    char program[PATH_MAX], next[PATH_MAX], linker[PATH_MAX], listed[PATH_MAX];
    const char *named = secure_getenv("SHUNT_NCCL_PATH");
    if (named != NULL && named[0] != '\0') {
        return is_real(named, real) || is_real_in(named, real);
    }
    if (!find_command(command, program)) {
        return false;
    }
    for (int i = 0; i < MOST_INTERPRETERS && interpreter_of(program, next); i++) {
        memcpy(program, next, sizeof program);
    }
    if (linker_of(program, linker) && query_linker(linker, program, listed) && is_real(listed, real)) {
        return true;
    }
    return search(program, real);
}

bool tool_behind(const char *library, const char *command, char real[PATH_MAX], char *name, size_t capacity)
{
    return find_real(command, real) && shim_elf_unknown(real, library, name, capacity);
}
