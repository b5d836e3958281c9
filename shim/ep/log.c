/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - a line is one write, so lines of threads and processes do not mix. */
#define _GNU_SOURCE
#include "shim/ep/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/base/file.h"
#include "shim/ep/libnccl.h"
#include "transport/transport.h"

enum { LINE_BYTES = 2048, HOST_BYTES = 128 };

void shim_ep_warn(const char *format, ...)
{
    const int saved = errno;
    char text[LINE_BYTES], line[LINE_BYTES + HOST_BYTES + 64], host[HOST_BYTES] = "localhost";
    if (strcmp(shim_ep_setting("SHUNT_DEBUG"), "none") == 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = ' ';
    gethostname(host, sizeof(host) - 1);
    host[strcspn(host, ".")] = '\0';
    const int bytes =
        snprintf(line, sizeof(line), "shunt: %s:%d:%d WARN %s\n", host, (int)getpid(), (int)syscall(SYS_gettid), text);
    net_write(shim_file_stderr(), line, (size_t)bytes);
    errno = saved;
}
