/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch.c - build, prove and release the memory of a team.
 *
 * A scratch owns its memory, its mappings of the peers', and its control words. It
 * belongs to one communicator or to the pool. The steps and their order are in
 * scratch.h; the caller makes ranks wait for each other between them.
 *
 * Drivers report access that containers and virtual machines then refuse, so
 * access is proven: each rank stores a word into every peer's mailbox. Each pair
 * of ranks has a word of its own, so a mapping of the wrong rank's memory is found
 * too.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "algorithms/scratch_device.h"

static atomic_uint_fast64_t births;

/* ---- The host device ------------------------------------------------------------ */

static int host_control_create(int ordinal, alg_control_t **host, alg_control_t **device)
{
    (void)ordinal;
    alg_control_t *control = aligned_alloc(64, (sizeof *control + 63) / 64 * 64);
    if (!control)
        return -ENOMEM;
    memset(control, 0, sizeof *control);
    *host = control;
    *device = control;
    return 0;
}

static void host_control_destroy(int ordinal, alg_control_t *host)
{
    (void)ordinal;
    free(host);
}

static int host_own_create(int ordinal, uint8_t **own)
{
    (void)ordinal;
    *own = aligned_alloc(ALG_CONTROL_BYTES, ALG_OWN_BYTES);
    return *own ? 0 : -ENOMEM;
}

static void host_own_destroy(int ordinal, uint8_t *own)
{
    (void)ordinal;
    free(own);
}

static int host_arm(const alg_scratch_t *scratch)
{
    uint8_t *at = net_memory_pointer(scratch->memory);
    const alg_map_t *map = &scratch->map;
    if (map->memory == ALG_MEMORY_SHM) {
        memset(scratch->own, 0, ALG_OWN_BYTES);
        memset(at, 0, map->total_bytes);
        memset(at + map->rings_offset, 0xff, map->rings_bytes);
        return 0;
    }
    memset(at, 0, map->half_offset);
    memset(at + map->half_offset, 0xff, map->flags_offset - map->half_offset);
    memset(at + map->flags_offset, 0, map->total_bytes - map->flags_offset);
    return 0;
}

static int host_store(const alg_scratch_t *scratch, const alg_probe_t *probe)
{
    for (uint32_t peer = 0; peer < scratch->nranks; peer++)
        if (probe->target[peer])
            __atomic_store_n(probe->target[peer], probe->word[peer], __ATOMIC_RELEASE);
    return 0;
}

static int host_collect(const alg_scratch_t *scratch, uint64_t words[ALG_MAX_RANKS])
{
    uint64_t *mailbox = (uint64_t *)((uint8_t *)net_memory_pointer(scratch->memory) + ALG_MAILBOX_OFFSET);
    for (uint32_t peer = 0; peer < ALG_MAX_RANKS; peer++)
        words[peer] = __atomic_exchange_n(&mailbox[peer], 0, __ATOMIC_ACQ_REL);
    return 0;
}

static const alg_scratch_ops_t host_ops = {.control_create = host_control_create,
                                           .control_destroy = host_control_destroy,
                                           .own_create = host_own_create,
                                           .own_destroy = host_own_destroy,
                                           .arm = host_arm,
                                           .store = host_store,
                                           .collect = host_collect};

static bool is_host(net_memory_kind_t kind)
{
    return kind == NET_MEMORY_HOST || kind == NET_MEMORY_HOST_SENT;
}

/* NULL: this build has no such device, or not this kind of memory for it. */
static const alg_scratch_ops_t *ops_of(alg_device_t device, net_memory_kind_t kind, alg_memory_t memory)
{
    if (device == ALG_DEVICE_HOST)
        return is_host(kind) ? &host_ops : NULL;
#if SHUNT_HAS_CUDA
    const bool pinned = kind == NET_MEMORY_PINNED || kind == NET_MEMORY_PINNED_SENT;
    if (device == ALG_DEVICE_CUDA && !is_host(kind) && pinned == (memory == ALG_MEMORY_SHM))
        return &alg_scratch_cuda;
#else
    (void)memory;
#endif
    return NULL;
}

