/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk_cuda.cuh - the vocabulary of bulk.h on CUDA: cp.async.bulk, and an
 * mbarrier for each stage and direction. Memory is the block's dynamic shared
 * memory: the word of roles, then barriers and stages of each ring.
 *
 * Before sm_90 there are no bulk copies; the lane that issues one makes it itself.
 */
#ifndef SHUNT_BULK_CUDA_CUH
#define SHUNT_BULK_CUDA_CUH

enum { BULK_ALIGN = 128 };

typedef struct bulk_ring {
    uint32_t stages, full, free, notes; /* shared addresses */
    uint32_t depth, bytes;              /* of a stage */
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

typedef uint32_t bulk_word_t; /* shared address */

extern __shared__ __align__(BULK_ALIGN)
uint8_t bulk_shared[];

LANE_FN uint32_t bulk_address()
{
    return (uint32_t)__cvta_generic_to_shared(bulk_shared);
}

LANE_FN void bulk_barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

LANE_FN void bulk_arrive(uint32_t barrier)
{
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared::cta.b64 t, [%0]; }" ::"r"(barrier) : "memory");
}

/* Whether the phase of this parity is over. A lane may sleep in it for a moment. */
LANE_FN bool bulk_over(uint32_t barrier, uint32_t parity)
{
    uint32_t over;
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(over)
                 : "r"(barrier), "r"(parity)
                 : "memory");
#else
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(over)
                 : "r"(barrier), "r"(parity)
                 : "memory");
#endif
    return over;
}

LANE_FN bool bulk_free(const bulk_ring_t &r, const bulk_at_t &at)
{
    return bulk_over(r.free + 8 * at.stage, at.round ^ 1);
}

LANE_FN bool bulk_filled(const bulk_ring_t &r, const bulk_at_t &at)
{
    return bulk_over(r.full + 8 * at.stage, at.round);
}

LANE_FN uint32_t bulk_stage(const bulk_ring_t &r, const bulk_at_t &at)
{
    return r.stages + at.stage * r.bytes;
}

LANE_FN uint32_t bulk_word(uint32_t address)
{
    uint32_t w;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(w) : "r"(address) : "memory");
    return w;
}

/* ALIGNED: `byte` is a multiple of VEC; else the 5 words around. */
template <bool ALIGNED> LANE_FN vec16_t bulk_vector(const bulk_ring_t &r, const bulk_at_t &at, uint32_t byte)
{
    const uint32_t from = bulk_stage(r, at) + byte;
    vec16_t v;
    if (ALIGNED) {
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                     : "r"(from)
                     : "memory");
        return v;
    }
    uint32_t w[5];
    LANE_UNROLL
    for (uint32_t i = 0; i < 5; i++)
        w[i] = bulk_word(from / 4 * 4 + 4 * i);
    LANE_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        v.w[i] = __funnelshift_r(w[i], w[i + 1], 8 * (from % 4));
    return v;
}

LANE_FN uint8_t bulk_byte(const bulk_ring_t &r, const bulk_at_t &at, uint32_t byte)
{
    const uint32_t from = bulk_stage(r, at) + byte;
    return (uint8_t)(bulk_word(from / 4 * 4) >> 8 * (from % 4));
}

LANE_FN uint32_t bulk_note(const bulk_ring_t &r, const bulk_at_t &at)
{
    return bulk_word(r.notes + 4 * at.stage);
}

/* Bytes of a vector that is not all the caller's. */
LANE_FN void bulk_fill_bytes(uint32_t to, const uint8_t *from, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        asm volatile("st.shared.u8 [%0], %1;" ::"r"(to + i), "r"((uint32_t)from[i]) : "memory");
}

LANE_FN void bulk_fill(const bulk_ring_t &r, const bulk_at_t &at, const uint8_t *from, uint32_t bytes, bool first,
                       bool last, uint32_t note)
{
    const uint32_t full = r.full + 8 * at.stage, stage = bulk_stage(r, at), shift = (uint32_t)((uintptr_t)from % VEC);
    const uint32_t end = shift + bytes, within = end / VEC * VEC;
    const bool head = first && shift > 0, tail = last && within < end;
    const uint32_t lo = head ? (uint32_t)VEC : 0, hi = tail ? within : (end + VEC - 1) / VEC * VEC;
    const uint8_t *const base = from - shift;
    if (head)
        bulk_fill_bytes(stage + shift, from, end < VEC ? bytes : VEC - shift);
    if (tail && within >= lo)
        bulk_fill_bytes(stage + within, base + within, end - within);
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(r.notes + 4 * at.stage), "r"(note) : "memory");
    const uint32_t whole = hi > lo ? hi - lo : 0;
