/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk_host.h - the vocabulary of bulk.h on the host: memcpy, as late as the
 * words allow. A load copies when it is asked about for the second time; a store
 * reads its stage in bulk_read and writes in bulk_done. So what a GPU does now and
 * then, because a role did not wait, happens here every time.
 */
#ifndef SHUNT_BULK_HOST_H
#define SHUNT_BULK_HOST_H

enum { BULK_HOST_DEPTH = 4, BULK_HOST_STAGE = 512, BULK_HOST_STORES = 32 };

typedef struct bulk_stage {
    const uint8_t *from[2]; /* of its halves */
    uint32_t bytes[2], asked;
    bool taken, changed; /* from its filling and its change to its release */
    alignas(VEC) uint8_t data[2 * BULK_HOST_STAGE];
} bulk_stage_t;

typedef struct bulk_pending {
    uint8_t *to;
    const uint8_t *from; /* NULL: read */
    uint32_t bytes, group;
    uint8_t data[BULK_HOST_STAGE];
} bulk_pending_t;

typedef struct bulk_ring {
    uint32_t depth, bytes;
    mutable uint32_t group, begin, end; /* of stores: the open group; those not yet written */
    mutable bulk_stage_t stage[BULK_HOST_DEPTH];
    mutable bulk_pending_t store[BULK_HOST_STORES];
} bulk_ring_t;

typedef struct bulk_at {
    uint32_t stage;
} bulk_at_t;

LANE_FN void bulk_next(const bulk_ring_t &r, bulk_at_t &at)
{
    at.stage = (at.stage + 1) % r.depth;
}

typedef uint32_t *bulk_word_t;

LANE_FN bool bulk_free(const bulk_ring_t &r, const bulk_at_t &at)
{
    return !r.stage[at.stage].taken;
}

LANE_FN bool bulk_filled(const bulk_ring_t &r, const bulk_at_t &at)
{
    bulk_stage_t &s = r.stage[at.stage];
    if (!s.taken || (s.from[0] && s.asked++ == 0))
        return false;
    for (uint32_t half = 0; half < 2; half++) {
        if (s.from[half])
            memcpy(s.data + half * BULK_HOST_STAGE, s.from[half], s.bytes[half]);
        s.from[half] = NULL;
    }
    return true;
}

LANE_FN bool bulk_changed(const bulk_ring_t &r, const bulk_at_t &at)
{
    return r.stage[at.stage].changed;
}

template <bool> LANE_FN vec16_t bulk_vector(const bulk_ring_t &r, const bulk_at_t &at, uint32_t byte)
{
    return lane_load(r.stage[at.stage].data + byte);
}

LANE_FN uint8_t bulk_byte(const bulk_ring_t &r, const bulk_at_t &at, uint32_t byte)
{
    return r.stage[at.stage].data[byte];
}

LANE_FN void bulk_stage_store(const bulk_ring_t &r, const bulk_at_t &at, uint32_t i, const vec16_t &v)
{
    lane_store(r.stage[at.stage].data + i * VEC, v);
}

LANE_FN void bulk_load(const bulk_ring_t &r, const bulk_at_t &at, const void *from, uint32_t bytes, uint32_t offset = 0)
{
    bulk_stage_t &s = r.stage[at.stage];
    const uint32_t half = offset / BULK_HOST_STAGE;
    s.taken = true;
    s.from[half] = (const uint8_t *)from;
    s.bytes[half] = bytes;
    s.asked = 0;
}

LANE_FN void bulk_fill(const bulk_ring_t &r, const bulk_at_t &at, uint32_t)
{
    r.stage[at.stage].taken = true;
}

LANE_FN void bulk_change(const bulk_ring_t &r, const bulk_at_t &at, uint32_t)
{
    r.stage[at.stage].changed = true;
}

LANE_FN void bulk_release(const bulk_ring_t &r, const bulk_at_t &at)
{
    r.stage[at.stage].taken = r.stage[at.stage].changed = false;
}

LANE_FN void bulk_read_one(bulk_pending_t &p)
{
    if (p.from)
        memcpy(p.data, p.from, p.bytes);
    p.from = NULL;
}

LANE_FN void bulk_land_one(const bulk_ring_t &r)
{
    bulk_pending_t &p = r.store[r.begin++ % BULK_HOST_STORES];
    bulk_read_one(p);
    memcpy(p.to, p.data, p.bytes);
}

LANE_FN void bulk_store(void *to, const bulk_ring_t &r, const bulk_at_t &at, uint32_t bytes)
{
    if (r.end - r.begin == BULK_HOST_STORES)
        bulk_land_one(r);
    bulk_pending_t &p = r.store[r.end++ % BULK_HOST_STORES];
    p.to = (uint8_t *)to;
    p.from = r.stage[at.stage].data;
    p.bytes = bytes;
    p.group = r.group;
}

LANE_FN void bulk_commit(const bulk_ring_t &r)
{
    r.group++;
}

template <int N> LANE_FN void bulk_read(const bulk_ring_t &r)
{
    for (uint32_t i = r.begin; i != r.end && r.store[i % BULK_HOST_STORES].group + N < r.group; i++)
        bulk_read_one(r.store[i % BULK_HOST_STORES]);
}

template <int N> LANE_FN void bulk_done(const bulk_ring_t &r)
{
    while (r.begin != r.end && r.store[r.begin % BULK_HOST_STORES].group + N < r.group)
        bulk_land_one(r);
}

LANE_FN void bulk_settle(const bulk_ring_t &, const bulk_at_t &, uint32_t)
{
    /* Memory of the block outlives no load. */
}

LANE_FN void bulk_seen()
{
    /* There is one way to memory. */
}

LANE_FN void bulk_tell(bulk_word_t word, uint32_t value)
{
    *word = value;
}

LANE_FN uint32_t bulk_told(bulk_word_t word)
{
    return *word;
}

typedef struct bulk_block {
    bulk_word_t word;
    bulk_ring_t ring[2];
    uint32_t value;
} bulk_block_t;

LANE_FN void bulk_make(bulk_block_t &b, uint32_t depth, uint32_t first, uint32_t second)
{
    for (uint32_t i = 0; i < 2; i++) {
        bulk_ring_t &r = b.ring[i];
        r.depth = depth;
        r.bytes = i == 0 ? first : second;
        r.group = r.begin = r.end = 0;
        for (uint32_t s = 0; s < depth; s++)
            r.stage[s] = bulk_stage_t{};
    }
    b.value = 0;
    b.word = &b.value;
}

LANE_FN void bulk_init(const lane_t &, const bulk_block_t &, uint32_t, uint32_t, uint32_t, uint32_t)
{
    /* bulk_make has done it. */
}

template <class R> LANE_FN void bulk_turn(R &role, bool &moved, bool &ended)
{
    const bulk_step_t step = role.step();
    moved = moved || step == BULK_MOVED;
    ended = ended && step == BULK_ENDED;
}

template <class... R> LANE_FN void bulk_roles(lane_t &lane, const alg_team_t &team, R &...role)
{
    lane_wait_begins(lane);
    for (;;) {
        bool moved = false, ended = true;
        (bulk_turn(role, moved, ended), ...);
        if (ended)
            break;
        if (moved)
            lane_wait_begins(lane);
        else if (lane_stop(lane, team))
            break;
    }
    (role.end(), ...);
}

#endif
