/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record: a call's encoding in one word; no reader sees a partly written entry; which rank is blamed and why; the
 * file's rights.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka.h wants some of the above */
#include <cmocka.h>

#include "shim/record/book.h"

static const atomic_int g_phase = 1;
static alg_control_t g_control;

/* ---- A call in one word ------------------------------------------------------------------ */

static void a_word_names_the_call(void **state)
{
    (void)state;
    _Atomic uint64_t made[RECORD_KINDS] = {0};
    static const uint64_t counts[] = {1, 12345, 4194303, UINT64_C(4194304) << 12, UINT64_C(1) << 60};
    for (uint32_t i = 0; i < 5 * RECORD_KINDS; i++) {
        const record_sign_t sign = {.collective = i % (RECORD_COMBINE + 1),
                                    .type = i % ALG_TYPE_COUNT,
                                    .op = i % (ALG_PREMUL_SUM + 1),
                                    .kind = (record_kind_t)(i % RECORD_KINDS),
                                    .count = counts[i / RECORD_KINDS],
                                    .number = 1 + 1234567 * (uint64_t)i};
        made[sign.kind] = sign.number + i;
        const uint64_t id = record_id(&sign);
        const record_sign_t read = record_unpack(id, made);
        assert_int_not_equal(id, 0);
        assert_true(id >> 63 == 0);
        const record_sign_t short_one = record_unpack(id & ((UINT64_C(1) << ALG_LIMIT_BITS) - 1), made);
        assert_true(short_one.number == sign.number && short_one.count == 0 && short_one.kind == sign.kind);
        assert_int_equal(read.collective, sign.collective);
        assert_int_equal(read.type, sign.type);
        assert_int_equal(read.op, sign.op);
        assert_int_equal(read.kind, sign.kind);
        assert_true(read.count == sign.count);
        assert_true(read.number == sign.number);
    }
}

/* The encoding keeps the first 22 bits of a count. */
static void a_large_odd_count_is_rounded_down(void **state)
{
    (void)state;
    for (uint64_t count = 1; count < UINT64_C(1) << 62; count = count * 3 + 1) {
        const uint64_t read = record_count_unpack(record_count_pack(count));
        assert_true(read <= count && count - read <= count >> 21);
    }
}

/* ---- Entries ----------------------------------------------------------------------------- */

static shim_record_call_t all_reduce(uint64_t count)
{
    return (shim_record_call_t){.sign = {.collective = ALG_ALL_REDUCE, .type = ALG_FLOAT32, .count = count},
                                .place = (uint32_t)count};
}

/* The body of a process that makes calls forever; it sends its book's descriptor number. */
static void write_calls(int pipe)
{
    shim_record_t *record = shim_record_new();
    shim_record_offer_t offer;
    shim_record_offer(record, &offer);
    if (write(pipe, &offer, sizeof offer) != sizeof offer)
        _exit(1);
    for (uint64_t i = 1;; i++) {
        const shim_record_call_t call = all_reduce(i);
        (void)shim_record_call(record, &call);
    }
}

/* Number, count and place of each call are equal: a mixture of two calls would show. Returns the entries seen. */
static uint32_t check_entries(const record_slot_t *slot)
{
    uint32_t found = 0;
    const uint64_t last = atomic_load(&slot->made[RECORD_COLLECTIVE]);
    for (uint64_t number = last > 2 * RECORD_CALLS ? last - 2 * RECORD_CALLS : 1; number <= last; number++) {
        record_made_t made;
        if (!record_find(slot, RECORD_COLLECTIVE, number, &made))
            continue;
        found++;
        if (made.sign.number != made.sign.count || made.place != (uint32_t)made.sign.count)
            fail_msg("call %llu has count %llu and place %u", (unsigned long long)made.sign.number,
                     (unsigned long long)made.sign.count, made.place);
    }
    return found;
}

/* A reader sees whole entries or none if the writer is stopped anywhere, and finally killed. */
static void a_reader_sees_whole_entries_or_none(void **state)
{
    (void)state;
    int pipes[2];
    char path[64];
    uint32_t slots;
    shim_record_offer_t offer;
    assert_int_equal(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also stopped: it would keep the test's output open */
        write_calls(pipes[1]);
    }
    assert_int_equal(read(pipes[0], &offer, sizeof offer), sizeof offer);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)child, (int)offer.descriptor);
    const int fd = open(path, O_RDONLY);
    const record_book_t *book = record_book_map(fd, &slots);
    assert_non_null(book);
    const record_slot_t *slot = record_slot_at(book, offer.slot);
    for (int naps = 0; naps < 100000 && atomic_load(&slot->made[RECORD_COLLECTIVE]) < RECORD_CALLS; naps++)
        usleep(200);
    for (int stops = 0; stops < 500; stops++) {
        usleep(200);
        kill(child, stops < 499 ? SIGSTOP : SIGKILL);
        assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
        assert_true(check_entries(slot) >= RECORD_CALLS - 1);
        kill(child, SIGCONT);
    }
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
}