/* ---- Steps ------------------------------------------------------------------------ */

static bool map_fits(const alg_map_t *map)
{
    size_t halves = map->half_offset + 2 * map->half_bytes;
    return map->half_offset >= ALG_CONTROL_BYTES && map->half_bytes < map->total_bytes && halves <= map->total_bytes &&
           map->places_offset == halves && map->rings_offset == halves + map->places_bytes &&
           map->flags_offset == map->rings_offset + map->rings_bytes &&
           map->counts_offset >= map->flags_offset + map->flags_bytes &&
           map->staging_offset >= map->counts_offset + (map->rings_bytes > 0 ? ALG_COUNTS_BYTES : 0) &&
           map->staging_offset + map->staging_bytes <= map->total_bytes;
}

static void fill_team(alg_scratch_t *scratch, alg_control_t *device_control)
{
    const alg_map_t *map = &scratch->map;
    scratch->team = (alg_team_t){.rank = scratch->rank,
                                 .nranks = scratch->nranks,
                                 .control = device_control,
                                 .dependent_launch =
                                     scratch->ops->dependent_launch && scratch->ops->dependent_launch(scratch->ordinal),
                                 .priority = scratch->ops->priority ? scratch->ops->priority(scratch->ordinal) : 0,
                                 .half_offset = map->half_offset,
                                 .half_bytes = map->half_bytes,
                                 .places_offset = map->places_offset,
                                 .places_bytes = map->places_bytes,
                                 .rings_offset = map->rings_offset,
                                 .rings_bytes = map->rings_bytes,
                                 .flags_offset = map->flags_offset,
                                 .counts_offset = map->counts_offset,
                                 .staging_offset = map->staging_offset,
                                 .staging_bytes = map->staging_bytes};
    uint8_t *memory = net_memory_pointer(scratch->memory);
    scratch->team.scratch[scratch->rank] = memory;
    scratch->team.own = scratch->own ? scratch->own : memory;
    scratch->team.own_counts = scratch->own ? scratch->own + ALG_CONTROL_BYTES : memory + map->counts_offset;
    scratch->control->stop_here = (uintptr_t)memory + ALG_STOP_OFFSET;
}

/* Idle scratches are a cache: when memory runs out, they are freed first. (On CUDA the caller has to reap, and try
 * again.) */
static int allocate(alg_scratch_t *scratch, net_memory_kind_t kind, uint8_t offer[NET_OFFER_BYTES])
{
    int error = net_memory_create(kind, scratch->ordinal, scratch->map.total_bytes, &scratch->memory, offer);
    if (error != -ENOMEM && error != -ENOSPC)
        return error;
    alg_scratch_pool_trim();
    return net_memory_create(kind, scratch->ordinal, scratch->map.total_bytes, &scratch->memory, offer);
}

int alg_scratch_create(alg_device_t device, int ordinal, net_memory_kind_t kind, const alg_set_t *set, uint64_t id,
                       uint32_t rank, uint32_t nranks, const alg_map_t *map, alg_scratch_t **scratch,
                       uint8_t offer[NET_OFFER_BYTES])
{
    const alg_scratch_ops_t *ops = ops_of(device, kind, map->memory);
    if (!ops)
        return -ENOSYS;
    if (nranks < 1 || nranks > ALG_MAX_RANKS || rank >= nranks || id == 0 || !map_fits(map))
        return -EINVAL;
    alg_pool_sweep();
    alg_scratch_t *made = calloc(1, sizeof *made);
    if (!made)
        return -ENOMEM;
    *made = (alg_scratch_t){.ops = ops,
                            .device = device,
                            .ordinal = ordinal,
                            .pid = getpid(),
                            .set = *set,
                            .id = id,
                            .rank = rank,
                            .nranks = nranks,
                            .map = *map,
                            .life = device == ALG_DEVICE_CUDA ? net_device_life(ordinal) : 0,
                            .birth = atomic_fetch_add(&births, 1)};
    alg_control_t *device_control;
    int error = allocate(made, kind, offer);
    if (error)
        goto free;
    error = ops->control_create(ordinal, &made->control, &device_control);
    if (error)
        goto free;
    error = map->memory == ALG_MEMORY_SHM ? ops->own_create(ordinal, &made->own) : 0;
    if (error)
        goto free;
    error = ops->arm(made);
    if (error)
        goto free;
    fill_team(made, device_control);
    *scratch = made;
    return 0;
free:
    alg_scratch_free(made);
    return error;
}

