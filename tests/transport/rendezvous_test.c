/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rendezvous_test.c - ranks find each other, agree once, and notice who is gone;
 * dead, foreign and damaged segments do no harm.
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
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

#include "children.h"
#include "transport/segment.h"

enum { STRANGER = 54321 /* a user id that is not ours */ };

static void name_of(const net_key_t *key, unsigned long uid, char name[SEGMENT_NAME_BYTES])
{
    snprintf(name, SEGMENT_NAME_BYTES, "/shunt-%lu-%016lx%016lx", uid, (unsigned long)key->word[0],
             (unsigned long)key->word[1]);
}

static bool name_exists(const net_key_t *key)
{
    char name[SEGMENT_NAME_BYTES];
    name_of(key, geteuid(), name);
    int fd = shm_open(name, O_RDONLY, 0);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* ---- The whole way ---------------------------------------------------------------- */

static int whole_way(uint32_t rank, uint32_t nranks, void *argument)
{
    const net_key_t *key = argument;
    net_rendezvous_t *rendezvous;
    CHECK(net_join(key, &rendezvous) == 0);
    CHECK(wait_count(rendezvous, nranks) == 0);
    CHECK(net_set_rank(rendezvous, rank, nranks) == 0);
    for (uint32_t stage = 0; stage < NET_STAGES; stage++) {
        uint8_t record[NET_RECORD_BYTES];
        size_t size = rank == 0 ? 0 : net_record_bytes(stage) - rank;
        memset(record, (int)(rank * 16 + stage), sizeof record);
        CHECK(net_post(rendezvous, stage, record, size) == 0);
        CHECK(wait_stage(rendezvous, stage) == 0);
        for (uint32_t peer = 0; peer < nranks; peer++) {
            size_t got = 1;
            CHECK(net_read(rendezvous, stage, peer, record, sizeof record, &got) == 0);
            CHECK(got == (peer == 0 ? 0 : net_record_bytes(stage) - peer));
            for (size_t i = 0; i < got; i++)
                CHECK(record[i] == peer * 16 + stage);
            /* After the last stage a peer's process may have ended. */
            CHECK(stage == NET_STAGES - 1 || !net_rank_gone(rendezvous, peer));
        }
        if (stage == 0)
            net_unlink(rendezvous);
    }
    CHECK(net_decide(rendezvous, NET_ATTACHED, NULL) == NET_ATTACHED);
    CHECK(net_decide(rendezvous, NET_DECLINED, "too late") == NET_ATTACHED);
    CHECK(strcmp(net_reason(rendezvous), "") == 0);
    net_leave(rendezvous);
    return 0;
}

static void test_whole_way_in_processes(void **state)
{
    (void)state;
    for (uint32_t nranks = 1; nranks <= 8; nranks++) {
        net_key_t key = random_key();
        assert_int_equal(run_processes(nranks, whole_way, &key), 0);
        assert_false(name_exists(&key));
    }
}

static void test_whole_way_in_threads(void **state)
{
    (void)state;
    for (uint32_t nranks = 1; nranks <= 8; nranks++) {
        net_key_t key = random_key();
        assert_int_equal(run_threads(nranks, whole_way, &key), 0);
        assert_false(name_exists(&key));
    }
}

static void test_keys_differ(void **state)
{
    (void)state;
    uint8_t bytes[130] = {0};
    for (size_t size = 0; size < 129; size++) {
        net_key_t a = net_key_hash(bytes, size);
        net_key_t b = net_key_hash(bytes, size + 1);
        assert_true(a.word[0] != b.word[0] && a.word[1] != b.word[1]);
    }
    net_key_t zero = net_key_hash(bytes, 128);
    for (size_t bit = 0; bit < 128 * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        net_key_t other = net_key_hash(bytes, 128);
        assert_true(other.word[0] != zero.word[0] && other.word[1] != zero.word[1]);
        bytes[bit / 8] = 0;
    }
}

/* ---- Limits ------------------------------------------------------------------------ */

static void test_overfull(void **state)
{
    (void)state;
    enum { JOINERS = NET_MAX_SLOTS + 4 };
    net_key_t key = random_key();
    net_rendezvous_t *joined[JOINERS];
    for (uint32_t i = 0; i < JOINERS; i++) {
        assert_int_equal(net_join(&key, &joined[i]), 0);
        assert_int_equal(net_count(joined[0]), i < NET_MAX_SLOTS ? i + 1 : NET_MAX_SLOTS + 1);
    }
    net_rendezvous_t *last = joined[JOINERS - 1];
    assert_int_equal(net_set_rank(last, 0, 2), -ERANGE);
    assert_int_equal(net_post(last, 0, "x", 1), -EINVAL);
    assert_int_equal(net_decide(last, NET_DECLINED, "one too many"), NET_DECLINED);
    assert_int_equal(net_verdict(joined[0]), NET_DECLINED);
    assert_true(strlen(net_reason(joined[0])) > 0);
    for (uint32_t i = 0; i < JOINERS; i++)
        net_leave(joined[i]);
    assert_false(name_exists(&key));
}

static void test_ranks_are_checked(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *a, *b;
    assert_int_equal(net_join(&key, &a), 0);
    assert_int_equal(net_join(&key, &b), 0);
    assert_int_equal(net_poll(a, 0), -EINVAL);
    assert_int_equal(net_set_rank(a, 0, NET_MAX_SLOTS + 1), -ERANGE);
    assert_int_equal(net_set_rank(a, 2, 2), -ERANGE);
    assert_int_equal(net_set_rank(a, 1, 2), 0);
    assert_int_equal(net_set_rank(a, 0, 2), -EEXIST);
    assert_int_equal(net_set_rank(b, 1, 2), -EEXIST);
    assert_int_equal(net_set_rank(b, 0, 3), -EPROTO);
    assert_int_equal(net_set_rank(b, 0, 2), 0);
    assert_true(net_rank_gone(a, 2));
    net_leave(b);
    net_leave(a);
    net_leave(NULL);
}

static void test_records_are_checked(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *a;
    uint8_t record[NET_RECORD_BYTES + 1] = {7};
    size_t size = 99;
    assert_int_equal(net_join(&key, &a), 0);
    assert_int_equal(net_set_rank(a, 0, 1), 0);
    assert_int_equal(net_post(a, NET_STAGES, record, 1), -EINVAL);
    assert_int_equal(net_post(a, 0, record, NET_RECORD_BYTES + 1), -EMSGSIZE);
    assert_int_equal(net_post(a, 1, record, NET_LATER_BYTES + 1), -EMSGSIZE);
    assert_int_equal(net_poll(a, 0), 0);
    assert_int_equal(net_read(a, 0, 0, record, sizeof record, &size), -EAGAIN);
    assert_int_equal(net_post(a, 0, record, NET_RECORD_BYTES), 0);
    assert_int_equal(net_post(a, 0, record, 1), -EEXIST);
    assert_int_equal(net_poll(a, 0), 1);
    assert_int_equal(net_read(a, 0, 0, record, NET_RECORD_BYTES - 1, &size), -EMSGSIZE);
    assert_int_equal(net_read(a, 0, 1, record, sizeof record, &size), -EINVAL);
    assert_int_equal(net_read(a, NET_STAGES, 0, record, sizeof record, &size), -EINVAL);
    assert_int_equal(size, 99);
    assert_int_equal(net_read(a, 0, 0, record, sizeof record, &size), 0);
    assert_int_equal(size, NET_RECORD_BYTES);
    net_leave(a);
}

/* ---- Death ------------------------------------------------------------------------- */

static int join_and_vanish(uint32_t rank, uint32_t nranks, void *argument)
{
    net_rendezvous_t *rendezvous;
    CHECK(net_join(argument, &rendezvous) == 0);
    CHECK(net_set_rank(rendezvous, rank, nranks) == 0);
    return 0; /* the process ends without leaving */
}

static int join_and_hang(uint32_t rank, uint32_t nranks, void *argument)
{
    CHECK(join_and_vanish(rank, nranks, argument) == 0);
    for (;;)
        pause();
}

static void test_stale_is_replaced(void **state)
{
    (void)state;
    net_key_t key = random_key();
    assert_int_equal(run_processes(3, join_and_vanish, &key), 0);
    assert_true(name_exists(&key));
    net_rendezvous_t *rendezvous;
    assert_int_equal(net_join(&key, &rendezvous), 0);
    assert_int_equal(net_count(rendezvous), 1);
    net_leave(rendezvous);
    assert_false(name_exists(&key));
}

static void test_stale_is_replaced_once(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        net_key_t key = random_key();
        assert_int_equal(run_processes(1, join_and_vanish, &key), 0);
        assert_int_equal(run_processes(8, whole_way, &key), 0);
    }
}