static uint32_t mapped_books(void)
{
    char line[4096];
    uint32_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, RECORD_FILE) != NULL;
    fclose(maps);
    return count;
}

/* A rank whose peers come and go, as in elastic training, keeps no book of those that went. */
static void a_peers_book_goes_with_the_last_record_of_it(void **state)
{
    (void)state;
    int pipes[2];
    shim_record_offer_t offer;
    net_process_t peer;
    assert_int_equal(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const net_process_t self = net_process_self();
        write(pipes[1], &self, sizeof self) == sizeof self ? write_calls(pipes[1]) : _exit(1);
    }
    assert_int_equal(read(pipes[0], &peer, sizeof peer), sizeof peer);
    assert_int_equal(read(pipes[0], &offer, sizeof offer), sizeof offer);
    shim_record_t *one = shim_record_new(), *other = shim_record_new();
    const uint32_t own = mapped_books();
    shim_record_meet(one, 1, &peer, &offer);
    shim_record_meet(one, 1, &peer, &offer);
    shim_record_meet(other, 1, &peer, &offer);
    assert_int_equal(mapped_books(), own + 1);
    shim_record_end(one);
    assert_int_equal(mapped_books(), own + 1);
    assert_true(record_view_lives(&other->peer[1]));
    shim_record_end(other);
    assert_int_equal(mapped_books(), own);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(pipes[0]);
    close(pipes[1]);
}

/* The entry of a writer that died while writing is not read. */
static void an_entry_that_was_not_finished_is_none(void **state)
{
    (void)state;
    shim_record_t *record = shim_record_new();
    const shim_record_call_t call = all_reduce(7);
    record_made_t made;
    (void)shim_record_call(record, &call);
    assert_true(record_last(record->slot, &made));
    record_ring(record->slot)[1].sequence = 0;
    assert_false(record_last(record->slot, &made));
    assert_false(record_find(record->slot, RECORD_COLLECTIVE, 1, &made));
    shim_record_end(record);
}

static void kinds_have_numbers_of_their_own(void **state)
{
    (void)state;
    shim_record_t *record = shim_record_new();
    shim_record_call_t call = all_reduce(7);
    record_made_t made;
    (void)shim_record_call(record, &call);
    call.captured = true;
    (void)shim_record_call(record, &call);
    call.captured = false;
    call.sign.collective = RECORD_SEND;
    (void)shim_record_call(record, &call);
    call.sign.collective = ALG_BROADCAST;
    (void)shim_record_call(record, &call);
    assert_true(record_last(record->slot, &made));
    assert_true(made.sign.kind == RECORD_COLLECTIVE && made.sign.number == 2);
    assert_true(record_find(record->slot, RECORD_CAPTURED, 1, &made));
    assert_true(record_find(record->slot, RECORD_MESSAGE, 1, &made) && made.sign.collective == RECORD_SEND);
    assert_true(record_find(record->slot, RECORD_COLLECTIVE, 1, &made) && made.sign.collective == ALG_ALL_REDUCE);
    assert_false(record_find(record->slot, RECORD_COLLECTIVE, 3, &made));
    shim_record_end(record);
}

/* ---- Agreement --------------------------------------------------------------------------- */

static record_made_t made_of(uint32_t collective, uint32_t type, uint32_t op, uint64_t count, uint32_t root)
{
    return (record_made_t){.sign = {.collective = collective, .type = type, .op = op, .count = count}, .place = root};
}

