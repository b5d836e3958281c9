/* SPDX-License-Identifier: Apache-2.0 */
/* roles.h - the roles of a block's warps (bulk.h), in the order in which a chunk passes them. Each role walks the
 * block's chunks by itself.
 *
 *   role            waits for              work                                           tells (walk.h)
 *   lister          KEPT ANNOUNCED stage   fetches the next chunk's number                TAKEN ENTRY LISTED
 *   loader          LISTED stage           input -> stage of `out`
 *   shifter         stage                  shifts, if buffers are not whole (plain.h)
 *   credit watcher  CREDIT ENTRY           polls all peers                                CREDITED
 *   sender          stage CREDITED         stage -> slots at peers (own block -> output)  SENT
 *   herald          SENT                   fences, which takes microseconds               DATA ANNOUNCED
 *   data watcher    DATA                   polls all peers                                ARRIVED
 *   taker           ARRIVED stage          slot -> stage of `in` (sums: collector)
 *   adder           stage SENT             sums in the stage (bulk_add.cu)
 *   keeper          stage                  stage -> output                                CREDIT KEPT */
#ifndef SHUNT_BULK_ROLES_H
#define SHUNT_BULK_ROLES_H

#include "algorithms/bulk/walk.h"

/* Lists a chunk when the stage of its first piece is free, so slow blocks take fewer chunks. Fetches the next chunk's
 * number ahead, since that is as slow as a load. */
template <int N> struct bulk_lister {
    enum { WARPS = 1, LANES = 1 };
    const bulk_job_t &j;
    uint32_t blocks; /* of this rank's grid */
    bool spare;      /* this block is beyond sure_blocks */
    bulk_at_t at = {};
    uint32_t listed = 0, next = 0, waited = 0;
    bool begun = false, ended = false;

    LANE_FN bulk_step_t step()
    {
        if (ended)
            return BULK_ENDED;
        if (!begun)
            return begin();
        if (!j.list.has_place(listed) || !bulk_free(*j.out, at))
            return BULK_IDLE;
        if (next >= j.plan.chunks)
            return finish();
        j.list.add(listed, next);
        for (uint32_t i = 0; i < j.pieces; i++)
            bulk_next(*j.out, at);
        next = bulk_take(*j.team);
        return BULK_MOVED;
    }

    /* The block that takes chunk 0 raises ENTRY. A spare block takes no chunk before all peers are in the call. If the
     * peers are late the block leaves, since another communicator's call may need its multiprocessor. */
    LANE_FN bulk_step_t begin()
    {
        if (spare && !bulk_reached<N>(j, BULK_CREDIT, 0))
            return ++waited < BULK_PATIENCE ? BULK_IDLE : finish();
        begun = true;
        next = bulk_take(*j.team);
        for (uint32_t i = 1; next == 0 && i < j.team->nranks; i++)
            bulk_raise_entry(j, ring_next(*j.team, i));
        return BULK_MOVED;
    }

    LANE_FN bulk_step_t finish()
    {
        bulk_finish(*j.team, blocks);
        for (uint32_t turn = 0; turn < BULK_TURNS; turn++)
            j.list.add(listed, BULK_NONE);
        ended = true;
        return BULK_ENDED;
    }

    LANE_FN void end()
    {
    }
};

/* A chunk's granules (plain.h) inside its buffer, all that bulk copies reach. The chunk begins at byte `shift` of its
 * stage. The granules hold its vectors `first` to `end` - 1. */
typedef struct bulk_granules {
    const uint8_t *from;
    uint32_t bytes, offset; /* offset: where the granules begin in the stage */
    uint32_t shift, first, end;
} bulk_granules_t;

