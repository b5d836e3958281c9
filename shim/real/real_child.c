/* SPDX-License-Identifier: Apache-2.0 */
/*
 * real_child.c - a forked child that exits must not end a thread of its parent.
 *
 * From 2.24 NCCL has a thread for RAS, and an exit handler that ends it by a message through a pipe. A child has the
 * handler and the pipe, but no thread: its exit() ends the parent's, and the parent crashes when it makes its next
 * communicator. So in a child the pipe's end for writing becomes /dev/null. NCCL keeps the two descriptors in a
 * variable that only its symbol table knows; without that table (a stripped library) nothing is done.
 */
#include <string.h>
#include <sys/stat.h>

#include "shim/real/real_parts.h"
#include "transport/transport.h"

static const void *ras_pipe; /* int[2]; NULL: not found */

void shim_child_find(const char *path, const struct link_map *library)
{
    uint64_t address = 0;
    if (shim_elf_find(path, "_ZL19rasNotificationPipe", 2 * sizeof(int), &address))
        ras_pipe = (const void *)(library->l_addr + address);
}

void shim_child_begins(void)
{
    int end[2];
    struct stat from, to;
    if (!ras_pipe)
        return;
    memcpy(end, ras_pipe, sizeof end);
    /* Before the first communicator both are -1. */
    if (end[0] < 0 || end[1] < 0 || fstat(end[0], &from) != 0 || fstat(end[1], &to) != 0 || !S_ISFIFO(to.st_mode) ||
        from.st_dev != to.st_dev || from.st_ino != to.st_ino)
        return;
    net_mute(end[1]);
}