static void what_must_be_equal_is_compared(void **state)
{
    (void)state;
    const record_made_t sum = made_of(ALG_ALL_REDUCE, ALG_FLOAT32, ALG_SUM, 8, 0);
    const record_made_t others[] = {
        made_of(ALG_ALL_GATHER, ALG_FLOAT32, ALG_SUM, 8, 0), made_of(ALG_ALL_REDUCE, ALG_INT32, ALG_SUM, 8, 0),
        made_of(ALG_ALL_REDUCE, ALG_FLOAT32, ALG_MAX, 8, 0), made_of(ALG_ALL_REDUCE, ALG_FLOAT32, ALG_SUM, 9, 0)};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(record_agree(&sum, &others[i]));
    const record_made_t root = made_of(ALG_ALL_REDUCE, ALG_FLOAT32, ALG_SUM, 8, 3); /* it has none */
    assert_true(record_agree(&sum, &root));
    record_made_t grouped = sum, other = others[0];
    grouped.flags = other.flags = RECORD_FORWARDED | RECORD_GROUPED; /* their order in the group may differ */
    assert_true(record_agree(&grouped, &other));
    const record_made_t words = made_of(ALG_BROADCAST, ALG_FLOAT32, 0, 8, 1);
    const record_made_t bytes = made_of(ALG_BROADCAST, ALG_INT8, 0, 32, 1);
    const record_made_t elsewhere = made_of(ALG_BROADCAST, ALG_INT8, 0, 32, 2);
    assert_true(record_agree(&words, &bytes));
    assert_false(record_agree(&words, &elsewhere));
}

/* ---- Blame --------------------------------------------------------------------------------- */

/* Two ranks of this process; the second's view says that it is `pid`. */
typedef struct pair {
    shim_record_t *record[2];
    record_view_t view;
} pair_t;

static pair_t make_pair(void)
{
    pair_t pair;
    const net_process_t self = net_process_self();
    for (uint32_t r = 0; r < 2; r++)
        pair.record[r] = shim_record_new();
    for (uint32_t r = 0; r < 4; r++) {
        shim_record_offer_t offer;
        shim_record_offer(pair.record[r % 2], &offer);
        shim_record_meet(pair.record[r / 2], r % 2, &self, &offer);
    }
    pair.view = pair.record[0]->peer[1];
    assert_non_null(pair.view.slot);
    return pair;
}

static void end_pair(const pair_t *pair)
{
    shim_record_end(pair->record[0]);
    shim_record_end(pair->record[1]);
}

/* Rank 0 waits in its last collective, a kernel of this number. */
static record_rank_t judge_at(const pair_t *pair, uint64_t kernel)
{
    const record_slot_t *slot = pair->record[0]->slot;
    record_made_t made;
    assert_true(record_last(slot, &made));
    const record_waiting_t waiting = record_waiting_of(slot, record_id(&made.sign), kernel << 16);
    return record_judge(&waiting, slot, &pair->view, 1, net_now_ns());
}

static record_rank_t judge(const pair_t *pair)
{
    return judge_at(pair, 0);
}

static uint64_t call(const pair_t *pair, uint32_t rank, uint64_t count)
{
    const shim_record_call_t made = all_reduce(count);
    return shim_record_call(pair->record[rank], &made);
}

/* The calls of a list, one of each count, up to a count of 0. Returns the id that its kernel tells. */
static uint64_t list(const pair_t *pair, uint32_t rank, const uint64_t *count)
{
    uint64_t id = call(pair, rank, *count);
    while (*++count) {
        id = call(pair, rank, *count);
        shim_record_listed(pair->record[rank], id);
    }
    return id;
}

static void each_cause_is_told(void **state)
{
    (void)state;
    pair_t pair = make_pair();
    char text[600];
    call(&pair, 0, 8);
    record_rank_t rank = judge(&pair);
    assert_int_equal(rank.cause, RECORD_NOT_CALLED);
    record_cause_text(&rank, text, sizeof text);
    assert_string_equal(text, "it has not made this call: it has made no call on this communicator");

    call(&pair, 1, 8);
    assert_int_equal(judge(&pair).cause, RECORD_NOT_BEGUN);

    record_made_t made;
    assert_true(record_last(pair.record[1]->slot, &made));
    atomic_store(&pair.record[1]->slot->wait_id, record_id(&made.sign));
    assert_int_equal(judge(&pair).cause, RECORD_IN_IT);

    call(&pair, 0, 8);
    rank = judge(&pair);
    assert_int_equal(rank.cause, RECORD_NOT_CALLED);
    assert_true(rank.elsewhere && rank.same_comm && rank.waits.number == 1);

    call(&pair, 1, 9);
    rank = judge(&pair);
    assert_int_equal(rank.cause, RECORD_OTHER_CALL);
    assert_true(rank.other.sign.count == 9);
    end_pair(&pair);
}

/* Both ranks are threads of this process. A wait on another communicator is rank 1's if it is on its GPU, and no other
 * rank is there. */
