/* SPDX-License-Identifier: Apache-2.0 */
/*
 * real_parts.h - the steps that real.c takes to the real NCCL; for real*.c alone, and for `shunt run`, which asks
 * before a program starts which NCCL it would get (tools/behind.c).
 */
#ifndef SHUNT_SHIM_REAL_PARTS_H
#define SHUNT_SHIM_REAL_PARTS_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>

/* Folders that may hold a libnccl.so.2, the likeliest first, none twice; real_find.c. Of this process, or of one that
 * would run the program `executed`, by an absolute path; NULL: this one. */
typedef struct shim_folders {
    char **path;
    size_t count, capacity;
} shim_folders_t;

void shim_find_folders(shim_folders_t *folders, const char *executed);
void shim_folders_free(shim_folders_t *folders);

/* May this file be given to dlopen as a real NCCL? It must be a whole shared object for this machine,
 * have NCCL's names, and not be Shunt. If not, a few words in `why`. Runs no code of the file;
 * real_elf.c. */
bool shim_elf_check(const char *path, char *why, size_t capacity);
/* Does an NCCL have a function that our library at `own` has not? If so, one of them in `name`. Without the files, or
 * if `own` is not Shunt: no. */
bool shim_elf_unknown(const char *path, const char *own, char *name, size_t capacity);

/* Make a loaded library's calls to its own nccl* and pnccl* functions end in the library; real_slots.c.
 * False if memory could not be made writable: some of these calls then come to us. */
bool shim_bind_own_slots(const struct link_map *library);

#endif
