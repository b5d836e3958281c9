/* SPDX-License-Identifier: Apache-2.0 */
/* book.c - this process's book of slots, and peers' mapped books (layout.h). A book is mapped once, at its largest
 * size: untouched pages cost nothing, and the file grows below the mapping. A peer's is unmapped with the last record
 * that needs it. */
#define _GNU_SOURCE
#include "shim/record/book.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shim/base/log.h"
#include "shim/base/settings.h"

typedef struct seen {
    struct seen *next;
    net_mark_t mark;
    int64_t pid, descriptor; /* with these it opens the file again */
    uint32_t views;          /* of records */
    record_mapped_t mapped;
} seen_t;

enum { SPARE_FILES = 8 };

net_lock_t record_lock = NET_LOCK_INITIALIZER;
const char shim_record_experts[] = "experts";

static record_book_t *g_book;
static int g_file = -1;
static net_mark_t g_mark;
static uint32_t g_slots;
static shim_record_t *g_record[RECORD_MOST_SLOTS];
static seen_t *g_seen;
static bool g_refused; /* this process cannot have a book */

static void store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* Under the lock. */
static seen_t *find_seen(const net_mark_t *mark)
{
    seen_t *seen = g_seen;
    while (seen && (seen->mark.inode != mark->inode || seen->mark.device != mark->device))
        seen = seen->next;
    return seen;
}

/* Under the lock. NULL without memory. */
static seen_t *add_seen(const net_mark_t *mark, const record_book_t *book, uint32_t slots)
{
    seen_t *seen = malloc(sizeof *seen);
    if (seen) {
        *seen = (seen_t){.next = g_seen, .mark = *mark, .mapped.book = book};
        atomic_init(&seen->mapped.slots, slots);
        g_seen = seen;
    }
    return seen;
}

static seen_t *seen_of(const record_mapped_t *mapped)
{
    seen_t *seen = g_seen;
    while (seen && &seen->mapped != mapped)
        seen = seen->next;
    return seen;
}

static void drop_unseen(seen_t *seen)
{
    if (!seen || seen->views > 0 || seen->mapped.book == g_book)
        return;
    seen_t **link = &g_seen;
    while (*link != seen)
        link = &(*link)->next;
    *link = seen->next;
    munmap((void *)(uintptr_t)seen->mapped.book, RECORD_BOOK_BYTES(RECORD_MOST_SLOTS));
    free(seen);
}

static void look_away(record_view_t *view)
{
    seen_t *seen = seen_of(view->mapped);
    view->mapped = NULL;
    view->slot = NULL;
    if (!seen)
        return;
    seen->views--;
    drop_unseen(seen);
}

static void forget_in_child(void)
{
    if (g_book)
        net_close(g_file, &g_mark);
    g_book = NULL;
    g_file = -1;
    g_slots = 0;
    g_seen = NULL;
    memset(g_record, 0, sizeof g_record);
    record_watch_forget();
    record_waits_forget();
}

NET_IN_CHILD(forget_in_child);

static bool grow(uint32_t slots)
{
    if (ftruncate(g_file, (off_t)RECORD_BOOK_BYTES(slots)) != 0)
        return false;
    g_slots = slots;
    return true;
}

static void fill_name(record_book_t *book, uint32_t i, const char *name)
{
    store(&book->algorithm[i].address, (uintptr_t)name);
    snprintf(book->algorithm[i].name, RECORD_NAME_BYTES, "%s", name);
}

static void fill_head(record_book_t *book)
{
    const net_process_t self = net_process_self();
    fill_name(book, 0, shim_record_experts);
    for (uint32_t i = 0; i < alg_registry_count && i + 1 < RECORD_ALGORITHMS; i++)
        fill_name(book, i + 1, alg_registry[i]->name);
    atomic_store(&book->version, RECORD_VERSION);
    atomic_store(&book->pid, self.pid);
    store(&book->start_ticks, self.start_ticks);
    atomic_store(&book->magic, RECORD_MAGIC);
}

