/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rendezvous_damage_test.c - damaged and foreign segments, and missing shared memory, do no harm.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "children.h"
#include "segments.h"
#include "tests/support/skips.h"

/* ---- Segments that are not ours ------------------------------------------------------ */

/* Create a file with the segment's name; returns the result of joining it. */
static int join_over(mode_t mode, off_t size, const net_segment_t *head)
{
    char name[SEGMENT_NAME_BYTES];
    net_key_t key = random_key();
    net_rendezvous_t *rendezvous = NULL;
    segment_name(&key, geteuid(), name);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, mode), 0);
    assert_int_equal(ftruncate(fd, size), 0);
    if (head)
        assert_int_equal(pwrite(fd, head, 16, 0), 16);
    close(fd);
    int result = net_join(&key, &rendezvous);
    net_leave(rendezvous);
    shm_unlink(name);
    return result;
}

static void test_damaged_segments_are_refused(void **state)
{
    (void)state;
    const off_t size = sizeof(net_segment_t);
    net_segment_t *head = calloc(1, sizeof *head);
    assert_non_null(head);
    head->magic = SEGMENT_MAGIC;
    head->version = SEGMENT_VERSION + 1;
    head->bytes = sizeof *head;
    assert_int_equal(join_over(0600, size, head), -EPROTO);
    head->version = SEGMENT_VERSION;
    head->bytes = 1;
    assert_int_equal(join_over(0600, size, head), -EPROTO);
    head->magic = 42;
    head->bytes = sizeof *head;
    assert_int_equal(join_over(0600, size, head), -EPROTO);
    assert_int_equal(join_over(0600, size + 1, NULL), -EPROTO);
    assert_int_equal(join_over(0600, 1, NULL), -EPROTO);
    assert_int_equal(join_over(0660, size, NULL), -EPERM);
    assert_int_equal(join_over(0604, 0, NULL), -EPERM);
    /* Half made by a process that died: completed by the next. */
    assert_int_equal(join_over(0600, 0, NULL), 0);
    assert_int_equal(join_over(0600, size, NULL), 0);
    free(head);
}

/* Random bytes after a valid header may give any result, but no crash. */
static void test_garbage_behind_a_good_head(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 50; round++) {
        net_key_t key = random_key();
        net_rendezvous_t *rendezvous;
        uint8_t record[NET_RECORD_BYTES];
        size_t size = 0;
        assert_int_equal(net_join(&key, &rendezvous), 0);
        assert_int_equal(net_set_rank(rendezvous, 0, 8), 0);
        char name[SEGMENT_NAME_BYTES];
        segment_name(&key, geteuid(), name);
        int fd = shm_open(name, O_RDWR, 0);
        uint8_t *bytes = mmap(NULL, sizeof(net_segment_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(bytes != MAP_FAILED);
        for (size_t i = 16; i < sizeof(net_segment_t); i++)
            bytes[i] = (uint8_t)(round % 2 ? rand() : rand() % 5);
        (void)net_count(rendezvous);
        for (uint32_t stage = 0; stage < NET_STAGES; stage++) {
            (void)net_poll(rendezvous, stage);
            for (uint32_t rank = 0; rank < 9; rank++)
                if (net_read(rendezvous, stage, rank, record, sizeof record, &size) == 0)
                    assert_true(size <= sizeof record);
        }
        assert_true(strlen(net_reason(rendezvous)) < SEGMENT_REASON_BYTES);
        (void)net_rank_gone(rendezvous, 3);
        net_leave(rendezvous);
        munmap(bytes, sizeof(net_segment_t));
        close(fd);
        shm_unlink(name);
    }
}

/* Make something other than a file; returns the result of joining it. */
static int join_over_thing(int (*make)(const char *path))
{
    char name[SEGMENT_NAME_BYTES], path[SEGMENT_NAME_BYTES + 16];
    net_key_t key = random_key();
    net_rendezvous_t *rendezvous = NULL;
    segment_name(&key, geteuid(), name);
    snprintf(path, sizeof path, "/dev/shm%s", name);
    assert_int_equal(make(path), 0);
    int result = net_join(&key, &rendezvous);
    net_leave(rendezvous);
    remove(path);
    return result;
}

static int make_link(const char *path)
{
    return symlink("/dev/shm/shunt-elsewhere", path);
}

static int make_pipe(const char *path)
{
    return mkfifo(path, 0600);
}

static int make_folder(const char *path)
{
    return mkdir(path, 0700);
}

static void test_names_of_non_files(void **state)
{
    (void)state;
    assert_int_equal(join_over_thing(make_link), -ELOOP);
    assert_int_equal(access("/dev/shm/shunt-elsewhere", F_OK), -1);
    assert_int_equal(join_over_thing(make_pipe), -EPERM);
    assert_int_equal(join_over_thing(make_folder), -EINVAL); /* as shm_open words it */
}

/* An invalid verdict, which no rank has written, also ends the wait. */
static void test_invalid_verdict(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *rendezvous;
    net_named_t named;
    assert_int_equal(net_join(&key, &rendezvous), 0);
    assert_int_equal(net_segment_open(&key, &named), 0);
    net_segment_unlock(&named);
    atomic_store(&named.segment->verdict, 0x700);
    assert_int_equal(net_verdict(rendezvous), NET_DECLINED);
    assert_int_equal(net_decide(rendezvous, NET_ATTACHED, ""), NET_DECLINED);
    assert_true(strlen(net_reason(rendezvous)) < SEGMENT_REASON_BYTES);
    net_segment_unmap(&named);
    net_leave(rendezvous);
}

/* A segment that lacks one rank's record although all have posted gives an error, as no later joiner can repair it. */
static void test_lost_rank(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *one, *other;
    net_named_t named;
    assert_int_equal(net_join(&key, &one), 0);
    assert_int_equal(net_join(&key, &other), 0);
    assert_int_equal(net_set_rank(one, 0, 2), 0);
    assert_int_equal(net_set_rank(other, 1, 2), 0);
    assert_int_equal(net_segment_open(&key, &named), 0);
    net_segment_unlock(&named);
    atomic_store(&named.segment->slot_of[1], 0x700);
    assert_int_equal(net_post(one, 0, NULL, 0), 0);
    assert_int_equal(net_poll(one, 0), 0);
    assert_int_equal(net_post(other, 0, NULL, 0), 0);
    assert_int_equal(net_poll(one, 0), -EPROTO);
    net_segment_unmap(&named);
    net_leave(one);
    net_leave(other);
}

static int squat(uint32_t rank, uint32_t nranks, void *argument)
{
    char name[SEGMENT_NAME_BYTES];
    (void)rank, (void)nranks;
    segment_name(argument, geteuid(), name);
    CHECK(setuid(ANOTHER_USER) == 0);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0666);
    CHECK(fd >= 0 && ftruncate(fd, sizeof(net_segment_t)) == 0 && fchmod(fd, 0666) == 0);
    return 0;
}

