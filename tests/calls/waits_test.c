/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits_test.c - how the ranks' records and a watcher's clock give the statistics' lines of how long calls waited for
 * which rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h wants some of the above */
#include <cmocka.h>

#include "shim/record/book.h"

#define MS UINT64_C(1000000)
enum { RANKS = 3, NOW_MS = 50000 };

/* Ranks of this process on one communicator, and a wait of rank 0's. */
typedef struct ranks {
    shim_record_t *record[RANKS];
    record_wait_t wait;
    uint64_t comm;
} ranks_t;

static ranks_t make_ranks(void)
{
    static uint64_t comms;
    ranks_t ranks = {.comm = ++comms};
    const net_process_t self = net_process_self();
    for (uint32_t r = 0; r < RANKS; r++) {
        ranks.record[r] = shim_record_new();
        ranks.record[r]->about = (shim_record_about_t){.comm = ranks.comm, .rank = r, .nranks = RANKS};
        atomic_store(&ranks.record[r]->slot->comm, ranks.comm);
    }
    for (uint32_t i = 0; i < RANKS * RANKS; i++) {
        shim_record_offer_t offer;
        shim_record_offer(ranks.record[i % RANKS], &offer);
        shim_record_meet(ranks.record[i / RANKS], i % RANKS, &self, &offer);
    }
    record_beat(0);
    return ranks;
}

/* End the ranks, and return the lines of their communicator. */
static void end_ranks(const ranks_t *ranks, char lines[1024])
{
    char *text = NULL, key[40];
    size_t size = 0, length = 0;
    for (uint32_t r = 0; r < RANKS; r++)
        shim_record_end(ranks->record[r]);
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    shim_record_print_waits(out);
    fclose(out);
    const int bytes = snprintf(key, sizeof key, "shunt: communicator=%016llx ", (unsigned long long)ranks->comm);
    lines[0] = '\0';
    for (char *at = text; (at = strstr(at, key)); at++)
        length += (size_t)snprintf(lines + length, 1024 - length, "%.*s\n", (int)strcspn(at + bytes, "\n"), at + bytes);
    free(text);
}

static uint64_t make_call(const ranks_t *ranks, uint32_t rank, uint32_t collective, uint32_t place, bool captured,
                          uint32_t flags)
{
    const shim_record_call_t call = {
        .sign = {.collective = collective, .count = 8}, .place = place, .captured = captured, .flags = flags};
    return shim_record_call(ranks->record[rank], &call);
}

static uint64_t all_reduce(const ranks_t *ranks, uint32_t rank)
{
    return make_call(ranks, rank, ALG_ALL_REDUCE, 0, false, 0);
}

/* Publish, as its watcher would, that a rank's kernel waits in the call. */
static void wait_in(const ranks_t *ranks, uint32_t rank, uint64_t id, uint64_t epoch)
{
    atomic_store(&ranks->record[rank]->slot->wait_epoch, epoch << RECORD_EPOCH_BITS);
    atomic_store(&ranks->record[rank]->slot->wait_id, id);
}

static void begin_wait(ranks_t *ranks, uint64_t id, uint64_t epoch)
{
    ranks->wait = (record_wait_t){.id = id, .epoch = epoch << RECORD_EPOCH_BITS};
    wait_in(ranks, 0, id, epoch);
}

/* Let rank 0's watcher see the wait `ms` after its begin. */
static void look(ranks_t *ranks, uint64_t ms)
{
    ranks->wait.seen_ns = ms * MS;
    record_waits_look(ranks->record[0], &ranks->wait, ms * MS, (NOW_MS + ms) * MS);
}

static void end_wait(ranks_t *ranks)
{
    record_waits_end(ranks->record[0], &ranks->wait);
    ranks->wait = (record_wait_t){0};
}

