/* SPDX-License-Identifier: Apache-2.0 */
/* guests.c - the page is shared memory (memory_shared.c). A broken peer can only prevent memory from being freed, or
 * release its own mapping too early. */
#define _GNU_SOURCE
#include "transport/guests.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "transport/memory.h"

enum { SEATS = 16 };

/* Occupied once `pid` is set: if a guest dies before it writes the rest, its pid alone identifies it. */
typedef struct seat {
    _Atomic int64_t pid;
    _Atomic uint64_t start_ticks;
    _Atomic uint32_t pid_namespace, time_namespace;
} seat_t;

struct net_guest_page {
    _Atomic uint32_t closed;
    uint32_t reserved;
    seat_t seat[SEATS];
};

int net_guests_open(net_guest_book_t *book, net_shared_place_t *place)
{
    net_memory_t memory = {.kind = NET_MEMORY_SHARED, .bytes = sizeof(net_guest_page_t)};
    net_offer_t offer;
    int error = net_memory_shared.create(&memory, &offer);
    if (error)
        return error;
    *book = (net_guest_book_t){.page = memory.pointer, .descriptor = memory.descriptor, .mark = memory.mark};
    *place = offer.as.shared;
    return 0;
}

/* A guest opens the owner's /proc/<pid>, so a seat without a namespace counts as in the owner's. */
static bool is_taken(seat_t *seat, uint32_t pid_namespace)
{
    int64_t pid = atomic_load(&seat->pid);
    if (pid == 0)
        return false;
    net_process_t process = {.pid = pid,
                             .start_ticks = atomic_load(&seat->start_ticks),
                             .pid_namespace = atomic_load(&seat->pid_namespace),
                             .time_namespace = atomic_load(&seat->time_namespace)};
    if (process.start_ticks == 0)
        process.pid_namespace = pid_namespace;
    return net_process_alive(&process); /* a guest that enters after the close leaves again */
}

bool net_guests_have_left(const net_guest_book_t *book)
{
    const net_process_t self = net_process_self();
    /* Sequentially consistent with the guests' stores: either this loop sees the guest, or the guest sees `closed`. */
    atomic_store(&book->page->closed, 1);
    for (uint32_t i = 0; i < SEATS; i++)
        if (is_taken(&book->page->seat[i], self.pid_namespace))
            return false;
    return true;
}

void net_guests_close(net_guest_book_t *book)
{
    net_memory_t memory = {.kind = NET_MEMORY_SHARED,
                           .bytes = sizeof(net_guest_page_t),
                           .pointer = book->page,
                           .descriptor = book->descriptor,
                           .mark = book->mark};
    if (book->page)
        net_memory_shared.destroy(&memory);
    book->page = NULL;
}

static int take_seat(net_guest_page_t *page, uint32_t *taken)
{
    const net_process_t self = net_process_self();
    for (uint32_t i = 0; i < SEATS; i++) {
        int64_t nobody = 0;
        if (!atomic_compare_exchange_strong(&page->seat[i].pid, &nobody, self.pid))
            continue;
        atomic_store(&page->seat[i].pid_namespace, self.pid_namespace);
        atomic_store(&page->seat[i].time_namespace, self.time_namespace);
        atomic_store(&page->seat[i].start_ticks, self.start_ticks);
        *taken = i;
        return 0;
    }
    return -EUSERS;
}

static void leave_seat(net_guest_page_t *page, uint32_t seat)
{
    atomic_store(&page->seat[seat].start_ticks, 0);
    atomic_store(&page->seat[seat].pid, 0);
}

static void unmap(net_guest_page_t *page)
{
    net_mapping_t mapping = {.kind = NET_MEMORY_SHARED, .bytes = sizeof(*page), .pointer = page};
    net_memory_shared.close(&mapping);
}

int net_guest_enter(net_guest_t *guest, const net_process_t *owner, const net_shared_place_t *place)
{
    net_offer_t offer = {.kind = NET_MEMORY_SHARED, .owner = *owner, .bytes = sizeof(net_guest_page_t)};
    net_mapping_t mapping = {.kind = NET_MEMORY_SHARED, .bytes = sizeof(net_guest_page_t)};
    offer.as.shared = *place;
    int error = net_memory_shared.open(NULL, &offer, &mapping);
    if (error)
        return error;
    *guest = (net_guest_t){.page = mapping.pointer};
    error = take_seat(guest->page, &guest->seat);
    if (!error && atomic_load(&guest->page->closed)) {
        leave_seat(guest->page, guest->seat);
        error = -ESRCH;
    }
    if (error)
        unmap(guest->page);
    return error;
}

bool net_guest_welcome(const net_guest_t *guest)
{
    return atomic_load(&guest->page->closed) == 0;
}

void net_guest_leave(net_guest_t *guest)
{
    leave_seat(guest->page, guest->seat);
    unmap(guest->page);
}
