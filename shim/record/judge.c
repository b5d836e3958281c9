/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "shim/record/judge.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

uint32_t record_book_slots(int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || info.st_size < RECORD_PAGE)
        return 0;
    const uint64_t slots = ((uint64_t)info.st_size - RECORD_PAGE) / RECORD_SLOT_BYTES;
    return slots < RECORD_MOST_SLOTS ? (uint32_t)slots : (uint32_t)RECORD_MOST_SLOTS;
}

const record_book_t *record_book_map(int fd, uint32_t *slots)
{
    struct stat info;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &info) != 0 || info.st_size < RECORD_PAGE)
        return NULL;
    const size_t bytes = RECORD_BOOK_BYTES(RECORD_MOST_SLOTS); /* the file may grow */
    void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return NULL;
    const record_book_t *book = at;
    if (atomic_load_explicit(&book->magic, memory_order_acquire) != RECORD_MAGIC ||
        atomic_load(&book->version) != RECORD_VERSION) {
        munmap(at, bytes);
        return NULL;
    }
    *slots = record_book_slots(fd);
    return book;
}

bool record_view_lives(const record_view_t *view)
{
    return atomic_load_explicit(&view->slot->life, memory_order_acquire) == view->life;
}

/* False while the entry is written or overwritten. */
static bool read_entry(const record_entry_t *entry, record_made_t *made, uint64_t *sequence)
{
    *sequence = atomic_load_explicit(&entry->sequence, memory_order_acquire);
    const _Atomic uint64_t none[RECORD_KINDS] = {0};
    const uint64_t id = load(&entry->id);
    made->sign = record_unpack(id, none);
    made->sign.number = load(&entry->number);
    made->sign.count = load(&entry->count);
    const uint64_t place = load(&entry->place);
    made->flags = (uint32_t)(place >> 32);
    made->place = (uint32_t)place;
    made->stream = load(&entry->stream);
    made->time_ns = load(&entry->time_ns);
    made->algorithm = load(&entry->algorithm);
    atomic_thread_fence(memory_order_acquire);
    return *sequence != 0 && load(&entry->sequence) == *sequence;
}

bool record_find(const record_slot_t *slot, record_kind_t kind, uint64_t number, record_made_t *made)
{
    const uint64_t guess = record_guess(slot, kind, number);
    for (uint32_t i = 0; i < RECORD_CALLS; i++) {
        const record_entry_t *entry = &record_ring(slot)[(guess - i) % RECORD_CALLS];
        uint64_t sequence;
        record_made_t read;
        if (load(&entry->number) == number && read_entry(entry, &read, &sequence) && read.sign.kind == kind &&
            read.sign.number == number) {
            *made = read;
            return true;
        }
    }
    return false;
}

static bool is_rooted(uint32_t collective)
{
    return collective < ALG_COLLECTIVE_COUNT && alg_collective_rooted((alg_collective_t)collective);
}

/* Skips forwarded calls, which may lie between a list's calls. A list's rooted calls share an epoch. */
record_waiting_t record_waiting_of(const record_slot_t *slot, uint64_t id, uint64_t epoch)
{
    record_waiting_t waiting = {
        .sign = record_unpack(id, slot->made), .epoch = epoch >> RECORD_EPOCH_BITS, .epochs = 1};
    record_sign_t *first = &waiting.sign;
    record_made_t made;
    waiting.last = first->number;
    for (uint64_t n = waiting.last; n + RECORD_CALLS > waiting.last && record_find(slot, first->kind, n, &made); n--) {
        if (n < waiting.last && (made.flags & RECORD_FORWARDED))
            continue;
        first->number = n;
        first->count = made.sign.count;
        waiting.staged = made.flags & RECORD_STAGED;
        if (!(made.flags & RECORD_LISTED))
            break;
        waiting.epochs += !is_rooted(first->collective);
    }
    return waiting;
}

bool record_last(const record_slot_t *slot, record_made_t *made)
{
    const uint64_t last = load(&slot->entries);
    uint64_t sequence;
    return last != 0 && read_entry(&record_ring(slot)[last % RECORD_CALLS], made, &sequence) && sequence == last;
}

void record_algorithm(const record_book_t *book, uint64_t address, char name[RECORD_NAME_BYTES])
{
    snprintf(name, RECORD_NAME_BYTES, "%s", address == 0 ? "NCCL" : "");
    for (uint32_t i = 0; address != 0 && i < RECORD_ALGORITHMS; i++) {
        if (load(&book->algorithm[i].address) == address) {
            memcpy(name, book->algorithm[i].name, RECORD_NAME_BYTES - 1);
            name[RECORD_NAME_BYTES - 1] = '\0';
            return;
        }
    }
}

