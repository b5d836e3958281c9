/*
 * statistics.c - counters by collective, size and outcome.
 *
 * Static tables, so that counting never allocates and never locks. The first
 * threads that count have a table each, which no other thread writes; all other
 * threads share the last one. Sizes are binned by powers of two.
 */
#define _GNU_SOURCE
#include "shim/account/statistics.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/base/file.h"
#include "shim/base/log.h"
#include "shim/base/settings.h"

enum {
    BINS = 44,
    TABLES = 16,
    PATH_BYTES = 4096
}; /* bin 0: no bytes; bin b: 2^(b-1) up to 2^b; the last one: all beyond */

typedef struct counter {
    _Atomic uint64_t calls, bytes;
} counter_t;

typedef struct table {
    _Alignas(64) counter_t counter[SHIM_COLLECTIVE_COUNT][BINS][SHIM_REASON_COUNT];
} table_t;

static table_t tables[TABLES];
static atomic_uint threads; /* that have counted */
static _Thread_local struct {
    table_t *table; /* NULL: this thread has not counted yet */
    bool made, fresh;
    uint32_t collective;
    int reason;
    uint64_t bytes;
    sel_choice_t choice;
} last;

static const char *collective_name(uint32_t collective)
{
    if (collective < ALG_COLLECTIVE_COUNT)
        return alg_collective_name((alg_collective_t)collective);
    return collective == SHIM_SEND ? "send" : "recv";
}

static const char *reason_text(int reason)
{
    switch (reason) {
    case SHIM_REASON_ARGUMENTS:
        return "forwarded: empty, or for the real NCCL to judge";
    case SHIM_REASON_NOT_READY:
        return "forwarded: the communicator is not ready";
    case SHIM_REASON_CONFIGURATION:
        return "forwarded: the call has a configuration for the real NCCL";
    case SHIM_REASON_STREAM:
        return "forwarded: the stream cannot be asked whether it is captured";
    default:
        return sel_reason_text((sel_reason_t)reason);
    }
}

static uint32_t tables_in_use(void)
{
    uint32_t used = atomic_load(&threads);
    return used < TABLES ? used : TABLES;
}

static void forget_in_child(void)
{
    memset(tables, 0, tables_in_use() * sizeof(tables[0]));
}

static void write_to(const char *pattern, const char *text)
{
    char path[PATH_BYTES];
    const char *why = "its name is too long";
    int fd = STDERR_FILENO;
    if (strcmp(pattern, "1") != 0) {
        fd = shim_setting_expand(pattern, path, sizeof(path)) ? shim_file_open(path, O_WRONLY | O_APPEND, &why) : -1;
        if (fd < 0) {
            shim_warn("SHUNT_STATS=%.200s cannot be written (%s); using stderr", pattern, why);
            fd = STDERR_FILENO;
        }
    }
    /* One write, so that the tables of several ranks do not mix. */
    ssize_t ignored = write(fd, text, strlen(text));
    (void)ignored;
    if (fd != STDERR_FILENO)
        close(fd);
}

static void print_at_exit(void)
{
    char *text = shim_statistics_text();
    if (text != NULL)
        write_to(shim_settings()->stats, text);
    free(text);
}

static void start(void)
{
    pthread_atfork(NULL, NULL, forget_in_child);
    const char *stats = shim_settings()->stats;
    if (stats[0] != '\0' && strcmp(stats, "0") != 0)
        atexit(print_at_exit);
}

static uint32_t bin_of(uint64_t bytes)
{
    uint32_t bin = bytes == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(bytes);
    return bin < BINS ? bin : BINS - 1;
}

static table_t *first_of_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
    uint32_t thread = atomic_fetch_add(&threads, 1);
    return &tables[thread < TABLES ? thread : TABLES - 1];
}

static void add(_Atomic uint64_t *sum, uint64_t value)
{
    if (last.table == &tables[TABLES - 1])
        atomic_fetch_add_explicit(sum, value, memory_order_relaxed);
    else /* this thread alone writes it: half the time */
        atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + value, memory_order_relaxed);
}

