/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - see ranks.h. One shared mapping a run, the caller's or the run's own. */
#define _GNU_SOURCE
#include "ranks.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

enum { DEFAULT_SECONDS = 300, GRACE_SECONDS = 2, POLL_MICROSECONDS = 500 };

static _Thread_local int current_rank = -1;

void check_failed(const char *file, int line, const char *what, const char *detail)
{
    const char *name = strrchr(file, '/');
    fflush(stdout); /* what led to it */
    fprintf(stderr, "%s:%d: rank %d: check failed: %s%s\n", name ? name + 1 : file, line, current_rank, what, detail);
    _exit(1);
}

const char *check_detail(ncclResult_t result)
{
    static _Thread_local char text[512];
    const char *last = ncclGetLastError(NULL);
    snprintf(text, sizeof(text), ": got %d (%s; %s)", result, ncclGetErrorString(result), last ? last : "");
    return text;
}

void ranks_stop_while(void (*wait)(const void *arg), const void *arg)
{
    const pid_t self = getpid(), child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        wait(arg);
        kill(self, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    CHECK(waitpid(child, NULL, 0) == child);
}

double ranks_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The last rank to arrive releases the others. */
void ranks_leave(ranks_t *ranks)
{
    ranks_shared_t *shared = ranks->shared;
    if (atomic_fetch_add(&shared->waiting, 1) + 1 == (uint32_t)ranks->nranks) {
        atomic_store(&shared->waiting, 0);
        atomic_fetch_add(&shared->generation, 1);
    }
}

void ranks_barrier(ranks_t *ranks)
{
    ranks_shared_t *shared = ranks->shared;
    const uint32_t generation = atomic_load(&shared->generation);
    ranks_leave(ranks);
    while (atomic_load(&shared->generation) == generation)
        usleep(20);
}

ncclUniqueId ranks_id(ranks_t *ranks)
{
    ncclUniqueId id;
    if (ranks->rank == 0)
        CHECK_NCCL(ncclGetUniqueId(&ranks->shared->id));
    ranks_barrier(ranks);
    id = ranks->shared->id;
    ranks_barrier(ranks); /* no rank makes the next id before all have read this one */
    return id;
}

ncclComm_t ranks_init(ranks_t *ranks)
{
    ncclUniqueId id = ranks_id(ranks);
    ncclComm_t comm = NULL;
    CHECK_NCCL(ncclCommInitRank(&comm, ranks->nranks, id, ranks->rank));
    CHECK(comm != NULL);
    return comm;
}

void ranks_wait(ranks_t *ranks, int index, uint64_t value)
{
    while (atomic_load(&ranks->shared->words[index]) < value)
        usleep(20);
}

static void *thread_main(void *argument)
{
    ranks_t *ranks = argument;
    const ranks_plan_t *plan = ranks->arg;
    ranks->arg = plan->arg;
    current_rank = ranks->rank;
    plan->body(ranks);
    return NULL;
}

static void run_threads(const ranks_plan_t *plan, ranks_shared_t *shared)
{
    pthread_t threads[RANKS_MAX];
    ranks_t ranks[RANKS_MAX];
    for (int r = 0; r < plan->nranks; r++) {
        ranks[r] = (ranks_t){.rank = r, .nranks = plan->nranks, .arg = plan, .shared = shared};
        if (pthread_create(&threads[r], NULL, thread_main, &ranks[r]))
            check_failed(__FILE__, __LINE__, "pthread_create", "");
    }
    for (int r = 0; r < plan->nranks; r++)
        pthread_join(threads[r], NULL);
}

/* With RANKS_PER_NODE set, treat the ranks as on several nodes, with this many on each. */
static void set_node(int rank)
{
    const char *per_node = getenv("RANKS_PER_NODE");
    char name[32];
    if (!per_node)
        return;
    snprintf(name, sizeof(name), "node%d", rank / atoi(per_node));
    setenv("NCCL_HOSTID", name, 1);
}

static void child_main(const ranks_plan_t *plan, int rank, ranks_shared_t *shared)
{
    ranks_t ranks = {.rank = rank, .nranks = plan->nranks, .arg = plan->arg, .shared = shared};
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a parent that runs out of time must not leave ranks behind */
    for (int i = 0; plan->env && plan->env[i]; i += 2)
        setenv(plan->env[i], plan->env[i + 1], 1);
    current_rank = rank;
    set_node(rank);
    if (plan->shape == RANKS_THREADS)
        run_threads(plan, shared);
    else
        plan->body(&ranks);
    fflush(NULL);
    exit(0); /* not _exit: the test includes the library's exit handlers and a leak checker's */
}

/* True when the process has ended; *right is set if it ended as expected. */
static bool reap(const ranks_plan_t *plan, int rank, pid_t pid, bool *right)
{
    int status;
    pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR))
        return false;
    if (plan->killed & (1u << rank))
        *right = ended == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    else
        *right = ended == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!*right)
        fprintf(stderr, "rank %d ended with status 0x%x\n", rank, (unsigned)status);
    return true;
}

static int wait_all(const ranks_plan_t *plan, const pid_t *pids, int count)
{
    double limit = ranks_seconds() + (plan->seconds ? plan->seconds : DEFAULT_SECONDS);
    bool done[RANKS_MAX] = {false}, overdue = false;
    int left = count, wrong = 0;
    while (left > 0) {
        for (int i = 0; i < count; i++) {
            bool right = true;
            if (done[i] || !reap(plan, i, pids[i], &right))
                continue;
            done[i] = true;
            left--;
            if (right)
                continue;
            wrong++;
            if (limit > ranks_seconds() + GRACE_SECONDS)
                limit = ranks_seconds() + GRACE_SECONDS; /* the others may never end now */
        }
        if (left > 0 && !overdue && ranks_seconds() > limit) {
            overdue = true;
            for (int i = 0; i < count; i++) {
                if (done[i])
                    continue;
                fprintf(stderr, "rank %d ran out of time\n", i);
                kill(pids[i], SIGKILL);
                wrong++;
            }
        }
        usleep(POLL_MICROSECONDS);
    }
    return wrong;
}

ranks_shared_t *ranks_share(void)
{
    void *memory = mmap(NULL, sizeof(ranks_shared_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        check_failed(__FILE__, __LINE__, "mmap", "");
    return memory;
}

int ranks_run(const ranks_plan_t *plan)
{
    int count = plan->shape == RANKS_PROCESSES ? plan->nranks : 1, wrong;
    ranks_shared_t *shared = plan->shared ? plan->shared : ranks_share();
    pid_t pids[RANKS_MAX];

    fflush(NULL);
    for (int i = 0; i < count; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            child_main(plan, i, shared);
        if (pids[i] < 0)
            check_failed(__FILE__, __LINE__, "fork", "");
    }
    wrong = wait_all(plan, pids, count);
    if (shared != plan->shared)
        munmap(shared, sizeof(*shared));
    return wrong;
}
