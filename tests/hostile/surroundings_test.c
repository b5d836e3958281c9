/* SPDX-License-Identifier: Apache-2.0 */
/*
 * surroundings_test.c - the library on systems that refuse its requests: each case ends with right results, or with
 * errors and messages that give the reason.
 *
 * Private mounts need root, or a kernel that lets users make namespaces; without,
 * those cases are skipped.
 */
#define _GNU_SOURCE
#include "../cpu/cpu.h"
#include "tests/support/skips.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "transport/transport.h"

enum { STRANGER = 54321, OTHER = 54322 };
static const char *const small[] = {"SHUNT_SCRATCH_BYTES", "1M", NULL};

/* ---- Mounts of one's own -------------------------------------------------------------- */

static int own_mounts(void)
{
    uid_t uid = geteuid();
    char map[64];
    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            return -errno;
        snprintf(map, sizeof(map), "%u %u 1", uid, uid);
        int file = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
        if (file < 0 || write(file, map, strlen(map)) < 0)
            return -EPERM;
        close(file);
    }
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? 0 : -errno;
}

static int cover(const char *folder, const char *options)
{
    return mount("tmpfs", folder, "tmpfs", 0, options) == 0 ? 0 : -errno;
}

/* Run a body in a child, so that its mounts and limits end with the child; 0 if it returned 0. */
static int in_child(int (*body)(const void *), const void *argument)
{
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(body(argument));
    return waitpid(child, &status, 0) == child ? status : -1;
}

static int can_mount(const void *unused)
{
    (void)unused;
    return own_mounts() != 0 || cover("/dev/shm", "size=16k") != 0;
}

static void needs_mounts(void)
{
    if (in_child(can_mount, NULL) == 0)
        return;
    skip_because("a mount of one's own cannot be had here");
}

typedef struct covered {
    const char *folder, *options;
    ranks_body_t body;
} covered_t;

/* Run ranks that share one covered folder. */
static int run_covered(const void *argument)
{
    const covered_t *covered = argument;
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 2, .env = small, .body = covered->body};
    if (own_mounts() != 0 || cover(covered->folder, covered->options) != 0)
        return 1;
    return ranks_run(&plan);
}

static void under(const char *folder, const char *options, ranks_body_t body)
{
    const covered_t covered = {folder, options, body};
    needs_mounts();
    assert_int_equal(in_child(run_covered, &covered), 0);
}

/* ---- What ranks do ----------------------------------------------------------------------- */

static void works(ncclComm_t comm, int nranks)
{
    float in = 1, out = 0;
    CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK(out == (float)nranks);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void works_body(ranks_t *ranks)
{
    works(ranks_init(ranks), ranks->nranks);
}

/* Check that the init fails and that its error contains one of these words. */
static void fails(ranks_t *ranks, const char *word, const char *other)
{
    ncclUniqueId id = ranks_id(ranks);
    ncclComm_t comm = NULL;
    CHECK_FAILS(ncclCommInitRank(&comm, ranks->nranks, id, ranks->rank));
    CHECK(comm == NULL);
    if (!strstr(ncclGetLastError(NULL), word) && !strstr(ncclGetLastError(NULL), other))
        check_failed(__FILE__, __LINE__, "a clear word: ", ncclGetLastError(NULL));
}

/* ---- Shared memory --------------------------------------------------------------------------- */

static void full_body(ranks_t *ranks)
{
    fails(ranks, "No space left", "No space left");
}

static void closed_body(ranks_t *ranks)
{
    CHECK(setuid(STRANGER) == 0);
    fails(ranks, "Permission denied", "Permission denied");
}

static void apart_body(ranks_t *ranks)
{
    CHECK(own_mounts() == 0 && cover("/dev/shm", "size=16m") == 0);
    works_body(ranks);
}

static void shm_is_full(void **state)
{
    (void)state;
    under("/dev/shm", "size=16k,mode=1777", full_body);
}

/* The default size of a container's /dev/shm is enough: it only has to hold the rendezvous. */
static void shm_is_small(void **state)
{
    (void)state;
    under("/dev/shm", "size=512k,mode=1777", works_body);
}

static void shm_is_closed(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip_because("another user needs root");
    under("/dev/shm", "size=1m,mode=0755", closed_body);
}

/* Containers with separate IPC namespaces are treated as different nodes. */
static void shm_is_not_shared(void **state)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 2, .body = apart_body};
    (void)state;
    needs_mounts();
    assert_int_equal(ranks_run(&plan), 0);
}

