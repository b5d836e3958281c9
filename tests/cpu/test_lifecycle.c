/* SPDX-License-Identifier: Apache-2.0 */
/* Creation and end of communicators: every way to make one, repeatedly, non-blocking, finalized, left behind. */
#include "cpu.h"

#include <dirent.h>
#include <string.h>
#include <sys/wait.h>

/* Every third communicator is aborted, so its scratch is not reused; SETTLED and the last are not. */
enum { CYCLES = 50, SETTLED = 6 };

static void use(ncclComm_t comm, int rank, int nranks, uint64_t seed)
{
    data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, seed, 100 + seed, nranks};
    call_shape_t shape = {0, 0, false};
    uint64_t hash = 0;
    call_run(comm, rank, &c, shape, &hash);
}

/* The number of open files of the process; below: of its mappings of shared memory. */
static int open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    CHECK(folder != NULL);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static int shared_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[1024];
    int count = 0;
    CHECK(maps != NULL);
    while (fgets(line, sizeof(line), maps))
        count += strstr(line, "/dev/shm") != NULL || strstr(line, "/memfd:") != NULL;
    fclose(maps);
    return count;
}

/* Count files and mappings, one rank at a time: counting opens a file, which other threads of the process would
 * count. */
static void look(ranks_t *ranks, int *files, int *mappings)
{
    for (int r = 0; r < ranks->nranks; r++) {
        ranks_barrier(ranks);
        if (r != ranks->rank)
            continue;
        *files = open_files();
        *mappings = shared_mappings();
    }
    ranks_barrier(ranks);
}

static void again_body(ranks_t *ranks)
{
    int files[2] = {0}, mappings[2] = {0};
    for (int i = 0; i < CYCLES; i++) {
        ncclComm_t comm = ranks_init(ranks);
        use(comm, ranks->rank, ranks->nranks, (uint64_t)i);
        if (i % 3 == 2)
            CHECK_NCCL(ncclCommAbort(comm));
        else
            CHECK_NCCL(ncclCommDestroy(comm));
        if (i == SETTLED || i == CYCLES - 1)
            look(ranks, &files[i != SETTLED], &mappings[i != SETTLED]);
    }
    CHECK(files[1] <= files[0]);
    CHECK(mappings[1] <= mappings[0]);
}

static void again(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 4, again_body, NULL);
    cpu_run(RANKS_THREADS, 3, again_body, NULL);
}

static void init_all_body(ranks_t *ranks)
{
    data_case_t c = {.type = ncclInt64, .op = REF_SUM, .kind = DATA_RANDOM, .count = 77};
    call_shape_t shape = {0, 0, false};
    (void)ranks;
    for (int n = 1; n <= REF_MAX_RANKS; n++) {
        ncclComm_t comms[REF_MAX_RANKS] = {NULL};
        CHECK_NCCL(ncclCommInitAll(comms, n, NULL));
        for (int r = 0; r < n; r++) {
            int count = -1, rank = -1, device = -1;
            ncclResult_t async = ncclInternalError;
            CHECK_NCCL(ncclCommCount(comms[r], &count));
            CHECK_NCCL(ncclCommUserRank(comms[r], &rank));
            CHECK_NCCL(ncclCommCuDevice(comms[r], &device));
            CHECK_NCCL(ncclCommGetAsyncError(comms[r], &async));
            CHECK(count == n && rank == r && device >= 0 && async == ncclSuccess);
        }
        c.nranks = n;
        call_run_solo(comms, &c, shape);
        for (int r = n - 1; r >= 0; r--)
            CHECK_NCCL(ncclCommDestroy(comms[r]));
    }
}

static void init_all(void **state)
{
    (void)state;
    cpu_run(RANKS_SOLO, 1, init_all_body, NULL);
}

static void wait_ready(ncclComm_t comm)
{
    ncclResult_t async = ncclInProgress;
    while (async == ncclInProgress) {
        CHECK_NCCL(ncclCommGetAsyncError(comm, &async));
        usleep(100);
    }
    CHECK_NCCL(async);
}

static void check_started(ncclResult_t result)
{
    if (result != ncclInProgress)
        CHECK_NCCL(result);
}

