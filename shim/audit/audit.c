/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit.c - libshunt_audit.so: Shunt for programs that open NCCL by an absolute path.
 *
 * LD_PRELOAD changes what a name means, and an absolute path is no name to look
 * up. The dynamic linker asks an audit library (LD_AUDIT; ld.so(7), rtld-audit(7))
 * about every object before it is opened: where the last part of the path is
 * libnccl.so.2 or libnccl.so, this one answers with Shunt's library.
 *
 * An NCCL that asks for an NCCL gets what it asks for: that is Shunt opening the
 * real one. The cookie that the linker hands over tells who asks; it points at
 * that object's link map as long as the library has no la_objopen, and then the
 * linker does no other work for us either.
 *
 * Shunt's library is $SHUNT_LIB, or libnccl.so.2 beside this one. If it is not
 * there, one line says so and the program runs as if nothing had been asked for.
 * The linker keeps audit libraries in a world of their own, with a C library of
 * their own: nothing here is shared with the program.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static char library[PATH_MAX];
static bool started; /* all objects that the program starts with are loaded */

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

/* NCCL's file may have a longer name: libnccl.so.2.28.9. */
static bool asked_by_nccl(const uintptr_t *cookie)
{
    const struct link_map *caller = (const struct link_map *)*cookie;
    return caller && caller->l_name && strncmp(base_of(caller->l_name), "libnccl.so", 10) == 0;
}

/* At the start, what LD_PRELOAD names is let be: `shunt run` puts a newer NCCL behind Shunt so (tools/behind.c). */
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

/* Shunt's library, absolute and without links; false if there is none. */
static bool find_library(void)
{
    char beside[PATH_MAX];
    const char *named = secure_getenv("SHUNT_LIB");
    Dl_info own;
    if (named && named[0])
        return realpath(named, library) != NULL;
    if (!dladdr((void *)find_library, &own) || !own.dli_fname)
        return false;
    int folder = (int)(base_of(own.dli_fname) - own.dli_fname);
    int length = snprintf(beside, sizeof(beside), "%.*slibnccl.so.2", folder, own.dli_fname);
    return length > 0 && (size_t)length < sizeof(beside) && realpath(beside, library) != NULL;
}

EXPORT unsigned la_version(unsigned version)
{
    static const char missing[] =
        "shunt: libshunt_audit.so: no libnccl.so.2 beside it, and SHUNT_LIB names none: NCCL is left as it is\n";
    if (find_library())
        return version < LAV_CURRENT ? version : LAV_CURRENT;
    ssize_t ignored = write(STDERR_FILENO, missing, sizeof(missing) - 1);
    (void)ignored;
    return 0; /* the linker asks no more */
}

EXPORT void la_preinit(uintptr_t *cookie)
{
    (void)cookie;
    started = true;
}

EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag)
{
    (void)flag; /* the name as it was given, or a place where the linker would look for it */
    return is_nccl(name) && !asked_by_nccl(cookie) && !is_preloaded(name) ? library : (char *)name;
}
