/* SPDX-License-Identifier: Apache-2.0 */
/* audit.c - libshunt_audit.so: Shunt for programs that open NCCL by absolute path, on which LD_PRELOAD has no effect.
 * The dynamic linker asks an audit library (LD_AUDIT; rtld-audit(7)) before it opens an object. A request for
 * libnccl.so.2 or libnccl.so, in any folder, gets $SHUNT_LIB, or the libnccl.so.2 beside this library; without one, a
 * line is logged and the program runs without Shunt. A request for libnccl_ep.so.0 or libnccl_ep.so (by Python's
 * nccl.ep) gets the libnccl_ep.so.0 beside that libnccl.so.2, if any. A library of that name gets the file that it asks
 * for, so that Shunt can open the real library. The linker's cookie points at the requester's link map while this
 * library has no la_objopen. Audit libraries have their own C library. */
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

/* A library that Shunt replaces if it is opened by one of these names. Versioned files (libnccl.so.2.28.9) are not
 * replaced. */
typedef struct stand_in {
    const char *link, *soname;
    char path[PATH_MAX]; /* Shunt's library; "": none */
} stand_in_t;

static stand_in_t nccl = {.link = "libnccl.so", .soname = "libnccl.so.2"};
static stand_in_t experts = {.link = "libnccl_ep.so", .soname = "libnccl_ep.so.0"};
static bool started; /* all objects of the program's start are loaded */

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_asked(const stand_in_t *in, const char *path)
{
    const char *base = base_of(path);
    return in->path[0] && (strcmp(base, in->soname) == 0 || strcmp(base, in->link) == 0);
}

static bool asks(const stand_in_t *in, const uintptr_t *cookie)
{
    const struct link_map *caller = (const struct link_map *)*cookie;
    return caller && caller->l_name && strncmp(base_of(caller->l_name), in->link, strlen(in->link)) == 0;
}

/* A preloaded library is not replaced: `shunt run` preloads a newer NCCL behind Shunt (tools/run/behind.c). */
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
        if (segment->p_type == PT_LOAD && (uintptr_t)&nccl - object->dlpi_addr - segment->p_vaddr < segment->p_memsz) {
            *(const char **)name = object->dlpi_name;
            return 1;
        }
    }
    return 0;
}

static bool find_beside(const char *path, const char *name, char found[PATH_MAX])
{
    char beside[PATH_MAX];
    int folder = (int)(base_of(path) - path);
    int length = snprintf(beside, sizeof(beside), "%.*s%s", folder, path, name);
    if (length > 0 && (size_t)length < sizeof(beside) && realpath(beside, found))
        return true;
    found[0] = '\0'; /* realpath may have written there */
    return false;
}

static bool find_nccl(void)
{
    const char *named = secure_getenv("SHUNT_LIB"), *own = NULL;
    if (named && named[0])
        return realpath(named, nccl.path) != NULL;
    dl_iterate_phdr(name_if_own, &own); /* before glibc 2.34 dladdr crashes this early */
    return own && find_beside(own, nccl.soname, nccl.path);
}

/* Writing to a pipe without readers would end the program. */
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
    if (find_nccl()) {
        find_beside(nccl.path, experts.soname, experts.path);
        return version < LAV_CURRENT ? version : LAV_CURRENT;
    }
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
    (void)flag; /* whether `name` is as requested or a candidate path of the search */
    stand_in_t *in = is_asked(&nccl, name) ? &nccl : is_asked(&experts, name) ? &experts : NULL;
    return in && !asks(in, cookie) && !is_preloaded(name) ? in->path : (char *)name;
}
