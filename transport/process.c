/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - whether a process still runs. Pids are reused, so start times (clock ticks since boot) are compared too,
 * within one time namespace, which sets their offset. Nothing is cached: a fork would invalidate it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/transport.h"

typedef struct process_stat {
    char state;
    int64_t threads;
    uint64_t start_ticks;
} process_stat_t;

/* Read after the command in parentheses, which may contain anything: field 3 is the state, 20 the number of threads, 22
 * the start time. */
static int read_stat(int64_t pid, process_stat_t *stat)
{
    char path[64];
    char text[1024];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t size = read(fd, text, sizeof text - 1);
    int error = size < 0 ? -errno : 0;
    close(fd);
    if (error)
        return error;
    text[size] = '\0';
    const char *field = strrchr(text, ')');
    if (!field || sscanf(field + 1,
                         " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %" SCNd64 " %*d %" SCNu64,
                         &stat->state, &stat->threads, &stat->start_ticks) != 3)
        return -EPROTO;
    return 0;
}

/* A process in a new pid namespace may still see an outer namespace's /proc, with another pid. Then that /proc's
 * pids are used, and its device number for the namespace: no namespace's inode is so small. */
static uint32_t own_pid_namespace(int64_t *pid)
{
    char named[32];
    struct stat info;
    const ssize_t size = readlink("/proc/self", named, sizeof named - 1);
    *pid = getpid();
    if (size <= 0)
        return 0;
    named[size] = '\0';
    const int64_t outer = strtoll(named, NULL, 10);
    if (outer == *pid)
        return stat("/proc/self/ns/pid", &info) == 0 ? (uint32_t)info.st_ino : 0;
    *pid = outer;
    return stat("/proc", &info) == 0 ? (uint32_t)info.st_dev : 0;
}

static uint32_t own_time_namespace(void)
{
    struct stat info;
    return stat("/proc/self/ns/time", &info) == 0 ? (uint32_t)info.st_ino : 0;
}

net_process_t net_process_self(void)
{
    process_stat_t stat = {0};
    net_process_t self = {.time_namespace = own_time_namespace()};
    self.pid_namespace = own_pid_namespace(&self.pid);
    if (read_stat(self.pid, &stat) == 0)
        self.start_ticks = stat.start_ticks;
    return self;
}

bool net_process_alive(const net_process_t *process)
{
    int64_t self;
    if (process->pid_namespace != own_pid_namespace(&self))
        return true;
    if (process->pid <= 0)
        return false;
    process_stat_t stat;
    int error = read_stat(process->pid, &stat);
    if (error == -ENOENT && process->start_ticks == 0)
        return kill((pid_t)process->pid, 0) == 0 || errno != ESRCH;
    if (error)
        return error != -ENOENT && error != -ESRCH;
    if (process->start_ticks != 0 && stat.start_ticks != process->start_ticks &&
        process->time_namespace == own_time_namespace())
        return false;
    /* A process also appears as a zombie when only its first thread has ended. */
    bool ended = stat.state == 'Z' || stat.state == 'X' || stat.state == 'x';
    return !ended || stat.threads > 1;
}
