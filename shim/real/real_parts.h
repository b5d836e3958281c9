/* SPDX-License-Identifier: Apache-2.0 */
/* real_parts.h - the steps of finding the real NCCL, also for `shunt run`, which looks first (tools/run/behind.c). */
#ifndef SHUNT_SHIM_REAL_PARTS_H
#define SHUNT_SHIM_REAL_PARTS_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Folders that may hold a libnccl.so.2, likeliest first, none twice (real_find.c), for a process of the program
 * `executed` (an absolute path); NULL: this process. */
typedef struct shim_folders {
    char **path;
    size_t count, capacity;
} shim_folders_t;

void shim_find_folders(shim_folders_t *folders, const char *executed);
void shim_folders_free(shim_folders_t *folders);

/* Whether dlopen may open this file as a real NCCL: a complete shared object for this machine, with NCCL's names, not
 * Shunt; else `why`. Runs no code of the file (real_elf.c). */
bool shim_elf_check(const char *path, char *why, size_t capacity);
/* Whether the file is a complete shared object and defines or imports `name`. Runs no code of it. */
bool shim_elf_has_name(const char *path, const char *name);
/* Whether an NCCL at `path` has a function that our library at `own` lacks; `name` gets one. False: a file is missing,
 * or `own` is not Shunt. */
bool shim_elf_unknown(const char *path, const char *own, char *name, size_t capacity);

/* Finds the variable `name` of `bytes` bytes, also a static one, in the file. False: none, or read-only. */
bool shim_elf_find(const char *path, const char *name, uint64_t bytes, uint64_t *address);

/* real_open.c. _path: as dlopen, of an absolute path without links. _map: NULL if the linker returned the library that
 * has this code. _symbol: NULL unless the library itself defines it: dlsym also searches dependencies. */
void *shim_open_path(const char *path);
const struct link_map *shim_open_map(void *handle);
void *shim_open_symbol(void *handle, const char *name);

/* real_child.c. After the load, find what forked children need; before a fork (_expected) and in the child (_begins),
 * protect the parent's threads. The latter two take no lock and allocate nothing. */
void shim_child_find(const char *path, const struct link_map *library);
void shim_child_expected(void);
void shim_child_begins(void);

/* Bind a loaded library's calls of its own nccl* and pnccl* functions to itself (real_slots.c). False: some memory
 * could not be made writable, so some calls reach Shunt. */
bool shim_bind_own_slots(const struct link_map *library);

#endif
