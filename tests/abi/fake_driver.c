/* SPDX-License-Identifier: Apache-2.0 */
/* fake_driver.c - a libcuda.so.1 with as many GPUs as the test says, and its device node. */
#define _GNU_SOURCE
#include "fake_driver.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int fake_driver_gpus;

int cuInit(unsigned flags)
{
    return (int)flags;
}

int cuDeviceGetCount(int *count)
{
    *count = fake_driver_gpus;
    return 0;
}

/* Replaces the C library's access(). */
int access(const char *path, int mode)
{
    return strcmp(path, "/dev/nvidiactl") == 0 ? 0 : (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}