/* The real NCCL may reorder the calls of a group. */
static bool may_be_sorted(const record_made_t *made)
{
    return (made->flags & RECORD_FORWARDED) && (made->flags & RECORD_GROUPED);
}

/* In a collective that only moves data, two ranks may name different types with equal total bytes. */
bool record_agree(const record_made_t *one, const record_made_t *other)
{
    const record_sign_t *a = &one->sign, *b = &other->sign;
    if (may_be_sorted(one) && may_be_sorted(other))
        return true;
    if (a->collective != b->collective || a->collective >= ALG_COLLECTIVE_COUNT)
        return a->collective == b->collective;
    const alg_collective_t collective = (alg_collective_t)a->collective;
    if (alg_collective_rooted(collective) && one->place != other->place)
        return false;
    if (alg_collective_reduces(collective))
        return a->count == b->count && a->type == b->type && a->op == b->op;
    return a->count * alg_type_bytes((alg_type_t)a->type) == b->count * alg_type_bytes((alg_type_t)b->type);
}

bool record_comparable(const record_slot_t *one, const record_slot_t *other)
{
    return load(&one->doubts) == 0 && load(&other->doubts) == 0 &&
           load(&one->made[RECORD_CAPTURED]) == load(&other->made[RECORD_CAPTURED]) &&
           load(&one->captured_hash) == load(&other->captured_hash);
}

/* /proc/<pid>/stat as in transport/process.c. A process whose first thread has ended appears as a zombie. */
record_process_t record_process_state(int64_t pid, uint64_t start_ticks)
{
    char path[48], text[1024], state = 0;
    int64_t threads = 0;
    uint64_t start = 0;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? RECORD_GONE : RECORD_RUNS;
    const ssize_t size = read(fd, text, sizeof text - 1);
    const int error = errno;
    close(fd);
    if (size < 0)
        return error == ESRCH ? RECORD_GONE : RECORD_RUNS;
    text[size] = '\0';
    const char *field = strrchr(text, ')');
    if (!field || sscanf(field + 1,
                         " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %" SCNd64 " %*d %" SCNu64,
                         &state, &threads, &start) != 3)
        return RECORD_RUNS;
    if ((start_ticks != 0 && start != start_ticks) || ((state == 'Z' || state == 'X' || state == 'x') && threads <= 1))
        return RECORD_GONE;
    return state == 'T' || state == 't' ? RECORD_STOPPED : RECORD_RUNS;
}

static uint64_t since(uint64_t now_ns, uint64_t then_ns)
{
    return now_ns > then_ns ? now_ns - then_ns : 0;
}

static bool in_use(const record_slot_t *slot)
{
    return load(&slot->life) & 1;
}

static bool is_there(const record_slot_t *slot, const record_view_t *view)
{
    return atomic_load(&slot->device) == atomic_load(&view->slot->device);
}

/* Whether the process (there: and its GPU) has more ranks of this communicator: other communicators' calls may be
 * theirs. */
static bool has_other_ranks(const record_view_t *view, bool there)
{
    const uint32_t slots = atomic_load(&view->mapped->slots);
    uint32_t ranks = 0;
    for (uint32_t i = 0; i < slots; i++) {
        const record_slot_t *slot = record_slot_at(view->mapped->book, i);
        ranks += in_use(slot) && load(&slot->comm) == load(&view->slot->comm) && (!there || is_there(slot, view));
    }
    return ranks > 1;
}

static bool find_waiting(const record_slot_t *slot, record_waiting_t *waiting)
{
    const uint64_t id = load(&slot->wait_id);
    *waiting = record_waiting_of(slot, id, load(&slot->wait_epoch));
    return id != 0;
}

/* On the CPU device `ended` shows the end even if the watcher is late or stopped. */
static bool is_over(const record_slot_t *slot, const record_waiting_t *waiting)
{
    return waiting->sign.kind == RECORD_COLLECTIVE && !waiting->staged && load(&slot->ended) >= waiting->last;
}

/* Whether another rank's wait `other` is over, although its watcher has not noticed: between it and this rank's wait
 * lies a kernel that this rank has ended, so the other rank has begun it. Count 0: this rank's kernel is unknown. */
static bool is_past(const record_waiting_t *waiting, const record_waiting_t *other)
{
    return waiting->sign.count != 0 && waiting->sign.kind != RECORD_MESSAGE && other->sign.kind != RECORD_MESSAGE &&
           other->epoch + waiting->epochs < waiting->epoch;
}