/* A non-blocking init returns at once and completes when the state is polled; also a split, and a call. */
static void non_blocking_body(ranks_t *ranks)
{
    ncclUniqueId id = ranks_id(ranks);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL, child = NULL;
    ncclResult_t result;
    int count;

    config.blocking = 0;
    if (ranks->rank == ranks->nranks - 1) /* the others are ready long before */
        ranks_wait(ranks, 0, (uint64_t)ranks->nranks - 1);
    check_started(ncclCommInitRankConfig(&comm, ranks->nranks, id, ranks->rank, &config));
    CHECK(comm != NULL);
    if (ranks->rank != ranks->nranks - 1) {
        CHECK_NCCL(ncclCommGetAsyncError(comm, &result));
        CHECK(result == ncclInProgress);
        CHECK_RESULT(ncclCommCount(comm, &count), ncclInvalidArgument); /* NCCL: not ready */
        atomic_fetch_add(&ranks->shared->words[0], 1);
    }
    wait_ready(comm);
    CHECK_NCCL(ncclCommCount(comm, &count));
    CHECK(count == ranks->nranks);
    check_started(ncclCommSplit(comm, 0, ranks->rank, &child, NULL));
    wait_ready(comm);
    CHECK(child != NULL);
    wait_ready(child);
    for (uint64_t i = 0; i < 3; i++) {
        float in = 1, out = 0;
        check_started(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, i & 1 ? child : comm, NULL));
        wait_ready(i & 1 ? child : comm);
        CHECK(out == (float)ranks->nranks);
    }
    check_started(ncclCommFinalize(child));
    wait_ready(child);
    CHECK_NCCL(ncclCommDestroy(child));
    check_started(ncclCommFinalize(comm));
    wait_ready(comm);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void non_blocking(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 3, non_blocking_body, NULL);
    cpu_run(RANKS_THREADS, 2, non_blocking_body, NULL);
}

/* The ranks begin to poll one after another, each later than the one before by more than the limit for unseen ranks. */
static void poll_in_turn(ranks_t *ranks, ncclComm_t comm)
{
    ncclResult_t result;
    for (int r = 0; r < ranks->nranks; r++) {
        ranks_barrier(ranks);
        if (r != ranks->rank)
            continue;
        CHECK_NCCL(ncclCommGetAsyncError(comm, &result));
        CHECK(result == ncclSuccess || result == ncclInProgress);
        usleep(300000);
        CHECK_NCCL(ncclCommGetAsyncError(comm, &result));
        CHECK(result == ncclSuccess || result == ncclInProgress);
    }
    ranks_barrier(ranks);
    wait_ready(comm);
}

static void late_polls_body(ranks_t *ranks)
{
    ncclUniqueId id = ranks_id(ranks);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL, child = NULL;
    config.blocking = 0;
    check_started(ncclCommInitRankConfig(&comm, ranks->nranks, id, ranks->rank, &config));
    poll_in_turn(ranks, comm);
    for (int color = 0; color < 2; color++) { /* all together, then all but rank 0 */
        check_started(ncclCommSplit(comm, color && ranks->rank > 0, ranks->rank, &child, NULL));
        poll_in_turn(ranks, comm);
        wait_ready(child);
        CHECK_NCCL(ncclCommDestroy(child));
    }
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void late_polls(void **state)
{
    static const char *const hasty[] = {"SHUNT_TIMEOUT_MS", "200", NULL};
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 3, .env = hasty, .body = late_polls_body};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
    plan.shape = RANKS_THREADS;
    plan.nranks = 2;
    assert_int_equal(ranks_run(&plan), 0);
}

/* Rank 0 makes two communicators in a group, the others one after the other, each later than the limit for unseen
 * ranks: no init may fail. */
static void grouped_inits_body(ranks_t *ranks)
{
    ncclUniqueId id[2];
    ncclComm_t comm[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        id[i] = ranks_id(ranks);
    if (ranks->rank == 0) {
        CHECK_NCCL(ncclGroupStart());
        for (int i = 0; i < 2; i++)
            CHECK_NCCL(ncclCommInitRank(&comm[i], ranks->nranks, id[i], 0));
        ranks_barrier(ranks);
        usleep(3500000);
        CHECK_NCCL(ncclGroupEnd());
    } else {
        ranks_barrier(ranks);
        for (int i = 0; i < 2; i++)
            CHECK_NCCL(ncclCommInitRank(&comm[i], ranks->nranks, id[i], ranks->rank));
    }
    for (int i = 0; i < 2; i++) {
        use(comm[i], ranks->rank, ranks->nranks, (uint64_t)i);
        CHECK_NCCL(ncclCommDestroy(comm[i]));
    }
}

static void grouped_inits(void **state)
{
    static const char *const limit[] = {"SHUNT_TIMEOUT_MS", "3000", NULL};
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 2, .env = limit, .body = grouped_inits_body};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
    plan.shape = RANKS_THREADS;
    assert_int_equal(ranks_run(&plan), 0);
}

