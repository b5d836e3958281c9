/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.c - fork, collect stderr, wait. See child.h.
 */
#include "child.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_SECONDS = 300 };

static void child_collect(int from, char *log, size_t capacity)
{
    size_t length = 0;
    char piece[4096];
    for (ssize_t got; (got = read(from, piece, sizeof piece)) > 0;)
        for (ssize_t i = 0; i < got; i++)
            if (length + 1 < capacity)
                log[length++] = piece[i];
    log[length] = '\0';
}

int child_run(int (*scenario)(void *argument), void *argument, char *log, size_t capacity)
{
    int ends[2], status = -1;
    log[0] = '\0';
    if (pipe(ends) != 0)
        return -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        alarm(CHILD_SECONDS);
        int result = scenario(argument);
        fflush(NULL);
        _exit(result == 0 ? 0 : 1);
    }
    close(ends[1]);
    if (child > 0) {
        child_collect(ends[0], log, capacity);
        waitpid(child, &status, 0);
    }
    close(ends[0]);
    if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    fprintf(stderr, "scenario ended with wait status 0x%x and said:\n%s\n", (unsigned)status, log);
    return -1;
}

int child_count(const char *log, const char *text)
{
    int count = 0;
    for (const char *at = log; (at = strstr(at, text)) != NULL; at += strlen(text))
        count++;
    return count;
}

void child_settings(const char *device, const char *nccl_path)
{
    static const char *const others[] = {"SHUNT_DEBUG_FILE", "SHUNT_STATS",     "SHUNT_ENABLE", "NCCL_DEBUG",
                                         "NCCL_DEBUG_FILE",  "SHUNT_NCCL_PATH", "CUDA_HOME",    "CUDA_PATH"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        unsetenv(others[i]);
    setenv("SHUNT_DEBUG", "warn", 1);
    setenv("SHUNT_DEVICE", device, 1);
    if (nccl_path)
        setenv("SHUNT_NCCL_PATH", nccl_path, 1);
}