static void test_killed_joiner_is_noticed(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *rendezvous;
    assert_int_equal(net_join(&key, &rendezvous), 0);
    assert_int_equal(net_set_rank(rendezvous, 0, 2), 0);
    assert_int_equal(net_post(rendezvous, 0, NULL, 0), 0);
    pid_t child = start_child(join_and_hang, 1, 2, &key);
    assert_int_equal(wait_count(rendezvous, 2), 0);
    assert_int_equal(net_poll(rendezvous, 0), 0);
    kill(child, SIGKILL);
    assert_int_equal(wait_stage(rendezvous, 0), -ESRCH); /* still a zombie */
    assert_true(net_rank_gone(rendezvous, 1));
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(net_poll(rendezvous, 0), -ESRCH);
    assert_false(net_rank_gone(rendezvous, 0));
    net_leave(rendezvous);
    assert_false(name_exists(&key));
}

static void test_a_rank_that_left_is_not_waited_for(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *a, *b;
    assert_int_equal(net_join(&key, &a), 0);
    assert_int_equal(net_join(&key, &b), 0);
    assert_int_equal(net_set_rank(a, 0, 2), 0);
    assert_int_equal(net_set_rank(b, 1, 2), 0);
    assert_int_equal(net_post(b, 0, NULL, 0), 0);
    assert_false(net_rank_gone(a, 1));
    net_leave(b);
    assert_true(net_rank_gone(a, 1));
    assert_int_equal(net_poll(a, 0), 0); /* b has posted this one */
    assert_int_equal(net_poll(a, 1), -ESRCH);
    net_leave(a);
    assert_false(name_exists(&key));
}

