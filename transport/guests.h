/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guests.h - who has a block of memory mapped. Private to this room.
 *
 * CUDA leaves undefined what becomes of a mapping when the owner frees IPC memory
 * under it. So such memory has a guest book: a page of host memory that peers map
 * too. A guest enters before it maps the memory, and leaves after it has unmapped
 * it. The owner closes the book, and frees when every guest has left or is dead. Who
 * comes to a closed book is turned away, so that nobody can enter between the
 * owner's look and its free.
 */
#ifndef SHUNT_TRANSPORT_GUESTS_H
#define SHUNT_TRANSPORT_GUESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/transport.h"

typedef struct net_guest_page net_guest_page_t;

/* Where peers find host memory of a process: st_dev and st_ino of the memfd, and its number there. */
typedef struct net_host_place {
    uint64_t device;
    uint64_t inode;
    int64_t descriptor;
} net_host_place_t;

/* The owner's side. Plain data, all zero: there is none. */
typedef struct net_guest_book {
    net_guest_page_t *page;
    int descriptor;
} net_guest_book_t;

/* One guest's side. */
typedef struct net_guest {
    net_guest_page_t *page;
    uint32_t seat;
} net_guest_t;

/* Functions return 0 or a negative errno. */
int net_guests_open(net_guest_book_t *book, net_host_place_t *place);
/* Let nobody in any more. True if no guest is left that lives. */
bool net_guests_gone(const net_guest_book_t *book);
void net_guests_close(net_guest_book_t *book);

/* -ESRCH: the owner is gone, or has closed the book; -EUSERS: it is full. */
int net_guest_enter(net_guest_t *guest, const net_process_t *owner, const net_host_place_t *place);
/* False once the owner has closed the book, and waits for this guest to leave. */
bool net_guest_welcome(const net_guest_t *guest);
void net_guest_leave(net_guest_t *guest);

#endif