/* One thread can init all ranks without a group if the communicators are non-blocking. */
static void non_blocking_solo_body(ranks_t *ranks)
{
    enum { SOLO = 3 };
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comms[SOLO] = {NULL};
    data_case_t c = {ncclUint8, REF_SUM, DATA_RANDOM, 2, 33, SOLO};
    call_shape_t shape = {0, 0, false};
    ncclUniqueId id;
    (void)ranks;
    config.blocking = 0;
    CHECK_NCCL(ncclGetUniqueId(&id));
    for (int r = 0; r < SOLO; r++)
        check_started(ncclCommInitRankConfig(&comms[r], SOLO, id, r, &config));
    for (int r = 0; r < SOLO; r++)
        wait_ready(comms[r]);
    for (int round = 0; round < 3; round++) {
        call_t calls[SOLO];
        uint64_t hash[SOLO] = {0};
        for (int r = 0; r < SOLO; r++)
            call_prepare(&calls[r], comms[r], r, &c, shape);
        CHECK_NCCL(ncclGroupStart());
        for (int r = 0; r < SOLO; r++)
            check_started(call_issue(&calls[r]));
        check_started(ncclGroupEnd());
        for (int r = 0; r < SOLO; r++)
            wait_ready(comms[r]);
        for (int r = 0; r < SOLO; r++)
            call_finish(&calls[r], r, SOLO, &hash[r]);
    }
    for (int r = 0; r < SOLO; r++)
        CHECK_NCCL(ncclCommAbort(comms[r]));
}

static void non_blocking_solo(void **state)
{
    (void)state;
    cpu_run(RANKS_SOLO, 1, non_blocking_solo_body, NULL);
}

/* A communicator can be made with several ids; only the whole list identifies it. */
static void scalable_body(ranks_t *ranks)
{
    ncclUniqueId ids[3];
    ncclComm_t comm = NULL;
    for (int i = 0; i < 3; i++)
        ids[i] = ranks_id(ranks);
    for (int n = 1; n <= 3; n++) {
        CHECK_NCCL(ncclCommInitRankScalable(&comm, ranks->nranks, ranks->rank, n, ids, NULL));
        use(comm, ranks->rank, ranks->nranks, (uint64_t)n);
        CHECK_NCCL(ncclCommDestroy(comm));
        ranks_barrier(ranks);
    }
}

static void scalable(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 4, scalable_body, NULL);
}

static void finalize_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    use(comm, ranks->rank, ranks->nranks, 1);
    CHECK_NCCL(ncclCommFinalize(comm));
    CHECK_RESULT(ncclCommFinalize(comm), ncclInvalidArgument);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void finalize(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 3, finalize_body, NULL);
    cpu_run(RANKS_THREADS, 2, finalize_body, NULL);
}

/* A destroy waits for no rank: one rank leaves at once, the others later. */
static void early_leaver_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    use(comm, ranks->rank, ranks->nranks, 1);
    if (ranks->rank != 0)
        ranks_wait(ranks, 0, 1);
    CHECK_NCCL(ncclCommDestroy(comm));
    atomic_store(&ranks->shared->words[0], 1);
}

/* An exit with a live communicator neither hangs nor fails. */
static void left_behind_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    use(comm, ranks->rank, ranks->nranks, 1);
}

/* A forked worker that exits must not disturb the rank. */
static void forked_worker_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    for (uint64_t i = 0; i < 3; i++) {
        int status = -1;
        pid_t worker;
        use(comm, ranks->rank, ranks->nranks, i);
        fflush(NULL);
        worker = fork();
        if (worker == 0)
            _exit(0);
        CHECK(waitpid(worker, &status, 0) == worker && status == 0);
        use(comm, ranks->rank, ranks->nranks, i);
    }
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void ends(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 3, early_leaver_body, NULL);
    cpu_run(RANKS_THREADS, 3, early_leaver_body, NULL);
    cpu_run(RANKS_PROCESSES, 2, left_behind_body, NULL);
    cpu_run(RANKS_PROCESSES, 3, forked_worker_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(again),    cmocka_unit_test(init_all),   cmocka_unit_test(non_blocking),
        cmocka_unit_test(scalable), cmocka_unit_test(finalize),   cmocka_unit_test(non_blocking_solo),
        cmocka_unit_test(ends),     cmocka_unit_test(late_polls), cmocka_unit_test(grouped_inits),
    };
    cpu_limit(80);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