/* Who is missing: a rank that has not come, one that comes at a poll, one that waits too. */
static void test_who_is_missing(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *a, *b, *c;
    assert_int_equal(net_join(&key, &a), 0);
    assert_int_equal(net_join(&key, &b), 0);
    assert_int_equal(net_set_rank(a, 0, 3), 0);
    assert_int_equal(net_missing(a, 0), NET_MISSING_UNSEEN);
    assert_false(net_present(a, 1)); /* no rank yet */
    assert_int_equal(net_join(&key, &c), 0);
    assert_int_equal(net_missing(a, 0), NET_MISSING_WAITING);
    assert_int_equal(net_set_rank(b, 1, 3), 0);
    assert_int_equal(net_set_rank(c, 2, 3), 0);
    assert_true(net_present(a, 1));
    net_set_away(b, true);
    assert_int_equal(net_missing(a, 0), NET_MISSING_AWAY);
    assert_int_equal(net_post(b, 0, NULL, 0), 0);
    assert_int_equal(net_missing(a, 0), NET_MISSING_WAITING); /* for c */
    assert_int_equal(net_missing(a, 1), NET_MISSING_AWAY);
    net_set_away(b, false);
    assert_int_equal(net_missing(a, 1), NET_MISSING_WAITING);
    net_leave(c);
    assert_false(net_present(a, 2));
    assert_int_equal(net_missing(a, 0), NET_MISSING_UNSEEN);
    net_leave(b);
    net_leave(a);
}

static int join_for_ever(uint32_t rank, uint32_t nranks, void *argument)
{
    (void)rank, (void)nranks;
    for (;;) {
        net_rendezvous_t *rendezvous;
        CHECK(net_join(argument, &rendezvous) == 0);
        net_leave(rendezvous);
    }
}

/* Kill a joiner at any moment: the next one finds or makes a valid segment. */
static void test_killed_while_joining(void **state)
{
    (void)state;
    net_key_t key = random_key();
    for (int round = 0; round < 40; round++) {
        pid_t children[2];
        for (uint32_t i = 0; i < 2; i++)
            children[i] = start_child(join_for_ever, 0, 1, &key);
        nanosleep(&(struct timespec){.tv_nsec = 2000000 + round * 37000}, NULL);
        for (uint32_t i = 0; i < 2; i++)
            kill(children[i], SIGKILL);
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(waitpid(children[i], NULL, 0), children[i]);
        net_rendezvous_t *rendezvous;
        assert_int_equal(net_join(&key, &rendezvous), 0);
        assert_int_equal(net_count(rendezvous), 1);
        net_leave(rendezvous);
        assert_false(name_exists(&key));
    }
}

