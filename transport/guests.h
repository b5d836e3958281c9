/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guests.h - which processes have a block of memory mapped. Private to this folder.
 *
 * CUDA does not define what happens to a mapping when the owner frees the IPC
 * memory under it. So such memory has a guest book: a page of host memory that
 * peers map too. A guest enters before it maps the memory, and leaves after it has
 * unmapped it. The owner closes the book, and frees the memory when every guest
 * has left or is dead. A closed book turns new guests away, so none can enter
 * between the owner's check and its free.
 */
#ifndef SHUNT_TRANSPORT_GUESTS_H
#define SHUNT_TRANSPORT_GUESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/transport.h"

typedef struct net_guest_page net_guest_page_t;

/* How peers find a process's host memory: st_dev and st_ino of the memfd, and its descriptor number there. */
typedef struct net_host_place {
    uint64_t device;
    uint64_t inode;
    int64_t descriptor;
} net_host_place_t;

/* The owner's side. Plain data; all zero: no book. */
typedef struct net_guest_book {
    net_guest_page_t *page;
    int descriptor;
    net_mark_t mark;
} net_guest_book_t;

/* One guest's side. */
typedef struct net_guest {
    net_guest_page_t *page;
    uint32_t seat;
} net_guest_t;

/* Functions return 0 or a negative errno. */
int net_guests_open(net_guest_book_t *book, net_host_place_t *place);
/* Close the book to new guests. True if no living guest is left. */
bool net_guests_have_left(const net_guest_book_t *book);
void net_guests_close(net_guest_book_t *book);

/* -ESRCH: the owner is gone, or has closed the book; -EUSERS: it is full. */
int net_guest_enter(net_guest_t *guest, const net_process_t *owner, const net_host_place_t *place);
/* False once the owner has closed the book and waits for this guest to leave. */
bool net_guest_welcome(const net_guest_t *guest);
void net_guest_leave(net_guest_t *guest);

#endif
