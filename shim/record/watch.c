/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - the watcher: one thread per process that reads the records of this process and its peers, and reports hangs
 * and differing calls (docs/watch.md). It makes no CUDA call: control words contain the call in which a kernel waits.
 * Its clock stops with the process, so a debugger that stops all ranks causes no report. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/base/log.h"
#include "shim/base/settings.h"
#include "shim/record/book.h"

#define MS_NS UINT64_C(1000000)
enum {
    PERIOD_MS = 200,   /* between rounds while calls are made or wait */
    IDLE_MS = 500,     /* otherwise: replayed kernels run without calls */
    ACTIVE_MS = 2000,  /* for so long after a call PERIOD_MS applies */
    SAMPLE_US = 500,   /* SHUNT_STATS: between samples of kernels' waits */
    STALE_MS = 1500,   /* a wait that no kernel repeated for so long is over */
    WATCHER_MS = 5000, /* a watcher silent for so long does not report */
    LINE_BYTES = 1024,
    JSON_BYTES = 8192,
    REPORTS = 8
};

/* Written when the lock is released. */
typedef struct report {
    char *line;
    char *json; /* JSON_BYTES, enough for the texts of all ranks */
} report_t;

static bool g_running;
static uint64_t g_clock_ns;
static uint64_t g_woke_ns; /* net_now_ns when the clock last advanced */
static void (*g_fail)(void);
static char g_line[REPORTS][LINE_BYTES], g_json[REPORTS][JSON_BYTES];
static uint32_t g_reports;

void shim_record_on_mismatch(void (*fail)(void))
{
    net_lock_take(&record_lock);
    g_fail = fail;
    net_lock_give(&record_lock);
}

void record_watch_forget(void)
{
    g_running = false;
}

/* False: too many reports; the next round tries again. */
static bool new_report(report_t *report)
{
    if (g_reports == REPORTS)
        return false;
    *report = (report_t){g_line[g_reports], g_json[g_reports]};
    g_reports++;
    return true;
}

static void json_call(const record_made_t *made, char *text, size_t capacity)
{
    char words[200];
    record_made_text(made, words, sizeof words);
    snprintf(text, capacity, "\"%s\"", words);
}

static size_t json_rank(const record_rank_t *rank, char *text, size_t capacity)
{
    char last[224] = "null";
    if (rank->has_last)
        json_call(&rank->last, last, sizeof last);
    const int length = snprintf(text, capacity,
                                "{\"rank\":%u,\"pid\":%" PRId64 ",\"device\":%d,\"cause\":\"%s\",\"last_call\":%s,"
                                "\"last_call_ms_ago\":%" PRIu64 "}",
                                rank->rank, rank->pid, rank->device, record_cause_name(rank->cause), last,
                                rank->has_last ? rank->last_ago_ns / MS_NS : 0);
    return length > 0 && (size_t)length < capacity ? (size_t)length : 0;
}

/* Writes the fields that all reports have. Their texts need no JSON escapes. */
static size_t json_head(const char *kind, const shim_record_t *record, char text[JSON_BYTES])
{
    char host[128] = "";
    gethostname(host, sizeof host - 1);
    for (char *at = host; *at; at++)
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\')
            *at = '?';
    return (size_t)snprintf(
        text, JSON_BYTES,
        "{\"report\":\"%s\",\"time\":%lld,\"host\":\"%s\",\"pid\":%lld,\"communicator\":\"%016" PRIx64
        "\",\"rank\":%u,\"ranks\":%u",
        kind, (long long)time(NULL), host, (long long)getpid(), atomic_load(&record->slot->comm), record->about.rank,
        record->about.nranks);
}

static void write_json(const char *json)
{
    const char *pattern = shim_settings()->hang_file, *why;
    if (pattern[0] == '\0')
        return;
    const int fd = shim_setting_open(pattern, &why);
    if (fd < 0) {
        shim_warn("SHUNT_HANG_FILE=%.200s cannot be written (%s); name a file that you may write", pattern, why);
        return;
    }
    net_write(fd, json, strlen(json));
    close(fd);
}

static void write_reports(void)
{
    for (uint32_t i = 0; i < g_reports; i++) {
        shim_warn("%s", g_line[i]);
        write_json(g_json[i]);
    }
    g_reports = 0;
}

static void end_wait(const shim_record_t *record, record_wait_t *wait)
{
    record_waits_end(record, wait);
    *wait = (record_wait_t){0};
}