/* Ranks of different users communicate, although they share a boot id and cannot meet in /dev/shm, like two machines
 * cloned from one snapshot. */
static void users_body(ranks_t *ranks)
{
    ncclComm_t comm, child = NULL;
    const int user = ranks->rank == 0 ? STRANGER : OTHER;
    CHECK(setgid((gid_t)user) == 0 && setuid((uid_t)user) == 0);
    comm = ranks_init(ranks);
    CHECK_NCCL(ncclCommSplit(comm, 0, ranks->rank, &child, NULL));
    works(child, ranks->nranks);
    works(comm, ranks->nranks);
}

static void users_are_nodes(void **state)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 2, .body = users_body};
    (void)state;
    if (geteuid() != 0) {
        skip_because("two users need root");
    }
    assert_int_equal(ranks_run(&plan), 0);
}

/* ---- /proc, limits, homes ------------------------------------------------------------------ */

/* Without access to /proc, peers' memory is sent as descriptors. */
static void no_proc_body(ranks_t *ranks)
{
    works_body(ranks);
    _exit(0); /* a leak checker needs /proc at the end */
}

static void proc_is_empty(void **state)
{
    (void)state;
    under("/proc", "size=16k", no_proc_body);
}

static void file_size_body(ranks_t *ranks)
{
    const struct rlimit least = {4096, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &least) == 0);
    fails(ranks, "File too large", "File too large");
    CHECK(setrlimit(RLIMIT_FSIZE, &all) == 0);
    works_body(ranks);
}

static void files_body(ranks_t *ranks)
{
    struct rlimit before, none;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    ncclUniqueId id = ranks_id(ranks);
    none = (struct rlimit){3, before.rlim_max};
    ncclComm_t comm = NULL;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK_FAILS(ncclCommInitRank(&comm, ranks->nranks, id, ranks->rank));
    CHECK(strstr(ncclGetLastError(NULL), "Too many open files") != NULL);
    CHECK(comm == NULL);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    works_body(ranks);
}

static uint32_t names_in(const char *folder, const char *prefix)
{
    uint32_t count = 0;
    DIR *names = opendir(folder);
    for (struct dirent *entry; names && (entry = readdir(names)) != NULL;)
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    if (names)
        closedir(names);
    return count;
}

/* At each limit of open files the init works or fails with a reason, and leaves no name. Rank 1 has no such limits. */
static void few_files_body(ranks_t *ranks)
{
    struct rlimit before, few;
    setenv("SHUNT_TIMEOUT_MS", "3000", 1); /* rank 1 waits in vain */
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    for (rlim_t more = 0; more < 6; more++) {
        ncclUniqueId id = ranks_id(ranks);
        ncclComm_t comm = NULL;
        int next = dup(0);
        close(next);
        few = (struct rlimit){(rlim_t)next + more, before.rlim_max};
        CHECK(ranks->rank > 0 || setrlimit(RLIMIT_NOFILE, &few) == 0);
        ncclResult_t result = ncclCommInitRank(&comm, ranks->nranks, id, ranks->rank);
        CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
        if (ranks->rank == 0 && result != ncclSuccess && !strstr(ncclGetLastError(NULL), "Too many open files"))
            check_failed(__FILE__, __LINE__, "it says why: ", ncclGetLastError(NULL));
        CHECK_NCCL(ncclCommAbort(comm));
        ranks_barrier(ranks);
        CHECK(names_in("/dev/shm", "shunt-") == 0);
        ranks_barrier(ranks);
    }
    works_body(ranks);
}

static void few_files(void **state)
{
    (void)state;
    under("/dev/shm", "size=4m,mode=1777", few_files_body);
}

static void limits(void **state)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 2, .env = small, .body = file_size_body};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
    plan.body = files_body;
    assert_int_equal(ranks_run(&plan), 0);
}

