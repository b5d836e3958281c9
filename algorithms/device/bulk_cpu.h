/* SPDX-License-Identifier: Apache-2.0 */
/* bulk_cpu.h - bulk.h on the CPU device: plain copies, as late as the contract allows, so that a missing wait shows.
 * A load copies at the second bulk_filled; a store reads its stage in bulk_read and writes in bulk_done. */
#ifndef SHUNT_BULK_CPU_H
#define SHUNT_BULK_CPU_H

enum { BULK_CPU_DEPTH = 4, BULK_CPU_STAGE = 512, BULK_CPU_STORES = 32 };

enum { BULK_CPU_ROOM = 2 * (BULK_CPU_STAGE + 128) }; /* bulk_add.cu's IN_CHUNKS * BULK_STAGE */

typedef struct bulk_stage {
    const uint8_t *from[ALG_MAX_RANKS];
    uint32_t to[ALG_MAX_RANKS], bytes[ALG_MAX_RANKS], loads, asked;
    uint32_t filled, changed, released;
    alignas(VEC) uint8_t data[BULK_CPU_ROOM];
} bulk_stage_t;

typedef struct bulk_pending {
    uint8_t *to;
    const uint8_t *from; /* NULL: already read */
    uint32_t bytes, group;
    uint8_t data[BULK_CPU_STAGE];
} bulk_pending_t;

typedef struct bulk_ring {
    uint32_t depth, bytes;
    mutable uint32_t group, begin, end; /* the open group; stores begin .. end - 1 are not yet written */
    mutable bulk_stage_t stage[BULK_CPU_DEPTH * BULK_MOST_PARTS];
    mutable bulk_pending_t store[BULK_CPU_STORES];
} bulk_ring_t;

typedef struct bulk_at {
    uint32_t stage, round;
} bulk_at_t;

LANE_FN void bulk_next(const bulk_ring_t &r, bulk_at_t &at)
{
    if (++at.stage == r.depth) {
        at.stage = 0;
        at.round++;
    }
}

typedef uint32_t *bulk_word_t;

LANE_FN bulk_word_t bulk_word(bulk_word_t first, uint32_t index)
{
    return first + index;
}

LANE_FN bool bulk_free(const bulk_ring_t &r, const bulk_at_t &at)
{
    return r.stage[at.stage].released >= at.round;
}

/* Loads are atomic at both ends, where other blocks may be storing neighbouring chunks; readers ignore those bytes. */
LANE_FN void bulk_copy_in(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
    const uint32_t ends = bytes < 2 * VEC ? bytes : (uint32_t)VEC;
    for (uint32_t i = 0; i < ends; i++) {
        to[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
        to[bytes - 1 - i] = __atomic_load_n(from + bytes - 1 - i, __ATOMIC_RELAXED);
    }
    if (bytes > 2 * ends)
        memcpy(to + ends, from + ends, bytes - 2 * ends);
}

/* Atomic for the thread sanitizer: only credit, maybe from another process, orders two blocks' stores into a slot. */
LANE_FN void bulk_copy_out(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, from + i, sizeof word);
        __atomic_store_n((uint64_t *)(to + i), word, __ATOMIC_RELAXED);
    }
}

LANE_FN bool bulk_filled(const bulk_ring_t &r, const bulk_at_t &at)
{
    bulk_stage_t &s = r.stage[at.stage];
    if (s.filled <= at.round || (s.loads > 0 && s.asked++ == 0))
        return false;
    for (uint32_t i = 0; i < s.loads; i++)
        bulk_copy_in(s.data + s.to[i], s.from[i], s.bytes[i]);
    s.loads = 0;
    return true;
}

LANE_FN bool bulk_changed(const bulk_ring_t &r, const bulk_at_t &at)
{
    return r.stage[at.stage].changed > at.round;
}

LANE_FN vec16_t bulk_vector(const bulk_ring_t &r, const bulk_at_t &at, uint32_t byte)
{
    return lane_load(r.stage[at.stage].data + byte);
}

template <int> LANE_FN vec16_t bulk_vector_from(const bulk_ring_t &r, const bulk_at_t &at, uint32_t byte)
{
    return bulk_vector(r, at, byte);
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
    if (s.filled == s.released)
        s.filled++;
    s.from[s.loads] = (const uint8_t *)from;
    s.to[s.loads] = offset;
    s.bytes[s.loads++] = bytes;
    s.asked = 0;
}

LANE_FN void bulk_change(const bulk_ring_t &r, const bulk_at_t &at, uint32_t)
{
    r.stage[at.stage].changed++;
}

LANE_FN void bulk_release(const bulk_ring_t &r, const bulk_at_t &at)
{
    r.stage[at.stage].released++;
}

LANE_FN void bulk_read_one(bulk_pending_t &p)
{
    if (p.from)
        memcpy(p.data, p.from, p.bytes);
    p.from = NULL;
}

LANE_FN void bulk_land_one(const bulk_ring_t &r)
{
    bulk_pending_t &p = r.store[r.begin++ % BULK_CPU_STORES];
    bulk_read_one(p);
    bulk_copy_out(p.to, p.data, p.bytes);
}

LANE_FN void bulk_store(void *to, const bulk_ring_t &r, const bulk_at_t &at, uint32_t bytes)
{
    if (r.end - r.begin == BULK_CPU_STORES)
        bulk_land_one(r);
    bulk_pending_t &p = r.store[r.end++ % BULK_CPU_STORES];
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
    for (uint32_t i = r.begin; i != r.end && r.store[i % BULK_CPU_STORES].group + N < r.group; i++)
        bulk_read_one(r.store[i % BULK_CPU_STORES]);
}

template <int N> LANE_FN void bulk_done(const bulk_ring_t &r)
{
    while (r.begin != r.end && r.store[r.begin % BULK_CPU_STORES].group + N < r.group)
        bulk_land_one(r);
}

LANE_FN void bulk_await_loads(const bulk_ring_t &, const bulk_at_t &, uint32_t)
{
    /* No load outlives its block. */
}

LANE_FN void bulk_stored()
{
}

LANE_FN void bulk_seen()
{
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
    uint32_t words[BULK_WORDS];
} bulk_block_t;

LANE_FN void bulk_make(bulk_block_t &b, uint32_t depth, uint32_t first, uint32_t second, uint32_t parts)
{
    for (uint32_t i = 0; i < 2; i++) {
        bulk_ring_t &r = b.ring[i];
        r.depth = i == 0 ? depth * parts : depth;
        r.bytes = i == 0 ? first / parts : second;
        r.group = r.begin = r.end = 0;
        for (uint32_t s = 0; s < r.depth; s++)
            r.stage[s] = bulk_stage_t{};
    }
    memset(b.words, 0, sizeof b.words);
    b.word = b.words;
}

LANE_FN void bulk_init(const lane_t &, const bulk_block_t &, uint32_t, uint32_t, uint32_t)
{
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
