/* SPDX-License-Identifier: Apache-2.0 */
/* descriptor_box.h - a mailbox for file descriptors: a non-blocking unix datagram socket under a name in /dev/shm, mode
 * 0600, since any user could flood an abstract socket. The first take (all peers have sent), the close, or a sweep
 * after a crash removes the name. A message counts if this user sent it with the receiver's token from the segment. */
#ifndef SHUNT_TRANSPORT_DESCRIPTOR_BOX_H
#define SHUNT_TRANSPORT_DESCRIPTOR_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/transport.h"

enum {
    NET_BOX_NAME_BYTES = 64,
    NET_BOX_CAPACITY = 16 /* descriptors not yet taken */
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

/* `name` is new and unique. */
int net_box_open(net_box_t *box, const uint64_t token[2], char name[NET_BOX_NAME_BYTES]);
/* Sends to the box `name` with token `to`. Waits up to 10 s for room. */
int net_box_send(const net_box_t *box, const char *name, const uint64_t to[2], int descriptor);
/* Takes the descriptor that `from` sent; the caller closes it. -ENOENT: none. Never blocks. Afterwards nothing can be
 * sent to the box. */
int net_box_take(net_box_t *box, const uint64_t from[2], int *descriptor);
/* Closes untaken descriptors, too. */
void net_box_close(net_box_t *box);
/* Removes a box of this user that no process has open, if it is `seconds` old: a new one may not be open yet. */
void net_box_sweep(const char *name, long seconds);

#endif
