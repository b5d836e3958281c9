/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain.h - the loader and the keeper for buffers that are not whole
 * (input.h), which bulk copies cannot reach: warps that load and store words.
 *
 * What they wait for is the input's memory. So a lane has a batch of vectors on their
 * way before it uses the first, and BULK_TURNS groups of warps load chunks in turn.
 * Outputs are written in whole aligned vectors, shifted where the stage, or the input,
 * has them elsewhere, and single bytes at both ends of a chunk.
 */
#ifndef SHUNT_BULK_PLAIN_H
#define SHUNT_BULK_PLAIN_H

#include "algorithms/bulk/roles.h"

/* Lanes of a group. */
LANE_FN uint32_t bulk_threads()
{
    return BULK_WARPS * lane_warp_size();
}

/* Bytes of a chunk up to the first whole aligned vector. */
LANE_FN uint32_t bulk_head(const uint8_t *to, uint32_t bytes)
{
    const uint32_t head = (uint32_t)(-(uintptr_t)to % VEC);
    return head < bytes ? head : bytes;
}

/* A lane's share of the vectors from `from` on: use(i, x). The words around each are readable (buffers.h). */
template <int BATCH, bool ALIGNED, class F>
LANE_FN void bulk_each_of(const uint8_t *from, uint32_t vectors, uint32_t thread, F use)
{
    const uint32_t threads = bulk_threads();
    for (uint32_t i = thread; i < vectors; i += BATCH * threads) {
        vec16_t x[BATCH];
        LANE_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            const uint8_t *p = from + (uint64_t)(i + b * threads) * VEC;
            if (i + b * threads < vectors)
                x[b] = ALIGNED ? lane_load(p) : buffer_load_words<uint8_t>(p);
        }
        LANE_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            if (i + b * threads < vectors)
                use(i + b * threads, x[b]);
        }
    }
}

template <int BATCH, class F> LANE_FN void bulk_each(const uint8_t *from, uint32_t vectors, uint32_t thread, F use)
{
    if ((uintptr_t)from % VEC == 0)
        bulk_each_of<BATCH, true>(from, vectors, thread, use);
    else
        bulk_each_of<BATCH, false>(from, vectors, thread, use);
}

/* What is sent of a vector of the input, where nothing is computed. */
struct bulk_as_it_is {
    LANE_FN vec16_t operator()(const vec16_t &x) const
    {
        return x;
    }
};