/* The granules of bytes [at, at + bytes) of a buffer of `all` bytes. */
LANE_FN bulk_granules_t bulk_granules_of(const uint8_t *block, uint64_t all, uint64_t at, uint32_t bytes)
{
    const uint32_t vectors = (bytes + VEC - 1) / VEC;
    const uintptr_t begin = (uintptr_t)block + at, low = begin / VEC * VEC;
    const uintptr_t inner = ((uintptr_t)block + VEC - 1) / VEC * VEC;
    const uintptr_t outer = ((uintptr_t)block + all) / VEC * VEC;
    const uintptr_t from = low > inner ? low : inner;
    uintptr_t to = (begin + bytes + VEC - 1) / VEC * VEC;
    to = to < outer ? to : outer;
    bulk_granules_t g;
    g.from = (const uint8_t *)from;
    g.bytes = to > from ? (uint32_t)(to - from) : 0;
    g.offset = (uint32_t)(from - low);
    g.shift = (uint32_t)(begin - low);
    g.first = from > begin ? 1 : 0;
    g.end = to > begin ? (uint32_t)(to - begin) / VEC : 0;
    g.end = g.end < g.first ? g.first : g.end < vectors ? g.end : vectors;
    return g;
}

LANE_FN bulk_granules_t bulk_granules(const bulk_job_t &j, const uint8_t *block, uint32_t rank, uint32_t chunk)
{
    return bulk_granules_of(block, j.data_bytes(rank), j.at(chunk), j.bytes(chunk, rank));
}

/* Loads `bytes` of a buffer from `begin` on (unless WHOLE, their granules) to byte `offset` of a stage. */
template <bool WHOLE>
LANE_FN void bulk_bring_of(const bulk_ring_t &r, const bulk_at_t &at, const uint8_t *block, uint64_t all,
                           uint64_t begin, uint32_t bytes, uint32_t offset)
{
    if (WHOLE) {
        const uint32_t rest = bytes % VEC;
        if (rest != 0) {
            const uint32_t last = (uint32_t)((begin + bytes) / VEC);
            bulk_stage_store(r, at, (offset + bytes) / VEC, buffer_load<uint8_t>(buffer_make(block, all), last));
            bulk_stored();
        }
        bulk_load(r, at, block + begin, bytes - rest, offset);
    } else {
        const bulk_granules_t g = bulk_granules_of(block, all, begin, bytes);
        bulk_load(r, at, g.from, g.bytes, offset + g.offset);
    }
}

template <bool WHOLE>
LANE_FN void bulk_bring(const bulk_job_t &j, const bulk_ring_t &r, const bulk_at_t &at, const uint8_t *block,
                        uint32_t rank, uint32_t chunk, uint32_t offset)
{
    bulk_bring_of<WHOLE>(r, at, block, j.data_bytes(rank), j.at(chunk), j.bytes(chunk, rank), offset);
}

template <bool EACH, bool WHOLE> struct bulk_loader {
    enum { WARPS = 1, LANES = 1 };
    const bulk_job_t &j;
    walk w = {};
    bulk_at_t at = {};
    uint32_t piece = 0, issued = 0;

    LANE_FN bulk_step_t step()
    {
        const bulk_step_t found = w.look(j);
        if (found != BULK_MOVED)
            return found;
        if (!bulk_free(*j.out, at))
            return BULK_IDLE;
        const uint32_t rank = EACH ? ring_next(*j.team, piece + 1) : j.team->rank;
        bulk_bring<WHOLE>(j, *j.out, at, j.input + rank * j.in_step, rank, w.chunk, 0);
        bulk_next(*j.out, at);
        issued++;
        if (++piece == j.pieces) {
            piece = 0;
            w.n++;
        }
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
        bulk_await_loads(*j.out, at, issued);
    }
};

/* Counts the chunks for which all peers have raised the flag. Each lane polls a different chunk. */
template <int N, int KIND> struct bulk_watcher {
    enum { WARPS = 1, LANES = BULK_ALL, WORD = KIND == BULK_DATA ? BULK_ARRIVED : BULK_CREDITED };
    const bulk_job_t &j;
    uint32_t lane;
    uint32_t seen = 0;

    LANE_FN bulk_step_t step()
    {
        const uint32_t n = seen + lane;
        const bool listed = n < j.list.told(BULK_LISTED) && lane < BULK_PLACES;
        const uint32_t chunk = listed ? j.list.chunk(n) : BULK_NONE;
        const bool reached = chunk != BULK_NONE && bulk_reached<N>(j, KIND, chunk);
        const uint32_t count = lane_warp_least(reached ? lane_warp_size() : lane);
        if (count == 0)
            return lane_warp_any(lane == 0 && listed && chunk == BULK_NONE) ? BULK_ENDED : BULK_IDLE;
        seen += count;
        lane_warp_sync();
        if (lane == 0)
            j.list.tell(WORD, seen);
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
    }
};

