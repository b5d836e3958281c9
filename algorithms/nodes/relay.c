/* SPDX-License-Identifier: Apache-2.0 */
/* relay.c - what the proxy does for one relay, and its creation and end (relay.h, nodes.h). The proxy's lock guards
 * relays; words and flags order kernels' accesses to inboxes and outbox. A relay owns its memory and its network,
 * which ends first, so nothing lands in freed memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "algorithms/nodes/proxy.h"
#include "algorithms/nodes/relay.h"

#define MS UINT64_C(1000000)

enum {
    LONG_STEP = 12 << 10, /* bytes; longer steps wake the reader */
    NAP_NS = 50000,
    SEND_LIMIT_MS = 5000 /* for unsent steps at the end */
};

_Static_assert((int)RELAY_QUEUE >= (int)RELAY_SLOTS, "as many steps as may be laid out (relay.h)");

static uint64_t *flag_of(const alg_relay_t *relay, uint32_t node)
{
    return (uint64_t *)(relay->at + RELAY_FLAGS) + node;
}

static bool find_step(alg_relay_t *relay)
{
    const uint64_t tag = RELAY_TAG(relay->call, relay->step);
    const uint32_t slot = RELAY_SLOT(relay->call, relay->step);
    const uint64_t *word = (const uint64_t *)(relay->at + RELAY_WORDS + (size_t)slot * RELAY_BLOCKS * RELAY_WORD_BYTES);
    if (__atomic_load_n(word + 1, __ATOMIC_ACQUIRE) != tag)
        return false;
    const uint64_t first = __atomic_load_n(word, __ATOMIC_RELAXED);
    const uint32_t bytes = (uint32_t)first, blocks = (uint32_t)(first >> 32) & (RELAY_LAST - 1);
    for (uint32_t b = 1; b < blocks; b++) {
        if (__atomic_load_n(word + 2 * b + 1, __ATOMIC_ACQUIRE) != tag)
            return false;
    }
    relay->queue[relay->laid++ % RELAY_QUEUE] = (step_t){tag, slot, bytes};
    if (relay->copies && bytes > LONG_STEP)
        proxy_call_reader();
    relay->last_tag = tag;
    relay->step++;
    if (first >> 32 & RELAY_LAST) {
        relay->call++;
        relay->step = 0;
        relay->kernels_begun++;
    }
    return true;
}

static bool give_to_network(alg_relay_t *relay, uint32_t node)
{
    bool any = false;
    while (relay->put[node] < relay->laid) {
        const step_t *step = &relay->queue[relay->put[node] % RELAY_QUEUE];
        const uint64_t at = (uint64_t)step->slot * RELAY_STEP_BYTES;
        if (net_network_put(relay->network, node, at, relay->at + RELAY_OUTBOX + at, step->bytes, step->tag) != 0)
            break;
        relay->put[node]++;
        any = true;
    }
    return any;
}

static void lose(alg_relay_t *relay, uint32_t node)
{
    const char *fault = net_network_fault(relay->network);
    if (fault && !atomic_load(&relay->has_fault)) {
        snprintf(relay->fault, sizeof(relay->fault), "%s", fault);
        atomic_store(&relay->has_fault, true);
    }
    if (__atomic_load_n(flag_of(relay, node), __ATOMIC_RELAXED) < relay->last_tag)
        __atomic_store_n(flag_of(relay, node), RELAY_LOST, __ATOMIC_RELEASE);
}

static void end_network(alg_relay_t *relay)
{
    net_network_t *network = relay->network;
    proxy_hold_reader();
    relay->network = NULL;
    proxy_let_reader();
    net_network_close(network);
}

static bool owes_to(const alg_relay_t *relay, uint32_t node)
{
    return node != relay->node && net_network_alive(relay->network, node) &&
           net_network_sent(relay->network, node) < relay->last_tag;
}

/* Whether steps are in flight, or a kernel has yet to post more. */
static bool under_way(const alg_relay_t *relay)
{
    bool any = relay->step > 0;
    for (uint32_t h = 0; h < relay->nodes; h++) {
        if (h != relay->node && net_network_alive(relay->network, h))
            any = any || owes_to(relay, h) || __atomic_load_n(flag_of(relay, h), __ATOMIC_RELAXED) < relay->last_tag;
    }
    return any;
}

