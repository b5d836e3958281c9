/* SPDX-License-Identifier: Apache-2.0 */
/* peer_memory.c - own memory, and mappings of peers' memory, of all kinds. A rank of the same process finds memory in
 * `books` by its random token, never by a pointer from an offer, and holds a reference. The lock guards lists,
 * references and `destroyed`; no driver call is made under it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "transport/memory.h"
#include "transport/numa.h"

static net_lock_t books_lock = NET_LOCK_INITIALIZER;
static net_memory_t *books;
static net_memory_t *parked; /* released, not freed yet */

#define NET_CPU_MEMORY(kind, name, ...) [NET_MEMORY_##kind] = &net_memory_##name,
#if SHUNT_HAS_CUDA
#define NET_CUDA_MEMORY NET_CPU_MEMORY
#else
#define NET_CUDA_MEMORY(kind, name, ...)
#endif
static const net_memory_ops_t *const all_ops[NET_MEMORY_KINDS] = {
#include "transport/memory.def"
};

static const net_memory_ops_t *ops_of(uint32_t kind)
{
    return kind < NET_MEMORY_KINDS ? all_ops[kind] : NULL;
}

static bool has_driver(net_memory_kind_t kind)
{
    return net_memory_facts[kind].driver;
}

static void park(net_memory_t *memory)
{
    net_lock_take(&books_lock);
    memory->next = parked;
    parked = memory;
    net_lock_give(&books_lock);
}

int net_range_reserve(net_memory_kind_t kind, int device, size_t bytes, net_range_t **range)
{
    const net_memory_ops_t *ops = ops_of(kind);
    if (!ops || !net_memory_facts[kind].ranges)
        return -ENOSYS;
    net_range_t *made = calloc(1, sizeof *made);
    if (!made)
        return -ENOMEM;
    *made = (net_range_t){.kind = kind, .device = device, .bytes = bytes, .pid = getpid(), .references = 1};
    int error = ops->reserve(made);
    if (error) {
        free(made);
        return error;
    }
    *range = made;
    return 0;
}

void net_range_release(net_range_t *range)
{
    if (!range || atomic_fetch_sub(&range->references, 1) > 1)
        return;
    if (!has_driver(range->kind) || range->pid == getpid())
        ops_of(range->kind)->unreserve(range);
    free(range);
}

static net_range_t *range_hold(net_range_t *range)
{
    if (range)
        atomic_fetch_add(&range->references, 1);
    return range;
}

static void forget(net_memory_t *memory)
{
    net_range_release(memory->range);
    free(memory);
}

/* A forked child drops memory of its parent's driver without freeing it. */
static void free_memory(net_memory_t *memory)
{
    const net_memory_ops_t *ops = ops_of(memory->kind);
    const bool ours = memory->pid == getpid();
    if (has_driver(memory->kind) && ours) {
        if (!memory->at_once || ops->destroy(memory) == -EAGAIN) {
            park(memory);
            return;
        }
    }
    if (!has_driver(memory->kind))
        ops->destroy(memory);
    forget(memory);
}

void net_memory_reap(void)
{
    net_lock_take(&books_lock);
    net_memory_t *list = parked;
    parked = NULL;
    net_lock_give(&books_lock);
    while (list) {
        net_memory_t *memory = list;
        list = memory->next;
        memory->waits = memory->pid == getpid() && ops_of(memory->kind)->destroy(memory) == -EAGAIN;
        if (memory->waits)
            park(memory);
        else
            forget(memory);
    }
}

uint32_t net_memory_parked(void)
{
    uint32_t count = 0;
    net_lock_take(&books_lock);
    for (const net_memory_t *at = parked; at; at = at->next)
        count += !at->waits;
    net_lock_give(&books_lock);
    return count;
}

bool net_memory_any_parked(void)
{
    net_lock_take(&books_lock);
    const bool any = parked != NULL;
    net_lock_give(&books_lock);
    return any;
}

static void enter_books(net_memory_t *memory)
{
    net_lock_take(&books_lock);
    memory->next = books;
    books = memory;
    net_lock_give(&books_lock);
}