template <bool CHANGED> LANE_FN bool bulk_ready(const bulk_ring_t &r, const bulk_at_t &at)
{
    return CHANGED ? bulk_changed(r, at) : bulk_filled(r, at);
}

/* WHOLE: the sender also stores this rank's block; else the shifter does. LAG: most older copies in flight. */
template <int N, bool EACH, bool WHOLE, int LAG> struct bulk_sender {
    enum { WARPS = 1, LANES = 1 };
    const bulk_job_t &j;
    walk w = {};
    bulk_at_t at = {}, read = {}; /* stage to send, to release */
    uint32_t piece = 0, issued = 0, done = 0, credited = 0;

    LANE_FN bulk_step_t step()
    {
        const bulk_step_t found = w.look(j);
        if (found != BULK_MOVED || !credit() || !bulk_ready<!WHOLE>(*j.out, at))
            return report() ? BULK_MOVED : found == BULK_ENDED ? BULK_ENDED : BULK_IDLE;
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i < j.team->nranks && (!EACH || i == piece + 1)) {
                const uint32_t peer = ring_next(*j.team, i), bytes = j.slot_bytes(w.chunk, EACH ? peer : j.team->rank);
                if (bytes > 0)
                    bulk_store(bulk_slot(j, peer, j.team->rank, w.chunk), *j.out, at, bytes);
            }
        }
        if (WHOLE && j.keep && (!EACH || piece + 1 == j.pieces))
            bulk_store(j.output + j.team->rank * j.out_step + j.at(w.chunk), *j.out, at,
                       j.bytes(w.chunk, j.team->rank));
        bulk_commit(*j.out);
        bulk_next(*j.out, at);
        issued++;
        if (++piece == j.pieces) {
            piece = 0;
            w.n++;
        }
        bulk_done<LAG>(*j.out);
        release(issued > LAG ? issued - LAG : 0);
        return BULK_MOVED;
    }

    LANE_FN bool credit()
    {
        if (credited <= w.n) {
            credited = j.list.told(BULK_CREDITED);
            bulk_seen();
        }
        return credited > w.n;
    }

    LANE_FN void release(uint32_t complete)
    {
        for (; done < complete; done++) {
            bulk_release(*j.out, read);
            bulk_next(*j.out, read);
        }
        j.list.tell(BULK_SENT, done);
    }

    /* Reports complete copies before idling. Otherwise ranks could wait for each other's last chunks. */
    LANE_FN bool report()
    {
        if (done == issued)
            return false;
        bulk_done<0>(*j.out);
        release(issued);
        return true;
    }

    LANE_FN void end()
    {
        bulk_done<0>(*j.out);
    }
};

struct bulk_herald {
    enum { WARPS = 1, LANES = BULK_ALL };
    const bulk_job_t &j;
    uint32_t lane;
    uint32_t seen = 0;

    LANE_FN bulk_step_t step()
    {
        const bool sent = (seen + lane + 1) * j.pieces <= j.list.told(BULK_SENT);
        const uint32_t count = lane_warp_least(sent ? lane_warp_size() : lane);
        if (count == 0)
            return lane_warp_any(seen < j.list.told(BULK_LISTED) && j.list.ends_at(seen)) ? BULK_ENDED : BULK_IDLE;
        lane_fence();
        for (uint32_t i = 1; lane < count && i < j.team->nranks; i++)
            bulk_raise(j, ring_next(*j.team, i), BULK_DATA, j.list.chunk(seen + lane));
        seen += count;
        lane_warp_sync();
        if (lane == 0)
            j.list.tell(BULK_ANNOUNCED, seen);
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
    }
};

/* Whether the walk's chunk has arrived; `arrived` caches BULK_ARRIVED. */
LANE_FN bool bulk_arrived(const bulk_job_t &j, const walk &w, uint32_t &arrived)
{
    if (arrived <= w.n) {
        arrived = j.list.told(BULK_ARRIVED);
        bulk_seen();
    }
    return arrived > w.n;
}

