/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptor_box.h - a mailbox for file descriptors. Private to this folder.
 *
 * A non-blocking unix datagram socket under a name in /dev/shm, mode 0600. Sending
 * needs write permission, so no other user can fill the box, as any user could
 * with an abstract name. The first take removes the name, since all peers have
 * sent by then; destroying the box removes it too, and a sweep removes names that
 * a crash left. A message counts only if it comes from a process of this user and
 * carries the addressee's token, which is only in the ranks' private segment.
 */
#ifndef SHUNT_TRANSPORT_DESCRIPTOR_BOX_H
#define SHUNT_TRANSPORT_DESCRIPTOR_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/transport.h"

enum {
    NET_BOX_NAME_BYTES = 64,
    NET_BOX_CAPACITY = 16 /* descriptors received and not yet taken */
};

typedef struct net_box_letter {
    uint64_t from[2]; /* the sender's token */
    int descriptor;
} net_box_letter_t;

typedef struct net_box {
    int socket; /* -1: closed */
    net_mark_t mark;
    char name[NET_BOX_NAME_BYTES];
    uint64_t token[2];
    uint32_t letters;
    net_box_letter_t letter[NET_BOX_CAPACITY];
} net_box_t;

/* Bind a socket to a new name that is unique on this host; `name` gets it. */
int net_box_open(net_box_t *box, const uint64_t token[2], char name[NET_BOX_NAME_BYTES]);
/* Send a descriptor to the box `name` whose token is `to`. Waits up to 10 s for room. */
int net_box_send(const net_box_t *box, const char *name, const uint64_t to[2], int descriptor);
/* Take the descriptor that `from` sent (the caller closes it); -ENOENT if there is none. Never blocks. Removes the
 * box's name, so nothing can be sent to it afterwards. */
int net_box_take(net_box_t *box, const uint64_t from[2], int *descriptor);
/* Close the socket and the descriptors not taken. */
void net_box_close(net_box_t *box);
/* Remove the name of a box of this user that no process has open, if it is at least this old: a new one may not have
 * been opened yet. */
void net_box_sweep(const char *name, long seconds);

#endif