static void count(uint32_t collective, uint64_t bytes, int reason)
{
    if (last.table == NULL)
        last.table = first_of_thread();
    counter_t *counter = &last.table->counter[collective][bin_of(bytes)][reason];
    add(&counter->calls, 1);
    add(&counter->bytes, bytes);
    last.made = last.fresh = true;
    last.collective = collective;
    last.reason = reason;
    last.bytes = bytes;
}

void shim_count_taken(uint32_t collective, uint64_t bytes, const sel_choice_t *choice)
{
    count(collective, bytes, SEL_TAKEN);
    last.choice = *choice;
    shim_trace("%s of %llu bytes: %s, %u blocks of %u threads", collective_name(collective), (unsigned long long)bytes,
               choice->algorithm->name, choice->blocks, choice->threads);
}

void shim_count_forwarded(uint32_t collective, uint64_t bytes, int reason, const char *source)
{
    count(collective, bytes, reason);
    last.choice = (sel_choice_t){.source = source};
    shim_trace("%s of %llu bytes: %s", collective_name(collective), (unsigned long long)bytes, reason_text(reason));
}

bool shim_statistics_last(shunt_decision_t *decision)
{
    if (!last.made)
        return false;
    const alg_algorithm_t *algorithm = last.choice.algorithm;
    decision->taken = algorithm != NULL;
    decision->collective = collective_name(last.collective);
    decision->algorithm = algorithm != NULL ? algorithm->name : "nccl";
    decision->reason = reason_text(last.reason);
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

/* Sums over a part of the table: one collective's bin, taken or not. */
typedef struct sum {
    uint64_t calls, bytes;
} sum_t;

static sum_t load(uint32_t collective, int bin, int reason)
{
    sum_t sum = {0, 0};
    for (uint32_t t = 0; t < tables_in_use(); t++) {
        counter_t *counter = &tables[t].counter[collective][bin][reason];
        sum.calls += atomic_load_explicit(&counter->calls, memory_order_relaxed);
        sum.bytes += atomic_load_explicit(&counter->bytes, memory_order_relaxed);
    }
    return sum;
}

void shim_statistics_totals(shunt_statistics_t *statistics)
{
    sum_t taken = {0, 0}, forwarded = {0, 0};
    for (uint32_t c = 0; c < SHIM_COLLECTIVE_COUNT; c++)
        for (int b = 0; b < BINS; b++)
            for (int r = 0; r < SHIM_REASON_COUNT; r++) {
                sum_t one = load(c, b, r);
                sum_t *sum = r == SEL_TAKEN ? &taken : &forwarded;
                sum->calls += one.calls;
                sum->bytes += one.bytes;
            }
    statistics->calls_taken = taken.calls;
    statistics->bytes_taken = taken.bytes;
    statistics->calls_forwarded = forwarded.calls;
    statistics->bytes_forwarded = forwarded.bytes;
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

static void print_table(FILE *out)
{
    fprintf(out, "shunt: %-13s %11s %12s %18s  %s\n", "collective", "bytes each", "calls", "bytes", "outcome");
    for (uint32_t c = 0; c < SHIM_COLLECTIVE_COUNT; c++)
        for (int b = 0; b < BINS; b++)
            for (int r = 0; r < SHIM_REASON_COUNT; r++) {
                sum_t one = load(c, b, r);
                if (one.calls == 0)
                    continue;
                char size[40];
                bin_text(b, size, sizeof(size));
                fprintf(out, "shunt: %-13s %11s %12llu %18llu  %s\n", collective_name(c), size,
                        (unsigned long long)one.calls, (unsigned long long)one.bytes, reason_text(r));
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
    fprintf(out, "shunt: calls of %s\n", host);
    print_table(out);
    fprintf(out, "shunt: taken %llu calls, forwarded %llu\n", (unsigned long long)totals.calls_taken,
            (unsigned long long)totals.calls_forwarded);
    return fclose(out) == 0 ? text : (free(text), NULL);
}
