/* SPDX-License-Identifier: Apache-2.0 */
/* statistics.c - counters by collective, size, place and outcome, in static tables. Counting does not allocate, and
 * locks only for a new cell of the shared table. The first threads have a table each, reused when they end; all others
 * share the last one. */
#define _GNU_SOURCE
#include "shim/account/statistics.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "selector/table_file.h"
#include "shim/base/file.h"
#include "shim/base/log.h"
#include "shim/base/pins.h"
#include "shim/base/settings.h"
#include "shim/record/record.h"
#include "transport/transport.h"

enum {
    BINS = 44, /* bin 0: no bytes; bin b: 2^(b-1) up to 2^b; the last: all larger */
    TABLES = 16,
    CELLS = 1024 /* per table; a power of two. Programs use some dozens */
};

/* Bits of a key, upwards: shim_place_t 24, collective 8, bin 8, reason 8; KEY_USED is bit 63. */
#define KEY_USED (UINT64_C(1) << 63)
enum { KEY_COLLECTIVE = 24, KEY_BIN = 32, KEY_REASON = 40 };
_Static_assert(SEL_REASON_COUNT <= 256, "a key is too narrow");

/* Bits of a place, from the lowest: ranks, link, architecture, kind of type + 1, flags. */
enum {
    PLACE_LINK = 4,
    PLACE_ARCH = 8,
    PLACE_KIND = 16,
    PLACE_MULTICAST = 1 << 20,
    PLACE_CAPTURED = 1 << 21,
    PLACE_KNOWN = 1 << 22,
    PLACE_PINNED_MEMORY = 1 << 23
};
_Static_assert(ALG_MAX_RANKS < 16 && SEL_LINK_COUNT <= 16 && SEL_KINDS < 16, "a place is too narrow");

typedef struct cell {
    _Atomic uint64_t key;  /* 0: free; stored after `algorithm` */
    const char *algorithm; /* static; NULL: forwarded */
    _Atomic uint64_t calls, bytes;
} cell_t;

typedef struct table {
    _Alignas(64) cell_t cell[CELLS];
    cell_t rest[2]; /* calls without a free cell: forwarded, taken */
} table_t;

static table_t tables[TABLES];
static atomic_uint used;     /* tables, at most TABLES */
static atomic_uint returned; /* bits: tables whose threads have ended */
static pthread_key_t table_key;
static bool has_table_key;
static _Atomic uint64_t machine;                                  /* fingerprint of the last communicator */
static pthread_mutex_t cells_of_many = PTHREAD_MUTEX_INITIALIZER; /* guards new cells of the last table */
static _Thread_local struct {
    table_t *table; /* NULL: nothing counted yet */
    cell_t *cell;   /* of the last call; may be NULL */
    bool made, fresh;
    uint32_t collective;
    uint64_t bytes;
    sel_choice_t choice;
} last;

static const char *collective_name(uint32_t collective)
{
    static const char *const others[] = {"send", "recv", "dispatch", "combine"};
    if (collective < ALG_COLLECTIVE_COUNT)
        return alg_collective_name((alg_collective_t)collective);
    return others[collective - SHIM_SEND];
}

/* Runs when a thread ends. Destructors that run later may still make calls. */
static void return_table(void *table)
{
    last.table = NULL;
    last.cell = NULL;
    atomic_fetch_or(&returned, 1u << ((table_t *)table - tables));
}

static void forget_in_child(void)
{
    const unsigned own = last.table != NULL ? 1u << (last.table - tables) : 0, shared = 1u << (TABLES - 1);
    memset(tables, 0, atomic_load(&used) * sizeof(tables[0]));
    atomic_store(&returned, ((1u << atomic_load(&used)) - 1) & ~(own | shared));
    pthread_mutex_init(&cells_of_many, NULL); /* a thread that the child lacks may have held it */
}

static void write_to(const char *pattern, const char *text)
{
    const char *why;
    int fd = -1;
    if (strcmp(pattern, "1") != 0) {
        fd = shim_setting_open(pattern, &why);
        if (fd < 0)
            shim_warn("SHUNT_STATS=%.200s cannot be written (%s); using stderr; name a file that you may write",
                      pattern, why);
    }
    net_write(fd >= 0 ? fd : shim_file_stderr(), text, strlen(text));
    if (fd >= 0)
        close(fd);
}

static void print_at_exit(void)
{
    char *text = shim_statistics_text();
    if (text != NULL)
        write_to(shim_settings()->stats, text);
    free(text);
}

NET_IN_CHILD(forget_in_child);