/* Make a system call fail as seccomp filters of containers do for unknown ones. */
static void forbid(uint32_t call)
{
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static void no_memfd_body(ranks_t *ranks)
{
    forbid(SYS_memfd_create);
    fails(ranks,
          "could not make memory for its peers: the system refuses it (does a seccomp filter forbid memfd_create?)",
          "?");
}

static void memfd_is_forbidden(void **state)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 2, .env = small, .body = no_memfd_body};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
}

/* Two ranks on two nodes without a common interface get an error. */
static void no_interface_body(ranks_t *ranks)
{
    char log[] = "/tmp/shunt-interface-XXXXXX", text[4096] = "";
    int fd = mkstemp(log);
    CHECK(fd >= 0 && setenv("SHUNT_DEBUG_FILE", log, 1) == 0);
    setenv("NCCL_HOSTID", ranks->rank ? "one" : "other", 1);
    fails(ranks, "only 1 of 2 ranks joined within 500 ms, and the id has no address for other nodes",
          "a rank died or gave up");
    CHECK(read(fd, text, sizeof(text) - 1) >= 0);
    CHECK(ranks->rank > 0 || strstr(text, "NCCL_SOCKET_IFNAME=nothing names no interface"));
    close(fd);
    unlink(log);
}

static void no_interface(void **state)
{
    static const char *const nothing[] = {"NCCL_SOCKET_IFNAME", "nothing", "SHUNT_TIMEOUT_MS", "500", NULL};
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 2, .env = nothing, .body = no_interface_body};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
}

static void homeless_body(ranks_t *ranks)
{
    CHECK(unsetenv("HOME") == 0);
    works_body(ranks);
}

/* A home folder of another user, as in a container with an unknown user id, causes no log line. */
static void foreign_home_body(ranks_t *ranks)
{
    char log[] = "/tmp/shunt-home-XXXXXX";
    struct stat info;
    int fd = mkstemp(log);
    CHECK(fd >= 0 && fchown(fd, STRANGER, (gid_t)-1) == 0);
    CHECK(setenv("SHUNT_DEBUG_FILE", log, 1) == 0);
    CHECK(setuid(STRANGER) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
    works_body(ranks);
    CHECK(fstat(fd, &info) == 0 && info.st_size == 0);
    CHECK(truncate(log, 0) == 0);
    close(fd);
}

static void foreign_home(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip_because("another user needs root");
    under("/root", "size=16k,mode=0700", foreign_home_body);
    assert_int_equal(system("rm -f /tmp/shunt-home-*"), 0);
}

static void homes(void **state)
{
    static const char *const nowhere[] = {"HOME", "/nowhere/at/all", "XDG_CONFIG_HOME", "/proc", NULL};
    static const char *const empty[] = {"HOME", "", NULL};
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 2, .env = nowhere, .body = works_body};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
    plan.env = empty;
    assert_int_equal(ranks_run(&plan), 0);
    plan.body = homeless_body;
    assert_int_equal(ranks_run(&plan), 0);
    under("/root", "size=16k,mode=0555", works_body);
}

/* ---- Deaths ----------------------------------------------------------------------------------- */

/* The check of peers notices a death: the time limit is longer than the run's. */
static void death_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks), next = NULL;
    ncclResult_t state = ncclSuccess, result = ncclSuccess;
    float in = 1, out = 0;
    int dead = ranks->nranks - 1;
    ranks_barrier(ranks);
    if (ranks->rank == dead)
        raise(SIGKILL);
    while (result == ncclSuccess)
        result = ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL);
    CHECK(result == ncclRemoteError);
    CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclRemoteError);
    CHECK_NCCL(ncclCommShrink(comm, &dead, 1, &next, NULL, NCCL_SHRINK_ABORT));
    works(next, ranks->nranks - 1);
    CHECK_NCCL(ncclCommAbort(comm));
}

static void death_in_mid_call(void **state)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 3, .killed = 1u << 2, .body = death_body};
    (void)state;
    for (int i = 0; i < scaled(4); i++)
        assert_int_equal(ranks_run(&plan), 0);
}