static int join_as_stranger(uint32_t rank, uint32_t nranks, void *argument)
{
    char name[SEGMENT_NAME_BYTES];
    net_rendezvous_t *rendezvous;
    (void)rank, (void)nranks;
    segment_name(argument, ANOTHER_USER, name);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0);
    CHECK(setuid(ANOTHER_USER) == 0);
    int result = net_join(argument, &rendezvous);
    CHECK(result == -EPERM);
    return 0;
}

static void test_foreign_owner_is_refused(void **state)
{
    (void)state;
    char name[SEGMENT_NAME_BYTES];
    net_key_t key = random_key();
    net_rendezvous_t *rendezvous;
    if (geteuid() != 0)
        skip_because("another user's file needs root to make");
    assert_int_equal(run_processes(1, squat, &key), 0);
    assert_int_equal(net_join(&key, &rendezvous), -EPERM);
    segment_name(&key, geteuid(), name);
    shm_unlink(name);
    assert_int_equal(run_processes(1, join_as_stranger, &key), 0);
    segment_name(&key, ANOTHER_USER, name);
    shm_unlink(name);
}

/* ---- Where shared memory is missing --------------------------------------------------- */

/* Mount a small tmpfs over /dev/shm, in this process only. */
static int cover_shm(const char *options)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, options) != 0)
        return -errno;
    return 0;
}

static int join_in_full_shm(uint32_t rank, uint32_t nranks, void *argument)
{
    net_rendezvous_t *rendezvous;
    net_memory_t *memory;
    uint8_t offer[NET_OFFER_BYTES];
    (void)rank, (void)nranks;
    CHECK(cover_shm("size=16k,mode=1777") == 0);
    CHECK(net_join(argument, &rendezvous) == -ENOSPC);
    CHECK(segment_names() == 0);
    CHECK(net_memory_create(NET_MEMORY_SHARED, 0, 1 << 20, &memory, offer) == 0); /* needs no /dev/shm */
    net_memory_destroy(memory);
    return 0;
}

static volatile sig_atomic_t breaks;

static void count_break(int signal)
{
    (void)signal;
    breaks++;
}

typedef struct leased {
    const char *name;
    int told[2], done[2]; /* pipes: the lease is there; the test is done */
} leased_t;

/* Another user's file with a write lease: a process that opens it without O_NONBLOCK waits for minutes. The lease's
 * owner is signalled at each try. */