static void note_wait(const shim_record_t *record, record_wait_t *wait, uint64_t id, uint64_t epoch)
{
    if (wait->id != id || wait->epoch != epoch) {
        end_wait(record, wait);
        *wait = (record_wait_t){.id = id, .epoch = epoch, .began_ns = g_clock_ns};
    }
    wait->seen_ns = g_clock_ns;
}

static void end_stale(const shim_record_t *record, record_wait_t *wait)
{
    if (wait->id != 0 && g_clock_ns - wait->seen_ns >= STALE_MS * MS_NS)
        end_wait(record, wait);
}

/* Reads what kernels published, without the epoch's low bits, which blocks change as they leave a call. */
static void look_at_kernels(shim_record_t *record)
{
    const alg_control_t *control = record->about.control;
    const uint64_t beat = control ? __atomic_load_n(&control->wait_beat, __ATOMIC_ACQUIRE) : record->beat;
    if (beat == record->beat)
        return;
    record->beat = beat;
    const uint64_t id = __atomic_load_n(&control->wait_id, __ATOMIC_RELAXED);
    const uint64_t epoch = __atomic_load_n(&control->wait_epoch, __ATOMIC_RELAXED) >> 16 << 16;
    if (id != 0)
        note_wait(record, &record->wait[record_is_message(id) ? RECORD_WAIT_MESSAGE : RECORD_WAIT_COLLECTIVE], id,
                  epoch);
}

static const record_slot_t *readable(const record_view_t *view)
{
    return view->slot && record_view_lives(view) ? view->slot : NULL;
}

/* Number of the first collective that some rank has not made; 0: none, or unknown. */
static uint64_t first_missing(const shim_record_t *record)
{
    uint64_t least = atomic_load(&record->slot->made[RECORD_COLLECTIVE]);
    bool missing = false;
    for (uint32_t r = 0; r < record->about.nranks; r++) {
        const record_slot_t *peer = readable(&record->peer[r]);
        if (!peer || !record_comparable(record->slot, peer))
            return 0;
        const uint64_t made = atomic_load(&peer->made[RECORD_COLLECTIVE]);
        missing = missing || made < least;
        least = made < least ? made : least;
    }
    return missing ? least + 1 : 0;
}

/* A forwarded call in which each rank needs all others' data ends only when every rank has made it. */
static void look_at_forwarded(shim_record_t *record)
{
    record_made_t made;
    const uint64_t number = record->about.attached ? first_missing(record) : 0;
    if (number == 0 || !record_find(record->slot, RECORD_COLLECTIVE, number, &made) ||
        !(made.flags & RECORD_FORWARDED) || made.sign.collective >= ALG_SEND_RECV ||
        alg_collective_rooted((alg_collective_t)made.sign.collective)) {
        record->wait[RECORD_WAIT_FORWARDED] = (record_wait_t){0};
        return;
    }
    note_wait(record, &record->wait[RECORD_WAIT_FORWARDED], record_id(&made.sign), 0);
}

static void publish(shim_record_t *record)
{
    record_slot_t *slot = record->slot;
    const record_wait_t *longest = NULL;
    for (uint32_t i = 0; i < RECORD_WAIT_FORWARDED; i++) {
        const record_wait_t *wait = &record->wait[i];
        if (wait->id != 0 && (!longest || wait->began_ns < longest->began_ns))
            longest = wait;
    }
    atomic_store(&slot->wait_ns, longest ? longest->seen_ns - longest->began_ns : 0);
    atomic_store(&slot->wait_epoch, longest ? longest->epoch : 0);
    atomic_store(&slot->wait_id, longest ? longest->id : 0);
    if (record->about.attached && atomic_load(record->about.phase) != record->about.living)
        atomic_store(&slot->state, RECORD_ENDED);
}

/* False if a lower rank waits in the same call and its watcher runs, or if one has reported the call, even if that
 * rank's wait has ended. */
static bool is_reporter(const shim_record_t *record, const record_waiting_t *waiting, uint64_t now_ns)
{
    for (uint32_t r = 0; r < record->about.rank; r++) {
        const record_view_t *view = &record->peer[r];
        const record_slot_t *peer = readable(view);
        if (peer && record_has_reported(waiting, peer))
            return false;
        if (!peer || !record_waits_too(waiting, peer))
            continue;
        const uint64_t beat = atomic_load(&view->mapped->book->beat_ns);
        if (now_ns < beat + WATCHER_MS * MS_NS && record_process_state(view->pid, view->start_ticks) == RECORD_RUNS)
            return false;
    }
    return true;
}

