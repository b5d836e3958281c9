/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - each line is one write(2), so lines of several ranks never mix. The first line opens the file for appending.
 * The file is opened again in a forked child if its path contains the process id, and when the program has reused the
 * file's descriptor. */
#define _GNU_SOURCE
#include "shim/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shim/base/file.h"
#include "shim/base/settings.h"
#include "transport/transport.h"

enum { LINE_BYTES = 2048, HOST_BYTES = 128 };

static net_lock_t lock = NET_LOCK_INITIALIZER; /* to open the file */
static atomic_int log_fd = -1;
static atomic_int log_pid;                     /* its process; 0: none yet */
static _Atomic uint64_t log_device, log_inode; /* its file */

/* Whether this process has opened the file, or has failed to. */
static bool is_opened(bool own_file)
{
    const net_mark_t mark = {atomic_load(&log_device), atomic_load(&log_inode)};
    const int fd = atomic_load(&log_fd), opener = atomic_load(&log_pid);
    return opener != 0 && (!own_file || opener == getpid()) && (fd < 0 || net_means(fd, &mark));
}

/* The old descriptor stays open, because another thread may be using it. */
static void open_once(const char *pattern, const char **fault)
{
    const int fd = shim_setting_open(pattern, fault);
    const net_mark_t mark = net_mark(fd);
    atomic_store(&log_device, mark.device);
    atomic_store(&log_inode, mark.inode);
    atomic_store(&log_fd, fd);
    atomic_store(&log_pid, getpid());
}

/* Returns stderr if the file cannot be opened; the first time, *fault gets the reason. */
static int descriptor(const char **fault)
{
    const char *pattern = shim_settings()->debug_file;
    bool own_file = strstr(pattern, "%p") != NULL;
    *fault = NULL;
    if (pattern[0] == '\0')
        return shim_file_stderr();
    if (!is_opened(own_file)) {
        net_lock_take(&lock);
        if (!is_opened(own_file))
            open_once(pattern, fault);
        net_lock_give(&lock);
    }
    const int fd = atomic_load(&log_fd);
    return fd >= 0 ? fd : shim_file_stderr();
}

static int prefix(char *line, size_t capacity, shim_log_level_t level)
{
    static const char *const names[] = {"NONE", "WARN", "INFO", "TRACE"};
    char host[HOST_BYTES] = "localhost";
    gethostname(host, sizeof(host) - 1);
    host[strcspn(host, ".")] = '\0';
    const int tid = net_thread_id();
    return snprintf(line, capacity, "shunt: %s:%d:%d %s ", host, (int)getpid(), tid, names[level]);
}

/* Bytes of the character at `at`; 0 for a control character, or for 0x80 to 0x9f outside a UTF-8 character. */
static int printable(const unsigned char *at, int left)
{
    const int bytes = at[0] < 0xc2 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 1;
    static const unsigned char first[] = {
        [0xc2] = 0xa0, [0xe0] = 0xa0, [0xf0] = 0x90, [0xff] = 0}; /* least allowed second byte */
    if (at[0] < ' ' || (at[0] >= 0x7f && at[0] < 0xa0))
        return 0;
    for (int i = 1; i < bytes; i++)
        if (i >= left || (at[i] & 0xc0) != 0x80 || (i == 1 && at[i] < first[at[0]]))
            return 1;
    return bytes;
}

static void write_line(int fd, shim_log_level_t level, const char *text)
{
    char line[LINE_BYTES + HOST_BYTES + 64];
    int head = prefix(line, sizeof(line), level);
    int length = head + snprintf(line + head, sizeof(line) - (size_t)head - 1, "%s", text);
    for (int i = 0, bytes; i<length; i += bytes> 0 ? bytes : 1) {
        bytes = printable((const unsigned char *)line + i, length - i);
        if (bytes == 0)
            line[i] = ' ';
    }
    line[length++] = '\n';
    net_write(fd, line, (size_t)length);
}

bool shim_log_on(shim_log_level_t level)
{
    return shim_settings()->debug >= level;
}

void shim_log(shim_log_level_t level, const char *format, ...)
{
    int saved = errno; /* reading settings may change it */
    if (!shim_log_on(level)) {
        errno = saved;
        return;
    }
    char text[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);

    const char *fault;
    int fd = descriptor(&fault);
    if (fault) {
        char line[LINE_BYTES];
        snprintf(line, sizeof(line),
                 "SHUNT_DEBUG_FILE=%.200s cannot be written (%s); using stderr; name a file that you may write",
                 shim_settings()->debug_file, fault);
        write_line(fd, SHIM_LOG_WARN, line);
    }
    write_line(fd, level, text);
    errno = saved;
}
