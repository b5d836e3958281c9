/* SPDX-License-Identifier: Apache-2.0 */
/* children.c - see children.h. */
#define _GNU_SOURCE
#include "children.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 32, WAIT_NAPS = 400000 /* of 0.5 ms */ };

typedef struct rank_thread {
    pthread_t thread;
    body_t body;
    uint32_t rank, nranks;
    void *argument;
    int result;
} rank_thread_t;

pid_t start_child(body_t body, uint32_t rank, uint32_t nranks, void *argument)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(LONG_S);
        _exit(body(rank, nranks, argument) ? 1 : 0);
    }
    return pid;
}

bool wait_child(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    if (WIFSIGNALED(status))
        fprintf(stderr, "child %d: signal %d\n", (int)pid, WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool end_child(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    return waitpid(pid, &status, 0) == pid && WIFSIGNALED(status);
}

int run_processes(uint32_t nranks, body_t body, void *argument)
{
    pid_t pids[MOST_RANKS];
    int failed = 0;
    for (uint32_t rank = 0; rank < nranks; rank++)
        pids[rank] = start_child(body, rank, nranks, argument);
    for (uint32_t rank = 0; rank < nranks; rank++)
        failed += !wait_child(pids[rank]);
    return failed;
}

static void *thread_main(void *at)
{
    rank_thread_t *self = at;
    self->result = self->body(self->rank, self->nranks, self->argument);
    return NULL;
}

int run_threads(uint32_t nranks, body_t body, void *argument)
{
    rank_thread_t threads[MOST_RANKS];
    int failed = 0;
    for (uint32_t rank = 0; rank < nranks; rank++) {
        threads[rank] = (rank_thread_t){.body = body, .rank = rank, .nranks = nranks, .argument = argument};
        if (pthread_create(&threads[rank].thread, NULL, thread_main, &threads[rank]) != 0)
            abort();
    }
    for (uint32_t rank = 0; rank < nranks; rank++) {
        pthread_join(threads[rank].thread, NULL);
        failed += threads[rank].result != 0;
    }
    return failed;
}

net_key_t random_key(void)
{
    uint8_t bytes[128];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        abort();
    return net_key_hash(bytes, sizeof bytes);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

int wait_count(const net_rendezvous_t *rendezvous, uint32_t count)
{
    for (int naps = 0; naps < WAIT_NAPS && net_count(rendezvous) < count; naps++)
        nap();
    return net_count(rendezvous) == count ? 0 : -ETIMEDOUT;
}

int wait_stage(const net_rendezvous_t *rendezvous, uint32_t stage)
{
    for (int naps = 0; naps < WAIT_NAPS; naps++) {
        int state = net_poll(rendezvous, stage);
        if (state != 0)
            return state == 1 ? 0 : state;
        nap();
    }
    return -ETIMEDOUT;
}

static int count_entries(const char *folder, const char *prefix)
{
    int count = 0;
    DIR *at = opendir(folder);
    if (!at)
        return -1;
    struct dirent *entry;
    while ((entry = readdir(at)) != NULL)
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(at);
    return count;
}

int segment_names(void)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "shunt-%lu-", (unsigned long)geteuid());
    return count_entries("/dev/shm", prefix);
}

int open_descriptors(void)
{
    return count_entries("/proc/self/fd", "");
}

int mappings_of(const char *text)
{
    char line[1024];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps)
        return -1;
    while (fgets(line, sizeof line, maps))
        count += strstr(line, text) != NULL;
    fclose(maps);
    return count;
}