static void start(void)
{
    has_table_key = pthread_key_create(&table_key, return_table) == 0;
    if (shim_setting_stats()) {
        atexit(print_at_exit);
        at_quick_exit(print_at_exit); /* only one of the two runs */
    }
}

static uint32_t bin_of(uint64_t bytes)
{
    uint32_t bin = bytes == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(bytes);
    return bin < BINS ? bin : BINS - 1;
}

static uint32_t take_table(void)
{
    unsigned some = atomic_load(&returned), fresh = atomic_load(&used);
    while (some != 0 && !atomic_compare_exchange_weak(&returned, &some, some & (some - 1)))
        ;
    if (some != 0)
        return (uint32_t)__builtin_ctz(some);
    while (fresh < TABLES && !atomic_compare_exchange_weak(&used, &fresh, fresh + 1))
        ;
    return fresh < TABLES ? fresh : TABLES - 1;
}

static table_t *table_of_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
    table_t *table = &tables[take_table()];
    if (has_table_key && table != &tables[TABLES - 1])
        pthread_setspecific(table_key, table);
    return table;
}

static void add(_Atomic uint64_t *sum, uint64_t value)
{
    if (last.table == &tables[TABLES - 1])
        atomic_fetch_add_explicit(sum, value, memory_order_relaxed);
    else /* with one writer no atomic addition is needed, which halves the time */
        atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + value, memory_order_relaxed);
}

/* The key's cell, else a free one; NULL if the table is full. */
static cell_t *find_cell(table_t *table, uint64_t key, const char *algorithm)
{
    const uint64_t hash = (key ^ (uintptr_t)algorithm) * UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t i = 0, at = (uint32_t)(hash >> 54); i < CELLS; i++, at = (at + 1) % CELLS) {
        cell_t *cell = &table->cell[at];
        const uint64_t found = atomic_load_explicit(&cell->key, memory_order_acquire);
        if (found == 0 || (found == key && cell->algorithm == algorithm))
            return cell;
    }
    return NULL;
}

static bool is_cell_of(cell_t *cell, uint64_t key, const char *algorithm)
{
    return cell != NULL && atomic_load_explicit(&cell->key, memory_order_acquire) == key &&
           cell->algorithm == algorithm;
}

/* Other threads read `algorithm` once they see the key, so the key is stored last. */
static cell_t *take_cell(table_t *table, uint64_t key, const char *algorithm)
{
    const bool many = table == &tables[TABLES - 1];
    if (many)
        pthread_mutex_lock(&cells_of_many);
    cell_t *cell = find_cell(table, key, algorithm); /* again: another thread may have added it */
    if (cell != NULL && atomic_load_explicit(&cell->key, memory_order_relaxed) == 0) {
        cell->algorithm = algorithm;
        atomic_store_explicit(&cell->key, key, memory_order_release);
    }
    if (many)
        pthread_mutex_unlock(&cells_of_many);
    return cell != NULL ? cell : &table->rest[algorithm != NULL];
}

static void count(uint32_t collective, shim_place_t place, uint64_t bytes, sel_reason_t reason, const char *algorithm)
{
    if (last.table == NULL)
        last.table = table_of_thread();
    const uint64_t key = KEY_USED | (uint64_t)reason << KEY_REASON | (uint64_t)bin_of(bytes) << KEY_BIN |
                         (uint64_t)collective << KEY_COLLECTIVE | place;
    cell_t *cell = is_cell_of(last.cell, key, algorithm) ? last.cell : find_cell(last.table, key, algorithm);
    if (!is_cell_of(cell, key, algorithm))
        cell = take_cell(last.table, key, algorithm);
    last.cell = cell;
    add(&cell->calls, 1);
    add(&cell->bytes, bytes);
    last.made = last.fresh = true;
    last.collective = collective;
    last.bytes = bytes;
}

shim_place_t shim_place(const sel_topology_t *topology, alg_type_t type, bool captured)
{
    if (atomic_load_explicit(&machine, memory_order_relaxed) != topology->fingerprint)
        atomic_store_explicit(&machine, topology->fingerprint, memory_order_relaxed);
    const uint32_t kind = (unsigned)type < ALG_TYPE_COUNT ? sel_kind(type) + 1 : 0;
    return (topology->nranks & 15) | (uint32_t)topology->link << PLACE_LINK | (topology->arch & 255) << PLACE_ARCH |
           kind << PLACE_KIND | (topology->multicast ? PLACE_MULTICAST : 0) | (captured ? PLACE_CAPTURED : 0) |
           (topology->memory == ALG_MEMORY_PINNED ? PLACE_PINNED_MEMORY : 0) | PLACE_KNOWN;
}

