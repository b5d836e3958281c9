/* SPDX-License-Identifier: Apache-2.0 */
/* long_roles.h - the roles of a block's warps for messages that bulk copies carry.
 *
 * Data path: buffer -> stage of the CUDA block -> slot in the receiver's scratch -> flag -> stage -> buffer. Each
 * direction of a block has a gate. It takes chunks of all peers, holds each until it may move (its slot is free, or its
 * data has arrived), and then lists it for the other roles, which are those of bulk/roles.h. So on any grid no role
 * waits for a rank, and no message for another one (docs/lab/proofs.md). Gates order memory as watchers do
 * (bulk/walk.h). */
#ifndef SHUNT_LONG_ROLES_H
#define SHUNT_LONG_ROLES_H

#include "algorithms/sendrecv/long.h"

/* Lists a chunk when it may move and the next stage is free, so slow blocks take fewer chunks. */
template <int DIRECTION, int MOST> struct long_gate {
    enum { WARPS = 1, LANES = BULK_ALL };
    const long_job<MOST> &j;
    const bulk_ring_t &ring;
    lane_t &block_lane;
    uint32_t *awaited; /* [direction]: ranks (bits) of held chunks */
    uint32_t lane;
    uint32_t peer[LONG_LANE_HELD], held[LONG_LANE_HELD]; /* BULK_NONE: no chunk */
    bool may[LONG_LANE_HELD];
    bool over[LONG_LANE_HELD]; /* all chunks are taken */
    bulk_at_t at;
    uint32_t listed;
    bool ended;

    LANE_FN static bool wanted(const long_job<MOST> &j, uint32_t peer)
    {
        return j.m.chunks[2 * peer + DIRECTION] > 0;
    }

    /* Assigns the entries of held[] to the peers in turn. */
    LANE_FN static long_gate make(const long_job<MOST> &j, const bulk_ring_t &ring, lane_t &lane, uint32_t *awaited)
    {
        long_gate g = {j, ring, lane, awaited, lane.thread % lane_warp_size(), {}, {}, {}, {}, {}, 0, false};
        uint32_t lists = 0;
        for (uint32_t p = 0; p < j.team.nranks; p++)
            lists += wanted(j, p);
        const uint32_t places = 2 * lists > LONG_HELD ? 2 * lists : (uint32_t)LONG_HELD;
        LANE_UNROLL
        for (uint32_t i = 0; i < LONG_LANE_HELD; i++) {
            const uint32_t place = i * lane_warp_size() + g.lane;
            g.held[i] = BULK_NONE;
            g.over[i] = lists == 0 || place >= places;
            uint32_t before = lists > 0 ? place % lists : 0;
            for (uint32_t p = 0; p < j.team.nranks; p++) {
                if (wanted(j, p) && before-- == 0)
                    g.peer[i] = p;
            }
        }
        return g;
    }

    LANE_FN bulk_step_t step()
    {
        if (ended)
            return BULK_ENDED;
        const bool room = listed + BULK_TURNS - j.told(DIRECTION, LONG_DONE) < LONG_PLACES;
        uint32_t mine = LONG_LANE_HELD;
        LANE_UNROLL
        for (uint32_t i = LONG_LANE_HELD; i-- > 0;)
            mine = may[i] ? i : mine;
        const uint32_t first = lane_warp_least(mine < LONG_LANE_HELD ? lane : lane_warp_size());
        if (first == lane_warp_size())
            return look(lane_warp_any(!room));
        if (lane_warp_any(!room || !bulk_free(ring, at)))
            return BULK_IDLE;
        LANE_UNROLL
        for (uint32_t i = 0; i < LONG_LANE_HELD; i++) {
            if (lane != first || i != mine)
                continue;
            list(long_entry(peer[i], held[i]));
            held[i] = BULK_NONE;
            may[i] = false;
        }
        lane_warp_sync(); /* keeps the order of entries that different lanes publish */
        listed++;
        bulk_next(ring, at);
        return BULK_MOVED;
    }

    LANE_FN bulk_step_t look(bool full)
    {
        uint32_t waits = 0;
        bool moved = false, done = true;
        LANE_UNROLL
        for (uint32_t i = 0; i < LONG_LANE_HELD; i++) {
            if (held[i] == BULK_NONE && !over[i])
                moved = take(i) || moved;
            if (held[i] != BULK_NONE) {
                may[i] = j.may_move(DIRECTION, peer[i], j.number(DIRECTION, peer[i], held[i]));
                waits |= 1u << peer[i];
                done = false;
            }
            moved = moved || may[i];
            done = done && over[i];
        }
        awaited[DIRECTION] = waits;
        lane_awaits(block_lane, awaited[LONG_OUT] | awaited[LONG_IN]);
        if (!lane_warp_any(!done))
            return full ? BULK_IDLE : finish();
        return lane_warp_any(moved) ? BULK_MOVED : BULK_IDLE;
    }

    LANE_FN bool take(uint32_t i)
    {
        const uint32_t l = 2 * peer[i] + DIRECTION,
                       chunk = (uint32_t)lane_take_own(j.own(LONG_TAKEN + l * LONG_LINE), 1);
        over[i] = chunk >= j.m.chunks[l];
        held[i] = over[i] ? BULK_NONE : chunk;
        return !over[i];
    }

    LANE_FN void list(uint32_t entry)
    {
        j.tell(DIRECTION, LONG_LIST + listed % LONG_PLACES, entry);
        j.tell(DIRECTION, LONG_LISTED, listed + 1);
    }

    /* The last gate to end adds the launch's chunks to the counts. All blocks have read the old counts by then. */
    LANE_FN bulk_step_t finish()
    {
        lane_warp_sync(); /* all lanes' entries are published */
        for (uint32_t turn = 0; turn < BULK_TURNS; turn++, listed++) {
            if (lane == 0)
                list(BULK_NONE);
        }
        if (lane == 0 && lane_take_own(j.own(LONG_ENDED), 1) == 2 * j.m.blocks - 1) {
            for (uint32_t l = 0; l < 2 * j.team.nranks; l++) {
                lane_write_own(j.own(LONG_TAKEN + l * LONG_LINE), 0);
                lane_add_own(j.own(LONG_COUNT + l * 8), j.m.chunks[l]);
            }
            lane_write_own(j.own(LONG_ENDED), 0);
        }
        ended = true;
        return BULK_ENDED;
    }

    LANE_FN void end()
    {
    }
};