bool relay_look(alg_relay_t *relay)
{
    if (!relay->network)
        return false;
    if (relay->control && __atomic_load_n(&relay->control->abort, __ATOMIC_ACQUIRE)) {
        end_network(relay); /* informs the other nodes */
        return false;
    }
    bool any = false;
    while (relay->laid - relay->put[relay->node] < RELAY_QUEUE && find_step(relay))
        any = true;
    for (uint32_t h = 0; h < relay->nodes; h++) {
        if (h == relay->node)
            continue;
        any |= give_to_network(relay, h);
        if (!net_network_alive(relay->network, h))
            lose(relay, h);
    }
    any |= proxy_has_reader() ? net_network_write(relay->network) : net_network_progress(relay->network, 0);
    /* A queue entry is free when its step has been given to the network for all living nodes. */
    uint64_t least = relay->laid;
    for (uint32_t h = 0; h < relay->nodes; h++) {
        if (h != relay->node && net_network_alive(relay->network, h))
            least = relay->put[h] < least ? relay->put[h] : least;
    }
    relay->put[relay->node] = least;
    return any || under_way(relay);
}

bool relay_is_due(const alg_relay_t *relay)
{
    return relay->network && (atomic_load(&relay->captured) || relay->kernels_begun < atomic_load(&relay->kernels_due));
}

int alg_relay_create(alg_device_t device, int ordinal, uint32_t node, uint32_t nodes, alg_relay_t **relay)
{
    uint8_t offer[NET_OFFER_BYTES];
    const net_memory_kind_t kind = device == ALG_DEVICE_CPU ? NET_MEMORY_SHARED : NET_MEMORY_PINNED;
    if (nodes > ALG_MAX_RANKS || node >= nodes)
        return -EINVAL;
    alg_relay_t *made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    int error = net_memory_create(kind, ordinal, relay_bytes(nodes), &made->memory, offer);
    if (error) {
        free(made);
        return error;
    }
    made->device = device;
    made->node = node;
    made->nodes = nodes;
    made->at = net_memory_pointer(made->memory);
    *relay = made;
    return 0;
}

net_landing_t alg_relay_landing(const alg_relay_t *relay)
{
    return (net_landing_t){.windows = relay->at + RELAY_INBOX,
                           .window_bytes = RELAY_WINDOW_BYTES,
                           .flags = flag_of(relay, 0),
                           .source = relay->at + RELAY_OUTBOX,
                           .source_bytes = RELAY_WINDOW_BYTES};
}

int alg_relay_connected(alg_relay_t *relay, net_network_t *network)
{
    relay->network = network;
    relay->copies = net_network_copies(network);
    const int error = proxy_add(relay);
    if (error)
        relay->network = NULL;
    return error;
}

void alg_relay_serve(alg_relay_t *relay, alg_team_t *team, alg_control_t *control)
{
    team->node = relay->node;
    team->nodes = relay->nodes;
    team->relay = relay->at;
    proxy_take();
    relay->control = control;
    proxy_give();
}

const char *alg_relay_fault(const alg_relay_t *relay)
{
    return atomic_load(&relay->has_fault) ? relay->fault : NULL;
}

void alg_relay_call(alg_relay_t *relay, const alg_team_t *team, const alg_call_t *call, bool captured)
{
    if (captured)
        atomic_store(&relay->captured, true);
    else
        atomic_fetch_add(&relay->kernels_due, alg_exchange_kernels(team, call));
    proxy_wake();
}

/* Whether posted steps are unsent. First looks for new ones. */
static bool owes(alg_relay_t *relay)
{
    bool any = false;
    (void)relay_look(relay);
    for (uint32_t h = 0; relay->network && h < relay->nodes; h++)
        any = any || owes_to(relay, h);
    return any;
}

void alg_relay_flush(alg_relay_t *relay)
{
    const struct timespec moment = {0, NAP_NS};
    const uint64_t limit = proxy_now_ns() + SEND_LIMIT_MS * MS;
    proxy_take();
    while (owes(relay) && proxy_now_ns() < limit) {
        proxy_give();
        nanosleep(&moment, NULL);
        proxy_take();
    }
    proxy_give();
}

void alg_relay_destroy(alg_relay_t *relay)
{
    if (!relay)
        return;
    alg_relay_flush(relay);
    proxy_remove(relay);
    end_network(relay);
    net_memory_destroy(relay->memory);
    free(relay);
}