static void a_threads_wait_elsewhere_is_known_by_its_gpu(void **state)
{
    (void)state;
    enum { COMM = 1, ELSEWHERE = 2 };
    const pair_t pair = make_pair();
    const pair_t other = make_pair();
    record_made_t made;
    call(&pair, 0, 8);
    call(&other, 1, 8);
    assert_true(record_last(other.record[1]->slot, &made));
    atomic_store(&other.record[1]->slot->wait_id, record_id(&made.sign));
    for (uint32_t r = 0; r < 2; r++) {
        atomic_store(&pair.record[r]->slot->comm, COMM);
        atomic_store(&other.record[r]->slot->comm, ELSEWHERE);
        atomic_store(&pair.record[r]->slot->device, -1);
        atomic_store(&other.record[r]->slot->device, -1);
    }
    assert_false(judge(&pair).elsewhere); /* the CPU device: it may be rank 0's */
    for (int32_t r = 0; r < 2; r++) {
        atomic_store(&pair.record[r]->slot->device, r);
        atomic_store(&other.record[r]->slot->device, r);
    }
    assert_true(judge(&pair).elsewhere && !judge(&pair).same_comm);
    atomic_store(&other.record[1]->slot->device, 0);
    assert_false(judge(&pair).elsewhere);
    end_pair(&pair);
    end_pair(&other);
}

/* A rank whose record is gone with its process may have made calls. */
static void calls_without_a_record_are_not_denied(void **state)
{
    (void)state;
    const pair_t pair = make_pair();
    pair_t gone = pair;
    char text[600];
    call(&pair, 0, 8);
    call(&pair, 1, 8);
    gone.view.mapped = NULL;
    gone.view.slot = NULL;
    gone.view.start_ticks++; /* another process has the number */
    const record_rank_t rank = judge(&gone);
    assert_int_equal(rank.cause, RECORD_DEAD);
    record_cause_text(&rank, text, sizeof text);
    assert_string_equal(text, "its process is gone; its calls cannot be read");
    end_pair(&pair);
}

/* Rank 1 is not reported for its wait in kernel 7, which is over although its watcher has not noticed. */
static void a_wait_two_kernels_ago_is_over(void **state)
{
    (void)state;
    record_made_t made;
    const pair_t pair = make_pair();
    call(&pair, 1, 8);
    assert_true(record_last(pair.record[1]->slot, &made));
    atomic_store(&pair.record[1]->slot->wait_epoch, UINT64_C(7) << 16);
    atomic_store(&pair.record[1]->slot->wait_id, record_id(&made.sign));
    for (uint64_t kernel = 7; kernel <= 9; kernel++) {
        call(&pair, 0, 8);
        const record_rank_t rank = judge_at(&pair, kernel);
        assert_int_equal(rank.cause, kernel == 7 ? RECORD_IN_IT : RECORD_NOT_CALLED);
        assert_int_equal(rank.elsewhere, kernel == 8);
    }
    end_pair(&pair);
}

static void who_waits_in_a_later_call_has_ended_this(void **state)
{
    (void)state;
    record_made_t made;
    const pair_t pair = make_pair();
    for (int i = 0; i < 2; i++)
        call(&pair, 0, 8);
    for (int i = 0; i < 3; i++) {
        call(&pair, 1, 8);
        assert_true(record_last(pair.record[1]->slot, &made));
        atomic_store(&pair.record[1]->slot->wait_id, record_id(&made.sign));
        assert_int_equal(judge(&pair).cause, i == 0 ? RECORD_NOT_CALLED : RECORD_IN_IT);
    }
    end_pair(&pair);
}

/* Rank 0's list waits in calls 1 to 3 at once; rank 1, which makes them one by one, is blamed for each missing call,
 * and for another call in place of the third. */
static void a_list_waits_for_each_of_its_calls(void **state)
{
    (void)state;
    const pair_t pair = make_pair();
    const record_slot_t *slot = pair.record[0]->slot;
    const uint64_t id = list(&pair, 0, (const uint64_t[]){8, 9, 10, 0});
    const record_waiting_t waiting = record_waiting_of(slot, id, 0);
    assert_true(waiting.sign.number == 1 && waiting.sign.count == 8 && waiting.last == 3);
    for (uint64_t made = 0; made < 3; made++) {
        record_rank_t rank = judge(&pair);
        assert_int_equal(rank.cause, RECORD_NOT_CALLED);
        const record_sign_t awaited = record_awaited(slot, &waiting, &rank);
        assert_true(awaited.number == made + 1 && awaited.count == 8 + made);
        const uint64_t own = call(&pair, 1, made < 2 ? 8 + made : 11);
        atomic_store(&pair.record[1]->slot->wait_id, own);
        rank = judge(&pair);
        assert_int_equal(rank.cause, made < 2 ? RECORD_IN_IT : RECORD_OTHER_CALL);
        assert_true(made < 2 || rank.number == 3);
        atomic_store(&pair.record[1]->slot->wait_id, 0);
    }
    end_pair(&pair);
}