void shim_count_taken(uint32_t collective, shim_place_t place, uint64_t bytes, const sel_choice_t *choice)
{
    count(collective, place, bytes, SEL_TAKEN, choice->algorithm->name);
    last.choice = *choice;
    shim_trace("%s of %llu bytes: %s, %u blocks of %u threads", collective_name(collective), (unsigned long long)bytes,
               choice->algorithm->name, choice->blocks, choice->threads);
}

void shim_count_forwarded(uint32_t collective, shim_place_t place, uint64_t bytes, sel_reason_t reason,
                          const char *source)
{
    count(collective, place, bytes, reason, NULL);
    last.choice = (sel_choice_t){.reason = reason, .source = source};
    shim_trace("%s of %llu bytes: %s", collective_name(collective), (unsigned long long)bytes, sel_reason_text(reason));
}

bool shim_statistics_last(shunt_decision_t *decision)
{
    if (!last.made)
        return false;
    const alg_algorithm_t *algorithm = last.choice.algorithm;
    decision->taken = algorithm != NULL;
    decision->collective = collective_name(last.collective);
    decision->algorithm = algorithm != NULL ? algorithm->name : "nccl";
    decision->reason = sel_reason_text(last.choice.reason);
    decision->bytes = last.bytes;
    decision->blocks = last.choice.blocks;
    decision->threads = last.choice.threads;
    decision->source = last.choice.source != NULL ? last.choice.source : "";
    return true;
}

bool shim_statistics_fresh(shunt_decision_t *decision)
{
    bool fresh = last.fresh;
    last.fresh = false;
    return fresh && shim_statistics_last(decision);
}

typedef struct sum {
    uint64_t key, calls, bytes;
    const char *algorithm;
} sum_t;

static int by_key(const void *a, const void *b)
{
    const sum_t *x = a, *y = b;
    const int algorithms[2] = {x->algorithm != NULL, y->algorithm != NULL};
    const uint64_t order[2] = {(x->key >> KEY_COLLECTIVE & 255) << 8 | (x->key >> KEY_BIN & 255),
                               (y->key >> KEY_COLLECTIVE & 255) << 8 | (y->key >> KEY_BIN & 255)};
    if (order[0] != order[1])
        return order[0] < order[1] ? -1 : 1;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (algorithms[0] != algorithms[1] || algorithms[0] == 0)
        return algorithms[1] - algorithms[0];
    return strcmp(x->algorithm, y->algorithm);
}

static sum_t read_cell(cell_t *cell)
{
    const uint64_t key = atomic_load_explicit(&cell->key, memory_order_acquire);
    return (sum_t){.key = key,
                   .calls = atomic_load_explicit(&cell->calls, memory_order_relaxed),
                   .bytes = atomic_load_explicit(&cell->bytes, memory_order_relaxed),
                   .algorithm = key != 0 ? cell->algorithm : NULL};
}

/* Sorted, each key once; the caller frees it. NULL: no calls, or no memory. */
static sum_t *sums_of_all(uint32_t *count)
{
    const uint32_t cells = atomic_load(&used) * CELLS;
    sum_t *sums = cells > 0 ? malloc(cells * sizeof *sums) : NULL;
    uint32_t filled = 0;
    *count = 0;
    for (uint32_t i = 0; sums != NULL && i < cells; i++) {
        const sum_t sum = read_cell(&tables[i / CELLS].cell[i % CELLS]);
        if (sum.calls != 0)
            sums[filled++] = sum;
    }
    if (filled == 0) {
        free(sums);
        return NULL;
    }
    qsort(sums, filled, sizeof *sums, by_key);
    for (uint32_t i = 0; i < filled; i++) {
        sum_t *before = *count > 0 ? &sums[*count - 1] : NULL;
        if (before != NULL && by_key(before, &sums[i]) == 0) {
            before->calls += sums[i].calls;
            before->bytes += sums[i].bytes;
        } else {
            sums[(*count)++] = sums[i];
        }
    }
    return sums;
}

static void add_to_totals(shunt_statistics_t *statistics, const sum_t *sum, bool taken)
{
    *(taken ? &statistics->calls_taken : &statistics->calls_forwarded) += sum->calls;
    *(taken ? &statistics->bytes_taken : &statistics->bytes_forwarded) += sum->bytes;
}

void shim_statistics_totals(shunt_statistics_t *statistics)
{
    statistics->calls_taken = statistics->bytes_taken = statistics->calls_forwarded = statistics->bytes_forwarded = 0;
    for (uint32_t i = 0; i < atomic_load(&used); i++) {
        for (uint32_t c = 0; c < CELLS; c++) {
            const sum_t sum = read_cell(&tables[i].cell[c]);
            add_to_totals(statistics, &sum, sum.algorithm != NULL);
        }
        for (int taken = 0; taken < 2; taken++) {
            const sum_t sum = read_cell(&tables[i].rest[taken]);
            add_to_totals(statistics, &sum, taken == 1);
        }
    }
}