static int lease(uint32_t rank, uint32_t nranks, void *argument)
{
    const leased_t *leased = argument;
    char byte = 0;
    (void)rank, (void)nranks;
    CHECK(setuid(ANOTHER_USER) == 0);
    umask(0);
    int fd = shm_open(leased->name, O_RDWR | O_CREAT | O_EXCL, 0666);
    CHECK(fd >= 0);
    CHECK(signal(SIGIO, count_break) != SIG_ERR);
    CHECK(fcntl(fd, F_SETLEASE, F_WRLCK) == 0);
    close(leased->done[1]);
    CHECK(write(leased->told[1], &byte, 1) == 1);
    while (read(leased->done[0], &byte, 1) < 0 && errno == EINTR)
        ;
    CHECK(breaks == 0);
    return 0;
}

static int try_beside_lease(int (*attempt)(const net_key_t *))
{
    char name[SEGMENT_NAME_BYTES], byte;
    net_key_t key = random_key();
    leased_t leased = {.name = name};
    segment_name(&key, geteuid(), name);
    CHECK(pipe(leased.told) == 0 && pipe(leased.done) == 0);
    pid_t child = start_child(lease, 0, 1, &leased);
    close(leased.told[1]);
    CHECK(read(leased.told[0], &byte, 1) == 1);
    const int failed = attempt(&key);
    close(leased.done[1]);
    CHECK(wait_child(child));
    return failed;
}

static int sweep_over(const net_key_t *key)
{
    (void)key;
    net_segment_sweep();
    return 0;
}

static int join_over_stranger(const net_key_t *key)
{
    net_rendezvous_t *rendezvous;
    CHECK(net_join(key, &rendezvous) == -EPERM);
    return 0;
}

/* Meet beside leases, in a folder that no other process sweeps. */
static int meet_leases(uint32_t rank, uint32_t nranks, void *argument)
{
    (void)rank, (void)nranks, (void)argument;
    CHECK(cover_shm("size=1m,mode=1777") == 0);
    CHECK(try_beside_lease(sweep_over) == 0);
    CHECK(try_beside_lease(join_over_stranger) == 0);
    return 0;
}

enum { STRANGERS = 1100 };

static int make_strangers(uint32_t first, uint32_t nranks, void *argument)
{
    (void)nranks, (void)argument;
    const unsigned long victim = geteuid();
    CHECK(setuid(ANOTHER_USER) == 0);
    for (uint32_t i = first; i < first + STRANGERS; i++) {
        char name[SEGMENT_NAME_BYTES];
        snprintf(name, sizeof name, "/shunt-%lu-%032x", victim, i);
        int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0);
        close(fd);
    }
    return 0;
}

/* The user's own files are swept beside strangers' files, whatever the order of the folder. */
static int sweep_among_strangers(uint32_t rank, uint32_t nranks, void *argument)
{
    char name[SEGMENT_NAME_BYTES];
    (void)rank, (void)nranks;
    CHECK(cover_shm("size=16m,mode=1777") == 0);
    CHECK(run_processes(1, make_strangers, NULL) == 0);
    segment_name(argument, geteuid(), name);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600); /* half made by a process that died */
    CHECK(fd >= 0);
    close(fd);
    CHECK(wait_child(start_child(make_strangers, STRANGERS, 1, NULL)));
    net_segment_sweep();
    CHECK(!segment_has_name(argument));
    CHECK(segment_names() == 2 * STRANGERS);
    return 0;
}

static int join_in_closed_shm(uint32_t rank, uint32_t nranks, void *argument)
{
    net_rendezvous_t *rendezvous;
    (void)rank, (void)nranks;
    CHECK(cover_shm("size=1m,mode=0755") == 0);
    CHECK(setuid(ANOTHER_USER) == 0);
    CHECK(net_join(argument, &rendezvous) == -EACCES);
    return 0;
}

static int can_cover(uint32_t rank, uint32_t nranks, void *argument)
{
    (void)rank, (void)nranks, (void)argument;
    return cover_shm("size=16k") != 0;
}

static void test_full_and_closed_shm(void **state)
{
    (void)state;
    net_key_t key = random_key();
    if (run_processes(1, can_cover, NULL) != 0)
        skip_because("cannot mount a tmpfs here");
    assert_int_equal(run_processes(1, join_in_full_shm, &key), 0);
    assert_int_equal(run_processes(1, join_in_closed_shm, &key), 0);
    assert_int_equal(run_processes(1, sweep_among_strangers, &key), 0);
    assert_int_equal(run_processes(1, meet_leases, NULL), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged_segments_are_refused),
        cmocka_unit_test(test_garbage_behind_a_good_head),
        cmocka_unit_test(test_names_of_non_files),
        cmocka_unit_test(test_invalid_verdict),
        cmocka_unit_test(test_lost_rank),
        cmocka_unit_test(test_foreign_owner_is_refused),
        cmocka_unit_test(test_full_and_closed_shm),
    };
    return cmocka_run_group_tests_name("rendezvous_damage", tests, NULL, NULL);
}