/* A rank that waits in a list counts as being in each of its calls: rank 0 makes them one by one, and a kernel of rank
 * 1 has all except the first and the last. */
static void who_waits_in_a_list_is_in_each_of_its_calls(void **state)
{
    (void)state;
    static const record_cause_t expected[] = {RECORD_IN_IT, RECORD_IN_IT, RECORD_IN_IT, RECORD_NOT_BEGUN};
    const pair_t pair = make_pair();
    call(&pair, 1, 7);
    atomic_store(&pair.record[1]->slot->wait_id, list(&pair, 1, (const uint64_t[]){8, 9, 0}));
    call(&pair, 1, 10);
    for (uint64_t i = 0; i < 4; i++) {
        call(&pair, 0, 7 + i);
        assert_int_equal(judge(&pair).cause, expected[i]); /* the first has ended */
    }
    end_pair(&pair);
}

/* Call numbers between those of a list may belong to forwarded calls of the group, or to messages. */
static void a_list_may_have_others_between(void **state)
{
    (void)state;
    const pair_t pair = make_pair();
    shim_record_call_t other = all_reduce(99);
    other.flags = RECORD_GROUPED | RECORD_FORWARDED;
    call(&pair, 0, 8);
    (void)shim_record_call(pair.record[0], &other);
    const uint64_t id = call(&pair, 0, 9);
    other.sign.collective = RECORD_SEND;
    (void)shim_record_call(pair.record[0], &other);
    shim_record_listed(pair.record[0], id);
    const record_waiting_t waiting = record_waiting_of(pair.record[0]->slot, id, 0);
    assert_true(waiting.sign.number == 1 && waiting.last == 3 && waiting.epochs == 2);
    for (uint64_t i = 0; i < RECORD_CALLS; i++)
        call(&pair, 0, 8);
    shim_record_listed(pair.record[0], id); /* the ring has it no more */
    assert_int_equal(record_waiting_of(pair.record[0]->slot, id, 0).sign.number, 3);
    assert_true(record_waiting_of(pair.record[0]->slot, call(&pair, 0, 8), 0).sign.number == 4 + RECORD_CALLS);
    end_pair(&pair);
}

/* After a failed call nothing is reported, since the ranks' numbers may differ. */
static void what_is_not_known_is_not_told(void **state)
{
    (void)state;
    pair_t pair = make_pair();
    call(&pair, 0, 8);
    shim_record_doubt(pair.record[1]);
    assert_int_equal(judge(&pair).cause, RECORD_UNSEEN);
    end_pair(&pair);
    pair = make_pair();
    call(&pair, 0, 8);
    const shim_record_call_t captured = {.sign = {.collective = ALG_ALL_REDUCE, .count = 8}, .captured = true};
    (void)shim_record_call(pair.record[1], &captured);
    assert_int_equal(judge(&pair).cause, RECORD_UNSEEN);
    pair.view.seen = false;
    assert_int_equal(judge(&pair).cause, RECORD_UNSEEN);
    end_pair(&pair);
}

static uint64_t dispatch(const pair_t *pair, uint32_t rank, uint64_t tokens, bool captured, uint32_t flags)
{
    const shim_record_call_t made = {
        .sign = {.collective = RECORD_DISPATCH, .count = tokens}, .captured = captured, .flags = flags};
    return shim_record_call(pair->record[rank], &made);
}

/* Each rank has other tokens. */
static void dispatches_are_compared_without_their_tokens(void **state)
{
    (void)state;
    char text[200];
    record_made_t made;
    const pair_t pair = make_pair();
    const record_slot_t *slot[2] = {pair.record[0]->slot, pair.record[1]->slot};
    dispatch(&pair, 0, 7, true, 0);
    dispatch(&pair, 1, 9, true, 0);
    assert_true(record_comparable(slot[0], slot[1]));
    dispatch(&pair, 0, 1234, false, 0);
    assert_true(record_find(slot[0], RECORD_COLLECTIVE, 1, &made));
    record_made_text(&made, text, sizeof text);
    assert_string_equal(text, "dispatch #1 of 1,234 tokens");
    assert_int_equal(judge(&pair).cause, RECORD_NOT_CALLED);
    dispatch(&pair, 1, 0, false, 0);
    assert_int_equal(judge(&pair).cause, RECORD_NOT_BEGUN);
    assert_true(record_last(slot[1], &made));
    record_made_text(&made, text, sizeof text);
    assert_string_equal(text, "dispatch #1");
    call(&pair, 1, 8);
    dispatch(&pair, 0, 8, false, 0);
    assert_int_equal(judge(&pair).cause, RECORD_OTHER_CALL);
    end_pair(&pair);
}