static void drop(net_memory_t *memory, bool owner)
{
    net_lock_take(&books_lock);
    if (owner)
        memory->destroyed = true;
    bool last = --memory->references == 0;
    for (net_memory_t **at = &books; last && *at; at = &(*at)->next) {
        if (*at == memory) {
            *at = memory->next;
            break;
        }
    }
    net_lock_give(&books_lock);
    if (last)
        free_memory(memory);
}

/* Takes a reference. NULL: this process has no such memory. */
static net_memory_t *hold(const net_offer_t *offer)
{
    net_lock_take(&books_lock);
    net_memory_t *memory = books;
    while (memory && (memory->destroyed || memory->kind != (net_memory_kind_t)offer->kind ||
                      memcmp(&memory->token, &offer->token, sizeof offer->token) != 0))
        memory = memory->next;
    if (memory)
        memory->references++;
    net_lock_give(&books_lock);
    return memory;
}

static bool same_process(const net_process_t *a, const net_process_t *b)
{
    return a->pid == b->pid && a->start_ticks == b->start_ticks && a->pid_namespace == b->pid_namespace &&
           a->time_namespace == b->time_namespace;
}

static bool fits(const net_range_t *range, size_t offset, size_t bytes)
{
    return offset <= range->bytes && bytes <= range->bytes - offset;
}

/* Copies the offer before the checks: `bytes` may be shared memory, which a peer changes. */
static int read_offer(net_memory_kind_t kind, const uint8_t bytes[NET_OFFER_BYTES], net_offer_t *offer)
{
    memcpy(offer, bytes, sizeof *offer);
    if (offer->magic != NET_OFFER_MAGIC || offer->kind != (uint32_t)kind || offer->owner.pid <= 0 ||
        offer->bytes == 0 || offer->bytes > PTRDIFF_MAX)
        return -EPROTO;
    return 0;
}

static int create(net_memory_kind_t kind, int device, net_range_t *range, size_t offset, size_t bytes,
                  net_memory_t **memory, uint8_t offer[NET_OFFER_BYTES])
{
    const net_memory_ops_t *ops = ops_of(kind);
    if (!ops)
        return -ENOSYS;
    if (bytes == 0 || bytes > PTRDIFF_MAX / 2 || (range && !fits(range, offset, bytes)))
        return -EINVAL;
    net_memory_t *made = calloc(1, sizeof *made);
    if (!made)
        return -ENOMEM;
    *made = (net_memory_t){.kind = kind,
                           .device = device,
                           .life = has_driver(kind) ? net_device_life(device) : 0,
                           .bytes = bytes,
                           .range = range_hold(range),
                           .at = range ? range->pointer + offset : NULL,
                           .node = NET_ANY_NODE,
                           .owner = net_process_self(),
                           .pid = getpid(),
                           .descriptor = -1,
                           .box = {.socket = -1},
                           .references = 1};
    net_offer_t written = {.magic = NET_OFFER_MAGIC, .kind = kind, .owner = made->owner};
    int error = getrandom(&made->token, sizeof made->token, 0) == sizeof made->token ? 0 : -EIO;
    if (!error)
        error = ops->create(made, &written);
    if (error) {
        if (made->pointer)
            park(made);
        else
            forget(made);
        return error;
    }
    written.token = made->token;
    written.bytes = made->bytes;
    enter_books(made);
    memcpy(offer, &written, sizeof written);
    *memory = made;
    return 0;
}

int net_memory_create(net_memory_kind_t kind, int device, size_t bytes, net_memory_t **memory,
                      uint8_t offer[NET_OFFER_BYTES])
{
    return create(kind, device, NULL, 0, bytes, memory, offer);
}

int net_memory_create_in(net_range_t *range, size_t offset, size_t bytes, net_memory_t **memory,
                         uint8_t offer[NET_OFFER_BYTES])
{
    return create(range->kind, range->device, range, offset, bytes, memory, offer);
}

void *net_memory_pointer(const net_memory_t *memory)
{
    return memory->pointer;
}

int net_memory_send(const net_memory_t *memory, const uint8_t peer_offer[NET_OFFER_BYTES])
{
    net_offer_t offer;
    int error = read_offer(memory->kind, peer_offer, &offer);
    if (error || !net_memory_facts[memory->kind].sends || same_process(&offer.owner, &memory->owner))
        return error;
    return ops_of(memory->kind)->send(memory, &offer);
}