/* The ranks to blame, in the order of blame; returns their number. */
static uint32_t find_culprits(const shim_record_t *record, const record_waiting_t *waiting, uint64_t now_ns,
                              record_rank_t culprit[ALG_MAX_RANKS])
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < record->about.nranks; r++) {
        if (r == record->about.rank)
            continue;
        const record_rank_t judged = record_judge(waiting, record->slot, &record->peer[r], r, now_ns);
        uint32_t at = judged.cause >= RECORD_IN_IT ? UINT32_MAX : count++;
        if (at == UINT32_MAX)
            continue;
        for (; at > 0 && record_blamed_before(&judged, &culprit[at - 1]); at--)
            culprit[at] = culprit[at - 1];
        culprit[at] = judged;
    }
    return count;
}

static void call_text(const shim_record_t *record, const record_waiting_t *waiting, const record_rank_t *culprit,
                      uint32_t count, char *text, size_t capacity)
{
    const record_sign_t sign = record_awaited(record->slot, waiting, count > 0 ? culprit : NULL);
    record_sign_text(&sign, text, capacity);
}

static void hang_line(const shim_record_t *record, const record_waiting_t *waiting, uint64_t waited_ns,
                      const record_rank_t *culprit, uint32_t count, char *line)
{
    char call[160], who[96] = "", cause[512] = "", more[32] = "";
    const unsigned long long seconds = (waited_ns + 500 * MS_NS) / (1000 * MS_NS);
    call_text(record, waiting, culprit, count, call, sizeof call);
    if (count > 0) {
        record_who_text(&culprit[0], who, sizeof who);
        record_cause_text(&culprit[0], cause, sizeof cause);
    }
    if (count > 1)
        snprintf(more, sizeof more, " and %u more", count - 1);
    if (count == 0)
        snprintf(line, LINE_BYTES,
                 "%s on a communicator of %u ranks has waited %llu s; every rank that it needs has made this call",
                 call, record->about.nranks, seconds);
    else if (waiting->forwarded)
        snprintf(line, LINE_BYTES,
                 "%s on a communicator of %u ranks, which NCCL serves, was called %llu s ago and waits for %s%s: %s",
                 call, record->about.nranks, seconds, who, more, cause);
    else
        snprintf(line, LINE_BYTES, "%s on a communicator of %u ranks has waited %llu s for %s%s: %s", call,
                 record->about.nranks, seconds, who, more, cause);
}

static void hang_json(const shim_record_t *record, const record_waiting_t *waiting, uint64_t waited_ns,
                      const record_rank_t *culprit, uint32_t count, const char *line, char *json)
{
    char call[160];
    call_text(record, waiting, culprit, count, call, sizeof call);
    size_t length = json_head("hang", record, json);
    length += (size_t)snprintf(json + length, JSON_BYTES - length,
                               ",\"call\":\"%s\",\"waited_ms\":%" PRIu64 ",\"waits_for\":[", call, waited_ns / MS_NS);
    for (uint32_t i = 0; i < count; i++) {
        json[length] = ',';
        length += i > 0;
        length += json_rank(&culprit[i], json + length, JSON_BYTES - length);
    }
    snprintf(json + length, JSON_BYTES - length, "],\"text\":\"%s\"}\n", line);
}

static bool has_left(const record_rank_t *culprit, uint32_t count)
{
    bool any = false;
    for (uint32_t i = 0; i < count; i++)
        any = any || culprit[i].cause == RECORD_LEFT;
    return any;
}

static void report_hang(shim_record_t *record, record_wait_t *wait, bool forwarded, uint64_t now_ns)
{
    const uint64_t limit_ns = shim_settings()->hang_warn_ms * MS_NS, waited_ns = g_clock_ns - wait->began_ns;
    if (wait->id == 0 || wait->reported || limit_ns == 0 || waited_ns < limit_ns ||
        g_clock_ns - wait->seen_ns >= PERIOD_MS * MS_NS)
        return;
    record_waiting_t waiting = record_waiting_of(record->slot, wait->id, wait->epoch);
    waiting.forwarded = forwarded;
    if ((!forwarded && record_has_ended(&waiting, record->slot)) || !is_reporter(record, &waiting, now_ns))
        return;
    record_rank_t culprit[ALG_MAX_RANKS];
    record_refresh(record);
    const uint32_t count = find_culprits(record, &waiting, now_ns, culprit);
    report_t report;
    if ((has_left(culprit, count) && !record_waits_for_left(wait, g_clock_ns)) || !new_report(&report))
        return;
    wait->reported = true;
    atomic_store(&record->slot->reported_epoch, wait->epoch);
    atomic_store(&record->slot->reported_id, wait->id);
    hang_line(record, &waiting, waited_ns, culprit, count, report.line);
    hang_json(record, &waiting, waited_ns, culprit, count, report.line, report.json);
}