static void test_sweep(void **state)
{
    (void)state;
    net_key_t dead = random_key(), alive = random_key();
    char half_made[SEGMENT_NAME_BYTES];
    net_key_t other = random_key();
    net_rendezvous_t *rendezvous;
    assert_int_equal(net_join(&alive, &rendezvous), 0);
    assert_int_equal(run_processes(1, join_and_vanish, &dead), 0);
    name_of(&other, geteuid(), half_made);
    int fd = shm_open(half_made, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    close(fd);
    net_segment_sweep();
    assert_false(name_exists(&dead));
    assert_false(name_exists(&other));
    assert_true(name_exists(&alive));
    net_leave(rendezvous);
}

static int join_elsewhere(uint32_t rank, uint32_t nranks, void *argument)
{
    (void)rank, (void)nranks;
    CHECK(unshare(CLONE_NEWPID) == 0);
    return wait_child(start_child(join_and_vanish, 1, 2, argument)) ? 0 : 1;
}

static void test_other_pid_namespace_counts_as_alive(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *rendezvous;
    if (geteuid() != 0) {
        print_message("skipped: a pid namespace needs root\n");
        skip();
    }
    assert_int_equal(net_join(&key, &rendezvous), 0);
    assert_int_equal(net_set_rank(rendezvous, 0, 2), 0);
    if (run_processes(1, join_elsewhere, &key) != 0 || net_count(rendezvous) != 2) {
        net_leave(rendezvous);
        print_message("skipped: no pid namespace to be had here\n");
        skip();
    }
    assert_int_equal(net_poll(rendezvous, 0), 0);
    assert_int_equal(net_missing(rendezvous, 0), NET_MISSING_UNSEEN); /* its death cannot be seen */
    net_unlink(rendezvous);
    net_leave(rendezvous);
}

/* A container: its first process joins, and dies with the process that made it. */
static int live_elsewhere(uint32_t rank, uint32_t nranks, void *argument)
{
    (void)rank, (void)nranks;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    return join_and_hang(1, 2, argument);
}

/* The same; its child leaves a segment that it never joined. */
static int child_leaves_elsewhere(uint32_t rank, uint32_t nranks, void *argument)
{
    net_rendezvous_t *rendezvous;
    (void)rank, (void)nranks;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    CHECK(net_join(argument, &rendezvous) == 0);
    pid_t child = fork();
    if (child == 0) {
        net_leave(rendezvous);
        _exit(0);
    }
    CHECK(wait_child(child));
    net_rendezvous_t *second; /* says that the child is done */
    CHECK(net_join(argument, &second) == 0);
    net_leave(second);
    for (;;)
        pause();
}

typedef struct container {
    body_t body;
    net_key_t key;
} container_t;

static int contain(uint32_t rank, uint32_t nranks, void *argument)
{
    container_t *container = argument;
    CHECK(unshare(CLONE_NEWPID) == 0);
    return wait_child(start_child(container->body, rank, nranks, &container->key)) ? 0 : 1;
}

/* A segment in use by a container stays; one whose container is gone is removed, or replaced by the next joiner with
 * its key. */
static void live_and_die_elsewhere(body_t body, uint32_t joiners)
{
    container_t container = {body, random_key()};
    net_rendezvous_t *rendezvous;
    assert_int_equal(net_join(&container.key, &rendezvous), 0);
    pid_t maker = start_child(contain, 0, 1, &container);
    assert_int_equal(wait_count(rendezvous, 1 + joiners), 0);
    net_leave(rendezvous);
    net_segment_sweep();
    assert_true(name_exists(&container.key));
    kill(maker, SIGKILL);
    assert_int_equal(waitpid(maker, NULL, 0), maker);
    for (int naps = 0; naps < 200000 && name_exists(&container.key); naps++) {
        net_segment_sweep();
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    assert_false(name_exists(&container.key));
}

static void test_dead_container(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *rendezvous;
    if (geteuid() != 0 || run_processes(1, join_elsewhere, &key) != 0) {
        print_message("skipped: no pid namespace to be had here\n");
        skip();
    }
    assert_int_equal(net_join(&key, &rendezvous), 0);
    assert_int_equal(net_count(rendezvous), 1);
    net_leave(rendezvous);
    assert_false(name_exists(&key));
    live_and_die_elsewhere(live_elsewhere, 1);
    live_and_die_elsewhere(child_leaves_elsewhere, 2);
}

/* ---- The verdict -------------------------------------------------------------------- */

typedef struct race {
    net_key_t key;
    uint32_t *seen; /* shared: what each rank saw, and the reason's rank */
} race_t;

static int decide_at_once(uint32_t rank, uint32_t nranks, void *argument)
{
    race_t *race = argument;
    net_rendezvous_t *rendezvous;
    char reason[64];
    unsigned who = 99, again = 99;
    CHECK(net_join(&race->key, &rendezvous) == 0);
    CHECK(wait_count(rendezvous, nranks) == 0);
    CHECK(net_set_rank(rendezvous, rank, nranks) == 0);
    CHECK(net_post(rendezvous, 0, NULL, 0) == 0);
    int state;
    while ((state = net_poll(rendezvous, 0)) == 0)
        ;
    CHECK(state == 1 || state == -ECANCELED);
    snprintf(reason, sizeof reason, "reason of %u", rank);
    net_verdict_t verdict = net_decide(rendezvous, rank % 4 == 0 ? NET_ATTACHED : NET_DECLINED, reason);
    CHECK(verdict != NET_PENDING);
    CHECK(verdict == net_verdict(rendezvous));
    if (verdict == NET_DECLINED) {
        CHECK(sscanf(net_reason(rendezvous), "rank %u: reason of %u", &who, &again) == 2);
        CHECK(who == again && who < nranks);
        CHECK(net_decided(rendezvous) == (who == rank));
        CHECK(net_poll(rendezvous, 0) == -ECANCELED);
    }
    race->seen[rank] = (uint32_t)verdict << 8 | who;
    net_leave(rendezvous);
    return 0;
}

static void test_exactly_one_verdict(void **state)
{
    (void)state;
    uint32_t *seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(seen != MAP_FAILED);
    for (int round = 0; round < 10; round++) {
        race_t race = {random_key(), seen};
        assert_int_equal(run_processes(8, decide_at_once, &race), 0);
        for (int rank = 1; rank < 8; rank++)
            assert_int_equal(seen[rank], seen[0]);
        race.key = random_key();
        assert_int_equal(run_threads(8, decide_at_once, &race), 0);
        for (int rank = 1; rank < 8; rank++)
            assert_int_equal(seen[rank], seen[0]);
    }
    munmap(seen, 4096);
}

static void test_reason_is_cut_and_printable(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *a;
    char reason[300];
    memset(reason, 'x', sizeof reason);
    reason[3] = '\n';
    reason[sizeof reason - 1] = '\0';
    assert_int_equal(net_join(&key, &a), 0);
    assert_int_equal(net_set_rank(a, 15, 16), 0);
    assert_int_equal(net_decide(a, NET_DECLINED, reason), NET_DECLINED);
    assert_int_equal(strncmp(net_reason(a), "rank 15: xxx?xxx", 16), 0);
    assert_int_equal(strlen(net_reason(a)), 9 + 120);
    net_leave(a);
}

static void test_decided_takes_nobody(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *a, *b;
    assert_int_equal(net_join(&key, &a), 0);
    assert_int_equal(net_decide(a, NET_DECLINED, "no"), NET_DECLINED);
    assert_string_equal(net_reason(a), "no");
    assert_int_equal(net_join(&key, &b), 0);
    assert_int_equal(net_count(b), 1);
    assert_int_equal(net_verdict(b), NET_PENDING);
    net_leave(a); /* must not take b's name along */
    assert_true(name_exists(&key));
    net_leave(b);
    assert_false(name_exists(&key));
}

static void test_unlinked_takes_nobody(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *a, *b;
    assert_int_equal(net_join(&key, &a), 0);
    net_unlink(a);
    net_unlink(a);
    assert_false(name_exists(&key));
    assert_int_equal(net_join(&key, &b), 0);
    assert_int_equal(net_count(b), 1);
    assert_int_equal(net_count(a), 1);
    net_leave(a);
    assert_true(name_exists(&key));
    net_leave(b);
    assert_false(name_exists(&key));
}

/* ---- Segments that are not ours ------------------------------------------------------ */

/* Put a file under the segment's name; returns the result of joining it. */
static int join_over(mode_t mode, off_t size, const net_segment_t *head)
{
    char name[SEGMENT_NAME_BYTES];
    net_key_t key = random_key();
    net_rendezvous_t *rendezvous = NULL;
    name_of(&key, geteuid(), name);
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

/* Random bytes everywhere behind the header: any result, but no crash. */
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
        name_of(&key, geteuid(), name);
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

/* Something other than a file; returns the result of joining it. */
static int join_over_thing(int (*make)(const char *path))
{
    char name[SEGMENT_NAME_BYTES], path[SEGMENT_NAME_BYTES + 16];
    net_key_t key = random_key();
    net_rendezvous_t *rendezvous = NULL;
    name_of(&key, geteuid(), name);
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

/* A verdict that no rank has written also ends the waiting. */
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

/* All have posted, yet one rank's record is missing: no later joiner can repair that. */
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
    name_of(argument, geteuid(), name);
    CHECK(setuid(STRANGER) == 0);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0666);
    CHECK(fd >= 0 && ftruncate(fd, sizeof(net_segment_t)) == 0 && fchmod(fd, 0666) == 0);
    return 0;
}

static int join_as_stranger(uint32_t rank, uint32_t nranks, void *argument)
{
    char name[SEGMENT_NAME_BYTES];
    net_rendezvous_t *rendezvous;
    (void)rank, (void)nranks;
    name_of(argument, STRANGER, name);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0);
    CHECK(setuid(STRANGER) == 0);
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
    if (geteuid() != 0) {
        print_message("skipped: another user's file needs root to make\n");
        skip();
    }
    assert_int_equal(run_processes(1, squat, &key), 0);
    assert_int_equal(net_join(&key, &rendezvous), -EPERM);
    name_of(&key, geteuid(), name);
    shm_unlink(name);
    assert_int_equal(run_processes(1, join_as_stranger, &key), 0);
    name_of(&key, STRANGER, name);
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
    CHECK(net_memory_create(NET_MEMORY_HOST, 0, 1 << 20, &memory, offer) == 0); /* needs no /dev/shm */
    net_memory_destroy(memory);
    return 0;
}

static int join_in_closed_shm(uint32_t rank, uint32_t nranks, void *argument)
{
    net_rendezvous_t *rendezvous;
    (void)rank, (void)nranks;
    CHECK(cover_shm("size=1m,mode=0755") == 0);
    CHECK(setuid(STRANGER) == 0);
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
    if (run_processes(1, can_cover, NULL) != 0) {
        print_message("skipped: cannot mount a tmpfs here\n");
        skip();
    }
    assert_int_equal(run_processes(1, join_in_full_shm, &key), 0);
    assert_int_equal(run_processes(1, join_in_closed_shm, &key), 0);
}

/* ---- Leaks ------------------------------------------------------------------------------ */

static void test_no_leak(void **state)
{
    (void)state;
    int descriptors = 0, mappings = 0;
    for (int cycle = 0; cycle < 200; cycle++) {
        net_key_t key = random_key();
        net_rendezvous_t *a, *b;
        assert_int_equal(net_join(&key, &a), 0);
        assert_int_equal(net_join(&key, &b), 0);
        if (cycle % 2)
            net_unlink(a);
        if (cycle % 3)
            net_decide(b, NET_DECLINED, "cycle");
        net_leave(a);
        net_leave(b);
        assert_false(name_exists(&key)); /* its own key: other Shunts may run on this machine */
        if (cycle == 10) {
            descriptors = open_descriptors();
            mappings = mappings_of("/dev/shm/shunt-");
        }
    }
    assert_int_equal(open_descriptors(), descriptors);
    assert_int_equal(mappings_of("/dev/shm/shunt-"), mappings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_way_in_processes),
        cmocka_unit_test(test_whole_way_in_threads),
        cmocka_unit_test(test_keys_differ),
        cmocka_unit_test(test_overfull),
        cmocka_unit_test(test_ranks_are_checked),
        cmocka_unit_test(test_records_are_checked),
        cmocka_unit_test(test_stale_is_replaced),
        cmocka_unit_test(test_stale_is_replaced_once),
        cmocka_unit_test(test_killed_joiner_is_noticed),
        cmocka_unit_test(test_a_rank_that_left_is_not_waited_for),
        cmocka_unit_test(test_who_is_missing),
        cmocka_unit_test(test_killed_while_joining),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_other_pid_namespace_counts_as_alive),
        cmocka_unit_test(test_dead_container),
        cmocka_unit_test(test_exactly_one_verdict),
        cmocka_unit_test(test_reason_is_cut_and_printable),
        cmocka_unit_test(test_decided_takes_nobody),
        cmocka_unit_test(test_unlinked_takes_nobody),
        cmocka_unit_test(test_damaged_segments_are_refused),
        cmocka_unit_test(test_garbage_behind_a_good_head),
        cmocka_unit_test(test_names_of_non_files),
        cmocka_unit_test(test_invalid_verdict),
        cmocka_unit_test(test_lost_rank),
        cmocka_unit_test(test_foreign_owner_is_refused),
        cmocka_unit_test(test_full_and_closed_shm),
        cmocka_unit_test(test_no_leak),
    };
    return cmocka_run_group_tests_name("rendezvous", tests, NULL, NULL);
}
