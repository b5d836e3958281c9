/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_read.c - finds the records of processes, through /proc/<pid>/fd, and judges the ranks.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tools/watch/watch.h"

enum { WAIT_MS = 1000 }; /* shorter waits are not judged, as other ranks' records may not show their waits yet */

static void close_book(record_mapped_t *mapped)
{
    if (mapped != NULL) {
        munmap((void *)(uintptr_t)mapped->book, RECORD_BOOK_BYTES(RECORD_MOST_SLOTS));
        free(mapped);
    }
}

/* A forked child inherits its parent's descriptor, so the record itself names its process. */
static record_mapped_t *open_book(int folder, const char *name, pid_t pid)
{
    uint32_t slots = 0;
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const record_book_t *book = fd >= 0 ? record_book_map(fd, &slots) : NULL;
    if (fd >= 0) {
        close(fd);
    }
    record_mapped_t *mapped = book != NULL ? malloc(sizeof *mapped) : NULL;
    if (mapped == NULL) {
        return NULL;
    }
    mapped->book = book;
    atomic_init(&mapped->slots, slots);
    if (atomic_load(&book->pid) != pid) {
        close_book(mapped);
        return NULL;
    }
    return mapped;
}

/* The record among a process's open files; NULL if there is none, or it may not be read. */
static record_mapped_t *find_book(pid_t pid)
{
    static const char link[] = "/memfd:" RECORD_FILE;
    char path[48], target[sizeof link];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *files = opendir(path);
    record_mapped_t *mapped = NULL;
    for (struct dirent *entry; files != NULL && mapped == NULL && (entry = readdir(files)) != NULL;) {
        const ssize_t size = readlinkat(dirfd(files), entry->d_name, target, sizeof target - 1);
        if (size == (ssize_t)sizeof target - 1 && memcmp(target, link, sizeof target - 1) == 0) {
            mapped = open_book(dirfd(files), entry->d_name, pid);
        }
    }
    if (files != NULL) {
        closedir(files);
    }
    return mapped;
}

/* False if the slot was reused meanwhile, or has no communicator yet. */
static bool read_rank(const record_mapped_t *mapped, uint32_t number, watch_rank_t *rank)
{
    const record_slot_t *slot = record_slot_at(mapped->book, number);
    const uint64_t life = atomic_load(&slot->life);
    *rank = (watch_rank_t){.comm = atomic_load(&slot->comm),
                           .rank = atomic_load(&slot->rank),
                           .nranks = atomic_load(&slot->nranks),
                           .state = atomic_load(&slot->state),
                           .device = atomic_load(&slot->device),
                           .view = {.mapped = mapped,
                                    .slot = slot,
                                    .life = life,
                                    .pid = atomic_load(&mapped->book->pid),
                                    .start_ticks = atomic_load(&mapped->book->start_ticks),
                                    .seen = true},
                           .calls = atomic_load(&slot->entries),
                           .wait_id = atomic_load(&slot->wait_id),
                           .wait_ns = atomic_load(&slot->wait_ns)};
    rank->has_last = record_last(slot, &rank->last);
    if (rank->has_last) {
        record_algorithm(mapped->book, rank->last.algorithm, rank->algorithm);
    }
    rank->waits = record_waiting_of(slot, rank->wait_id, atomic_load(&slot->wait_epoch));
    if (record_has_ended(&rank->waits, slot)) {
        rank->wait_id = 0; /* the wait has ended, unnoticed by the watcher */
    }
    return (life & 1) != 0 && rank->state != RECORD_SETTING_UP && rank->nranks <= ALG_MAX_RANKS &&
           rank->rank < rank->nranks && record_view_lives(&rank->view);
}

static bool add_book(watch_sight_t *sight, record_mapped_t *mapped)
{
    void *books = realloc(sight->book, (sight->books + 1) * sizeof *sight->book);
    if (books == NULL) {
        close_book(mapped);
        return false;
    }
    sight->book = books;
    sight->book[sight->books++] = mapped;
    const uint32_t slots = atomic_load(&mapped->slots);
    for (uint32_t i = 0; i < slots && sight->ranks < WATCH_MOST_RANKS; i++) {
        sight->ranks += read_rank(mapped, i, &sight->rank[sight->ranks]);
    }
    return true;
}