static uint32_t reference_of(const shim_record_t *record)
{
    uint32_t r = 0;
    while (r < record->about.rank && !readable(&record->peer[r]))
        r++;
    return r;
}

static bool find_difference(shim_record_t *record, uint32_t reference, uint32_t rank, record_made_t *one,
                            record_made_t *other)
{
    const record_slot_t *a = readable(&record->peer[reference]), *b = readable(&record->peer[rank]);
    if (!a || !b || !record_comparable(a, b))
        return false;
    const uint64_t made_a = atomic_load(&a->made[RECORD_COLLECTIVE]), made_b = atomic_load(&b->made[RECORD_COLLECTIVE]);
    const uint64_t last = made_a < made_b ? made_a : made_b;
    uint64_t *done = &record->compared[rank == record->about.rank ? reference : rank];
    if (last > *done + RECORD_CALLS)
        *done = last - RECORD_CALLS; /* older entries are overwritten */
    for (; *done < last; ++*done) {
        const bool both =
            record_find(a, RECORD_COLLECTIVE, *done + 1, one) && record_find(b, RECORD_COLLECTIVE, *done + 1, other);
        if (!both && *done + 1 == last)
            return false; /* perhaps still being written */
        if (both && !record_agree(one, other))
            return record_comparable(a, b);
    }
    return false;
}

static record_rank_t who(const shim_record_t *record, uint32_t rank)
{
    const record_slot_t *slot = readable(&record->peer[rank]);
    return (record_rank_t){
        .rank = rank, .pid = record->peer[rank].pid, .device = slot ? atomic_load(&slot->device) : -1};
}

static void report_difference(shim_record_t *record, uint32_t reference, uint32_t rank, const record_made_t *one,
                              const record_made_t *other)
{
    char a[96], b[96], called[200], other_called[200];
    const record_rank_t first = who(record, reference), second = who(record, rank);
    report_t report;
    if (!new_report(&report))
        return;
    record_who_text(&first, a, sizeof a);
    record_who_text(&second, b, sizeof b);
    record_made_text(one, called, sizeof called);
    record_made_text(other, other_called, sizeof other_called);
    snprintf(report.line, LINE_BYTES,
             "ranks of a communicator of %u call different things: %s has called %s, and %s has called %s; such calls "
             "hang, or give wrong results",
             record->about.nranks, a, called, b, other_called);
    size_t length = json_head("mismatch", record, report.json);
    snprintf(report.json + length, JSON_BYTES - length,
             ",\"calls\":[{\"rank\":%u,\"pid\":%" PRId64 ",\"call\":\"%s\"},{\"rank\":%u,\"pid\":%" PRId64
             ",\"call\":\"%s\"}],\"text\":\"%s\"}\n",
             reference, first.pid, called, rank, second.pid, other_called, report.line);
}

/* The reference rank, the lowest one with a readable record, reports. Its calls fail only then, so it can still find
 * the difference. The other rank waits for that report, unless the reference's process does not run or has been silent
 * for WATCHER_MS: it may be unable to read the other record. */
static void note_difference(shim_record_t *record, uint32_t reference, uint32_t rank, const record_made_t *one,
                            const record_made_t *other)
{
    const record_view_t *view = &record->peer[reference];
    const record_slot_t *slot = readable(view);
    const bool reported = reference != record->about.rank && slot && atomic_load(&slot->mismatch) != 0;
    record->differs_ns = record->differs_ns ? record->differs_ns : g_clock_ns;
    if (!reported && reference != record->about.rank && g_clock_ns - record->differs_ns < WATCHER_MS * MS_NS &&
        record_process_state(view->pid, view->start_ticks) == RECORD_RUNS)
        return;
    if (!reported)
        report_difference(record, reference, rank, one, other);
    atomic_store(&record->slot->mismatch, 1);
}

static void compare(shim_record_t *record)
{
    record_made_t one, other;
    const uint32_t reference = reference_of(record);
    for (uint32_t r = reference + 1; r < record->about.nranks && atomic_load(&record->slot->mismatch) == 0; r++) {
        const bool mine = reference == record->about.rank || r == record->about.rank;
        if (mine && find_difference(record, reference, r, &one, &other))
            note_difference(record, reference, r, &one, &other);
    }
}

