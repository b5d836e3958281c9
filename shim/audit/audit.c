/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit.c - libshunt_audit.so: Shunt for programs that open NCCL by absolute path, on which LD_PRELOAD has no effect.
 *
 * The dynamic linker asks an audit library (LD_AUDIT; ld.so(7), rtld-audit(7)) before it opens an object. For
 * libnccl.so.2 or libnccl.so in any folder the answer is $SHUNT_LIB, or the libnccl.so.2 beside this library; without
 * one, a line is logged and the program runs without Shunt.
 *
 * Requests by an NCCL are not changed, since Shunt opens the real one. The linker's cookie points at the requester's
 * link map while this library has no la_objopen. Audit libraries have their own link namespace and C library, and share
 * nothing with the program.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static char library[PATH_MAX];
static bool started; /* all objects of the program's start are loaded */

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_nccl(const char *path)
{
    const char *base = base_of(path);
    return strcmp(base, "libnccl.so.2") == 0 || strcmp(base, "libnccl.so") == 0;
}

/* Also by a versioned name: libnccl.so.2.28.9. */
static bool asked_by_nccl(const uintptr_t *cookie)
{
    const struct link_map *caller = (const struct link_map *)*cookie;
    return caller && caller->l_name && strncmp(base_of(caller->l_name), "libnccl.so", 10) == 0;
}

/* An object of LD_PRELOAD is not replaced: `shunt run` preloads a newer NCCL behind Shunt (tools/run/behind.c). */
static bool is_preloaded(const char *name)
{
    const char *list = started ? NULL : secure_getenv("LD_PRELOAD");
    for (size_t length; list && *list; list += length + (list[length] != '\0')) {
        length = strcspn(list, ": ");
        if (length == strlen(name) && strncmp(list, name, length) == 0)
            return true;
    }
    return false;
}

static int name_if_own(struct dl_phdr_info *object, size_t size, void *name)
{
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD &&
            (uintptr_t)library - object->dlpi_addr - segment->p_vaddr < segment->p_memsz) {
            *(const char **)name = object->dlpi_name;
            return 1;
        }
    }
    return 0;
}

static bool find_library(void)
{
    char beside[PATH_MAX];
    const char *named = secure_getenv("SHUNT_LIB"), *own = NULL;
    if (named && named[0])
        return realpath(named, library) != NULL;
    dl_iterate_phdr(name_if_own, &own); /* so early, dladdr crashes before glibc 2.34 */
    if (!own)
        return false;
    int length = snprintf(beside, sizeof(beside), "%.*slibnccl.so.2", (int)(base_of(own) - own), own);
    return length > 0 && (size_t)length < sizeof(beside) && realpath(beside, library) != NULL;
}

/* A write to a pipe without readers would end the program. */
static void say(const char *text, size_t size)
{
    struct pollfd unread = {.fd = STDERR_FILENO};
    if (poll(&unread, 1, 0) != 0)
        return;
    ssize_t ignored = write(STDERR_FILENO, text, size);
    (void)ignored;
}

EXPORT unsigned la_version(unsigned version)
{
    static const char missing[] =
        "shunt: libshunt_audit.so: no libnccl.so.2 beside it, and SHUNT_LIB names none: NCCL is left as it is\n";
    if (find_library())
        return version < LAV_CURRENT ? version : LAV_CURRENT;
    say(missing, sizeof(missing) - 1);
    return 0; /* the linker calls no further function */
}

EXPORT void la_preinit(uintptr_t *cookie)
{
    (void)cookie;
    started = true;
}

EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag)
{
    (void)flag; /* name as requested, or candidate path of the search */
    return is_nccl(name) && !asked_by_nccl(cookie) && !is_preloaded(name) ? library : (char *)name;
}