/* Input to stages, each vector as `make_vector` makes it; and the own block to the output. */
template <bool EACH, class MAKE> struct bulk_plain_loader {
    enum { WARPS = BULK_TURNS * BULK_WARPS, BATCH = BULK_SIZE<EACH>.batch };
    const bulk_job_t &j;
    MAKE make_vector;
    walk w;
    bulk_at_t at;
    uint32_t piece, thread; /* of its group */

    LANE_FN static bulk_plain_loader make(const bulk_job_t &j, const MAKE &m, const walk &w, const lane_t &lane)
    {
        bulk_plain_loader l = {j, m, w, {}, 0, lane.thread % bulk_threads()};
        for (uint32_t turn = 0; turn < lane.thread / bulk_threads() % BULK_TURNS; turn++)
            l.next();
        return l;
    }

    LANE_FN void next()
    {
        if (w.done())
            return;
        bulk_next(*j.out, at);
        if (++piece == j.pieces) {
            piece = 0;
            w.next();
        }
    }

    LANE_FN bulk_step_t step()
    {
        if (w.done())
            return BULK_ENDED;
        if (lane_warp_any(!bulk_free(*j.out, at)))
            return BULK_IDLE;
        load(j.input + (EACH ? ring_next(*j.team, piece + 1) * j.in_step : 0));
        bulk_fill(*j.out, at, thread);
        if (j.keep && piece + 1 == j.pieces)
            keep(j.input + (EACH ? j.team->rank * j.in_step : 0));
        for (uint32_t turn = 0; turn < BULK_TURNS; turn++)
            next();
        return BULK_MOVED;
    }

    /* How many of the vectors from byte `first` of the chunk on bulk_each may load. */
    LANE_FN uint32_t readable(const uint8_t *block, uint32_t first) const
    {
        const uint32_t bytes = w.bytes() - first;
        const uint64_t rest = w.plan.bytes - w.at - first;
        const uint32_t beyond = (uintptr_t)(block + w.at + first) % VEC == 0 ? 0 : (uint32_t)BUFFER_WORD;
        return bytes + beyond <= rest ? bytes / VEC : bytes > beyond ? (bytes - beyond) / VEC : 0;
    }

    LANE_FN void load(const uint8_t *block) const
    {
        const uint32_t vectors = buffer_vectors(w.bytes()), most = readable(block, 0);
        const buffer_t from = buffer_make(block, w.plan.bytes);
        const uint32_t first = (uint32_t)(w.at / VEC);
        bulk_each<BATCH>(block + w.at, most, thread,
                         [this](uint32_t i, const vec16_t &x) { bulk_stage_store(*j.out, at, i, make_vector(x)); });
        for (uint32_t i = most + thread; i < vectors; i += bulk_threads()) /* the block's last ones */
            bulk_stage_store(*j.out, at, i, make_vector(buffer_load<uint8_t>(from, first + i)));
    }

    LANE_FN void keep(const uint8_t *block) const
    {
        const uint8_t *const from = block + w.at;
        uint8_t *const to = j.output + j.team->rank * j.out_step + w.at;
        const uint32_t bytes = w.bytes(), head = bulk_head(to, bytes), vectors = readable(block, head);
        bulk_each<BATCH>(from + head, vectors, thread,
                         [to, head](uint32_t i, const vec16_t &x) { lane_store(to + head + i * VEC, x); });
        for (uint32_t b = thread; b < head; b += bulk_threads())
            lane_store_part(to + b, from[b]);
        for (uint32_t b = head + vectors * VEC + thread; b < bytes; b += bulk_threads())
            lane_store_part(to + b, from[b]);
    }

    LANE_FN void end()
    {
    }
};

/* Stages to the output. */
template <bool ADDED> struct bulk_plain_keeper {
    enum { WARPS = BULK_WARPS };
    const bulk_job_t &j;
    walk w;
    bulk_at_t at;
    uint32_t piece, thread;

    LANE_FN bulk_step_t step()
    {
        if (w.done())
            return BULK_ENDED;
        if (lane_warp_any(!bulk_ready<ADDED>(j, at)))
            return BULK_IDLE;
        const uint32_t peer = ring_next(*j.team, j.team->nranks - 1 - piece);
        if (thread == 0)
            bulk_give_credit(j, w, peer);
        uint8_t *const to = j.output + peer * j.out_step + w.at;
        const uint32_t head = bulk_head(to, w.bytes());
        if (head == 0)
            store<true>(to, 0);
        else
            store<false>(to, head);
        lane_warp_sync();
        if (thread % lane_warp_size() == 0)
            bulk_release(*j.in, at);
        bulk_next(*j.in, at);
        if (++piece == j.team->nranks - 1) {
            piece = 0;
            w.next();
        }
        return BULK_MOVED;
    }

    template <bool ALIGNED> LANE_FN void store(uint8_t *to, uint32_t head) const
    {
        const uint32_t bytes = w.bytes(), tail = head + (bytes - head) / VEC * VEC, threads = bulk_threads();
        for (uint32_t b = head + thread * VEC; b < tail; b += threads * VEC)
            lane_store(to + b, bulk_vector<ALIGNED>(*j.in, at, b));
        for (uint32_t b = thread; b < head; b += threads)
            lane_store_part(to + b, bulk_byte(*j.in, at, b));
        for (uint32_t b = tail + thread; b < bytes; b += threads)
            lane_store_part(to + b, bulk_byte(*j.in, at, b));
    }

    LANE_FN void end()
    {
    }
};

#endif