/* The end of a later call says nothing of the receiving half, and who has sent may wait for nothing. */
static void of_a_staged_call_only_a_missing_one_is_told(void **state)
{
    (void)state;
    const pair_t pair = make_pair();
    const record_slot_t *slot = pair.record[0]->slot;
    const uint64_t id = dispatch(&pair, 0, 8, false, RECORD_STAGED);
    const record_waiting_t waiting = record_waiting_of(slot, id, 0);
    assert_true(waiting.staged);
    assert_int_equal(judge(&pair).cause, RECORD_NOT_CALLED);
    dispatch(&pair, 1, 8, false, RECORD_STAGED);
    assert_int_equal(judge(&pair).cause, RECORD_UNSEEN);
    shim_record_ended(pair.record[0], dispatch(&pair, 0, 8, false, 0));
    assert_false(record_has_ended(&waiting, slot));
    end_pair(&pair);
}

static void a_rank_that_has_left_is_told(void **state)
{
    (void)state;
    pair_t pair = make_pair();
    call(&pair, 0, 8);
    shim_record_end(pair.record[1]);
    assert_int_equal(judge(&pair).cause, RECORD_LEFT);
    shim_record_t *next = shim_record_new(); /* the same slot, with another life */
    assert_ptr_equal(next, pair.record[1]);
    assert_int_equal(judge(&pair).cause, RECORD_LEFT);
    end_pair(&pair);
}

/* Rank 1's: a child that waits. */
static pid_t make_other_process(pair_t *pair)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    pair->view.pid = child;
    pair->view.start_ticks = 0;
    return child;
}

static void a_process_is_seen_to_stop_and_to_end(void **state)
{
    (void)state;
    pair_t pair = make_pair();
    call(&pair, 0, 8);
    const pid_t child = make_other_process(&pair);
    assert_int_equal(judge(&pair).cause, RECORD_NOT_CALLED);
    kill(child, SIGSTOP);
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    assert_int_equal(judge(&pair).cause, RECORD_HELD);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(judge(&pair).cause, RECORD_DEAD);
    record_made_t made;
    call(&pair, 1, 8);
    assert_true(record_last(pair.record[1]->slot, &made));
    atomic_store(&pair.record[1]->slot->wait_id, record_id(&made.sign)); /* when it died, it waited in the same call */
    assert_int_equal(judge(&pair).cause, RECORD_DEAD);
    pair.view.pid = getpid();
    pair.view.start_ticks = 1; /* another process had this pid */
    assert_int_equal(judge(&pair).cause, RECORD_DEAD);
    end_pair(&pair);
}

/* A rank that waits in a list's first call and does not make the second is reported. */
static void a_rank_that_is_stopped_within_a_list_is_told(void **state)
{
    (void)state;
    pair_t pair = make_pair();
    const pid_t child = make_other_process(&pair);
    (void)list(&pair, 0, (const uint64_t[]){8, 9, 0});
    atomic_store(&pair.record[1]->slot->wait_id, call(&pair, 1, 8));
    assert_int_equal(judge(&pair).cause, RECORD_IN_IT);
    kill(child, SIGSTOP);
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    const record_rank_t rank = judge(&pair);
    assert_true(rank.cause == RECORD_HELD && rank.number == 2);
    (void)call(&pair, 1, 9);
    assert_int_equal(judge(&pair).cause, RECORD_IN_IT); /* its kernel goes on */
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(judge(&pair).cause, RECORD_DEAD);
    end_pair(&pair);
}