static void a_rank_is_late_until_it_makes_the_call(void **state)
{
    (void)state;
    char lines[1024];
    ranks_t ranks = make_ranks();
    begin_wait(&ranks, all_reduce(&ranks, 0), 1);
    wait_in(&ranks, 1, all_reduce(&ranks, 1), 1);
    for (uint64_t ms = 0; ms <= 30; ms += 10)
        look(&ranks, ms);
    wait_in(&ranks, 2, all_reduce(&ranks, 2), 1);
    look(&ranks, 40);
    atomic_store(&ranks.record[2]->slot->wait_id, 0); /* it was in it */
    look(&ranks, 50);
    end_wait(&ranks);
    end_wait(&ranks); /* counts once */
    end_ranks(&ranks, lines);
    assert_string_equal(lines, "ranks=3 late_rank=2 waits=1 waited_us=30000 lengths_ms=16:1\n");
}

static void a_device_is_late_until_its_watcher_sees_it_wait(void **state)
{
    (void)state;
    char lines[1024];
    ranks_t ranks = make_ranks();
    begin_wait(&ranks, all_reduce(&ranks, 0), 1);
    const uint64_t ids[2] = {all_reduce(&ranks, 1), all_reduce(&ranks, 2)};
    record_beat((NOW_MS + 4) * MS);
    look(&ranks, 5);
    wait_in(&ranks, 1, ids[0], 1);
    record_beat((NOW_MS + 20) * MS);
    look(&ranks, 40); /* what rank 2 has done since its watcher's look is not known */
    end_wait(&ranks);
    end_ranks(&ranks, lines);
    assert_string_equal(lines, "ranks=3 late_rank=2 waits=1 waited_us=20000 lengths_ms=16:1\n"
                               "ranks=3 late_rank=1 waits=1 waited_us=4000 lengths_ms=4:1\n");
}

/* A rank may leave when its call has ended, while the thread of a waiting one, whose data is there, has yet to run. */
static void a_wait_for_a_rank_that_left_is_seen_again_before_it_is_real(void **state)
{
    (void)state;
    record_wait_t wait = {.id = 1, .seen_ns = 100 * MS};
    assert_false(record_waits_for_left(&wait, 100 * MS));
    for (uint64_t ms = 300; ms < 3000; ms += 200)
        assert_false(record_waits_for_left(&wait, ms * MS)); /* not seen again */
    wait.seen_ns = 3100 * MS;
    assert_false(record_waits_for_left(&wait, 3100 * MS));
    wait.seen_ns = 3300 * MS;
    assert_true(record_waits_for_left(&wait, 3300 * MS));
}

static void a_watcher_that_does_not_look_makes_nobody_late(void **state)
{
    (void)state;
    char lines[1024];
    ranks_t ranks = make_ranks();
    begin_wait(&ranks, all_reduce(&ranks, 0), 1);
    wait_in(&ranks, 1, all_reduce(&ranks, 1), 1);
    (void)all_reduce(&ranks, 2);
    record_beat(NOW_MS * MS);
    for (uint64_t ms = 0; ms <= 300; ms += 50)
        look(&ranks, ms);
    end_wait(&ranks);
    end_ranks(&ranks, lines);
    assert_string_equal(lines, "");
}

static void where_nobody_is_late_nothing_is_told(void **state)
{
    (void)state;
    char lines[1024];
    ranks_t ranks = make_ranks();
    for (uint64_t call = 1; call <= 20; call++) {
        begin_wait(&ranks, all_reduce(&ranks, 0), call);
        record_beat(NOW_MS * MS);
        look(&ranks, 0); /* less than a millisecond */
        for (uint32_t r = 1; r < RANKS; r++)
            wait_in(&ranks, r, all_reduce(&ranks, r), call);
        record_beat((NOW_MS + 100) * MS);
        look(&ranks, 100);
        end_wait(&ranks);
    }
    end_ranks(&ranks, lines);
    assert_string_equal(lines, "");
}