/* Finds another call in which the rank waits: on this communicator, else its longest wait on another one. */
static void find_wait(const record_waiting_t *waiting, const record_view_t *view, record_rank_t *rank)
{
    const uint32_t slots = atomic_load(&view->mapped->slots);
    const bool alone = !has_other_ranks(view, false), alone_there = !has_other_ranks(view, true);
    for (uint32_t i = 0; i < slots; i++) {
        const record_slot_t *slot = record_slot_at(view->mapped->book, i);
        const uint64_t wait_ns = load(&slot->wait_ns);
        const bool same = slot == view->slot, its = alone || (alone_there && is_there(slot, view));
        record_waiting_t other;
        if (!in_use(slot) || rank->same_comm || (!same && (!its || wait_ns < rank->waits_ns)) ||
            !find_waiting(slot, &other) || is_over(slot, &other) || (same && is_past(waiting, &other)))
            continue;
        rank->elsewhere = true;
        rank->same_comm = same;
        rank->waits = other.sign;
        rank->waits_ranks = atomic_load(&slot->nranks);
        rank->waits_ns = wait_ns;
    }
}

static void find_last(const record_slot_t *slot, uint64_t now_ns, record_rank_t *rank)
{
    rank->has_last = record_last(slot, &rank->last);
    rank->unread = !rank->has_last && load(&slot->entries) != 0;
    if (!rank->has_last)
        return;
    rank->last_ago_ns = since(now_ns, rank->last.time_ns);
    rank->ended = rank->last.sign.kind == RECORD_COLLECTIVE && load(&slot->ended) >= rank->last.sign.number;
    rank->ended_ago_ns = since(now_ns, load(&slot->ended_ns));
}

/* For captured calls the epochs decide, since replays make no calls. */
static bool have_in_common(const record_waiting_t *one, const record_waiting_t *other)
{
    if (one->sign.kind == RECORD_CAPTURED || other->sign.kind == RECORD_CAPTURED)
        return other->epoch + one->epochs > one->epoch && one->epoch + other->epochs > other->epoch;
    if (one->sign.kind != other->sign.kind)
        return false;
    return one->sign.kind == RECORD_MESSAGE || (other->last >= one->sign.number && one->last >= other->sign.number);
}

bool record_waits_too(const record_waiting_t *waiting, const record_slot_t *slot)
{
    record_waiting_t other;
    return find_waiting(slot, &other) && have_in_common(waiting, &other);
}

bool record_has_reported(const record_waiting_t *waiting, const record_slot_t *slot)
{
    const uint64_t id = load(&slot->reported_id);
    const record_waiting_t other = record_waiting_of(slot, id, load(&slot->reported_epoch));
    return id != 0 && waiting->sign.kind != RECORD_MESSAGE && have_in_common(waiting, &other);
}

static bool still_waits_too(const record_waiting_t *waiting, const record_slot_t *slot)
{
    record_waiting_t other;
    return find_waiting(slot, &other) && !is_over(slot, &other) && have_in_common(waiting, &other);
}

/* Calls of a communicator run in order: a rank that waits in a later one has ended this one. */
bool record_has_ended(const record_waiting_t *waiting, const record_slot_t *slot)
{
    record_waiting_t other;
    return waiting->sign.kind == RECORD_COLLECTIVE &&
           (is_over(slot, waiting) ||
            (find_waiting(slot, &other) && other.sign.kind == RECORD_COLLECTIVE && other.sign.number > waiting->last));
}

/* The message's entry, if still in the ring, names its peer. A grouped message's kernel may also wait for others. */
static record_cause_t judge_message(const record_waiting_t *waiting, const record_slot_t *waiter,
                                    const record_slot_t *slot, uint32_t rank)
{
    record_made_t own;
    if (record_find(waiter, RECORD_MESSAGE, waiting->sign.number, &own) && !(own.flags & RECORD_GROUPED) &&
        own.place != rank)
        return RECORD_APART;
    return record_waits_too(waiting, slot) ? RECORD_IN_IT : RECORD_NO_MESSAGE;
}

/* Finds the first of the wait's calls that differs. */
static bool find_other(const record_waiting_t *waiting, const record_slot_t *waiter, const record_slot_t *slot,
                       record_rank_t *rank)
{
    record_made_t own, theirs;
    uint64_t n = waiting->sign.number;
    while (n <= waiting->last && (!record_find(waiter, RECORD_COLLECTIVE, n, &own) ||
                                  !record_find(slot, RECORD_COLLECTIVE, n, &theirs) || record_agree(&own, &theirs)))
        n++;
    if (n > waiting->last)
        return false;
    rank->number = n;
    rank->has_other = true;
    rank->other = theirs;
    return true;
}