/* True once: the communicator must fail from now on, perhaps by a peer's report. */
static bool has_failed(shim_record_t *record)
{
    bool any = false;
    for (uint32_t r = 0; shim_settings()->mismatch_error && !any && r < record->about.nranks; r++) {
        const record_slot_t *peer = readable(&record->peer[r]);
        any = peer && atomic_load(&peer->mismatch) != 0;
    }
    if (!any)
        return false;
    atomic_store(&record->slot->mismatch, 1);
    return !atomic_exchange(&record->mismatched, true);
}

static void look_at_waits(shim_record_t *record, uint64_t now_ns)
{
    look_at_kernels(record);
    for (uint32_t i = 0; i < RECORD_WAIT_FORWARDED; i++)
        end_stale(record, &record->wait[i]);
    publish(record);
    for (uint32_t i = 0; i < RECORD_WAIT_FORWARDED; i++)
        record_waits_look(record, &record->wait[i], g_clock_ns, now_ns);
}

typedef struct look {
    uint64_t now_ns;
    bool watched, active, failed;
} look_t;

static void look_at(shim_record_t *record, look_t *look)
{
    look_at_waits(record, look->now_ns);
    look_at_forwarded(record);
    const uint64_t entries = atomic_load(&record->slot->entries);
    look->active = look->active || entries != record->entries;
    record->entries = entries;
    for (uint32_t i = 0; i < RECORD_WAITS; i++)
        look->active = look->active || record->wait[i].id != 0;
    if (record->about.attached)
        compare(record);
    for (uint32_t i = 0; i < RECORD_WAITS; i++)
        report_hang(record, &record->wait[i], i == RECORD_WAIT_FORWARDED, look->now_ns);
    look->failed = has_failed(record) || look->failed;
    look->watched = true;
}

/* Under the lock. */
static look_t look_at_all(uint64_t now_ns)
{
    look_t look = {.now_ns = now_ns};
    for (uint32_t i = 0; record_number(i); i++) {
        shim_record_t *record = record_number(i);
        if (record->used && record->watched)
            look_at(record, &look);
    }
    record_beat(now_ns);
    return look;
}

/* Under the lock. Advances the watcher's clock after a nap; returns net_now_ns. */
static uint64_t wake(uint64_t nap_ns)
{
    const uint64_t now_ns = net_now_ns(), passed_ns = now_ns - g_woke_ns;
    g_clock_ns += passed_ns < 2 * IDLE_MS * MS_NS ? passed_ns : nap_ns;
    g_woke_ns = now_ns;
    return now_ns;
}

static void sample_waits(uint64_t nap_ns)
{
    net_lock_take(&record_lock);
    const uint64_t now_ns = wake(nap_ns);
    for (uint32_t i = 0; record_number(i); i++)
        if (record_number(i)->used && record_number(i)->watched)
            look_at_waits(record_number(i), now_ns);
    record_beat(now_ns);
    net_lock_give(&record_lock);
}

/* Returns the length of the last nap. */
static uint64_t sleep_for(uint64_t period_ns)
{
    const uint64_t nap_ns = shim_setting_stats() ? SAMPLE_US * UINT64_C(1000) : period_ns;
    const struct timespec nap = {0, (long)nap_ns};
    const uint64_t start_ns = net_now_ns();
    nanosleep(&nap, NULL);
    while (net_now_ns() - start_ns < period_ns) { /* on a busy machine a nap takes longer */
        sample_waits(nap_ns);
        nanosleep(&nap, NULL);
    }
    return nap_ns;
}

static void *watch(void *unused)
{
    uint64_t active_ns = 0;
    g_woke_ns = net_now_ns();
    for (look_t look = {.watched = true}; look.watched;) {
        const uint64_t period_ns = (g_clock_ns - active_ns < ACTIVE_MS * MS_NS ? PERIOD_MS : IDLE_MS) * MS_NS;
        const uint64_t nap_ns = sleep_for(period_ns);
        net_lock_take(&record_lock);
        look = look_at_all(wake(nap_ns));
        active_ns = look.active ? g_clock_ns : active_ns;
        g_running = look.watched;
        void (*fail)(void) = look.failed ? g_fail : NULL;
        net_lock_give(&record_lock);
        write_reports();
        if (fail)
            fail();
    }
    return unused;
}

bool record_watch_start(void)
{
    if (!g_running)
        g_running = net_thread_start(NULL, watch, NULL) == 0;
    return g_running;
}
