/* SPDX-License-Identifier: Apache-2.0 */
/* bulk_cuda.cuh - bulk.h on CUDA, with mbarriers (bulk_ptx.cuh). Shared memory: words, barriers, stages. */
#ifndef SHUNT_BULK_CUDA_CUH
#define SHUNT_BULK_CUDA_CUH

#include "algorithms/device/bulk_ptx.cuh"

typedef struct bulk_ring {
    uint32_t stages, full, changed, free;
    uint32_t depth, bytes;
} bulk_ring_t;

typedef struct bulk_at {
    uint32_t stage, round;
} bulk_at_t;

LANE_FN void bulk_next(const bulk_ring_t &r, bulk_at_t &at)
{
    if (++at.stage == r.depth) {
        at.stage = 0;
        at.round ^= 1;
    }
}

typedef uint32_t bulk_word_t;

LANE_FN bulk_word_t bulk_word(bulk_word_t first, uint32_t index)
{
    return first + 4 * index;
}

LANE_FN uint32_t bulk_stage(const bulk_ring_t &r, const bulk_at_t &at)
{
    return r.stages + at.stage * r.bytes;
}

LANE_FN bool bulk_free(const bulk_ring_t &r, const bulk_at_t &at)
{
    return bulk_over(r.free + 8 * at.stage, at.round ^ 1);
}

LANE_FN bool bulk_filled(const bulk_ring_t &r, const bulk_at_t &at)
{
    return bulk_over(r.full + 8 * at.stage, at.round);
}

LANE_FN bool bulk_changed(const bulk_ring_t &r, const bulk_at_t &at)
{
    return bulk_over(r.changed + 8 * at.stage, at.round);
}

LANE_FN void bulk_load(const bulk_ring_t &r, const bulk_at_t &at, const void *from, uint32_t bytes, uint32_t offset = 0)
{
    bulk_copy_in(bulk_stage(r, at) + offset, from, bytes, r.full + 8 * at.stage);
}

LANE_FN void bulk_store(void *to, const bulk_ring_t &r, const bulk_at_t &at, uint32_t bytes)
{
    bulk_copy_out(to, bulk_stage(r, at), bytes);
}

LANE_FN void bulk_commit(const bulk_ring_t &)
{
    bulk_group();
}

template <int N> LANE_FN void bulk_read(const bulk_ring_t &)
{
    bulk_wait_read<N>();
}

template <int N> LANE_FN void bulk_done(const bulk_ring_t &)
{
    bulk_wait_done<N>();
}

LANE_FN void bulk_release(const bulk_ring_t &r, const bulk_at_t &at)
{
    bulk_arrive(r.free + 8 * at.stage);
}

LANE_FN void bulk_stage_store(const bulk_ring_t &r, const bulk_at_t &at, uint32_t i, const vec16_t &v)
{
    bulk_shared_store(bulk_stage(r, at) + i * VEC, v);
}

LANE_FN void bulk_change(const bulk_ring_t &r, const bulk_at_t &at, uint32_t thread)
{
    bulk_stored();
    lane_warp_sync();
    if (thread % 32 == 0)
        bulk_arrive(r.changed + 8 * at.stage);
}

LANE_FN vec16_t bulk_vector(const bulk_ring_t &r, const bulk_at_t &at, uint32_t byte)
{
    return bulk_shared_vector(bulk_stage(r, at) + byte);
}

/* Loads two aligned vectors, since loads of words would have bank conflicts. */
template <int WORD> LANE_FN vec16_t bulk_vector_from(const bulk_ring_t &r, const bulk_at_t &at, uint32_t byte)
{
    const vec16_t low = bulk_vector(r, at, byte / VEC * VEC), high = bulk_vector(r, at, byte / VEC * VEC + VEC);
    const uint32_t w[8] = {low.w[0], low.w[1], low.w[2], low.w[3], high.w[0], high.w[1], high.w[2], high.w[3]};
    vec16_t v;
    LANE_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        v.w[i] = buffer_shift(w[WORD + i], w[WORD + i + 1], byte % 4);
    return v;
}