/* Number of the wait's first call that the rank has not made; 0: none. */
static uint64_t find_missing(const record_waiting_t *waiting, const record_slot_t *slot)
{
    const uint64_t made = load(&slot->made[RECORD_COLLECTIVE]), first = waiting->sign.number;
    return waiting->sign.kind != RECORD_COLLECTIVE || made >= waiting->last ? 0 : made < first ? first : made + 1;
}

/* Whether the rank has made the wait's calls; OTHER_CALL if one differs. */
static record_cause_t judge_call(const record_waiting_t *waiting, const record_slot_t *waiter,
                                 const record_slot_t *slot, record_rank_t *rank)
{
    const record_sign_t *sign = &waiting->sign;
    if (sign->kind == RECORD_MESSAGE)
        return judge_message(waiting, waiter, slot, rank->rank);
    if (sign->kind == RECORD_COLLECTIVE && find_other(waiting, waiter, slot, rank))
        return RECORD_OTHER_CALL;
    const uint64_t missing = find_missing(waiting, slot), ended = load(&slot->ended);
    rank->number = missing != 0 ? missing : ended < sign->number ? sign->number : ended + 1;
    if (still_waits_too(waiting, slot))
        return RECORD_IN_IT;
    if (missing != 0)
        return RECORD_NOT_CALLED;
    if (waiting->forwarded || record_has_ended(waiting, slot))
        return RECORD_IN_IT;
    return waiting->staged ? RECORD_UNSEEN : RECORD_NOT_BEGUN; /* a rank that has sent its part waits for nothing */
}

record_rank_t record_judge(const record_waiting_t *waiting, const record_slot_t *waiter, const record_view_t *view,
                           uint32_t rank, uint64_t now_ns)
{
    record_rank_t judged = {.rank = rank,
                            .cause = RECORD_UNSEEN,
                            .number = waiting->sign.number,
                            .pid = view->pid,
                            .device = -1,
                            .unread = true};
    if (!view->seen || view->pid == 0)
        return judged;
    const record_process_t process = record_process_state(view->pid, view->start_ticks);
    const bool lives = view->slot && record_view_lives(view);
    const bool doubt = lives && waiting->sign.kind == RECORD_COLLECTIVE && !record_comparable(waiter, view->slot);
    if (lives) {
        judged.device = atomic_load(&view->slot->device);
        find_last(view->slot, now_ns, &judged);
        judged.cause = doubt ? (still_waits_too(waiting, view->slot) ? RECORD_IN_IT : RECORD_UNSEEN)
                             : judge_call(waiting, waiter, view->slot, &judged);
    }
    /* A published wait is void if its process has died, or is stopped without having made all calls of a list. */
    const bool is_void = judged.cause == RECORD_IN_IT &&
                         ((process == RECORD_GONE && !record_has_ended(waiting, view->slot)) ||
                          (process == RECORD_STOPPED && !doubt && find_missing(waiting, view->slot) != 0));
    if ((judged.cause >= RECORD_IN_IT || judged.cause == RECORD_OTHER_CALL) && !is_void)
        return judged;
    if (process == RECORD_GONE)
        judged.cause = RECORD_DEAD;
    else if (view->slot && (!lives || atomic_load(&view->slot->state) == RECORD_ENDED))
        judged.cause = RECORD_LEFT;
    else if (process == RECORD_STOPPED)
        judged.cause = RECORD_HELD;
    else if (lives)
        find_wait(waiting, view, &judged);
    return judged;
}

static uint32_t order_of(const record_rank_t *rank)
{
    const bool waits = rank->elsewhere && rank->cause < RECORD_UNSEEN;
    return waits ? 2 * RECORD_NOT_BEGUN + 1 : 2 * (uint32_t)rank->cause;
}

bool record_blamed_before(const record_rank_t *one, const record_rank_t *other)
{
    const uint32_t a = order_of(one), b = order_of(other);
    return a != b ? a < b : one->number < other->number;
}

record_sign_t record_awaited(const record_slot_t *waiter, const record_waiting_t *waiting, const record_rank_t *blamed)
{
    record_sign_t sign = waiting->sign;
    record_made_t made;
    if (blamed && blamed->cause < RECORD_IN_IT && record_find(waiter, sign.kind, blamed->number, &made))
        sign = made.sign;
    return sign;
}
