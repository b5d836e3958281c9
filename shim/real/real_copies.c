/* SPDX-License-Identifier: Apache-2.0 */
/* real_copies.c - whether this process has several real NCCLs, which its parts may open by different paths. Then Shunt
 * cannot tell which one owns a communicator: it publishes nothing for communicators made from then on, and all ranks
 * forward. The list of loaded objects is read only when the linker's count of them has changed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "shim/base/log.h"
#include "shim/real/real.h"
#include "shim/real/real_parts.h"

typedef struct copies_search {
    ElfW(Addr) own, real; /* load addresses of Shunt and the real NCCL */
    const char *other;    /* path of another real NCCL; NULL: none */
} copies_search_t;

static int copies_adds(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    *(unsigned long long *)data = info->dlpi_adds;
    return 1;
}

static int find_copy(struct dl_phdr_info *info, size_t size, void *data)
{
    char why[256];
    (void)size;
    copies_search_t *search = data;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!slash || strncmp(slash, "/libnccl.so", 11) != 0 || info->dlpi_addr == search->own ||
        info->dlpi_addr == search->real || !shim_elf_check(info->dlpi_name, why, sizeof why))
        return 0;
    search->other = info->dlpi_name;
    return 1;
}

static bool copies_find(const shim_real_t *real)
{
    static atomic_bool said;
    struct link_map *map = NULL;
    Dl_info own;
    if (dlinfo(real->handle, RTLD_DI_LINKMAP, &map) != 0 || !dladdr((void *)shim_real_alone, &own))
        return true;
    copies_search_t search = {.own = (ElfW(Addr))own.dli_fbase, .real = map->l_addr};
    dl_iterate_phdr(find_copy, &search);
    if (search.other && !atomic_exchange(&said, true))
        shim_warn("two NCCLs in this process: %s, to which Shunt forwards, and %s; communicators made from now on have "
                  "all their calls forwarded; let the program load only one NCCL",
                  real->path, search.other);
    return search.other == NULL;
}

bool shim_real_alone(const shim_real_t *real)
{
    /* Twice the objects loaded at the last search, plus its answer. */
    static atomic_ullong known;
    unsigned long long adds = 0, seen = atomic_load(&known);
    dl_iterate_phdr(copies_adds, &adds);
    if (seen >> 1 == adds)
        return seen & 1;
    bool alone = copies_find(real);
    atomic_store(&known, adds << 1 | alone);
    return alone;
}