/* A run whose ranks all die in the init does not disturb the next one with the same id, which finds its segment. */
static void dies_in_init_body(ranks_t *ranks)
{
    ncclComm_t comm = NULL;
    if (ranks->rank == 0)
        CHECK_NCCL(ncclGetUniqueId(&ranks->shared->id));
    ranks_barrier(ranks);
    if (ranks->rank == 0)
        raise(SIGKILL);
    (void)ncclCommInitRank(&comm, ranks->nranks, ranks->shared->id, ranks->rank);
    raise(SIGKILL);
}

static void same_id_body(ranks_t *ranks)
{
    ncclComm_t comm = NULL;
    CHECK_NCCL(ncclCommInitRank(&comm, ranks->nranks, ranks->shared->id, ranks->rank));
    works(comm, ranks->nranks);
}

static void crashed_run(void **state)
{
    static const char *const patient[] = {"SHUNT_TIMEOUT_MS", "300", NULL};
    ranks_shared_t *shared = ranks_share();
    ranks_plan_t crash = {.shape = RANKS_PROCESSES,
                          .nranks = 2,
                          .killed = 3,
                          .env = patient,
                          .body = dies_in_init_body,
                          .shared = shared};
    ranks_plan_t next = {.shape = RANKS_PROCESSES, .nranks = 2, .body = same_id_body, .shared = shared};
    (void)state;
    assert_int_equal(ranks_run(&crash), 0);
    assert_int_equal(ranks_run(&next), 0);
}

/* ---- Another user -------------------------------------------------------------------------------- */

/* Try to open all files in a folder with this prefix; returns their number, fails if one could be opened. */
static int pry(const char *folder, const char *prefix)
{
    int seen = 0;
    DIR *names = opendir(folder);
    for (struct dirent *entry; names && (entry = readdir(names)) != NULL;) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        seen++;
        CHECK(openat(dirfd(names), entry->d_name, O_RDONLY | O_CLOEXEC) < 0);
        CHECK(openat(dirfd(names), entry->d_name, O_RDWR | O_CLOEXEC) < 0);
        CHECK(unlinkat(dirfd(names), entry->d_name, 0) < 0);
    }
    if (names)
        closedir(names);
    return seen;
}

/* Rank 2, as another user, cannot open any file of the communicators of ranks 0 and 1. */
static void stranger_body(ranks_t *ranks)
{
    enum { SEEN = 4 };
    char prefix[64], folder[64];
    uint64_t ends = 2;
    snprintf(prefix, sizeof(prefix), "shunt-%d-", STRANGER);
    CHECK(setgid(ranks->rank < 2 ? STRANGER : OTHER) == 0);
    CHECK(setuid(ranks->rank < 2 ? STRANGER : OTHER) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0); /* the change of user removed it: peers could not open /proc/<pid>/fd */
    if (ranks->rank < 2) {
        atomic_store(&ranks->shared->words[2 + ranks->rank], (uint64_t)getpid());
        for (int i = 0; i < 40; i++) {
            ncclComm_t comm = NULL;
            if (ranks->rank == 0) {
                CHECK_NCCL(ncclGetUniqueId(&ranks->shared->id));
                atomic_fetch_add(&ranks->shared->words[0], 1);
            }
            ranks_wait(ranks, 0, (uint64_t)i + 1);
            ncclUniqueId id = ranks->shared->id;
            if (ranks->rank == 1)
                ranks_wait(ranks, SEEN, (uint64_t)i + 1); /* the first rank's segment stays until it has been checked */
            CHECK_NCCL(ncclCommInitRank(&comm, 2, id, ranks->rank));
            works(comm, 2);
        }
        atomic_fetch_add(&ranks->shared->words[1], 1);
        return;
    }
    while (atomic_load(&ranks->shared->words[1]) < ends) {
        atomic_fetch_add(&ranks->shared->words[SEEN], (uint64_t)pry("/dev/shm", prefix));
        for (int victim = 0; victim < 2; victim++) {
            snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)atomic_load(&ranks->shared->words[2 + victim]));
            CHECK(opendir(folder) == NULL || atomic_load(&ranks->shared->words[1]) > 0);
        }
    }
}