/* Waits in replays, whose calls have no numbers, are identified by their epoch. */
static void a_replay_is_told_by_its_epoch(void **state)
{
    (void)state;
    char lines[1024];
    ranks_t ranks = make_ranks();
    uint64_t ids[RANKS];
    for (uint32_t r = 0; r < RANKS; r++)
        ids[r] = make_call(&ranks, r, ALG_ALL_GATHER, 0, true, 0);
    begin_wait(&ranks, ids[0], 7);
    wait_in(&ranks, 1, ids[1], 8); /* has ended it */
    wait_in(&ranks, 2, ids[2], 6);
    record_beat((NOW_MS + 2) * MS);
    look(&ranks, 2);
    wait_in(&ranks, 2, ids[2], 7);
    record_beat((NOW_MS + 90) * MS);
    look(&ranks, 90);
    end_wait(&ranks);
    end_ranks(&ranks, lines);
    assert_string_equal(lines, "ranks=3 late_rank=2 waits=1 waited_us=2000 lengths_ms=2:1\n");
}

static void a_message_waits_for_its_peer_alone(void **state)
{
    (void)state;
    char lines[1024];
    ranks_t ranks = make_ranks();
    begin_wait(&ranks, make_call(&ranks, 0, RECORD_RECV, 2, false, 0), 1);
    record_beat((NOW_MS + 8) * MS);
    look(&ranks, 8);
    end_wait(&ranks);
    /* Whose messages of a group these are is not known. */
    begin_wait(&ranks, make_call(&ranks, 0, RECORD_RECV, 2, false, RECORD_GROUPED), 1);
    look(&ranks, 8);
    end_wait(&ranks);
    /* A wait in a collective may hide one in a message. */
    wait_in(&ranks, 2, all_reduce(&ranks, 2), 1);
    begin_wait(&ranks, make_call(&ranks, 0, RECORD_SEND, 2, false, 0), 1);
    look(&ranks, 8);
    end_wait(&ranks);
    end_ranks(&ranks, lines);
    assert_string_equal(lines, "ranks=3 late_rank=2 waits=1 waited_us=8000 lengths_ms=8:1\n");
}

/* Rank 1 has sent, and waits for nothing. */
static void of_a_staged_call_who_has_not_sent_is_late(void **state)
{
    (void)state;
    char lines[1024];
    ranks_t ranks = make_ranks();
    begin_wait(&ranks, make_call(&ranks, 0, RECORD_DISPATCH, 0, false, RECORD_STAGED), 1);
    (void)make_call(&ranks, 1, RECORD_DISPATCH, 0, false, RECORD_STAGED);
    record_beat((NOW_MS + 8) * MS);
    look(&ranks, 8);
    (void)make_call(&ranks, 2, RECORD_DISPATCH, 0, false, RECORD_STAGED);
    record_beat((NOW_MS + 90) * MS);
    look(&ranks, 90);
    end_wait(&ranks);
    begin_wait(&ranks, make_call(&ranks, 0, RECORD_COMBINE, 0, false, 0), 1); /* a whole one */
    for (uint32_t r = 1; r < RANKS; r++)
        wait_in(&ranks, r, make_call(&ranks, r, RECORD_COMBINE, 0, false, 0), r);
    record_beat((NOW_MS + 30) * MS);
    look(&ranks, 30);
    end_wait(&ranks);
    end_ranks(&ranks, lines);
    assert_string_equal(lines, "ranks=3 late_rank=2 waits=1 waited_us=8000 lengths_ms=8:1\n");
}

static void a_rooted_call_waits_for_every_rank(void **state)
{
    (void)state;
    char lines[1024];
    ranks_t ranks = make_ranks();
    begin_wait(&ranks, make_call(&ranks, 0, ALG_BROADCAST, 1, false, 0), 1);
    look(&ranks, 4);
    end_wait(&ranks);
    for (uint32_t r = 1; r < RANKS; r++)
        (void)make_call(&ranks, r, ALG_BROADCAST, 1, false, 0);
    (void)make_call(&ranks, 1, ALG_REDUCE, 0, false, 0); /* its GPU is late */
    begin_wait(&ranks, make_call(&ranks, 0, ALG_REDUCE, 0, false, 0), 2);
    record_beat((NOW_MS + 60) * MS);
    look(&ranks, 70);
    end_wait(&ranks);
    end_ranks(&ranks, lines);
    assert_string_equal(lines, "ranks=3 late_rank=2 waits=2 waited_us=74000 lengths_ms=4:1,64:1\n"
                               "ranks=3 late_rank=1 waits=2 waited_us=64000 lengths_ms=4:1,32:1\n");
}

