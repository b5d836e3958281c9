/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptor_box.h - a mailbox for file descriptors. Private to this room.
 *
 * A non-blocking unix datagram socket under a name in /dev/shm, mode 0600: to send
 * takes the right to write, so no other user can fill it, as anyone could under an
 * abstract name. The name goes with the first letter that is taken, since all have
 * sent by then, or with the box; what a crash leaves is swept. A message counts
 * only from a process of our user and with the token of the addressee, which is
 * only in the ranks' private segment.
 */
#ifndef SHUNT_TRANSPORT_DESCRIPTOR_BOX_H
#define SHUNT_TRANSPORT_DESCRIPTOR_BOX_H

#include <stdbool.h>
#include <stdint.h>

enum {
    NET_BOX_NAME_BYTES = 64,
    NET_BOX_CAPACITY = 16 /* descriptors that wait to be taken */
};

typedef struct net_box_letter {
    uint64_t from[2]; /* the sender's token */
    int descriptor;
} net_box_letter_t;

typedef struct net_box {
    int socket; /* -1: closed */
    char name[NET_BOX_NAME_BYTES];
    uint64_t token[2];
    uint32_t letters;
    net_box_letter_t letter[NET_BOX_CAPACITY];
} net_box_t;

/* Bind a socket to a new name that is unique on this host; `name` gets it. */
int net_box_open(net_box_t *box, const uint64_t token[2], char name[NET_BOX_NAME_BYTES]);
/* Send a descriptor to the box `name` whose token is `to`. Waits at most 10 s for room. */
int net_box_send(const net_box_t *box, const char *name, const uint64_t to[2], int descriptor);
/* Take the descriptor that `from` sent (the caller closes it); -ENOENT if there is none. Never blocks. Afterwards
 * nothing can be sent to the box any more. */
int net_box_take(net_box_t *box, const uint64_t from[2], int *descriptor);
/* Close the socket and what was not taken. */
void net_box_close(net_box_t *box);
/* Remove the name of a box of this user that nobody has open, if it is at least this old: a new one may be about to
 * be opened. */
void net_box_sweep(const char *name, long seconds);

#endif