static int open_sibling(const net_memory_ops_t *ops, const net_offer_t *offer, net_mapping_t *mapping)
{
    net_memory_t *memory = hold(offer);
    if (!memory)
        return -ESRCH;
    int error = memory->bytes == offer->bytes ? 0 : -EPROTO;
    if (!error && ops->share)
        error = ops->share(memory, mapping->device);
    if (error) {
        drop(memory, false);
        return error;
    }
    mapping->sibling = memory;
    mapping->pointer = memory->pointer;
    return 0;
}

typedef struct spot {
    net_range_t **range;
    size_t range_bytes, offset;
} spot_t;

static int place_in(const spot_t *spot, net_mapping_t *mapping)
{
    int error = *spot->range ? 0 : net_range_reserve(mapping->kind, mapping->device, spot->range_bytes, spot->range);
    if (error)
        return error;
    if (!fits(*spot->range, spot->offset, mapping->bytes))
        return -EPROTO;
    mapping->range = range_hold(*spot->range);
    mapping->at = (*spot->range)->pointer + spot->offset;
    return 0;
}

static int open_foreign(const net_memory_ops_t *ops, net_memory_t *own, const net_offer_t *offer, const spot_t *spot,
                        net_mapping_t *mapping)
{
    if (!net_process_alive(&offer->owner))
        return -ESRCH;
    int error = spot ? place_in(spot, mapping) : 0;
    if (!error)
        error = ops->open(own, offer, mapping);
    if (error)
        net_range_release(mapping->range);
    return error;
}

static int open_memory(net_memory_t *own, int device, const uint8_t peer_offer[NET_OFFER_BYTES], const spot_t *spot,
                       net_mapping_t **mapping)
{
    net_offer_t offer;
    const net_memory_ops_t *ops = ops_of(own->kind);
    int error = read_offer(own->kind, peer_offer, &offer);
    if (error)
        return error;
    net_mapping_t *made = calloc(1, sizeof *made);
    if (!made)
        return -ENOMEM;
    *made = (net_mapping_t){.device = device,
                            .life = has_driver(own->kind) ? net_device_life(device) : 0,
                            .bytes = offer.bytes,
                            .owner = offer.owner,
                            .kind = own->kind,
                            .pid = getpid()};
    error = same_process(&offer.owner, &own->owner) ? open_sibling(ops, &offer, made)
                                                    : open_foreign(ops, own, &offer, spot, made);
    if (error) {
        free(made);
        return error;
    }
    *mapping = made;
    return 0;
}

int net_memory_open(net_memory_t *own, int device, const uint8_t peer_offer[NET_OFFER_BYTES], net_mapping_t **mapping)
{
    return open_memory(own, device, peer_offer, NULL, mapping);
}

int net_memory_open_in(net_memory_t *own, int device, const uint8_t peer_offer[NET_OFFER_BYTES], net_range_t **range,
                       size_t range_bytes, size_t offset, net_mapping_t **mapping)
{
    const spot_t spot = {range, range_bytes, offset};
    return open_memory(own, device, peer_offer, &spot, mapping);
}

void *net_mapping_pointer(const net_mapping_t *mapping)
{
    return mapping->pointer;
}

size_t net_mapping_bytes(const net_mapping_t *mapping)
{
    return mapping->bytes;
}

bool net_mapping_alive(const net_mapping_t *mapping)
{
    bool wanted = !mapping->guest.page || net_guest_welcome(&mapping->guest);
    return wanted && net_process_alive(&mapping->owner);
}

void net_mapping_close(net_mapping_t *mapping)
{
    if (!mapping)
        return;
    if (mapping->sibling)
        drop(mapping->sibling, false);
    else if (!has_driver(mapping->kind) || mapping->pid == getpid())
        ops_of(mapping->kind)->close(mapping);
    net_range_release(mapping->range);
    free(mapping);
}

void net_memory_drop(net_memory_t *memory)
{
    if (!memory)
        return;
    memory->at_once = true;
    drop(memory, true);
}

void net_memory_destroy(net_memory_t *memory)
{
    if (memory)
        drop(memory, true);
}
