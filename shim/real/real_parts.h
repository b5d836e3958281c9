/* SPDX-License-Identifier: Apache-2.0 */
/*
 * real_parts.h - the steps of finding the real NCCL. Private to real*.c and `shunt run`, which predicts the NCCL of a
 * program before it starts (tools/run/behind.c).
 */
#ifndef SHUNT_SHIM_REAL_PARTS_H
#define SHUNT_SHIM_REAL_PARTS_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Folders that may hold a libnccl.so.2, the likeliest first, none twice; real_find.c. For a process that runs the
 * program `executed` (an absolute path), or this process if NULL. */
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
/* Whether an NCCL has a function that our library at `own` lacks; `name` gets one of them. False if a file is
 * missing or `own` is not Shunt. */
bool shim_elf_unknown(const char *path, const char *own, char *name, size_t capacity);

/* The address in the file of the variable `name` of `bytes` bytes, local ones included; false if there is none within
 * memory that the library may write. */
bool shim_elf_find(const char *path, const char *name, uint64_t bytes, uint64_t *address);

/* real_child.c: as soon as the library is loaded from that file, find what forked children need. Before a fork, and in
 * the child: keep the child from its parent's threads. These two take no lock and no memory. */
void shim_child_find(const char *path, const struct link_map *library);
void shim_child_expected(void);
void shim_child_begins(void);

/* Make a loaded library's calls to its own nccl* and pnccl* functions end in the library; real_slots.c. False if
 * memory could not be made writable; some of these calls then reach Shunt. */
bool shim_bind_own_slots(const struct link_map *library);

#endif
