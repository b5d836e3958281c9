/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_nccl.c - a libnccl.so.2 that records the calls it gets.
 *
 * Like the real one it has the SONAME, the exported names, calls to its own public functions through the PLT, an
 * address in the GOT and one in data. It lacks the newest names, for tests of missing names.
 */
#include "fake_nccl.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef FAKE_VERSION
#define FAKE_VERSION FAKE_VERSION_CODE
#endif

enum { FAKE_SUCCESS = 0, FAKE_INVALID_ARGUMENT = 4 };

int ncclGetVersion(int *version)
{
    if (!version)
        return FAKE_INVALID_ARGUMENT;
    *version = FAKE_VERSION;
    return FAKE_SUCCESS;
}

const char *ncclGetErrorString(int code)
{
    return code == FAKE_SUCCESS ? "fake success" : "fake error";
}

const char *ncclGetLastError(void *comm)
{
    (void)comm;
    return "fake last error";
}

int ncclGetUniqueId(void *id)
{
    memset(id, 7, 48); /* NCCL's leave the end free, too */
    return FAKE_SUCCESS;
}

int ncclCommInitRank(void **comm)
{
    (void)comm;
    return FAKE_INVALID_ARGUMENT;
}

/* Increments the counter in the buffer. */
int ncclBroadcast(const void *from, void *to, uint64_t count)
{
    (void)from;
    (void)count;
    ++*(int *)to;
    return FAKE_SUCCESS;
}

int ncclBcast(void *buffer, uint64_t count)
{
    return ncclBroadcast(buffer, buffer, count);
}

#ifdef FAKE_NEWER
int ncclNewest(void *buffer)
{
    return ncclBroadcast(buffer, buffer, 0);
}

int pncclNewest(void *buffer)
{
    return ncclNewest(buffer);
}
#endif

/* Functions used only by address, so that the linker makes no jump slot but a GOT entry for one, and a word in data for
 * the other. */
void *fake_address_in_code(void)
{
    return ncclGetErrorString;
}

void *fake_address_in_data(void)
{
    static void *volatile function[] = {ncclGetLastError};
    return function[0];
}

/* By NCCL's name for it. */
static int ras_pipe[2] __asm__("_ZL19rasNotificationPipe") = {-1, -1};

static void end_ras(void)
{
    ssize_t written = write(ras_pipe[1], "end", 3);
    (void)written;
}

const int *fake_ras_starts(void)
{
    return pipe(ras_pipe) == 0 && atexit(end_ras) == 0 ? ras_pipe : NULL;
}

int ncclDevCommCreate(FAKE_MANY_PARAMETERS)
{
    fake_see(FAKE_MANY_ARGUMENTS);
    seen->twin = 0;
    return 42;
}

int pncclDevCommCreate(FAKE_MANY_PARAMETERS)
{
    fake_see(FAKE_MANY_ARGUMENTS);
    seen->twin = 1;
    return 43;
}

fake_triple_t ncclTeamCft(int64_t a, int64_t b, int64_t c)
{
    return (fake_triple_t){c, b, a};
}

double ncclParamGet(int count, ...)
{
    double sum = 0;
    va_list arguments;
    va_start(arguments, count);
    for (int i = 0; i < count; i++)
        sum += va_arg(arguments, double);
    va_end(arguments);
    return sum;
}

int ncclParamGetI8(int argument)
{
    return argument + 1;
}

int pncclParamGetI8(int argument)
{
    return argument + 2;
}

int ncclParamGetI16(int argument)
{
    return argument + 3;
}

int ncclParamGetI32(int argument)
{
    return argument + 4;
}
