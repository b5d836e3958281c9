/* SPDX-License-Identifier: Apache-2.0 */
/* real_child.c - a forked child that exits must not end a thread of its parent. From 2.24 on NCCL's exit handler ends
 * its RAS thread by a message through a pipe. A child inherits the handler and the pipe, but not the thread: its exit()
 * would end the parent's thread, and the parent would crash at its next communicator. So the child's write end becomes
 * /dev/null. Only NCCL's symbol table names the descriptors: with a stripped library nothing is done. */
#include <string.h>
#include <sys/stat.h>

#include "shim/real/real_parts.h"
#include "transport/transport.h"

static const void *ras_pipe; /* int[2]; NULL: not found */
static net_mark_t ras_mark;  /* the pipe's file at the first fork that found it */

void shim_child_find(const char *path, const struct link_map *library)
{
    uint64_t address = 0;
    if (shim_elf_find(path, "_ZL19rasNotificationPipe", 2 * sizeof(int), &address))
        ras_pipe = (const void *)(library->l_addr + address);
}

/* The pipe's write end; -1 before the first communicator, or if the program uses the descriptors for other files. */
static int end_of_pipe(void)
{
    int end[2];
    struct stat to;
    if (!ras_pipe)
        return -1;
    memcpy(end, ras_pipe, sizeof end);
    const net_mark_t mark = end[0] < 0 ? (net_mark_t){0, 0} : net_mark(end[0]);
    return end[1] >= 0 && net_means(end[1], &mark) && fstat(end[1], &to) == 0 && S_ISFIFO(to.st_mode) ? end[1] : -1;
}

void shim_child_expected(void)
{
    const int end = ras_mark.inode ? -1 : end_of_pipe();
    if (end >= 0)
        ras_mark = net_mark(end);
}

void shim_child_begins(void)
{
    const int end = end_of_pipe();
    if (end < 0 || !net_means(end, &ras_mark))
        return;
    net_mute(end);
    ras_pipe = NULL; /* the child's children inherit the replaced descriptor */
}
