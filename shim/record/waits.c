/* SPDX-License-Identifier: Apache-2.0 */
/* waits.c - for which ranks calls waited, and how long: a part of the statistics, collected if SHUNT_STATS is set.
 * A waiting kernel publishes its call, but not for whom it waits. So in each round of the watcher another rank is late
 * for a call in which this rank waits
 * - while the late rank's record shows that it has not made the call;
 * - up to its own watcher's last round, if none of its kernels had published a wait in the call by then.
 * A rank that arrives last never waits, so it is late until the wait ends. A rank whose watcher runs rarely does not
 * count as late. Once a rank has been seen in the call, it is no longer late. Times below LEAST_MS are noise: kernels
 * publish a wait after 0.2 ms, and watchers run about every SAMPLE_US (watch.c). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/settings.h"
#include "shim/record/book.h"

#define MS_NS UINT64_C(1000000)
enum {
    LEAST_MS = 1,
    LENGTHS = 16,     /* classes: waits from 2^i to 2^(i + 1) ms; the last: all longer */
    MOST_COMMS = 1024 /* communicators with sums; later ones have none */
};

typedef struct late {
    uint64_t waits, waited_ns, lengths[LENGTHS];
} late_t;

/* This process's ranks' waits on a communicator, by late rank. */
typedef struct sums {
    struct sums *next;
    uint64_t comm;
    uint32_t nranks;
    late_t late[ALG_MAX_RANKS];
} sums_t;

/* Under the lock. */
static sums_t *g_sums;
static uint32_t g_comms;

void record_waits_forget(void)
{
    g_sums = NULL;
    g_comms = 0;
}

/* Ranks (bits) that a call waits for. */
typedef struct awaited {
    uint32_t uncalled; /* late if they have not made the call */
    uint32_t unseen;   /* late unless they are seen to wait in it */
} awaited_t;

/* In a collective, also a rooted one (device/notice.h), every rank waits for every other. No single entry names the
 * partners in a kernel of several roots or a group of messages. */
static awaited_t awaited_by(const shim_record_t *record, const record_waiting_t *waiting)
{
    const uint32_t own = 1u << record->about.rank, all = ((1u << record->about.nranks) - 1) & ~own;
    const uint32_t collective = waiting->sign.collective;
    record_made_t made;
    if (waiting->staged) /* a rank that has sent waits for nothing */
        return (awaited_t){.uncalled = all};
    if (!record_is_message(collective))
        return waiting->last != waiting->sign.number && alg_collective_rooted((alg_collective_t)collective)
                   ? (awaited_t){0}
                   : (awaited_t){all, all};
    if (waiting->last != waiting->sign.number ||
        !record_find(record->slot, waiting->sign.kind, waiting->sign.number, &made) || made.place >= ALG_MAX_RANKS ||
        (made.flags & RECORD_GROUPED))
        return (awaited_t){0};
    return (awaited_t){.unseen = 1u << made.place & all};
}

typedef enum presence { NOT_KNOWN, NOT_IN_IT, IN_IT } presence_t;

/* For a rank that has made the call. If it waits in a message and in a collective, it publishes only one wait. */
static presence_t look_at_device(const record_waiting_t *waiting, const record_slot_t *peer)
{
    const uint64_t id = atomic_load(&peer->wait_id), epoch = atomic_load(&peer->wait_epoch);
    const bool message = record_is_message(waiting->sign.collective);
    if (id != 0 && record_is_message(id) != message)
        return NOT_KNOWN;
    return id != 0 && !message && epoch >> RECORD_EPOCH_BITS > waiting->epoch ? IN_IT : NOT_IN_IT;
}

/* NOT_IN_IT holds up to *until_ns, which the caller initialises to now. */
static presence_t look_at_rank(const shim_record_t *record, const record_waiting_t *waiting, const awaited_t *awaited,
                               uint32_t rank, uint64_t *until_ns)
{
    const record_view_t *view = &record->peer[rank];
    if (!view->slot || !record_view_lives(view))
        return NOT_KNOWN;
    const record_slot_t *peer = view->slot;
    const uint64_t beat_ns = atomic_load(&view->mapped->book->beat_ns); /* the peer stores it last, so read it first */
    const bool numbered = waiting->sign.kind == RECORD_COLLECTIVE;
    if (numbered && !record_comparable(record->slot, peer))
        return NOT_KNOWN;
    if (record_waits_too(waiting, peer) || record_has_ended(waiting, peer))
        return IN_IT;
    if (numbered && awaited->uncalled >> rank & 1 && atomic_load(&peer->made[RECORD_COLLECTIVE]) < waiting->last)
        return NOT_IN_IT;
    *until_ns = beat_ns;
    return awaited->unseen >> rank & 1 ? look_at_device(waiting, peer) : NOT_KNOWN;
}

