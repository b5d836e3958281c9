/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processes.c - see processes.h.
 */
#include "tools/doctor/processes.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/base/clock.h"
#include "tools/doctor/static_nccl.h"

enum { LOOK_MS = 100, GRACE_S = 5 };

typedef struct parent {
    pid_t pid, of; /* pid's parent */
} parent_t;

/* The process's name may contain blanks and parentheses. */
static bool read_parent(pid_t pid, parent_t *parent)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    const char *end = fgets(line, sizeof line, file) != NULL ? strrchr(line, ')') : NULL;
    char state = 'Z';
    int of = 0;
    const bool good = end != NULL && sscanf(end + 1, " %c %d", &state, &of) == 2 && state != 'Z';
    fclose(file);
    *parent = (parent_t){pid, of};
    return good;
}

static uint32_t read_all(parent_t *all, uint32_t capacity)
{
    uint32_t count = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc != NULL && count < capacity && (entry = readdir(proc)) != NULL;) {
        const int pid = atoi(entry->d_name);
        count += pid > 0 && read_parent(pid, &all[count]);
    }
    if (proc != NULL) {
        closedir(proc);
    }
    return count;
}

/* A parent's id may be larger than its child's, as ids are reused. */
static uint32_t find_descendants(pid_t found[TOOL_MOST_PROCESSES])
{
    static parent_t all[1 << 16];
    const uint32_t count = read_all(all, sizeof all / sizeof all[0]);
    const pid_t self = getpid();
    uint32_t descendants = 0, before;
    do {
        before = descendants;
        for (uint32_t i = 0; i < count && descendants < TOOL_MOST_PROCESSES; i++) {
            bool mine = all[i].of == self;
            for (uint32_t k = 0; k < descendants && !mine; k++) {
                mine = all[i].of == found[k];
            }
            if (mine) {
                found[descendants++] = all[i].pid;
                all[i].of = 0;
            }
        }
    } while (descendants != before);
    return descendants;
}

uint32_t tool_processes_kill(int signal)
{
    pid_t found[TOOL_MOST_PROCESSES];
    const uint32_t count = find_descendants(found);
    for (uint32_t i = 0; i < count; i++) {
        kill(found[i], signal);
    }
    return count;
}

void tool_processes_end(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGKILL};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0] && tool_processes_kill(signals[i]) > 0; i++) {
        for (const double end = tool_now() + GRACE_S; tool_now() < end && tool_processes_kill(0) > 0;) {
            poll(NULL, 0, LOOK_MS);
        }
    }
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

static const char *has_nccl(tool_processes_t *processes, const char *path)
{
    for (uint32_t i = 0; i < processes->files; i++) {
        if (strcmp(processes->file[i].path, path) == 0) {
            return processes->file[i].has_nccl ? processes->file[i].path : NULL;
        }
    }
    char *copy = processes->files < TOOL_MOST_FILES ? strdup(path) : NULL;
    if (copy == NULL) {
        return NULL;
    }
    const uint32_t at = processes->files++;
    processes->file[at].path = copy;
    processes->file[at].has_nccl = tool_static_nccl(path);
    return processes->file[at].has_nccl ? copy : NULL;
}

static void check_file(tool_processes_t *processes, tool_process_t *process, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (strcmp(path, processes->library) == 0) {
        process->shunt = true;
    } else if (strncmp(slash, "/libnccl.so", 11) == 0) {
        process->nccl = process->nccl != NULL ? process->nccl : strdup(path);
    } else if (process->static_in == NULL) {
        process->static_in = has_nccl(processes, path);
    }
}

/* "7f00-7f10 r-xp 00000000 08:01 123 /path"; unreadable for another user's process. */
static void read_maps(tool_processes_t *processes, tool_process_t *process)
{
    char path[64], *line = NULL;
    size_t capacity = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)process->pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && getline(&line, &capacity, file) > 0) {
        char *mapped = strchr(line, '/');
        const char *rights = strchr(line, ' ');
        if (mapped != NULL && rights != NULL && rights[3] == 'x') {
            mapped[strcspn(mapped, "\n")] = '\0';
            check_file(processes, process, mapped);
        }
    }
    free(line);
    if (file != NULL) {
        fclose(file);
    }
}

/* The environment of an exiting process is empty, so an earlier result stays. */
static void read_environment(const tool_processes_t *processes, tool_process_t *process)
{
    char path[64], *variable = NULL;
    size_t capacity = 0;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)process->pid);
    FILE *file = fopen(path, "re");
    bool any = false, preload = false;
    while (file != NULL && getdelim(&variable, &capacity, '\0', file) > 0) {
        any = true;
        preload |= strncmp(variable, "LD_PRELOAD=", 11) == 0 && strstr(variable, processes->library) != NULL;
    }
    process->preload = any ? preload : process->preload;
    free(variable);
    if (file != NULL) {
        fclose(file);
    }
}

static void read_name(tool_process_t *process)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/comm", (int)process->pid);
    FILE *file = fopen(path, "re");
    if (file != NULL && fgets(process->name, sizeof process->name, file) != NULL) {
        process->name[strcspn(process->name, "\n")] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
}

static tool_process_t *process_of(tool_processes_t *processes, pid_t pid)
{
    for (uint32_t i = 0; i < processes->count; i++) {
        if (processes->process[i].pid == pid) {
            return &processes->process[i];
        }
    }
    if (processes->count == TOOL_MOST_PROCESSES) {
        return NULL;
    }
    processes->process[processes->count] = (tool_process_t){.pid = pid};
    return &processes->process[processes->count++];
}

void tool_processes_update(tool_processes_t *processes)
{
    pid_t found[TOOL_MOST_PROCESSES];
    const uint32_t count = find_descendants(found);
    for (uint32_t i = 0; i < count; i++) {
        tool_process_t *process = process_of(processes, found[i]);
        if (process != NULL) {
            read_name(process);
            read_environment(processes, process);
            read_maps(processes, process);
        }
    }
}

void tool_processes_free(tool_processes_t *processes)
{
    for (uint32_t i = 0; i < processes->count; i++) {
        free(processes->process[i].nccl);
    }
    for (uint32_t i = 0; i < processes->files; i++) {
        free(processes->file[i].path);
    }
    processes->count = processes->files = 0;
}
