/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rendezvous_test.c - ranks find each other, and agree once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "children.h"
#include "segments.h"

/* ---- The whole way ---------------------------------------------------------------- */

static void test_whole_way_in_processes(void **state)
{
    (void)state;
    for (uint32_t nranks = 1; nranks <= 8; nranks++) {
        net_key_t key = random_key();
        assert_int_equal(run_processes(nranks, whole_way, &key), 0);
        assert_false(segment_has_name(&key));
    }
}

static void test_whole_way_in_threads(void **state)
{
    (void)state;
    for (uint32_t nranks = 1; nranks <= 8; nranks++) {
        net_key_t key = random_key();
        assert_int_equal(run_threads(nranks, whole_way, &key), 0);
        assert_false(segment_has_name(&key));
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
    /* The first of the vectors that its authors published. */
    const net_key_t known = {{UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)}};
    const net_key_t name = net_key_name(&known);
    assert_true(name.word[0] == UINT64_C(0xe6a825ba047f81a3) && name.word[1] == UINT64_C(0x930255c71472f66d));
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
    assert_false(segment_has_name(&key));
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
    assert_int_equal(strlen(net_reason(a)), 9 + 136);
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
    assert_true(segment_has_name(&key));
    net_leave(b);
    assert_false(segment_has_name(&key));
}

static void test_unlinked_takes_nobody(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *a, *b;
    assert_int_equal(net_join(&key, &a), 0);
    net_unlink(a);
    net_unlink(a);
    assert_false(segment_has_name(&key));
    assert_int_equal(net_join(&key, &b), 0);
    assert_int_equal(net_count(b), 1);
    assert_int_equal(net_count(a), 1);
    net_leave(a);
    assert_true(segment_has_name(&key));
    net_leave(b);
    assert_false(segment_has_name(&key));
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
        assert_false(segment_has_name(&key)); /* its own key: other Shunts may run on this machine */
        if (cycle == 10) {
            descriptors = open_descriptors();
            mappings = mappings_of("/dev/shm/shunt-");
        }
    }
    assert_int_equal(open_descriptors(), descriptors);
    assert_int_equal(mappings_of("/dev/shm/shunt-"), mappings);
}

/* The place identifies one segment: on two nodes, such as cloned machines with one boot id, all else may be equal. */
static void test_a_place_is_one_segments(void **state)
{
    (void)state;
    net_key_t key = random_key(), place[3];
    net_rendezvous_t *a, *b;
    assert_int_equal(net_join(&key, &a), 0);
    assert_int_equal(net_join(&key, &b), 0);
    place[0] = net_place(a);
    place[1] = net_place(b);
    net_leave(a);
    net_leave(b);
    assert_int_equal(net_join(&key, &a), 0);
    place[2] = net_place(a);
    net_leave(a);
    assert_memory_equal(&place[0], &place[1], sizeof place[0]);
    assert_memory_not_equal(&place[0], &place[2], sizeof place[0]);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_way_in_processes),
        cmocka_unit_test(test_whole_way_in_threads),
        cmocka_unit_test(test_keys_differ),
        cmocka_unit_test(test_overfull),
        cmocka_unit_test(test_ranks_are_checked),
        cmocka_unit_test(test_records_are_checked),
        cmocka_unit_test(test_exactly_one_verdict),
        cmocka_unit_test(test_reason_is_cut_and_printable),
        cmocka_unit_test(test_decided_takes_nobody),
        cmocka_unit_test(test_unlinked_takes_nobody),
        cmocka_unit_test(test_a_place_is_one_segments),
        cmocka_unit_test(test_no_leak),
    };
    return cmocka_run_group_tests_name("rendezvous", tests, NULL, NULL);
}