/* Ranks in one replay count as in the same call by their epochs, since a replay makes no call. */
static void ranks_in_one_replay_are_in_one_call(void **state)
{
    (void)state;
    pair_t pair = make_pair();
    const record_sign_t first = {.kind = RECORD_CAPTURED, .number = 1}, sign = {.kind = RECORD_CAPTURED, .number = 3};
    const record_slot_t *slot = pair.record[0]->slot;
    const record_waiting_t waiting = record_waiting_of(slot, record_id(&first), 5 << 16);
    assert_int_equal(record_judge(&waiting, slot, &pair.view, 1, 0).cause, RECORD_NOT_BEGUN);
    atomic_store(&pair.record[1]->slot->wait_id, record_id(&sign));
    atomic_store(&pair.record[1]->slot->wait_epoch, 4 << 16);
    assert_int_equal(record_judge(&waiting, slot, &pair.view, 1, 0).cause, RECORD_NOT_BEGUN);
    atomic_store(&pair.record[1]->slot->wait_epoch, (5 << 16) + 6);
    assert_int_equal(record_judge(&waiting, slot, &pair.view, 1, 0).cause, RECORD_IN_IT);
    end_pair(&pair);
}

/* A wait that a rank has reported is that of the same call, or replay, on another rank; a message's has no number that
 * tells. */
static void a_report_is_of_one_call_or_replay(void **state)
{
    (void)state;
    pair_t pair = make_pair();
    const record_slot_t *slot = pair.record[0]->slot;
    record_slot_t *other = pair.record[1]->slot;
    for (uint32_t kind = RECORD_COLLECTIVE; kind <= RECORD_CAPTURED; kind++) {
        const record_sign_t sign = {.kind = (record_kind_t)kind, .number = 3}, next = {.kind = sign.kind, .number = 4};
        const record_waiting_t same = record_waiting_of(slot, record_id(&sign), 5 << 16),
                               later = record_waiting_of(slot, record_id(&next), 6 << 16);
        atomic_store(&other->reported_id, 0);
        assert_false(record_has_reported(&same, other));
        atomic_store(&other->reported_epoch, 5 << 16);
        atomic_store(&other->reported_id, record_id(&sign));
        assert_true(record_has_reported(&same, other) == (kind != RECORD_MESSAGE));
        assert_false(record_has_reported(&later, other));
    }
    end_pair(&pair);
}

/* In a replayed list, which adds all its calls to the epoch at once, each call has its own epoch. */
static void a_replayed_list_has_an_epoch_for_each_call(void **state)
{
    (void)state;
    shim_record_call_t captured = all_reduce(8);
    uint64_t id = 0, own = 0;
    pair_t pair = make_pair();
    captured.captured = true;
    for (int i = 0; i < 3; i++) {
        id = shim_record_call(pair.record[0], &captured);
        if (i > 0)
            shim_record_listed(pair.record[0], id);
        own = shim_record_call(pair.record[1], &captured);
    }
    record_slot_t *slot = pair.record[0]->slot, *other = pair.record[1]->slot;
    atomic_store(&slot->wait_id, id);
    atomic_store(&slot->wait_epoch, 9 << 16);
    atomic_store(&other->wait_id, own);
    for (uint64_t epoch = 6; epoch <= 10; epoch++) {
        const bool within = epoch > 6 && epoch < 10;
        const record_waiting_t list = record_waiting_of(slot, id, 9 << 16),
                               one = record_waiting_of(other, own, epoch << 16);
        atomic_store(&other->wait_epoch, epoch << 16);
        assert_true(record_waits_too(&list, other) == within && record_waits_too(&one, slot) == within);
    }
    end_pair(&pair);
}

/* ---- The file --------------------------------------------------------------------------- */

