/* SPDX-License-Identifier: Apache-2.0 */
/* proxy.h - a relay's state, and what relay.c and proxy.c share. */
#ifndef SHUNT_PROXY_H
#define SHUNT_PROXY_H

#include <stdatomic.h>

#include "algorithms/nodes/nodes.h"

enum { RELAY_QUEUE = 16 }; /* steps not yet given to the network */

typedef struct step {
    uint64_t tag;
    uint32_t slot, bytes;
} step_t;

struct alg_relay {
    alg_relay_t *next;
    alg_device_t device;
    uint32_t node, nodes;
    net_memory_t *memory;
    uint8_t *at;
    net_network_t *network; /* NULL: ended; changed under both locks of proxy.c */
    bool copies;            /* sockets: this process copies the bytes */
    alg_control_t *control; /* NULL until served; under the proxy's lock */
    step_t queue[RELAY_QUEUE];
    uint64_t laid;
    uint64_t put[ALG_MAX_RANKS]; /* [node]: steps given to the network; this node's entry: the least */
    uint64_t call;               /* number of the next step's call */
    uint32_t step;               /* number of the next step in its call */
    uint64_t last_tag;           /* of the last step found; 0: none */
    uint64_t kernels_begun;      /* kernels whose last step was found */
    _Atomic uint64_t kernels_due;
    atomic_bool captured;
    char fault[NET_WAY_TEXT]; /* written before kernels learn of the loss */
    atomic_bool has_fault;
};

/* relay.c: */

/* Needs the proxy's lock. True: something was done, or is in flight. */
bool relay_look(alg_relay_t *relay);
/* Whether a launched call has yet to begin, or a graph may begin one. */
bool relay_is_due(const alg_relay_t *relay);

/* proxy.c: */

uint64_t proxy_now_ns(void);
void proxy_take(void);
void proxy_give(void);
/* -EAGAIN: no thread could be started. */
int proxy_add(alg_relay_t *relay);
void proxy_remove(alg_relay_t *relay);
void proxy_wake(void);
/* Under the proxy's lock. */
void proxy_call_reader(void);
/* Whether the reader receives, so that the proxy need not. */
bool proxy_has_reader(void);
/* Both need the proxy's lock. Between the two calls the reader uses no network. */
void proxy_hold_reader(void);
void proxy_let_reader(void);

#endif