/* 2^power as 1, 2K, 4M, ... */
static void power_text(int power, char *text, size_t capacity)
{
    static const char *const units[] = {"", "K", "M", "G", "T"};
    snprintf(text, capacity, "%u%s", 1u << power % 10, units[power / 10]);
}

static void bin_text(int bin, char *text, size_t capacity)
{
    char from[16], to[16];
    if (bin == 0) {
        snprintf(text, capacity, "0");
        return;
    }
    power_text(bin - 1, from, sizeof(from));
    power_text(bin, to, sizeof(to));
    if (bin == BINS - 1)
        snprintf(text, capacity, "%s-", from);
    else
        snprintf(text, capacity, "%s-%s", from, to);
}

static void place_text(uint64_t key, char class[SEL_CLASS_BYTES], char types[SEL_FILE_TYPES_BYTES])
{
    const uint32_t place = (uint32_t)key, kind = place >> PLACE_KIND & 15;
    snprintf(class, SEL_CLASS_BYTES, "-");
    snprintf(types, SEL_FILE_TYPES_BYTES, "-");
    if ((place & PLACE_KNOWN) != 0)
        sel_topology_class(
            &(sel_topology_t){.link = (sel_link_t)(place >> PLACE_LINK & 15),
                              .memory = place & PLACE_PINNED_MEMORY ? ALG_MEMORY_PINNED : ALG_MEMORY_PEER,
                              .nranks = place & 15,
                              .arch = place >> PLACE_ARCH & 255,
                              .multicast = (place & PLACE_MULTICAST) != 0},
            class);
    if (kind > 0)
        sel_file_types((uint8_t)(1u << (kind - 1)), types);
}

/* tools/run/counts.c parses this line. */
static void print_sum(FILE *out, const sum_t *sum)
{
    char class[SEL_CLASS_BYTES], types[SEL_FILE_TYPES_BYTES], size[40];
    place_text(sum->key, class, types);
    bin_text((int)(sum->key >> KEY_BIN & 255), size, sizeof(size));
    const char *how = sum->algorithm == NULL ? "-" : (sum->key & PLACE_CAPTURED) != 0 ? "captured" : "eager";
    const sel_reason_t reason = (sel_reason_t)(sum->key >> KEY_REASON & 255);
    fprintf(out,
            "shunt: collective=%-13s class=%-15s type=%-2s bytes_each=%-9s calls=%-7llu bytes=%-12llu algorithm=%-9s "
            "how=%-8s reason=%s outcome=%s\n",
            collective_name((uint32_t)(sum->key >> KEY_COLLECTIVE & 255)), class, types, size,
            (unsigned long long)sum->calls, (unsigned long long)sum->bytes,
            sum->algorithm != NULL ? sum->algorithm : "nccl", how, sel_reason_code(reason), sel_reason_text(reason));
}

static void print_table(FILE *out)
{
    uint32_t count;
    sum_t *sums = sums_of_all(&count);
    for (uint32_t i = 0; i < count; i++)
        print_sum(out, &sums[i]);
    free(sums);
    for (uint32_t i = 0, told = 0; i < atomic_load(&used) && !told; i++) {
        told = atomic_load(&tables[i].rest[0].calls) + atomic_load(&tables[i].rest[1].calls) > 0;
        if (told)
            fprintf(out, "shunt: calls beyond the limit of separate lines\n");
    }
}

char *shim_statistics_text(void)
{
    shunt_statistics_t totals;
    shim_statistics_totals(&totals);
    if (totals.calls_taken + totals.calls_forwarded == 0)
        return NULL;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    char host[256];
    if (!shim_setting_expand("%h:%p", host, sizeof(host)))
        host[0] = '\0';
    fprintf(out, "shunt: process=%s machine=%016llx\n", host, (unsigned long long)atomic_load(&machine));
    print_table(out);
    shim_record_print_waits(out);
    const char *forwards = totals.calls_forwarded > 0 ? shim_pin_forwards() : NULL;
    const char *pin = forwards != NULL ? forwards : shim_pin_caps();
    fprintf(out, "shunt: taken=%llu forwarded=%llu%s%s\n", (unsigned long long)totals.calls_taken,
            (unsigned long long)totals.calls_forwarded, pin != NULL ? " pinned=" : "", pin != NULL ? pin : "");
    return fclose(out) == 0 ? text : (free(text), NULL);
}