static bool add_process(watch_sight_t *sight, pid_t pid)
{
    record_mapped_t *mapped = find_book(pid);
    return mapped == NULL || add_book(sight, mapped);
}

static int compare_ranks(const void *left, const void *right)
{
    const watch_rank_t *a = left, *b = right;
    if (a->comm != b->comm) {
        return a->comm < b->comm ? -1 : 1;
    }
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

bool watch_read(pid_t pid, watch_sight_t *sight)
{
    *sight = (watch_sight_t){.rank = calloc(WATCH_MOST_RANKS, sizeof *sight->rank)};
    bool good = sight->rank != NULL && (pid == 0 || add_process(sight, pid));
    DIR *proc = good && pid == 0 ? opendir("/proc") : NULL;
    for (struct dirent *entry; good && proc != NULL && (entry = readdir(proc)) != NULL;) {
        const int number = atoi(entry->d_name);
        good = number <= 0 || add_process(sight, number);
    }
    if (proc != NULL) {
        closedir(proc);
    }
    if (good) {
        qsort(sight->rank, sight->ranks, sizeof *sight->rank, compare_ranks);
    } else {
        watch_free(sight);
    }
    return good;
}

void watch_free(watch_sight_t *sight)
{
    for (uint32_t i = 0; i < sight->books; i++) {
        close_book(sight->book[i]);
    }
    free(sight->book);
    free(sight->rank);
    *sight = (watch_sight_t){0};
}

uint64_t watch_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A rank without a found record may have died: the waiter's record names its process. */
static record_view_t view_of(const watch_sight_t *sight, const watch_comm_t *comm, uint32_t rank)
{
    for (uint32_t i = comm->from; i < comm->to; i++) {
        if (sight->rank[i].rank == rank) {
            return sight->rank[i].view;
        }
    }
    const record_peer_t *peer = &comm->waiter->view.slot->peer[rank];
    return (record_view_t){.pid = atomic_load(&peer->pid),
                           .start_ticks = atomic_load(&peer->start_ticks),
                           .seen = atomic_load(&peer->pid) != 0};
}

static void judge_comm(const watch_sight_t *sight, watch_comm_t *comm)
{
    for (uint32_t i = comm->from; i < comm->to; i++) {
        const watch_rank_t *rank = &sight->rank[i];
        if (rank->wait_id != 0 && rank->wait_ns >= WAIT_MS * UINT64_C(1000000) &&
            (comm->waiter == NULL || rank->wait_ns > comm->waiter->wait_ns)) {
            comm->waiter = rank;
        }
    }
    if (comm->waiter == NULL) {
        return;
    }
    for (uint32_t r = 0; r < comm->waiter->nranks; r++) {
        const record_view_t view = view_of(sight, comm, r);
        if (r == comm->waiter->rank) {
            continue;
        }
        const record_rank_t judged =
            record_judge(&comm->waiter->waits, comm->waiter->view.slot, &view, r, watch_now_ns());
        uint32_t at = comm->judged++;
        for (; at > 0 && record_blamed_before(&judged, &comm->rank[at - 1]); at--) {
            comm->rank[at] = comm->rank[at - 1];
        }
        comm->rank[at] = judged;
    }
}

static uint64_t wait_of(const watch_comm_t *comm)
{
    return comm->waiter != NULL ? comm->waiter->wait_ns : 0;
}

static int compare_comms(const void *left, const void *right)
{
    const uint64_t a = wait_of(left), b = wait_of(right);
    return a > b ? -1 : a < b;
}

int watch_judge(const watch_sight_t *sight, watch_comm_t **comm)
{
    watch_comm_t *all = calloc(sight->ranks + 1, sizeof *all);
    int comms = 0;
    if (all == NULL) {
        return -1;
    }
    for (uint32_t i = 0; i < sight->ranks; i = all[comms++].to) {
        uint32_t to = i + 1;
        while (to < sight->ranks && sight->rank[to].comm == sight->rank[i].comm) {
            to++;
        }
        all[comms] = (watch_comm_t){.from = i, .to = to};
        judge_comm(sight, &all[comms]);
    }
    qsort(all, (size_t)comms, sizeof *all, compare_comms);
    *comm = all;
    return comms;
}
