/* SPDX-License-Identifier: Apache-2.0 */
/* plain.h - the shifter and the keeper for buffers that are not whole (input.h).
 *
 * Bulk copies move granules, 16 aligned bytes. The loader loads all granules of the buffer that a chunk touches. The
 * shifter moves the chunk to the beginning of its stage, and loads the bytes outside granules by words. The keeper
 * stores granules, and a chunk's ends by bytes. */
#ifndef SHUNT_BULK_PLAIN_H
#define SHUNT_BULK_PLAIN_H

#include "algorithms/bulk/roles.h"

/* One group of warps serves all fillings of a stage, and waits for each: a barrier's parity tells only consecutive ones
 * apart. */
static_assert(BULK_DEPTH % BULK_TURNS == 0 && BULK_ADD_DEPTH % BULK_TURNS == 0,
              "groups would meet each other's stages");

LANE_FN uint32_t bulk_threads()
{
    return BULK_WARPS * lane_warp_size();
}

/* Readers of 16 bytes of a stage, one for each alignment. bulk_reading calls f with the reader that fits `byte`: a
 * shift computed for each vector took longer than the chunk's way to the peer. */
struct bulk_aligned {
    LANE_FN static vec16_t vector(const bulk_ring_t &r, const bulk_at_t &at, uint32_t byte)
    {
        return bulk_vector(r, at, byte);
    }
};

template <int WORD> struct bulk_from {
    LANE_FN static vec16_t vector(const bulk_ring_t &r, const bulk_at_t &at, uint32_t byte)
    {
        return bulk_vector_from<WORD>(r, at, byte);
    }
};

template <class F> LANE_FN void bulk_reading(uint32_t byte, const F &f)
{
    const uint32_t shift = byte % VEC;
    if (shift == 0)
        f(bulk_aligned());
    else if (shift / 4 == 0)
        f(bulk_from<0>());
    else if (shift / 4 == 1)
        f(bulk_from<1>());
    else if (shift / 4 == 2)
        f(bulk_from<2>());
    else
        f(bulk_from<3>());
}

/* Bytes of a chunk before its first granule. */
LANE_FN uint32_t bulk_head(const uint8_t *to, uint32_t bytes)
{
    const uint32_t head = (uint32_t)(-(uintptr_t)to % VEC);
    return head < bytes ? head : bytes;
}

LANE_FN void bulk_put(const bulk_ring_t &r, const bulk_at_t &at, uint8_t *to, uint32_t bytes, uint32_t thread,
                      uint32_t threads)
{
    const uint32_t head = bulk_head(to, bytes), tail = head + (bytes - head) / VEC * VEC, step = threads * VEC;
    bulk_reading(head, [&](auto stage) {
        for (uint32_t row = head + thread * VEC; row < tail; row += BULK_BATCH * step) {
            vec16_t x[BULK_BATCH];
            LANE_UNROLL
            for (uint32_t b = 0; b < BULK_BATCH; b++)
                x[b] = stage.vector(r, at, row + b * step < tail ? row + b * step : row);
            LANE_UNROLL
            for (uint32_t b = 0; b < BULK_BATCH; b++) {
                if (row + b * step < tail)
                    lane_store(to + row + b * step, x[b]);
            }
        }
    });
    for (uint32_t b = thread; b < head; b += threads)
        lane_store_part(to + b, bulk_byte(r, at, b));
    for (uint32_t b = tail + thread; b < bytes; b += threads)
        lane_store_part(to + b, bulk_byte(r, at, b));
}

struct bulk_as_it_is {
    LANE_FN bool changes() const
    {
        return false;
    }

    LANE_FN vec16_t operator()(const vec16_t &x) const
    {
        return x;
    }
};

/* Warp-wide. Reads a batch before storing it: a vector's new position overlaps its neighbour's old one. */
template <class MAKE>
LANE_FN void bulk_shift(const bulk_ring_t &r, const bulk_at_t &at, const bulk_granules_t &g, uint32_t lane,
                        const MAKE &make_vector)
{
    const uint32_t lanes = lane_warp_size();
    bulk_reading(g.shift, [&](auto stage) {
        for (uint32_t row = g.first; row < g.end; row += BULK_BATCH * lanes) {
            vec16_t x[BULK_BATCH];
            LANE_UNROLL
            for (uint32_t b = 0; b < BULK_BATCH; b++) {
                const uint32_t i = row + b * lanes + lane;
                x[b] = stage.vector(r, at, g.shift + (i < g.end ? i : row) * VEC);
            }
            lane_warp_sync();
            LANE_UNROLL
            for (uint32_t b = 0; b < BULK_BATCH; b++) {
                const uint32_t i = row + b * lanes + lane;
                if (i < g.end)
                    bulk_stage_store(r, at, i, make_vector(x[b]));
            }
        }
    });
}

