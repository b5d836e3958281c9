/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.c - builds and proves the memory of a team (steps: scratch.h). A scratch owns its memory, mappings and
 * control words; a communicator or the pool owns it.
 *
 * The proof is needed: drivers report access that containers and virtual machines then refuse. Each pair of ranks has a
 * word of its own, which reveals a mapping of the wrong rank's memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "algorithms/scratch_device.h"

static atomic_uint_fast64_t births;

static int cpu_control_create(int ordinal, alg_control_t **host, alg_control_t **device)
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

static void cpu_control_destroy(int ordinal, alg_control_t *host)
{
    (void)ordinal;
    free(host);
}

static int cpu_own_create(int ordinal, uint8_t **own)
{
    (void)ordinal;
    *own = aligned_alloc(ALG_CONTROL_BYTES, ALG_OWN_BYTES);
    return *own ? 0 : -ENOMEM;
}

static void cpu_own_destroy(int ordinal, uint8_t *own)
{
    (void)ordinal;
    free(own);
}

static int cpu_arm_piece(const alg_scratch_t *scratch, uint32_t piece, void **arming)
{
    uint8_t *at = scratch->team.scratch[scratch->rank];
    const alg_span_t whole = scratch->map.piece[piece];
    alg_span_t span[2];
    const uint32_t spans = alg_map_armed(&scratch->map, piece, span);
    memset(at + whole.offset, 0, whole.bytes);
    for (uint32_t i = 0; i < spans; i++)
        memset(at + span[i].offset, 0xff, span[i].bytes);
    *arming = NULL;
    return 0;
}

static int cpu_armed(const alg_scratch_t *scratch, void **arming, bool forget)
{
    (void)scratch, (void)arming, (void)forget;
    return 1;
}

static int cpu_arm(const alg_scratch_t *scratch)
{
    void *arming;
    if (scratch->own)
        memset(scratch->own, 0, ALG_OWN_BYTES);
    for (uint32_t piece = 0; piece < scratch->map.pieces; piece++)
        if (scratch->memory[piece])
            cpu_arm_piece(scratch, piece, &arming);
    return 0;
}

static int cpu_store(const alg_scratch_t *scratch, const alg_probe_t *probe)
{
    for (uint32_t peer = 0; peer < scratch->nranks; peer++)
        if (probe->target[peer])
            __atomic_store_n(probe->target[peer], probe->word[peer], __ATOMIC_RELEASE);
    return 0;
}

static int cpu_collect(const alg_scratch_t *scratch, uint64_t words[ALG_MAX_RANKS])
{
    uint64_t *mailbox = (uint64_t *)(scratch->team.scratch[scratch->rank] + ALG_MAILBOX_OFFSET);
    for (uint32_t peer = 0; peer < ALG_MAX_RANKS; peer++)
        words[peer] = __atomic_exchange_n(&mailbox[peer], 0, __ATOMIC_ACQ_REL);
    return 0;
}

static const alg_scratch_ops_t cpu_ops = {.control_create = cpu_control_create,
                                          .control_destroy = cpu_control_destroy,
                                          .own_create = cpu_own_create,
                                          .own_destroy = cpu_own_destroy,
                                          .arm = cpu_arm,
                                          .arm_piece = cpu_arm_piece,
                                          .armed = cpu_armed,
                                          .store = cpu_store,
                                          .collect = cpu_collect};

static const alg_scratch_ops_t *ops_of(alg_device_t device, net_memory_kind_t kind, alg_memory_t memory)
{
    const net_memory_facts_t *facts = &net_memory_facts[kind];
    if (device == ALG_DEVICE_CPU)
        return facts->driver ? NULL : &cpu_ops;
#if SHUNT_HAS_CUDA
    if (device == ALG_DEVICE_CUDA && facts->driver && facts->pinned == (memory == ALG_MEMORY_PINNED))
        return &alg_scratch_cuda;
#else
    (void)memory;
#endif
    return NULL;
}

static bool pieces_fit(const alg_map_t *map)
{
    size_t end = 0;
    for (uint32_t i = 0; i < map->pieces && i < ALG_PIECES; i++) {
        if (map->piece[i].offset != end || (map->piece[i].bytes == 0 && i != ALG_PIECE_RINGS))
            return false;
        end += map->piece[i].bytes;
    }
    const alg_span_t *piece = map->piece;
    return (map->pieces == 1 || map->pieces == ALG_PIECES) && end == map->total_bytes &&
           (map->pieces == 1 ||
            (map->places_offset == map->short_offset + 2 * map->short_bytes &&
             map->places_offset + map->places_bytes <= piece[ALG_PIECE_FIRST].bytes &&
             2 * map->half_bytes <= piece[ALG_PIECE_HALVES].bytes &&
             map->rings_bytes <= piece[map->rings_first ? ALG_PIECE_FIRST : ALG_PIECE_RINGS].bytes &&
             map->staging_bytes <= piece[ALG_PIECE_STAGING].bytes));
}