int alg_scratch_send(alg_scratch_t *scratch, uint8_t offers[][NET_OFFER_BYTES])
{
    for (uint32_t peer = 0; peer < scratch->nranks; peer++) {
        int error = peer == scratch->rank ? 0 : net_memory_send(scratch->memory, offers[peer]);
        if (error)
            return error;
    }
    return 0;
}

static int open_peer(alg_scratch_t *scratch, uint32_t peer, const uint8_t offer[NET_OFFER_BYTES])
{
    net_mapping_t *mapping;
    int error = net_memory_open(scratch->memory, scratch->ordinal, offer, &mapping);
    if (error)
        return error;
    if (net_mapping_bytes(mapping) < scratch->map.total_bytes) {
        net_mapping_close(mapping);
        return -EPROTO;
    }
    scratch->peers[peer] = mapping;
    scratch->team.scratch[peer] = net_mapping_pointer(mapping);
    scratch->control->stop_at[peer] =
        (uintptr_t)scratch->team.scratch[peer] + ALG_STOP_OFFSET + sizeof(uint64_t) * scratch->rank;
    return 0;
}

int alg_scratch_open(alg_scratch_t *scratch, uint8_t offers[][NET_OFFER_BYTES])
{
    for (uint32_t peer = 0; peer < scratch->nranks; peer++) {
        if (peer == scratch->rank || scratch->peers[peer])
            continue;
        int error = open_peer(scratch, peer, offers[peer]);
        if (error)
            return error;
    }
    return 0;
}

/* The word that `writer` leaves with `reader`: different for each pair, and never 0. */
static uint64_t pair_word(uint64_t token, uint32_t writer, uint32_t reader)
{
    uint64_t word = token + (uint64_t)(writer * ALG_MAX_RANKS + reader + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return word ? word : 1;
}

int alg_scratch_prove_write(alg_scratch_t *scratch, uint64_t token)
{
    alg_probe_t probe = {0};
    for (uint32_t peer = 0; peer < scratch->nranks; peer++) {
        if (peer == scratch->rank)
            continue;
        if (!scratch->peers[peer])
            return -EINVAL;
        probe.target[peer] = (uint64_t *)(scratch->team.scratch[peer] + ALG_MAILBOX_OFFSET) + scratch->rank;
        probe.word[peer] = pair_word(token, scratch->rank, peer);
    }
    return scratch->ops->store(scratch, &probe);
}

int alg_scratch_prove_read(alg_scratch_t *scratch, uint64_t token)
{
    uint64_t words[ALG_MAX_RANKS];
    int error = scratch->ops->collect(scratch, words);
    if (error)
        return error;
    for (uint32_t peer = 0; peer < scratch->nranks; peer++)
        if (peer != scratch->rank && words[peer] != pair_word(token, peer, scratch->rank))
            return -EIO;
    scratch->proven = true;
    return 0;
}

int alg_scratch_take(uint64_t id, uint32_t rank, alg_scratch_t **scratch)
{
    alg_scratch_t *taken = alg_pool_get(id, rank);
    if (!taken)
        return -ENOENT;
    int error = taken->ops->arm(taken);
    if (error) {
        alg_scratch_free(taken);
        return error;
    }
    taken->team.timeout_ns = 0;
    taken->control->gone = 0;
    *scratch = taken;
    return 0;
}

alg_team_t *alg_scratch_team(alg_scratch_t *scratch)
{
    return &scratch->team;
}

alg_control_t *alg_scratch_control(alg_scratch_t *scratch)
{
    return scratch->control;
}

uint64_t alg_scratch_life(const alg_scratch_t *scratch)
{
    return scratch->life;
}
