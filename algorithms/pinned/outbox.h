/* SPDX-License-Identifier: Apache-2.0 */
/* outbox.h - short buffers through pinned memory: a rank writes into its own outbox, and its peers read there. In place
 * is safe: at each position a lane posts before it stores.
 *
 * Each unit of 16 bytes holds 12 bytes of data and the call's number as a mark: a flag would cost two round trips over
 * PCIe. Nothing is re-armed, and every type travels unchanged. A lane packs three vectors into four units. A warp's
 * units form a tile, so its stores and loads are whole lines.
 *
 * Call e uses half e & 1 of the scratch (algorithm.h), and clears one of the half's units, each in turn: marks repeat
 * after 2^31 calls, and a unit unwritten since then would seem new. */
#ifndef SHUNT_OUTBOX_H
#define SHUNT_OUTBOX_H

#include "algorithms/device/buffers.h"
#include "algorithms/device/epoch.h"
#include "algorithms/device/launch.h"
#include "algorithms/device/peers.h"
#include "algorithms/device/reduce.h"

enum { OUTBOX_VECTORS = 3, OUTBOX_UNITS = 4 };

typedef struct triple {
    vec16_t v[OUTBOX_VECTORS];
} triple_t;

LANE_HOST_FN uint32_t outbox_tiles(uint32_t vectors, uint32_t lanes)
{
    return (vectors + OUTBOX_VECTORS * lanes - 1) / (OUTBOX_VECTORS * lanes);
}

LANE_HOST_FN uint64_t outbox_tile_bytes(uint32_t lanes)
{
    return (uint64_t)OUTBOX_UNITS * VEC * lanes;
}

/* Vectors that fit into `bytes`, whatever the size of warps. */
static inline uint64_t outbox_room(uint64_t bytes)
{
    return bytes / outbox_tile_bytes(32) * OUTBOX_VECTORS * 32;
}

/* Most bytes of a call in one step. Each input block has a section. */
static inline uint64_t outbox_most_bytes(alg_collective_t collective, const alg_map_t *map, uint32_t nranks)
{
    const uint32_t sections = route_input_has_blocks(collective) ? nranks : 1;
    return nranks < 2 ? 0 : outbox_room(map->half_bytes / sections) * VEC * alg_collective_blocks(collective, nranks);
}

static inline void outbox_shape(alg_collective_t collective, uint64_t bytes, uint32_t most_threads, uint32_t nranks,
                                uint32_t *blocks, uint32_t *threads)
{
    const uint64_t block = bytes / alg_collective_blocks(collective, nranks);
    grid_shape((uint64_t)outbox_tiles(buffer_vectors(block), 32) * 32, most_threads, blocks, threads);
}

/* A mark is never 0, the initial value of memory. */
LANE_FN uint32_t outbox_mark(uint64_t epoch)
{
    return (uint32_t)(epoch / EPOCH_UNIT) | 1u << 31;
}