/* Loads each peer's chunk into a stage, first from the peer that sends to this rank first. */
struct bulk_taker {
    enum { WARPS = 1, LANES = 1 };
    const bulk_job_t &j;
    walk w = {};
    bulk_at_t at = {};
    uint32_t piece = 0, issued = 0, arrived = 0;

    LANE_FN bulk_step_t step()
    {
        const bulk_step_t found = w.look(j);
        if (found != BULK_MOVED)
            return found;
        if (!bulk_arrived(j, w, arrived) || !bulk_free(*j.in, at))
            return BULK_IDLE;
        const uint32_t peer = ring_next(*j.team, j.team->nranks - 1 - piece);
        bulk_load(*j.in, at, bulk_slot(j, j.team->rank, peer, w.chunk), j.slot_bytes(w.chunk, peer));
        bulk_next(*j.in, at);
        issued++;
        if (++piece == j.team->nranks - 1) {
            piece = 0;
            w.n++;
        }
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
        bulk_await_loads(*j.in, at, issued);
    }
};

/* Stages of the second ring per chunk. */
template <bool SUM> LANE_FN uint32_t bulk_chunk_stages(const bulk_job_t &j)
{
    return SUM ? 1 : j.team->nranks - 1;
}

/* The rank whose data stage `piece` has: peers in the taker's order, or (SUM) this rank. */
template <bool SUM> LANE_FN uint32_t bulk_stage_rank(const bulk_job_t &j, uint32_t piece)
{
    return SUM ? j.team->rank : ring_next(*j.team, j.team->nranks - 1 - piece);
}

/* Tells `peer`, or (SUM) all peers, that the chunk has left its slot. The load has ended, so it needs no fence. No rank
 * awaits credit for the last slots. */
template <bool SUM> LANE_FN void bulk_give_credit(const bulk_job_t &j, uint32_t chunk, uint32_t peer)
{
    if (chunk + j.plan.slots >= j.plan.chunks)
        return;
    if (!SUM)
        bulk_raise(j, peer, BULK_CREDIT, chunk + j.plan.slots);
    for (uint32_t i = 1; SUM && i < j.team->nranks; i++)
        bulk_raise(j, ring_next(*j.team, i), BULK_CREDIT, chunk + j.plan.slots);
}

/* `to` is aligned to 16 bytes; `bytes` may be any number. */
LANE_FN void bulk_store_any(uint8_t *to, const bulk_ring_t &r, const bulk_at_t &at, uint32_t bytes)
{
    const uint32_t whole = bytes / VEC * VEC;
    if (whole > 0)
        bulk_store(to, r, at, whole);
    for (uint32_t b = whole; b < bytes; b++)
        lane_store_part(to + b, bulk_byte(r, at, b));
}

/* SUM: stages hold sums. LAG: see bulk_sender. */
template <bool SUM, int LAG> struct bulk_keeper {
    enum { WARPS = 1, LANES = 1 };
    const bulk_job_t &j;
    walk w = {};
    bulk_at_t at = {}, read = {}; /* stage to empty, to release */
    uint32_t piece = 0, issued = 0;

    LANE_FN bulk_step_t step()
    {
        const bulk_step_t found = w.look(j);
        if (found != BULK_MOVED)
            return found;
        if (!bulk_ready<SUM>(*j.in, at))
            return BULK_IDLE;
        issued++;
        const uint32_t rank = bulk_stage_rank<SUM>(j, piece);
        bulk_give_credit<SUM>(j, w.chunk, rank);
        bulk_store_any(j.output + rank * j.out_step + j.at(w.chunk), *j.in, at, j.bytes(w.chunk, rank));
        bulk_commit(*j.in);
        bulk_next(*j.in, at);
        bulk_read<LAG>(*j.in);
        if (issued > LAG) {
            bulk_release(*j.in, read);
            bulk_next(*j.in, read);
        }
        if (++piece == bulk_chunk_stages<SUM>(j)) {
            piece = 0;
            j.list.tell(BULK_KEPT, ++w.n);
        }
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
        bulk_done<0>(*j.in);
    }
};

#endif