template <bool WHOLE, int MOST> struct long_loader {
    enum { WARPS = 1, LANES = 1 };
    const long_job<MOST> &j;
    long_walk<LONG_OUT, MOST> w;
    bulk_at_t at;
    uint32_t issued;

    LANE_FN bulk_step_t step()
    {
        const bulk_step_t found = w.look();
        if (found != BULK_MOVED)
            return found;
        if (!bulk_free(*j.out, at))
            return BULK_IDLE;
        const long_piece_t p = w.piece();
        bulk_bring_of<WHOLE>(*j.out, at, p.buffer, p.all, p.at, p.bytes, 0);
        bulk_next(*j.out, at);
        issued++;
        w.n++;
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
        bulk_await_loads(*j.out, at, issued);
    }
};

/* WHOLE: the sender also copies messages to this rank itself; else the shifter does. LAG: see bulk_sender. */
template <bool WHOLE, int LAG, int MOST> struct long_sender {
    enum { WARPS = 1, LANES = 1 };
    const long_job<MOST> &j;
    long_walk<LONG_OUT, MOST> w;
    bulk_at_t at, read;
    uint32_t issued, done;

    LANE_FN bulk_step_t step()
    {
        const bulk_step_t found = w.look();
        if (found != BULK_MOVED || !bulk_ready<!WHOLE>(*j.out, at))
            return report() ? BULK_MOVED : found == BULK_ENDED ? BULK_ENDED : BULK_IDLE;
        const long_piece_t p = w.piece();
        if (!p.other)
            bulk_store(j.slot(w.peer, j.team.rank, w.number()), *j.out, at, long_slot_bytes(p));
        else if (WHOLE)
            bulk_store_any(p.other + p.at, *j.out, at, p.bytes);
        bulk_commit(*j.out);
        bulk_next(*j.out, at);
        issued++;
        w.n++;
        bulk_done<LAG>(*j.out);
        release(issued > LAG ? issued - LAG : 0);
        return BULK_MOVED;
    }

    LANE_FN void release(uint32_t complete)
    {
        for (; done < complete; done++) {
            bulk_release(*j.out, read);
            bulk_next(*j.out, read);
        }
        j.tell(LONG_OUT, LONG_SENT, done);
    }

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

/* Each lane raises LONG_DATA of a different chunk. */
template <int MOST> struct long_herald {
    enum { WARPS = 1, LANES = BULK_ALL };
    const long_job<MOST> &j;
    uint32_t lane;
    uint32_t seen;

    LANE_FN bulk_step_t step()
    {
        const bool sent = seen + lane < j.told(LONG_OUT, LONG_SENT);
        const uint32_t count = lane_warp_least(sent ? lane_warp_size() : lane);
        if (count == 0)
            return lane_warp_any(seen < j.told(LONG_OUT, LONG_LISTED) && entry(seen) == BULK_NONE) ? BULK_ENDED
                                                                                                   : BULK_IDLE;
        lane_fence();
        if (lane < count) {
            const uint32_t one = entry(seen + lane), peer = long_entry_peer(one);
            const uint64_t number = j.number(LONG_OUT, peer, long_entry_chunk(one));
            if (peer != j.team.rank)
                lane_raise(j.flag(LONG_DATA, peer, j.team.rank, number), number);
        }
        seen += count;
        lane_warp_sync();
        if (lane == 0)
            j.tell(LONG_OUT, LONG_DONE, seen);
        return BULK_MOVED;
    }

    LANE_FN uint32_t entry(uint32_t n) const
    {
        return j.told(LONG_OUT, LONG_LIST + n % LONG_PLACES);
    }

    LANE_FN void end()
    {
    }
};

template <int MOST> struct long_taker {
    enum { WARPS = 1, LANES = 1 };
    const long_job<MOST> &j;
    long_walk<LONG_IN, MOST> w;
    bulk_at_t at;
    uint32_t issued;

    LANE_FN bulk_step_t step()
    {
        const bulk_step_t found = w.look();
        if (found != BULK_MOVED)
            return found;
        if (!bulk_free(*j.in, at))
            return BULK_IDLE;
        bulk_load(*j.in, at, j.slot(j.team.rank, w.peer, w.number()), long_slot_bytes(w.piece()));
        bulk_next(*j.in, at);
        issued++;
        w.n++;
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
        bulk_await_loads(*j.in, at, issued);
    }
};

/* Called after the chunk has left its slot, so it needs no fence (bulk_give_credit). */
template <int MOST> LANE_FN void long_give_credit(const long_job<MOST> &j, uint32_t peer, uint64_t number)
{
    lane_raise(j.flag(LONG_CREDIT, peer, j.team.rank, number), number);
}

template <int LAG, int MOST> struct long_keeper {
    enum { WARPS = 1, LANES = 1 };
    const long_job<MOST> &j;
    long_walk<LONG_IN, MOST> w;
    bulk_at_t at, read;
    uint32_t issued;

    LANE_FN bulk_step_t step()
    {
        const bulk_step_t found = w.look();
        if (found != BULK_MOVED)
            return found;
        if (!bulk_filled(*j.in, at))
            return BULK_IDLE;
        long_give_credit(j, w.peer, w.number());
        const long_piece_t p = w.piece();
        bulk_store_any(p.buffer + p.at, *j.in, at, p.bytes);
        bulk_commit(*j.in);
        bulk_next(*j.in, at);
        bulk_read<LAG>(*j.in);
        if (++issued > LAG) {
            bulk_release(*j.in, read);
            bulk_next(*j.in, read);
        }
        j.tell(LONG_IN, LONG_DONE, ++w.n);
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
        bulk_done<0>(*j.in);
    }
};

/* Like bulk_shifter. */
template <int MOST> struct long_shifter {
    enum { WARPS = BULK_TURNS, LANES = BULK_ALL };
    const long_job<MOST> &j;
    long_walk<LONG_OUT, MOST> w;
    bulk_at_t at;
    uint32_t lane;

    LANE_FN static long_shifter make(const long_job<MOST> &j, const lane_t &lane)
    {
        const uint32_t lanes = lane_warp_size();
        long_shifter s = {j, long_walk<LONG_OUT, MOST>::make(j), {}, lane.thread % lanes};
        for (uint32_t turn = 0; turn < lane.thread / lanes % BULK_TURNS; turn++)
            s.next();
        return s;
    }

    LANE_FN void next()
    {
        bulk_next(*j.out, at);
        w.n++;
    }

    LANE_FN bulk_step_t step()
    {
        const bulk_step_t found = w.look_together();
        if (found != BULK_MOVED)
            return found;
        if (lane_warp_any(!bulk_filled(*j.out, at)))
            return BULK_IDLE;
        const long_piece_t p = w.piece();
        const bulk_granules_t g = bulk_granules_of(p.buffer, p.all, p.at, p.bytes);
        if (g.shift != 0)
            bulk_shift(*j.out, at, g, lane, bulk_as_it_is());
        bulk_ends(*j.out, at, g, buffer_make(p.buffer, p.all), p.at, p.bytes, lane, bulk_as_it_is());
        if (p.other) {
            bulk_stored();
            lane_warp_sync();
            bulk_put(*j.out, at, p.other + p.at, p.bytes, lane, lane_warp_size());
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

/* Like bulk_plain_keeper. */
template <int MOST> struct long_plain_keeper {
    enum { WARPS = BULK_TURNS * BULK_WARPS, LANES = BULK_ALL };
    const long_job<MOST> &j;
    long_walk<LONG_IN, MOST> w;
    bulk_at_t at;
    uint32_t group, thread;

    LANE_FN static long_plain_keeper make(const long_job<MOST> &j, const lane_t &lane)
    {
        const uint32_t group = lane.thread / bulk_threads() % BULK_TURNS;
        long_plain_keeper k = {j, long_walk<LONG_IN, MOST>::make(j), {}, group, lane.thread % bulk_threads()};
        for (uint32_t turn = 0; turn < group; turn++)
            k.next();
        return k;
    }

    LANE_FN void next()
    {
        bulk_next(*j.in, at);
        w.n++;
    }

    LANE_FN bulk_step_t step()
    {
        const bulk_step_t found = w.look_together();
        if (found != BULK_MOVED)
            return found;
        if (lane_warp_any(!bulk_filled(*j.in, at)))
            return BULK_IDLE;
        if (thread == 0)
            long_give_credit(j, w.peer, w.number());
        const long_piece_t p = w.piece();
        bulk_put(*j.in, at, p.buffer + p.at, p.bytes, thread, bulk_threads());
        bulk_release_behind(*j.in, at, thread);
        for (uint32_t turn = 0; turn < BULK_TURNS; turn++)
            next();
        const uint32_t behind = j.in->depth + BULK_TURNS - 1;
        if (group == 0 && thread == 0 && w.n > behind)
            j.tell(LONG_IN, LONG_DONE, w.n - behind);
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
    }
};

#endif