static bool map_fits(const alg_map_t *map)
{
    if (!pieces_fit(map))
        return false;
    if (map->pieces > 1)
        return true;
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
    uint8_t *memory = net_memory_pointer(scratch->memory[ALG_PIECE_FIRST]);
    scratch->team.scratch[scratch->rank] = memory;
    scratch->team.own = scratch->own ? scratch->own : memory;
    scratch->team.own_counts = scratch->own ? scratch->own + ALG_CONTROL_BYTES : memory + map->counts_offset;
    scratch->control->stop_here = (uintptr_t)memory + ALG_STOP_OFFSET;
}

static int make_memory(alg_scratch_t *scratch, uint32_t piece, uint8_t offer[NET_OFFER_BYTES])
{
    const alg_span_t span = scratch->map.piece[piece];
    net_memory_t **memory = &scratch->memory[piece];
    if (scratch->map.pieces == 1)
        return net_memory_create(scratch->kind, scratch->ordinal, span.bytes, memory, offer);
    return net_memory_create_in(scratch->range[scratch->rank], span.offset, span.bytes, memory, offer);
}

static int allocate(alg_scratch_t *scratch, uint32_t piece, uint8_t offer[NET_OFFER_BYTES])
{
    int error = make_memory(scratch, piece, offer);
    if (error != -ENOMEM && error != -ENOSPC)
        return error;
    alg_scratch_pool_trim();
    return make_memory(scratch, piece, offer);
}

static int reserve(alg_scratch_t *scratch)
{
    if (scratch->map.pieces == 1)
        return 0;
    return net_range_reserve(scratch->kind, scratch->ordinal, scratch->map.total_bytes, &scratch->range[scratch->rank]);
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
                            .kind = kind,
                            .grown = 1u << ALG_PIECE_FIRST,
                            .pid = getpid(),
                            .set = *set,
                            .id = id,
                            .rank = rank,
                            .nranks = nranks,
                            .map = *map,
                            .life = device == ALG_DEVICE_CUDA ? net_device_life(ordinal) : 0,
                            .birth = atomic_fetch_add(&births, 1)};
    alg_control_t *device_control;
    int error = reserve(made);
    if (!error)
        error = allocate(made, ALG_PIECE_FIRST, offer);
    if (error)
        goto free;
    error = ops->control_create(ordinal, &made->control, &device_control);
    if (error)
        goto free;
    error = map->memory == ALG_MEMORY_PINNED ? ops->own_create(ordinal, &made->own) : 0;
    if (error)
        goto free;
    fill_team(made, device_control);
    error = ops->arm(made);
    if (error)
        goto free;
    *scratch = made;
    return 0;
free:
    alg_scratch_free(made);
    return error;
}

int alg_scratch_piece_send(alg_scratch_t *scratch, uint32_t piece, uint8_t offers[][NET_OFFER_BYTES])
{
    for (uint32_t peer = 0; peer < scratch->nranks; peer++) {
        int error = peer == scratch->rank ? 0 : net_memory_send(scratch->memory[piece], offers[peer]);
        if (error)
            return error;
    }
    return 0;
}

int alg_scratch_send(alg_scratch_t *scratch, uint8_t offers[][NET_OFFER_BYTES])
{
    return alg_scratch_piece_send(scratch, ALG_PIECE_FIRST, offers);
}

static int map_peer(alg_scratch_t *scratch, uint32_t piece, uint32_t peer, const uint8_t offer[NET_OFFER_BYTES],
                    net_mapping_t **mapping)
{
    net_memory_t *own = scratch->memory[piece];
    if (scratch->map.pieces == 1)
        return net_memory_open(own, scratch->ordinal, offer, mapping);
    return net_memory_open_in(own, scratch->ordinal, offer, &scratch->range[peer], scratch->map.total_bytes,
                              scratch->map.piece[piece].offset, mapping);
}

static int open_peer(alg_scratch_t *scratch, uint32_t piece, uint32_t peer, const uint8_t offer[NET_OFFER_BYTES])
{
    net_mapping_t *mapping;
    int error = map_peer(scratch, piece, peer, offer, &mapping);
    if (error)
        return error;
    uint8_t *at = (uint8_t *)net_mapping_pointer(mapping) - scratch->map.piece[piece].offset;
    if (net_mapping_bytes(mapping) < scratch->map.piece[piece].bytes ||
        (scratch->team.scratch[peer] && at != scratch->team.scratch[peer])) {
        net_mapping_close(mapping);
        return -EPROTO;
    }
    scratch->peers[piece][peer] = mapping;
    if (piece != ALG_PIECE_FIRST)
        return 0;
    scratch->team.scratch[peer] = at;
    scratch->control->stop_at[peer] = (uintptr_t)at + ALG_STOP_OFFSET + sizeof(uint64_t) * scratch->rank;
    return 0;
}

int alg_scratch_piece_open(alg_scratch_t *scratch, uint32_t piece, uint8_t offers[][NET_OFFER_BYTES])
{
    for (uint32_t peer = 0; peer < scratch->nranks; peer++) {
        if (peer == scratch->rank || scratch->peers[piece][peer])
            continue;
        int error = open_peer(scratch, piece, peer, offers[peer]);
        if (error)
            return error;
    }
    return 0;
}