/* All ranks' outboxes in the call's half, for one lane. */
template <int N> struct outbox {
    uint8_t *to;
    const uint8_t *from[N - 1]; /* [j]: of other_rank(j) */
    uint32_t mark, nranks;
    uint32_t lane, lanes;

    LANE_FN uint32_t peers() const
    {
        return (N <= EXACT_RANKS ? N : nranks) - 1;
    }

    LANE_FN static outbox make(const lane_t &l, const alg_team_t &team)
    {
        outbox o;
        o.nranks = team.nranks;
        o.mark = 0;
        o.lanes = lane_warp_size();
        o.lane = l.thread % o.lanes;
        const uint64_t at = team.half_offset + (uint64_t)o.lane * VEC;
        o.to = team.scratch[team.rank] + at;
        LANE_UNROLL
        for (uint32_t j = 0; j < N - 1; j++) {
            if (j < o.peers())
                o.from[j] = team.scratch[other_rank(team, j)] + at;
        }
        return o;
    }

    LANE_FN uint64_t held() const
    {
        uint64_t all = (uintptr_t)to;
        LANE_UNROLL
        for (uint32_t j = 0; j < N - 1; j++) {
            if (j < peers())
                all |= (uintptr_t)from[j];
        }
        return all;
    }

    LANE_FN void begin(const alg_team_t &team, uint64_t epoch)
    {
        const uint64_t half = epoch_half(team, epoch);
        mark = outbox_mark(epoch);
        to += half;
        LANE_UNROLL
        for (uint32_t j = 0; j < N - 1; j++) {
            if (j < peers())
                from[j] += half;
        }
    }

    LANE_FN uint32_t vector(uint32_t tile, uint32_t i) const
    {
        return (tile * OUTBOX_VECTORS + i) * lanes + lane;
    }

    LANE_FN uint64_t bytes(uint32_t tiles) const
    {
        return tiles * outbox_tile_bytes(lanes);
    }

    LANE_FN void put(uint32_t tile, const triple_t &x) const
    {
        uint8_t *at = to + tile * outbox_tile_bytes(lanes);
        LANE_UNROLL
        for (int i = 0; i < OUTBOX_VECTORS; i++)
            lane_post(at + i * lanes * VEC, vec16_t{{x.v[i].w[0], x.v[i].w[1], x.v[i].w[2], mark}});
        lane_post(at + OUTBOX_VECTORS * lanes * VEC, vec16_t{{x.v[0].w[3], x.v[1].w[3], x.v[2].w[3], mark}});
    }

    LANE_FN uint32_t all() const
    {
        return (1u << peers()) - 1;
    }

    /* Waits for tile `tile` + r * `step` of each rank r = other_rank(j) with bit j in `missing`; loads overlap. */
    LANE_FN bool take(lane_t &l, const alg_team_t &team, uint32_t missing, uint32_t tile, uint32_t step,
                      triple_t (&x)[N - 1]) const
    {
        lane_wait_begins(l);
        for (;;) {
            vec16_t rest[N - 1];
            LANE_UNROLL
            for (uint32_t j = 0; j < N - 1; j++) {
                if (missing >> j & 1)
                    fetch(from[j] + (tile + other_rank(team, j) * step) * outbox_tile_bytes(lanes), x[j], rest[j]);
            }
            LANE_UNROLL
            for (uint32_t j = 0; j < N - 1; j++) {
                if ((missing >> j & 1) && join(x[j], rest[j]))
                    missing &= ~(1u << j);
            }
            if (missing == 0)
                return true;
            if (lane_stop(l, team))
                return false;
        }
    }

    LANE_FN void fetch(const uint8_t *at, triple_t &x, vec16_t &rest) const
    {
        LANE_UNROLL
        for (int i = 0; i < OUTBOX_VECTORS; i++)
            x.v[i] = lane_fetch(at + i * lanes * VEC);
        rest = lane_fetch(at + OUTBOX_VECTORS * lanes * VEC);
    }

    /* Unpacks four units to three vectors. False: a unit has not arrived. */
    LANE_FN bool join(triple_t &x, const vec16_t &rest) const
    {
        uint32_t wrong = rest.w[3] ^ mark;
        LANE_UNROLL
        for (int i = 0; i < OUTBOX_VECTORS; i++) {
            wrong |= x.v[i].w[3] ^ mark;
            x.v[i].w[3] = rest.w[i];
        }
        return wrong == 0;
    }
};

/* A rank's notice (device/notice.h) is the first unit of its half. Peers that get no data from the rank wait for it. */
LANE_FN void outbox_notice(const lane_t &l, const alg_team_t &team, uint64_t epoch)
{
    if (l.block == 0 && l.thread == 0)
        lane_post(team.scratch[team.rank] + team.half_offset + epoch_half(team, epoch),
                  vec16_t{{0, 0, 0, outbox_mark(epoch)}});
}

/* Waits until `ranks` (bits) have begun this call. One lane per rank waits, in the warp with the least data. */
LANE_FN bool outbox_hear(lane_t &l, const alg_team_t &team, uint64_t epoch, uint32_t ranks)
{
    const uint32_t lanes = lane_warp_size(), first = (l.threads / lanes - 1) * lanes;
    if (l.block != 0 || l.thread < first)
        return true;
    for (uint32_t r = l.thread - first; r < team.nranks; r += lanes) {
        if (!(ranks >> r & 1))
            continue;
        const uint8_t *unit = team.scratch[r] + team.half_offset + epoch_half(team, epoch);
        lane_wait_begins(l);
        while (lane_fetch(unit).w[3] != outbox_mark(epoch)) {
            if (lane_stop(l, team))
                return false;
        }
    }
    return true;
}

/* Clears the unit whose turn it is, unless it is in the first `used` bytes. */
LANE_FN void outbox_clear_one(const lane_t &l, const alg_team_t &team, uint64_t epoch, uint64_t used)
{
    const uint64_t at = (epoch / EPOCH_UNIT / 2) % (team.half_bytes / VEC) * VEC;
    if (l.block == 0 && l.thread == 0 && at >= used)
        lane_post(team.scratch[team.rank] + team.half_offset + epoch_half(team, epoch) + at, vec16_t{{0, 0, 0, 0}});
}

#endif