static void only_the_owner_may_open_it_and_nobody_may_shorten_it(void **state)
{
    (void)state;
    shim_record_t *record = shim_record_new();
    shim_record_offer_t offer;
    struct stat info;
    char path[64];
    shim_record_offer(record, &offer);
    assert_int_equal(fstat((int)offer.descriptor, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(ftruncate((int)offer.descriptor, 0), -1);
    snprintf(path, sizeof path, "/proc/self/fd/%d", (int)offer.descriptor);
    const int fd = open(path, O_RDONLY);
    uint32_t slots = 0;
    assert_non_null(record_book_map(fd, &slots));
    assert_true(slots > record->number);
    close(fd);
    shim_record_end(record);
}

/* A file that is not a book is refused. */
static void another_file_is_no_book(void **state)
{
    (void)state;
    uint32_t slots;
    const int plain = memfd_create("plain", 0), sealed = memfd_create("sealed", MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(plain, RECORD_PAGE), 0);
    assert_null(record_book_map(plain, &slots));
    assert_int_equal(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_null(record_book_map(sealed, &slots));
    assert_int_equal(ftruncate(sealed, RECORD_PAGE), 0);
    assert_null(record_book_map(sealed, &slots));
    close(plain);
    close(sealed);
}

/* The first version's readers would take experts' calls for messages, so neither reads the other's book. */
static void a_book_of_another_version_is_refused(void **state)
{
    (void)state;
    uint32_t slots;
    for (uint32_t version = RECORD_VERSION - 1; version <= RECORD_VERSION + 1; version++) {
        record_book_t book = {0};
        const int fd = memfd_create("book", MFD_ALLOW_SEALING);
        assert_int_equal(ftruncate(fd, RECORD_PAGE), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
        atomic_store(&book.magic, RECORD_MAGIC);
        atomic_store(&book.version, version);
        assert_int_equal(pwrite(fd, &book, sizeof book, 0), sizeof book);
        assert_int_equal(record_book_map(fd, &slots) != NULL, version == RECORD_VERSION);
        close(fd);
    }
    assert_true(RECORD_VERSION >= 2);
}

/* A forked child has a book of its own and does not change its parent's. */
static void a_forked_child_begins_anew(void **state)
{
    (void)state;
    shim_record_t *record = shim_record_new();
    shim_record_offer_t before, after;
    shim_record_offer(record, &before);
    const pid_t child = fork();
    if (child == 0) {
        shim_record_t *own = shim_record_new();
        shim_record_offer(own, &after);
        const shim_record_call_t made = all_reduce(5);
        (void)shim_record_call(own, &made);
        _exit(own && after.mark.inode != before.mark.inode && after.slot == 0 ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(atomic_load(&record->slot->entries), 0);
    shim_record_end(record);
}

static void as_many_as_fit_are_recorded(void **state)
{
    (void)state;
    static shim_record_t *record[RECORD_MOST_SLOTS + 1];
    uint32_t made = 0;
    while (made <= RECORD_MOST_SLOTS && (record[made] = shim_record_new()))
        made++;
    assert_int_equal(made, RECORD_MOST_SLOTS);
    const shim_record_call_t call = all_reduce(5);
    assert_int_equal(shim_record_call(NULL, &call), 0); /* without a record a call goes its way */
    for (uint32_t i = 0; i < made; i++)
        shim_record_end(record[i]);
    const shim_record_about_t about = {.nranks = 2, .attached = true, .control = &g_control, .phase = &g_phase};
    record[0] = shim_record_new();
    shim_record_begin(record[0], &about);
    shim_record_end(record[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_names_the_call),
        cmocka_unit_test(a_large_odd_count_is_rounded_down),
        cmocka_unit_test(a_reader_sees_whole_entries_or_none),
        cmocka_unit_test(an_entry_that_was_not_finished_is_none),
        cmocka_unit_test(a_peers_book_goes_with_the_last_record_of_it),
        cmocka_unit_test(kinds_have_numbers_of_their_own),
        cmocka_unit_test(what_must_be_equal_is_compared),
        cmocka_unit_test(each_cause_is_told),
        cmocka_unit_test(a_threads_wait_elsewhere_is_known_by_its_gpu),
        cmocka_unit_test(calls_without_a_record_are_not_denied),
        cmocka_unit_test(a_wait_two_kernels_ago_is_over),
        cmocka_unit_test(who_waits_in_a_later_call_has_ended_this),
        cmocka_unit_test(a_list_waits_for_each_of_its_calls),
        cmocka_unit_test(who_waits_in_a_list_is_in_each_of_its_calls),
        cmocka_unit_test(a_list_may_have_others_between),
        cmocka_unit_test(what_is_not_known_is_not_told),
        cmocka_unit_test(dispatches_are_compared_without_their_tokens),
        cmocka_unit_test(of_a_staged_call_only_a_missing_one_is_told),
        cmocka_unit_test(a_rank_that_has_left_is_told),
        cmocka_unit_test(a_process_is_seen_to_stop_and_to_end),
        cmocka_unit_test(a_rank_that_is_stopped_within_a_list_is_told),
        cmocka_unit_test(ranks_in_one_replay_are_in_one_call),
        cmocka_unit_test(a_report_is_of_one_call_or_replay),
        cmocka_unit_test(a_replayed_list_has_an_epoch_for_each_call),
        cmocka_unit_test(only_the_owner_may_open_it_and_nobody_may_shorten_it),
        cmocka_unit_test(another_file_is_no_book),
        cmocka_unit_test(a_book_of_another_version_is_refused),
        cmocka_unit_test(a_forked_child_begins_anew),
        cmocka_unit_test(as_many_as_fit_are_recorded),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