#if __CUDA_ARCH__ >= 900
    if (head || tail)
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(whole) : "memory");
    if (whole > 0)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         stage + lo),
                     "l"(base + lo), "r"(whole), "r"(full)
                     : "memory");
#else
    for (uint32_t i = 0; i < whole; i += VEC) {
        const vec16_t v = lane_copy_in(base + lo + i);
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(stage + lo + i), "r"(v.w[0]), "r"(v.w[1]),
                     "r"(v.w[2]), "r"(v.w[3])
                     : "memory");
    }
    bulk_arrive(full);
#endif
}

LANE_FN void bulk_store(void *to, const bulk_ring_t &r, const bulk_at_t &at, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(r.stages + at.stage * r.bytes), "r"(bytes)
                 : "memory");
#else
    for (uint32_t i = 0; i < bytes / VEC; i++)
        lane_copy_out((uint8_t *)to + i * VEC, bulk_vector<true>(r, at, i * VEC));
#endif
}

LANE_FN void bulk_commit(const bulk_ring_t &)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}

/* The lane sees its copies as done; a fence is what makes other GPUs see them so. */
template <int N> LANE_FN void bulk_done(const bulk_ring_t &)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
#endif
}

/* Behind what the lanes of this warp did with the stage, and lane_warp_sync. */
LANE_FN void bulk_release(const bulk_ring_t &r, const bulk_at_t &at)
{
    bulk_arrive(r.free + 8 * at.stage);
}

LANE_FN void bulk_seen()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

LANE_FN void bulk_tell(bulk_word_t word, uint32_t value)
{
    asm volatile("st.release.cta.shared.b32 [%0], %1;" ::"r"(word), "r"(value) : "memory");
}

LANE_FN uint32_t bulk_told(bulk_word_t word)
{
    uint32_t value;
    asm volatile("ld.acquire.cta.shared.b32 %0, [%1];" : "=r"(value) : "r"(word) : "memory");
    return value;
}

/* Loads that were issued, the last one before `at`, are complete: they depend on nobody. */
LANE_FN void bulk_settle(const bulk_ring_t &r, bulk_at_t at, uint32_t issued)
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

/* The word, then barriers and notes of each ring, then their stages. */
enum { BULK_HEAD = 768, BULK_MOST_STAGES = 16 };

LANE_HOST_FN uint32_t bulk_shared_bytes(uint32_t stages, uint32_t bytes)
{
    return BULK_HEAD + stages * bytes;
}

/* out, in: stages of the two rings. */
LANE_FN void bulk_make(bulk_block_t &b, uint32_t out, uint32_t in, uint32_t bytes)
{
    const uint32_t at = bulk_address();
    b.word = at;
    uint32_t head = at + 8, stages = at + BULK_HEAD;
    LANE_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t depth = i == 0 ? out : in;
        b.ring[i] = bulk_ring_t{stages, head, head + 8 * depth, head + 16 * depth, depth, bytes};
        head += 20 * BULK_MOST_STAGES;
        stages += depth * bytes;
    }
}

/* Before lane_sync. `warps` release a stage of the second ring. */
LANE_FN void bulk_init(const lane_t &lane, const bulk_block_t &b, uint32_t warps)
{
    if (lane.thread != 0)
        return;
    bulk_tell(b.word, 0);
    LANE_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t s = 0; s < b.ring[i].depth; s++) {
            bulk_barrier_init(b.ring[i].full + 8 * s, 1);
            bulk_barrier_init(b.ring[i].free + 8 * s, i == 1 ? warps : 1);
        }
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

template <class R> LANE_FN void bulk_role(lane_t &lane, const alg_team_t &team, uint32_t &warp, R &role)
{
    const uint32_t here = lane.thread / 32 - warp;
    warp += R::WARPS;
    if (here >= R::WARPS || (R::WARPS == 1 && lane.thread % 32 != 0))
        return;
    lane_wait_begins(lane);
    for (;;) {
        const bulk_step_t step = role.step();
        if (step == BULK_ENDED)
            break;
        if (step == BULK_MOVED)
            lane_wait_begins(lane);
        else if (R::WARPS == 1 ? lane_stop(lane, team) : lane_warp_any(lane_stop(lane, team)))
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