void record_waits_look(const shim_record_t *record, record_wait_t *wait, uint64_t clock_ns, uint64_t now_ns)
{
    if (wait->id == 0 || wait->seen_ns != clock_ns || !shim_setting_stats())
        return;
    const record_waiting_t waiting = record_waiting_of(record->slot, wait->id, wait->epoch);
    const awaited_t awaited = awaited_by(record, &waiting);
    const uint32_t ranks = (awaited.uncalled | awaited.unseen) & ~wait->arrived;
    for (uint32_t r = 0; ranks >> r != 0; r++) {
        uint64_t until_ns = now_ns;
        const presence_t presence = ranks >> r & 1 ? look_at_rank(record, &waiting, &awaited, r, &until_ns) : NOT_KNOWN;
        const uint64_t waited_ns = clock_ns - wait->began_ns, ago_ns = now_ns > until_ns ? now_ns - until_ns : 0;
        if (presence == IN_IT)
            wait->arrived |= 1u << r;
        else if (presence == NOT_IN_IT && waited_ns > ago_ns && waited_ns - ago_ns > wait->late_ns[r])
            wait->late_ns[r] = waited_ns - ago_ns;
    }
}

static sums_t *sums_of(const shim_record_t *record)
{
    const uint64_t comm = atomic_load(&record->slot->comm);
    sums_t *sums = g_sums;
    while (sums && sums->comm != comm)
        sums = sums->next;
    if (sums || g_comms == MOST_COMMS || !(sums = calloc(1, sizeof *sums)))
        return sums;
    sums->comm = comm;
    sums->nranks = record->about.nranks;
    sums->next = g_sums;
    g_sums = sums;
    g_comms++;
    return sums;
}

static uint32_t length_of(uint64_t ns)
{
    const uint32_t length = 63 - (uint32_t)__builtin_clzll(ns / MS_NS);
    return length < LENGTHS ? length : LENGTHS - 1;
}

bool record_waits_for_left(record_wait_t *wait, uint64_t clock_ns)
{
    wait->seen_since_left += wait->seen_ns == clock_ns;
    return wait->seen_since_left >= 3;
}

void record_waits_end(const shim_record_t *record, record_wait_t *wait)
{
    for (uint32_t r = 0; r < ALG_MAX_RANKS; r++) {
        sums_t *sums = wait->late_ns[r] >= LEAST_MS * MS_NS ? sums_of(record) : NULL;
        if (!sums)
            continue;
        sums->late[r].waits++;
        sums->late[r].waited_ns += wait->late_ns[r];
        sums->late[r].lengths[length_of(wait->late_ns[r])]++;
    }
    memset(wait->late_ns, 0, sizeof wait->late_ns);
    wait->arrived = UINT32_MAX; /* ignore later sightings */
}

typedef struct row {
    const sums_t *sums;
    uint64_t most_ns; /* highest waited_ns of the communicator's ranks */
    uint32_t rank;
} row_t;

/* By communicator; in each, the rank with the longest waits first. */
static int by_waits(const void *a, const void *b)
{
    const row_t *x = a, *y = b;
    const uint64_t ns[2] = {x->sums->late[x->rank].waited_ns, y->sums->late[y->rank].waited_ns};
    if (x->most_ns != y->most_ns)
        return x->most_ns > y->most_ns ? -1 : 1;
    if (x->sums->comm != y->sums->comm)
        return x->sums->comm < y->sums->comm ? -1 : 1;
    return ns[0] != ns[1] ? (ns[0] > ns[1] ? -1 : 1) : (int)x->rank - (int)y->rank;
}

/* tools/run/waits.c parses this line. */
static void print_row(FILE *out, const row_t *row)
{
    const late_t *late = &row->sums->late[row->rank];
    const char *comma = "";
    fprintf(out,
            "shunt: communicator=%016" PRIx64 " ranks=%u late_rank=%u waits=%" PRIu64 " waited_us=%" PRIu64
            " lengths_ms=",
            row->sums->comm, row->sums->nranks, row->rank, late->waits, late->waited_ns / 1000);
    for (uint32_t i = 0; i < LENGTHS; i++) {
        if (late->lengths[i] == 0)
            continue;
        fprintf(out, "%s%u:%" PRIu64, comma, 1u << i, late->lengths[i]);
        comma = ",";
    }
    fputc('\n', out);
}

/* Under the lock. Also counts waits that still last. */
static void end_all(void)
{
    for (uint32_t i = 0; record_number(i); i++)
        for (uint32_t w = 0; record_number(i)->used && w < RECORD_WAITS; w++)
            record_waits_end(record_number(i), &record_number(i)->wait[w]);
}

/* Under the lock. Returns the number of rows, at most ALG_MAX_RANKS per communicator. */
static uint32_t fill_rows(row_t *rows)
{
    uint32_t count = 0;
    for (const sums_t *sums = g_sums; sums; sums = sums->next) {
        uint64_t most_ns = 0;
        for (uint32_t r = 0; r < ALG_MAX_RANKS; r++)
            most_ns = sums->late[r].waited_ns > most_ns ? sums->late[r].waited_ns : most_ns;
        for (uint32_t r = 0; r < ALG_MAX_RANKS; r++)
            if (sums->late[r].waits != 0)
                rows[count++] = (row_t){sums, most_ns, r};
    }
    return count;
}

void shim_record_print_waits(FILE *out)
{
    net_lock_take(&record_lock);
    end_all();
    row_t *rows = g_comms > 0 ? malloc(g_comms * ALG_MAX_RANKS * sizeof *rows) : NULL;
    const uint32_t count = rows ? fill_rows(rows) : 0;
    if (count > 0)
        qsort(rows, count, sizeof *rows, by_waits);
    for (uint32_t i = 0; i < count; i++)
        print_row(out, &rows[i]);
    free(rows);
    net_lock_give(&record_lock);
}