LANE_FN uint8_t bulk_byte(const bulk_ring_t &r, const bulk_at_t &at, uint32_t byte)
{
    const uint32_t from = bulk_stage(r, at) + byte;
    return (uint8_t)(bulk_shared_word(from / 4 * 4) >> 8 * (from % 4));
}

/* A load under way when the block exits would overwrite the next block's shared memory. */
LANE_FN void bulk_await_loads(const bulk_ring_t &r, bulk_at_t at, uint32_t issued)
{
    for (uint32_t i = 0; i < r.depth && i < issued; i++) {
        if (at.stage == 0) {
            at.stage = r.depth;
            at.round ^= 1;
        }
        at.stage--;
        while (!bulk_filled(r, at))
            ;
    }
}

typedef struct bulk_block {
    bulk_word_t word;
    bulk_ring_t ring[2];
} bulk_block_t;

enum { BULK_HEAD = 768 };

LANE_HOST_FN constexpr uint32_t bulk_head_bytes(uint32_t depth, uint32_t parts)
{
    return 4 * BULK_WORDS + 24 * depth * (parts + 1);
}

LANE_HOST_FN constexpr uint32_t bulk_shared_bytes(uint32_t depth, uint32_t first, uint32_t second)
{
    return BULK_HEAD + depth * (first + second);
}

LANE_FN void bulk_make(bulk_block_t &b, uint32_t depth, uint32_t first, uint32_t second, uint32_t parts)
{
    const uint32_t at = bulk_base(), room = (bulk_room() - BULK_HEAD) / (first + second);
    if (depth > room)
        depth = room / 2 * 2; /* even, so that two groups of warps can take turns (bulk_add.cu) */
    b.word = at;
    LANE_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t barriers = at + 4 * BULK_WORDS + i * 24 * depth * parts, stages = i > 0 ? depth : depth * parts;
        b.ring[i] = bulk_ring_t{
            at + BULK_HEAD + i * depth * first, barriers, barriers + 8 * stages, barriers + 16 * stages, stages,
            i > 0 ? second : first / parts};
    }
}

/* Arrival counts of the second ring's barriers (the first ring's are 1): `loads` that fill a stage, warps `changing`
 * it, warps `releasing` it. */
LANE_FN void bulk_init(const lane_t &lane, const bulk_block_t &b, uint32_t loads, uint32_t changing, uint32_t releasing)
{
    if (lane.thread != 0)
        return;
    for (uint32_t i = 0; i < BULK_WORDS; i++)
        bulk_tell(bulk_word(b.word, i), 0);
    LANE_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t s = 0; s < b.ring[i].depth; s++) {
            bulk_barrier_make(b.ring[i].full + 8 * s, i == 0 ? 1 : loads);
            bulk_barrier_make(b.ring[i].changed + 8 * s, i == 0 ? 1 : changing);
            bulk_barrier_make(b.ring[i].free + 8 * s, i == 0 ? 1 : releasing);
        }
    }
    bulk_barriers_made();
}

template <class R> LANE_FN void bulk_role(lane_t &lane, const alg_team_t &team, uint32_t &warp, R &role)
{
    const uint32_t here = lane.thread / 32 - warp;
    warp += R::WARPS;
    if (here >= R::WARPS || lane.thread % 32 >= R::LANES)
        return;
    lane_wait_begins(lane);
    for (;;) {
        const bulk_step_t step = role.step();
        if (step == BULK_ENDED)
            break;
        if (step == BULK_MOVED)
            lane_wait_begins(lane);
        else if (R::LANES == 1 ? lane_stop(lane, team) : lane_warp_any(lane_stop(lane, team)))
            break;
    }
    role.end();
}

template <class... R> LANE_FN void bulk_roles(lane_t &lane, const alg_team_t &team, R &...role)
{
    uint32_t warp = 0;
    (bulk_role(lane, team, warp, role), ...);
}

#endif
