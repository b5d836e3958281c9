/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processes.h - the descendants of this process, and which NCCL each has loaded, from /proc.
 */
#ifndef SHUNT_TOOLS_PROCESSES_H
#define SHUNT_TOOLS_PROCESSES_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { TOOL_MOST_PROCESSES = 1024, TOOL_MOST_FILES = 8192 };

typedef struct tool_process {
    pid_t pid;
    char name[32];
    bool shunt;            /* has loaded Shunt's library */
    bool preload;          /* its environment names Shunt in LD_PRELOAD */
    char *nccl;            /* path of another libnccl.so that it has loaded; NULL: none */
    const char *static_in; /* path of a loaded file with NCCL linked in statically; NULL: none */
} tool_process_t;

/* All descendants found so far. All zero: none. */
typedef struct tool_processes {
    const char *library; /* absolute path of Shunt's library, links resolved */
    uint32_t count, files;
    tool_process_t process[TOOL_MOST_PROCESSES];
    struct {
        char *path;
        bool has_nccl;
    } file[TOOL_MOST_FILES]; /* files examined so far */
} tool_processes_t;

/* Examine all living descendants. The program must call prctl(PR_SET_CHILD_SUBREAPER) first, or orphans would be
 * missed. */
void tool_processes_update(tool_processes_t *processes);
/* Send a signal to all living descendants; returns their number. */
uint32_t tool_processes_kill(int signal);
/* End all descendants: first by SIGINT, so that Python exits normally and writes statistics; at last by SIGKILL. */
void tool_processes_end(void);
void tool_processes_free(tool_processes_t *processes);

#endif
