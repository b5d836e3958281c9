/* SPDX-License-Identifier: Apache-2.0 */
/* guests.h - which processes have mapped a block of IPC memory. CUDA does not define what happens to a mapping when the
 * owner frees the memory, so each block has a guest book (a page of shared memory), which guests enter before mapping
 * and leave after unmapping. The owner closes it, and frees the memory when all guests have left or died. */
#ifndef SHUNT_TRANSPORT_GUESTS_H
#define SHUNT_TRANSPORT_GUESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/transport.h"

typedef struct net_guest_page net_guest_page_t;

/* A memfd, and its descriptor in the owning process. */
typedef struct net_shared_place {
    uint64_t device;
    uint64_t inode;
    int64_t descriptor;
} net_shared_place_t;

/* The owner's side; all zero: no book. */
typedef struct net_guest_book {
    net_guest_page_t *page;
    int descriptor;
    net_mark_t mark;
} net_guest_book_t;

typedef struct net_guest {
    net_guest_page_t *page;
    uint32_t seat;
} net_guest_t;

int net_guests_open(net_guest_book_t *book, net_shared_place_t *place);
/* Closes the book. True if no living guest is left. */
bool net_guests_have_left(const net_guest_book_t *book);
void net_guests_close(net_guest_book_t *book);

/* -ESRCH: the owner is gone or has closed the book; -EUSERS: the book is full. */
int net_guest_enter(net_guest_t *guest, const net_process_t *owner, const net_shared_place_t *place);
/* False once the owner has closed the book. */
bool net_guest_welcome(const net_guest_t *guest);
void net_guest_leave(net_guest_t *guest);

#endif
