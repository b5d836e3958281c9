/* SPDX-License-Identifier: Apache-2.0 */
/* scratch_pool.c - idle scratches for the next communicator of the same ranks: allocation and mapping are most of a
 * set-up. The pool, a list, newest first, owns them. Frees are slow, so they happen outside its lock.
 *
 * All ranks must choose the same scratch, so each offers its newest that fits (docs/lab/proofs.md). An offered scratch
 * stays reserved: another set-up may begin. */
#define _GNU_SOURCE
#include <string.h>

#include "algorithms/scratch_device.h"

enum { IDLE_LIMIT = 4 /* per device */ };

static net_lock_t pool_lock = NET_LOCK_INITIALIZER;
static alg_scratch_t *pool;

static bool same_map(const alg_map_t *a, const alg_map_t *b)
{
    return a->memory == b->memory && a->total_bytes == b->total_bytes && a->half_offset == b->half_offset &&
           a->half_bytes == b->half_bytes && a->places_offset == b->places_offset &&
           a->places_bytes == b->places_bytes && a->rings_offset == b->rings_offset &&
           a->rings_bytes == b->rings_bytes && a->flags_offset == b->flags_offset && a->flags_bytes == b->flags_bytes &&
           a->counts_offset == b->counts_offset && a->staging_offset == b->staging_offset &&
           a->staging_bytes == b->staging_bytes && a->pieces == b->pieces && a->short_bytes == b->short_bytes &&
           a->rings_first == b->rings_first;
}

static bool fits(const alg_scratch_t *scratch, const alg_set_t *set, uint32_t rank, const alg_map_t *map)
{
    return scratch->rank == rank && memcmp(&scratch->set, set, sizeof *set) == 0 && same_map(&scratch->map, map);
}

static void free_list(alg_scratch_t *list)
{
    while (list) {
        alg_scratch_t *next = list->next;
        alg_scratch_free(list);
        list = next;
    }
}

static void move(alg_scratch_t **at, alg_scratch_t **list)
{
    alg_scratch_t *moved = *at;
    *at = moved->next;
    moved->next = *list;
    *list = moved;
}

/* Under the lock: moves the oldest on the device of `added`, beyond IDLE_LIMIT, to `victims`. */
static void cut_oldest(const alg_scratch_t *added, alg_scratch_t **victims)
{
    uint32_t kept = 0;
    for (alg_scratch_t **at = &pool; *at;) {
        bool same = (*at)->device == added->device && (*at)->ordinal == added->ordinal;
        if (same && !(*at)->offered && ++kept > IDLE_LIMIT)
            move(at, victims);
        else
            at = &(*at)->next;
    }
}

void alg_pool_put(alg_scratch_t *scratch)
{
    alg_scratch_t *victims = NULL;
    net_lock_take(&pool_lock);
    scratch->offered = false;
    scratch->next = pool;
    pool = scratch;
    cut_oldest(scratch, &victims);
    net_lock_give(&pool_lock);
    free_list(victims);
    alg_pool_sweep();
}

alg_scratch_t *alg_pool_get(uint64_t id, uint32_t rank)
{
    alg_scratch_t *taken = NULL;
    net_lock_take(&pool_lock);
    for (alg_scratch_t **at = &pool; *at; at = &(*at)->next) {
        if ((*at)->id == id && (*at)->rank == rank) {
            move(at, &taken);
            break;
        }
    }
    net_lock_give(&pool_lock);
    return taken;
}

static bool reserve(const alg_set_t *set, uint32_t rank, const alg_map_t *map, alg_scratch_t *copy)
{
    alg_scratch_t *newest = NULL;
    net_lock_take(&pool_lock);
    for (alg_scratch_t *at = pool; at; at = at->next)
        if (fits(at, set, rank, map) && !at->offered && (!newest || at->birth > newest->birth))
            newest = at;
    if (newest) {
        newest->offered = true;
        *copy = *newest;
    }
    net_lock_give(&pool_lock);
    return newest != NULL;
}

uint64_t alg_scratch_idle(const alg_set_t *set, uint32_t rank, const alg_map_t *map)
{
    alg_scratch_t idle;
    while (reserve(set, rank, map, &idle)) {
        if (!net_device_lost(idle.ordinal, idle.life))
            return idle.id;
        alg_scratch_t *lost = alg_pool_get(idle.id, rank);
        if (lost)
            alg_scratch_free(lost);
    }
    return 0;
}

void alg_scratch_leave_idle(uint64_t id, uint32_t rank)
{
    net_lock_take(&pool_lock);
    for (alg_scratch_t *at = pool; at; at = at->next)
        if (at->id == id && at->rank == rank)
            at->offered = false;
    net_lock_give(&pool_lock);
}

void alg_pool_sweep(void)
{
    alg_scratch_t *victims = NULL;
    net_lock_take(&pool_lock);
    for (alg_scratch_t **at = &pool; *at;) {
        if (alg_scratch_peers_alive(*at))
            at = &(*at)->next;
        else
            move(at, &victims);
    }
    net_lock_give(&pool_lock);
    free_list(victims);
}

void alg_scratch_pool_trim(void)
{
    alg_scratch_t *victims = NULL;
    net_lock_take(&pool_lock);
    for (alg_scratch_t **at = &pool; *at;) {
        if ((*at)->offered)
            at = &(*at)->next;
        else
            move(at, &victims);
    }
    net_lock_give(&pool_lock);
    free_list(victims);
}