static void stranger_gains_nothing(void **state)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 3, .body = stranger_body};
    (void)state;
    if (geteuid() != 0)
        skip_because("two other users need root");
    assert_int_equal(ranks_run(&plan), 0);
}

/* The path of a split's segment if it were derived from the public name of its parent's. */
static bool path_of_child(const char *prefix, char path[128])
{
    struct {
        net_key_t parent;
        int64_t tag, number;
    } whole = {.tag = 's'};
    bool found = false;
    DIR *names = opendir("/dev/shm");
    for (struct dirent *entry; !found && names && (entry = readdir(names)) != NULL;)
        found = strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
                sscanf(entry->d_name + strlen(prefix), "%16" SCNx64 "%16" SCNx64, &whole.parent.word[0],
                       &whole.parent.word[1]) == 2;
    if (names)
        closedir(names);
    const net_key_t child = net_key_hash(&whole, sizeof(whole));
    snprintf(path, 128, "/dev/shm/%s%016" PRIx64 "%016" PRIx64, prefix, child.word[0], child.word[1]);
    return found;
}

/* Ranks 0 and 1 can split a communicator while another user reads the names and creates files in advance. */
static void squatter_body(ranks_t *ranks)
{
    enum { MADE, SQUATTED, ENDED };
    char prefix[64], path[128];
    snprintf(prefix, sizeof(prefix), "shunt-%d-", STRANGER);
    CHECK(setgid(ranks->rank < 2 ? STRANGER : OTHER) == 0);
    CHECK(setuid(ranks->rank < 2 ? STRANGER : OTHER) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    if (ranks->rank < 2) {
        ncclComm_t comm = NULL, child = NULL;
        if (ranks->rank == 0) {
            CHECK_NCCL(ncclGetUniqueId(&ranks->shared->id));
            atomic_store(&ranks->shared->words[MADE], 1);
        }
        ranks_wait(ranks, ranks->rank == 0 ? MADE : SQUATTED, 1);
        CHECK_NCCL(ncclCommInitRank(&comm, 2, ranks->shared->id, ranks->rank));
        CHECK_NCCL(ncclCommSplit(comm, 0, ranks->rank, &child, NULL));
        works(child, 2);
        CHECK_NCCL(ncclCommDestroy(comm));
        atomic_fetch_add(&ranks->shared->words[ENDED], 1);
        return;
    }
    while (!path_of_child(prefix, path))
        usleep(1000);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    CHECK(file >= 0);
    atomic_store(&ranks->shared->words[SQUATTED], 1);
    ranks_wait(ranks, ENDED, 2);
    CHECK(unlink(path) == 0);
    close(file);
}

/* Run in a separate folder, so that no other program's name is mistaken for the ranks'. */
static int run_squatter(const void *argument)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 3, .body = squatter_body};
    (void)argument;
    if (own_mounts() != 0 || cover("/dev/shm", "size=16m,mode=1777") != 0)
        return 1;
    return ranks_run(&plan);
}

static void strangers_know_no_names(void **state)
{
    (void)state;
    needs_mounts();
    if (geteuid() != 0) {
        skip_because("two other users need root");
    }
    assert_int_equal(in_child(run_squatter, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shm_is_full),
        cmocka_unit_test(shm_is_small),
        cmocka_unit_test(shm_is_closed),
        cmocka_unit_test(shm_is_not_shared),
        cmocka_unit_test(users_are_nodes),
        cmocka_unit_test(proc_is_empty),
        cmocka_unit_test(limits),
        cmocka_unit_test(few_files),
        cmocka_unit_test(memfd_is_forbidden),
        cmocka_unit_test(no_interface),
        cmocka_unit_test(homes),
        cmocka_unit_test(foreign_home),
        cmocka_unit_test(death_in_mid_call),
        cmocka_unit_test(crashed_run),
        cmocka_unit_test(stranger_gains_nothing),
        cmocka_unit_test(strangers_know_no_names),
    };
    cpu_limit(100);
    return cmocka_run_group_tests_name("surroundings", tests, NULL, NULL);
}