/* Enough for the set-up. */
static bool has_spare(int fd)
{
    int spare[SPARE_FILES], count = 0;
    while (count < SPARE_FILES && (spare[count] = net_descriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0))) >= 0)
        count++;
    for (int i = 0; i < count; i++)
        close(spare[i]);
    return count == SPARE_FILES;
}

/* A descriptor for the book, or a negative errno; -EMFILE also if few remain. */
static int make_file(void)
{
    const int fd = net_descriptor(memfd_create(RECORD_FILE, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0)
        return -errno;
    if (has_spare(fd))
        return fd;
    close(fd);
    return -EMFILE;
}

static int open_book(void)
{
    struct stat info;
    const int fd = make_file();
    if (fd < 0)
        return fd;
    void *at = MAP_FAILED;
    if (fchmod(fd, 0600) == 0 && ftruncate(fd, RECORD_PAGE) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0 &&
        fstat(fd, &info) == 0)
        at =
            mmap(NULL, RECORD_BOOK_BYTES(RECORD_MOST_SLOTS), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED) {
        const int error = -errno;
        close(fd);
        return error;
    }
    g_file = fd;
    g_mark = (net_mark_t){info.st_dev, info.st_ino};
    g_book = at;
    fill_head(g_book);
    (void)add_seen(&g_mark, g_book, 0);
    return 0;
}

/* Under the lock. Without a memfd, calls are not recorded. */
static bool has_book(void)
{
    if (g_book || g_refused)
        return g_book != NULL;
    const int error = open_book();
    g_refused = error != 0 && error != -EMFILE;
    return !error;
}

/* Under the lock. */
static shim_record_t *free_record(void)
{
    uint32_t i = 0;
    while (i < g_slots && g_record[i]->used)
        i++;
    if (i < g_slots)
        return g_record[i];
    shim_record_t *record = i < RECORD_MOST_SLOTS ? calloc(1, sizeof *record) : NULL;
    if (!record)
        return NULL;
    /* A program that became a daemon may have closed the book's file. */
    if (!net_means(g_file, &g_mark) || !grow(i + 1)) {
        free(record);
        return NULL;
    }
    record->number = i;
    record->slot = record_slot_at(g_book, i);
    atomic_store_explicit(&g_book->slots, i + 1, memory_order_release);
    g_record[i] = record;
    return record;
}

/* A reused slot gets a new `life`: readers that still expect its earlier communicator notice. */
static void begin_slot(shim_record_t *record)
{
    record_slot_t *slot = record->slot;
    const uint64_t life = load(&slot->life);
    memset((uint8_t *)slot + offsetof(record_slot_t, comm), 0, sizeof *slot - offsetof(record_slot_t, comm));
    memset(record_ring(slot), 0, RECORD_CALLS * sizeof(record_entry_t));
    atomic_store_explicit(&slot->life, life + 1, memory_order_release);
    const uint32_t number = record->number;
    *record = (shim_record_t){.slot = slot, .number = number, .used = true};
}

shim_record_t *shim_record_new(void)
{
    if (!shim_settings()->record)
        return NULL;
    net_lock_take(&record_lock);
    shim_record_t *record = has_book() ? free_record() : NULL;
    if (record)
        begin_slot(record);
    net_lock_give(&record_lock);
    return record;
}

void shim_record_end(shim_record_t *record)
{
    if (!record)
        return;
    net_lock_take(&record_lock);
    record->watched = false;
    for (uint32_t i = 0; i < RECORD_WAITS; i++)
        record_waits_end(record, &record->wait[i]);
    for (uint32_t r = 0; r < ALG_MAX_RANKS; r++)
        look_away(&record->peer[r]);
    store(&record->slot->wait_id, 0);
    atomic_store(&record->slot->state, RECORD_ENDED);
    atomic_store_explicit(&record->slot->life, load(&record->slot->life) + 1, memory_order_release);
    record->used = false;
    net_lock_give(&record_lock);
}

shim_record_t *record_number(uint32_t i)
{
    return i < g_slots ? g_record[i] : NULL;
}

void record_beat(uint64_t now_ns)
{
    if (g_book)
        atomic_store_explicit(&g_book->beat_ns, now_ns, memory_order_release);
}

void shim_record_offer(const shim_record_t *record, shim_record_offer_t *offer)
{
    *offer = (shim_record_offer_t){.descriptor = -1};
    if (record)
        *offer = (shim_record_offer_t){
            .descriptor = g_file, .mark = g_mark, .life = load(&record->slot->life), .slot = record->number};
}

/* Checks the link first: a wrong descriptor number must not open a device or a pipe. */
static int open_peer(int64_t pid, int64_t descriptor, const net_mark_t *mark)
{
    static const char name[] = "/memfd:" RECORD_FILE;
    char path[64], link[64] = "";
    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRId64, pid, descriptor);
    if (readlink(path, link, sizeof link - 1) < 0 || strncmp(link, name, sizeof name - 1) != 0)
        return -1;
    const int fd = net_descriptor(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd >= 0 && !net_means(fd, mark)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Under the lock. Opens a peer's file anew, since it may have grown. */
static seen_t *see_book(const net_process_t *process, const shim_record_offer_t *offer)
{
    seen_t *seen = find_seen(&offer->mark);
    uint32_t slots = g_slots;
    if (seen && seen->mapped.book == g_book) {
        atomic_store(&seen->mapped.slots, slots);
        return seen;
    }
    const int fd = open_peer(process->pid, offer->descriptor, &offer->mark);
    if (fd < 0)
        return NULL;
    slots = record_book_slots(fd);
    if (seen) {
        atomic_store(&seen->mapped.slots, slots);
    } else {
        const record_book_t *book = record_book_map(fd, &slots);
        seen = book ? add_seen(&offer->mark, book, slots) : NULL;
    }
    close(fd);
    if (seen) {
        seen->pid = process->pid;
        seen->descriptor = offer->descriptor;
    }
    return seen;
}

void shim_record_meet(shim_record_t *record, uint32_t rank, const net_process_t *process,
                      const shim_record_offer_t *offer)
{
    if (!record || rank >= ALG_MAX_RANKS)
        return;
    record_view_t *view = &record->peer[rank];
    const net_process_t self = net_process_self();
    net_lock_take(&record_lock);
    look_away(view);
    *view = (record_view_t){.pid = process->pid, .start_ticks = process->start_ticks};
    view->seen = process->pid_namespace == self.pid_namespace;
    if (process->time_namespace != self.time_namespace)
        view->start_ticks = 0;
    seen_t *seen = view->seen && offer->descriptor >= 0 ? see_book(process, offer) : NULL;
    if (seen && offer->slot < atomic_load(&seen->mapped.slots)) {
        seen->views++;
        view->mapped = &seen->mapped;
        view->slot = record_slot_at(seen->mapped.book, offer->slot);
        view->life = offer->life;
    }
    drop_unseen(seen);
    net_lock_give(&record_lock);
    record_peer_t *peer = &record->slot->peer[rank];
    atomic_store(&peer->pid, view->seen ? process->pid : 0);
    store(&peer->start_ticks, view->start_ticks);
    atomic_store(&peer->slot, offer->slot);
    store(&peer->life, view->slot ? offer->life : 0);
}

void record_refresh(const shim_record_t *record)
{
    for (uint32_t r = 0; r < record->about.nranks; r++) {
        seen_t *seen = seen_of(record->peer[r].mapped);
        if (seen && seen->mapped.book == g_book)
            atomic_store(&seen->mapped.slots, g_slots);
        const int fd = seen && seen->pid != 0 ? open_peer(seen->pid, seen->descriptor, &seen->mark) : -1;
        if (fd < 0)
            continue;
        atomic_store(&seen->mapped.slots, record_book_slots(fd));
        close(fd);
    }
}

static void fill_slot(shim_record_t *record, const shim_record_about_t *about)
{
    record_slot_t *slot = record->slot;
    record->about = *about;
    store(&slot->comm, about->comm);
    atomic_store(&slot->rank, about->rank);
    atomic_store(&slot->nranks, about->nranks);
    atomic_store(&slot->device, about->device);
    atomic_store(&slot->state, about->attached ? RECORD_ATTACHED : RECORD_FORWARDS);
}

void shim_record_begin(shim_record_t *record, const shim_record_about_t *about)
{
    if (!record || about->nranks > ALG_MAX_RANKS)
        return;
    net_lock_take(&record_lock);
    fill_slot(record, about);
    if (about->control)
        record->beat = __atomic_load_n(&about->control->wait_beat, __ATOMIC_ACQUIRE);
    record->watched = true;
    const bool running = record_watch_start();
    net_lock_give(&record_lock);
    if (!running)
        shim_info("no thread to watch calls could be started, so hangs are not reported");
}

static uint64_t coarse_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static record_kind_t kind_of(const shim_record_call_t *call)
{
    if (call->captured)
        return RECORD_CAPTURED;
    const uint32_t collective = call->sign.collective;
    return collective < ALG_COLLECTIVE_COUNT || record_is_experts(collective) ? RECORD_COLLECTIVE : RECORD_MESSAGE;
}

/* Concurrent calls on one communicator get different entries. */
uint64_t shim_record_call(shim_record_t *record, const shim_record_call_t *call)
{
    if (!record)
        return 0;
    record_slot_t *slot = record->slot;
    record_sign_t sign = call->sign;
    sign.kind = kind_of(call);
    const uint64_t sequence = atomic_fetch_add_explicit(&slot->entries, 1, memory_order_relaxed) + 1;
    record_entry_t *entry = &record_ring(slot)[sequence % RECORD_CALLS];
    store(&entry->sequence, 0);
    atomic_thread_fence(memory_order_release);
    sign.number = atomic_fetch_add_explicit(&slot->made[sign.kind], 1, memory_order_relaxed) + 1;
    const uint64_t id = record_id(&sign);
    store(&entry->id, id);
    store(&entry->number, sign.number);
    store(&entry->count, sign.count);
    store(&entry->place, (uint64_t)call->flags << 32 | call->place);
    store(&entry->stream, (uintptr_t)call->stream);
    store(&entry->time_ns, coarse_now_ns());
    store(&entry->algorithm, (uintptr_t)call->algorithm);
    atomic_store_explicit(&entry->sequence, sequence, memory_order_release);
    if (sign.kind == RECORD_CAPTURED) {
        const uint64_t count = record_is_experts(sign.collective) ? 0 : sign.count;
        store(&slot->captured_hash, (load(&slot->captured_hash) ^ (id & 0x7ff) ^ count) * UINT64_C(0x9e3779b97f4a7c15));
    }
    return id;
}

void shim_record_listed(shim_record_t *record, uint64_t id)
{
    if (!record)
        return;
    record_slot_t *slot = record->slot;
    const record_sign_t sign = record_unpack(id, slot->made);
    const uint64_t guess = record_guess(slot, sign.kind, sign.number);
    for (uint32_t i = 0; i < RECORD_CALLS; i++) {
        record_entry_t *entry = &record_ring(slot)[(guess - i) % RECORD_CALLS];
        if (load(&entry->id) == id) {
            store(&entry->place, load(&entry->place) | (uint64_t)RECORD_LISTED << 32);
            return;
        }
    }
}

void shim_record_doubt(shim_record_t *record)
{
    if (record)
        atomic_fetch_add_explicit(&record->slot->doubts, 1, memory_order_relaxed);
}

void shim_record_ended(shim_record_t *record, uint64_t id)
{
    if (!record)
        return;
    const record_sign_t sign = record_unpack(id, record->slot->made);
    if (sign.kind != RECORD_COLLECTIVE)
        return;
    store(&record->slot->ended_ns, coarse_now_ns());
    atomic_store_explicit(&record->slot->ended, sign.number, memory_order_release);
}

bool shim_record_mismatched(const shim_record_t *record)
{
    return record && atomic_load(&record->mismatched);
}