int alg_scratch_open(alg_scratch_t *scratch, uint8_t offers[][NET_OFFER_BYTES])
{
    return alg_scratch_piece_open(scratch, ALG_PIECE_FIRST, offers);
}

int alg_scratch_piece_create(alg_scratch_t *scratch, uint32_t piece, uint8_t offer[NET_OFFER_BYTES])
{
    if (piece >= scratch->map.pieces || scratch->memory[piece] || scratch->map.piece[piece].bytes == 0)
        return -EINVAL;
    int error = allocate(scratch, piece, offer);
    return error ? error : scratch->ops->arm_piece(scratch, piece, &scratch->arming[piece]);
}

int alg_scratch_piece_armed(alg_scratch_t *scratch, uint32_t piece)
{
    return scratch->arming[piece] ? scratch->ops->armed(scratch, &scratch->arming[piece], false) : 1;
}

static void drop_piece(alg_scratch_t *scratch, uint32_t piece)
{
    for (uint32_t peer = 0; peer < scratch->nranks; peer++) {
        net_mapping_close(scratch->peers[piece][peer]);
        scratch->peers[piece][peer] = NULL;
    }
    net_memory_drop(scratch->memory[piece]);
    scratch->memory[piece] = NULL;
}

static bool is_made(const alg_scratch_t *scratch, uint32_t piece)
{
    bool any = scratch->memory[piece] != NULL;
    for (uint32_t peer = 0; peer < scratch->nranks; peer++)
        any = any || scratch->peers[piece][peer] != NULL;
    return any;
}

void alg_scratch_piece_end(alg_scratch_t *scratch, uint32_t piece, bool grown)
{
    const bool arming = scratch->arming[piece] != NULL;
    if (arming)
        (void)scratch->ops->armed(scratch, &scratch->arming[piece], true);
    if (grown)
        __atomic_fetch_or(&scratch->grown, 1u << piece, __ATOMIC_RELEASE);
    else if (arming || (scratch->device == ALG_DEVICE_CUDA && is_made(scratch, piece)))
        scratch->proven = false; /* freed with the scratch: copies may write it, unmapping waits for kernels */
    else
        drop_piece(scratch, piece);
}

int alg_scratch_suspend(alg_scratch_t *scratch)
{
    if (scratch->map.pieces == 1)
        return -ENOSYS;
    scratch->suspended = true;
    for (uint32_t piece = 0; piece < ALG_PIECES; piece++)
        drop_piece(scratch, piece);
    return 0;
}

uint32_t alg_scratch_pieces(const alg_scratch_t *scratch)
{
    return __atomic_load_n(&scratch->grown, __ATOMIC_ACQUIRE);
}

void alg_scratch_resumed(alg_scratch_t *scratch)
{
    scratch->suspended = false;
}

bool alg_scratch_has(const alg_scratch_t *scratch, uint32_t piece)
{
    return scratch->map.pieces == 1 || __atomic_load_n(&scratch->grown, __ATOMIC_ACQUIRE) >> piece & 1;
}

const alg_map_t *alg_scratch_map(const alg_scratch_t *scratch)
{
    return &scratch->map;
}

net_memory_kind_t alg_scratch_kind(const alg_scratch_t *scratch)
{
    return scratch->kind;
}

bool alg_scratch_peers_alive(const alg_scratch_t *scratch)
{
    for (uint32_t peer = 0; peer < scratch->nranks; peer++)
        if (scratch->peers[ALG_PIECE_FIRST][peer] && !net_mapping_alive(scratch->peers[ALG_PIECE_FIRST][peer]))
            return false;
    return true;
}

size_t alg_scratch_bytes(const alg_scratch_t *scratch)
{
    size_t bytes = 0;
    for (uint32_t piece = 0; piece < scratch->map.pieces; piece++)
        bytes += alg_scratch_has(scratch, piece) ? scratch->map.piece[piece].bytes : 0;
    return bytes;
}

/* Never 0. */
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
        if (!scratch->peers[ALG_PIECE_FIRST][peer])
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
    taken->team.limit = 0;
    taken->control->gone = 0;
    *scratch = taken;
    return 0;
}

alg_team_t *alg_scratch_team(alg_scratch_t *scratch)
{
    return &scratch->team;
}

alg_team_t alg_scratch_team_for(alg_scratch_t *scratch, uint32_t piece)
{
    alg_team_t team = scratch->team;
    if (scratch->map.pieces > 1 && piece == ALG_PIECE_FIRST) {
        team.half_offset = scratch->map.short_offset;
        team.half_bytes = scratch->map.short_bytes;
    }
    return team;
}

alg_control_t *alg_scratch_control(alg_scratch_t *scratch)
{
    return scratch->control;
}

uint64_t alg_scratch_life(const alg_scratch_t *scratch)
{
    return scratch->life;
}