/* Loads the vectors, at most three, that no bulk copy brings. begin: the chunk's offset in its buffer. */
template <class MAKE>
LANE_FN void bulk_ends(const bulk_ring_t &r, const bulk_at_t &at, const bulk_granules_t &g, const buffer_t &block,
                       uint64_t begin, uint32_t bytes, uint32_t lane, const MAKE &make_vector)
{
    const uint32_t vectors = buffer_vectors(bytes), missing = g.first + vectors - g.end;
    for (uint32_t k = lane; k < missing; k += lane_warp_size()) {
        const uint32_t i = k < g.first ? k : k - g.first + g.end;
        bulk_stage_store(r, at, i, make_vector(buffer_load<uint8_t>(block, (uint32_t)(begin / VEC) + i)));
    }
}

/* Shifts chunks through make_vector, and copies this rank's block to the output. */
template <bool EACH, class MAKE> struct bulk_shifter {
    enum { WARPS = BULK_TURNS, LANES = BULK_ALL };
    const bulk_job_t &j;
    MAKE make_vector;
    walk w;
    bulk_at_t at;
    uint32_t piece, lane;

    LANE_FN static bulk_shifter make(const bulk_job_t &j, const MAKE &m, const lane_t &lane)
    {
        const uint32_t lanes = lane_warp_size();
        bulk_shifter s = {j, m, {}, {}, 0, lane.thread % lanes};
        for (uint32_t turn = 0; turn < lane.thread / lanes % BULK_TURNS; turn++)
            s.next();
        return s;
    }

    LANE_FN void next()
    {
        bulk_next(*j.out, at);
        if (++piece == j.pieces) {
            piece = 0;
            w.n++;
        }
    }

    LANE_FN bulk_step_t step()
    {
        const bulk_step_t found = w.look_together(j);
        if (found != BULK_MOVED)
            return found;
        if (lane_warp_any(!bulk_filled(*j.out, at)))
            return BULK_IDLE;
        const uint32_t rank = EACH ? ring_next(*j.team, piece + 1) : j.team->rank;
        const uint8_t *block = j.input + rank * j.in_step;
        const bulk_granules_t g = bulk_granules(j, block, rank, w.chunk);
        if (g.shift != 0 || make_vector.changes())
            bulk_shift(*j.out, at, g, lane, make_vector);
        bulk_ends(*j.out, at, g, buffer_make(block, j.data_bytes(rank)), j.at(w.chunk), j.bytes(w.chunk, rank), lane,
                  make_vector);
        if (j.keep && piece + 1 == j.pieces) {
            bulk_stored();
            lane_warp_sync();
            bulk_put(*j.out, at, j.output + rank * j.out_step + j.at(w.chunk), j.bytes(w.chunk, rank), lane,
                     lane_warp_size());
        }
        bulk_change(*j.out, at, lane);
        for (uint32_t turn = 0; turn < BULK_TURNS; turn++)
            next();
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
    }
};

/* Releases the stage once all lanes of the warp have read it. */
LANE_FN void bulk_release_behind(const bulk_ring_t &r, const bulk_at_t &at, uint32_t thread)
{
    lane_warp_sync();
    if (thread % lane_warp_size() == 0)
        bulk_release(r, at);
}

/* SUM: see bulk_keeper. */
template <bool SUM> struct bulk_plain_keeper {
    enum { WARPS = BULK_TURNS * BULK_WARPS, LANES = BULK_ALL };
    const bulk_job_t &j;
    walk w;
    bulk_at_t at;
    uint32_t piece, group, thread;

    LANE_FN static bulk_plain_keeper make(const bulk_job_t &j, const lane_t &lane)
    {
        const uint32_t group = lane.thread / bulk_threads() % BULK_TURNS;
        bulk_plain_keeper k = {j, {}, {}, 0, group, lane.thread % bulk_threads()};
        for (uint32_t turn = 0; turn < group; turn++)
            k.next();
        return k;
    }

    LANE_FN void next()
    {
        bulk_next(*j.in, at);
        if (++piece == bulk_chunk_stages<SUM>(j)) {
            piece = 0;
            w.n++;
        }
    }

    LANE_FN bulk_step_t step()
    {
        const bulk_step_t found = w.look_together(j);
        if (found != BULK_MOVED)
            return found;
        if (lane_warp_any(!bulk_ready<SUM>(*j.in, at)))
            return BULK_IDLE;
        const uint32_t rank = bulk_stage_rank<SUM>(j, piece);
        if (thread == 0)
            bulk_give_credit<SUM>(j, w.chunk, rank);
        bulk_put(*j.in, at, j.output + rank * j.out_step + j.at(w.chunk), j.bytes(w.chunk, rank), thread,
                 bulk_threads());
        bulk_release_behind(*j.in, at, thread);
        for (uint32_t turn = 0; turn < BULK_TURNS; turn++)
            next();
        /* This stage could be filled only after the chunk `depth` stages back had left it. next() has since advanced by
         * BULK_TURNS. So all chunks before w.n - behind are stored. */
        const uint32_t behind = j.in->depth + BULK_TURNS - 1;
        if (group == 0 && thread == 0 && w.n > behind)
            j.list.tell(BULK_KEPT, w.n - behind);
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
    }
};

#endif
