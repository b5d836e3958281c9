/* SPDX-License-Identifier: Apache-2.0 */
/* bell.c - a process's doorbell: a word in shared memory (memory_shared.c) that peers increment, and on which one
 * thread sleeps (futex). A broken peer can only wake it needlessly. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "transport/memory.h"
#include "transport/numa.h"

enum { PAGE_BYTES = 4096 };

static net_lock_t lock = NET_LOCK_INITIALIZER;
static net_memory_t own; /* the page that process own.pid made */
static net_bell_t own_place;

/* Called with the lock held. */
static int make_own(void)
{
    net_memory_t made = {.kind = NET_MEMORY_SHARED, .bytes = PAGE_BYTES, .node = NET_ANY_NODE, .pid = getpid()};
    net_offer_t offer;
    int error = net_memory_shared.create(&made, &offer);
    if (error)
        return error;
    own = made; /* a forked child leaves its parent's page mapped */
    own_place = (net_bell_t){.owner = net_process_self(),
                             .device = offer.as.shared.device,
                             .inode = offer.as.shared.inode,
                             .descriptor = offer.as.shared.descriptor};
    return 0;
}

int net_bell_place(net_bell_t *place)
{
    net_lock_take(&lock);
    int error = own.pointer && own.pid == getpid() ? 0 : make_own();
    if (!error)
        *place = own_place;
    net_lock_give(&lock);
    return error;
}

static atomic_uint *own_word(void)
{
    net_lock_take(&lock);
    atomic_uint *word = own.pid == getpid() ? own.pointer : NULL;
    net_lock_give(&lock);
    return word;
}

uint32_t net_bell_rung(void)
{
    const atomic_uint *word = own_word();
    return word ? atomic_load(word) : 0;
}

void net_bell_wait(uint32_t rung, uint32_t limit_ms)
{
    const struct timespec limit = {limit_ms / 1000, (long)(limit_ms % 1000) * 1000000};
    atomic_uint *word = own_word();
    if (word)
        syscall(SYS_futex, word, FUTEX_WAIT, rung, &limit, NULL, 0);
}

static void ring(atomic_uint *word)
{
    atomic_fetch_add(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool is_own(const net_bell_t *place)
{
    net_lock_take(&lock);
    const bool same = own.pid == getpid() && own_place.device == place->device && own_place.inode == place->inode;
    net_lock_give(&lock);
    return same;
}

int net_bell_ring(const net_bell_t *place)
{
    if (is_own(place)) {
        ring(own_word());
        return 0;
    }
    net_offer_t offer = {.kind = NET_MEMORY_SHARED, .owner = place->owner, .bytes = PAGE_BYTES};
    net_mapping_t mapping = {.kind = NET_MEMORY_SHARED, .bytes = PAGE_BYTES};
    offer.as.shared = (net_shared_place_t){place->device, place->inode, place->descriptor};
    if (place->owner.pid <= 0)
        return -EPROTO;
    int error = net_memory_shared.open(NULL, &offer, &mapping);
    if (error)
        return error;
    ring(mapping.pointer);
    net_memory_shared.close(&mapping);
    return 0;
}