static void what_is_not_known_makes_nobody_late(void **state)
{
    (void)state;
    char lines[1024];
    ranks_t ranks = make_ranks();
    begin_wait(&ranks, all_reduce(&ranks, 0), 1);
    shim_record_doubt(ranks.record[1]); /* its numbers may differ */
    shim_record_end(ranks.record[2]);
    record_beat((NOW_MS + 30) * MS);
    look(&ranks, 30);
    end_wait(&ranks);
    ranks.record[2] = NULL;
    end_ranks(&ranks, lines);
    assert_string_equal(lines, "");
}

static void waits_are_summed_by_length_and_a_communicator_s_last_one_counts(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {1, 1, 3, 1023, 100000};
    char lines[1024];
    ranks_t ranks = make_ranks();
    wait_in(&ranks, 1, all_reduce(&ranks, 1), 1);
    for (uint32_t i = 0; i < 5; i++) {
        begin_wait(&ranks, all_reduce(&ranks, 0), 1 + i);
        wait_in(&ranks, 1, ranks.wait.id, 1 + i);
        look(&ranks, lengths[i]);
        if (i < 4) /* the communicator ends in the last */
            end_wait(&ranks);
    }
    ranks.record[0]->wait[RECORD_WAIT_COLLECTIVE] = ranks.wait;
    end_ranks(&ranks, lines);
    assert_string_equal(lines, "ranks=3 late_rank=2 waits=5 waited_us=101028000 lengths_ms=1:2,2:1,512:1,32768:1\n");
}

static void communicators_come_by_their_longest_waits(void **state)
{
    (void)state;
    static const uint64_t ms[] = {200000, 300000, 250000};
    char *text = NULL, key[3][40];
    const char *at[3];
    size_t size = 0;
    for (uint32_t i = 0; i < 3; i++) {
        char lines[1024];
        ranks_t ranks = make_ranks();
        snprintf(key[i], sizeof key[i], "communicator=%016llx ", (unsigned long long)ranks.comm);
        begin_wait(&ranks, all_reduce(&ranks, 0), 1);
        look(&ranks, ms[i]);
        end_wait(&ranks);
        end_ranks(&ranks, lines);
    }
    FILE *out = open_memstream(&text, &size);
    shim_record_print_waits(out);
    fclose(out);
    for (uint32_t i = 0; i < 3; i++)
        assert_non_null(at[i] = strstr(text, key[i]));
    assert_true(at[1] == text + strlen("shunt: ") && at[1] < at[2] && at[2] < at[0]);
    free(text);
}

static int use_statistics(void **state)
{
    (void)state;
    return setenv("SHUNT_STATS", "1", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_is_late_until_it_makes_the_call),
        cmocka_unit_test(a_device_is_late_until_its_watcher_sees_it_wait),
        cmocka_unit_test(a_wait_for_a_rank_that_left_is_seen_again_before_it_is_real),
        cmocka_unit_test(a_watcher_that_does_not_look_makes_nobody_late),
        cmocka_unit_test(where_nobody_is_late_nothing_is_told),
        cmocka_unit_test(a_replay_is_told_by_its_epoch),
        cmocka_unit_test(a_message_waits_for_its_peer_alone),
        cmocka_unit_test(of_a_staged_call_who_has_not_sent_is_late),
        cmocka_unit_test(a_rooted_call_waits_for_every_rank),
        cmocka_unit_test(what_is_not_known_makes_nobody_late),
        cmocka_unit_test(waits_are_summed_by_length_and_a_communicator_s_last_one_counts),
        cmocka_unit_test(communicators_come_by_their_longest_waits),
    };
    return cmocka_run_group_tests(tests, use_statistics, NULL);
}
