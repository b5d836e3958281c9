/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roles.h - what the warps of a block do (bulk_move.cu): each role has its own walk
 * through the chunks, and no step of one waits for another.
 */
#ifndef SHUNT_BULK_ROLES_H
#define SHUNT_BULK_ROLES_H

#include "algorithms/bulk/walk.h"

LANE_FN uint32_t bulk_place(const uint8_t *block)
{
    return (uint32_t)((uintptr_t)block % VEC);
}

/* The chunk of a block of the input into a stage. */
LANE_FN void bulk_fill_input(const bulk_ring_t &ring, const bulk_at_t &at, const uint8_t *block, const walk &w)
{
    bulk_fill(ring, at, block + w.at, w.bytes(), w.begins(), w.ends(), bulk_place(block));
}

/* Input to stages. */
template <bool EACH> struct bulk_loader {
    enum { WARPS = 1 };
    const bulk_job_t &j;
    walk w;
    bulk_at_t at;
    uint32_t piece, issued;

    LANE_FN bulk_step_t step()
    {
        if (w.done())
            return BULK_ENDED;
        if (!bulk_free(*j.out, at))
            return BULK_IDLE;
        bulk_fill_input(*j.out, at, EACH ? j.block(ring_next(*j.team, piece + 1)) : j.input, w);
        bulk_next(*j.out, at);
        issued++;
        if (++piece == j.pieces) {
            piece = 0;
            w.next();
        }
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
        bulk_settle(*j.out, at, issued);
    }
};

/* Stages to the peers. */
template <int N, bool EACH> struct bulk_sender {
    enum { WARPS = 1 };
    const bulk_job_t &j;
    walk w;
    bulk_reach<N> credit;
    bulk_at_t at, read; /* the next stage to send, and to release */
    uint32_t piece, issued;

    LANE_FN bulk_step_t step()
    {
        if (w.done())
            return BULK_ENDED;
        if (piece == 0 && !bulk_reached<N>(*j.team, BULK_CREDIT, w, j.base, credit))
            return BULK_IDLE;
        if (!bulk_filled(*j.out, at))
            return BULK_IDLE;
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i < j.team->nranks && (!EACH || i == piece + 1)) {
                const uint32_t peer = ring_next(*j.team, i);
                bulk_store(bulk_slot(*j.team, peer, j.team->rank, w), *j.out, at,
                           w.slot_bytes(bulk_place(EACH ? j.block(peer) : j.input)));
            }
        }
        bulk_commit(*j.out);
        bulk_next(*j.out, at);
        issued++;
        bulk_done<BULK_LAG>(*j.out);
        if (issued > BULK_LAG) {
            bulk_release(*j.out, read);
            bulk_next(*j.out, read);
            bulk_tell(j.sent, issued - BULK_LAG);
        }
        if (++piece == j.pieces) {
            piece = 0;
            credit.least = w.last() ? 0 : credit.least; /* the next channel's */
            w.next();
            if (w.done()) {
                bulk_done<0>(*j.out);
                bulk_tell(j.sent, issued);
            }
        }
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
        bulk_done<0>(*j.out);
    }
};

/* DATA flags, for what the sender knows to be complete. */
template <bool EACH> struct bulk_herald {
    enum { WARPS = 1 };
    const bulk_job_t &j;
    walk w;
    uint32_t seen;

    LANE_FN bulk_step_t step()
    {
        if (w.done())
            return BULK_ENDED;
        const uint32_t sent = bulk_told(j.sent);
        if (sent - seen < j.pieces)
            return BULK_IDLE;
        lane_fence();
        for (bool raised = false; !raised;) {
            const uint32_t channel = w.channel, chunks = w.chunk + 1;
            seen += j.pieces;
            w.next();
            raised = sent - seen < j.pieces;
            if (raised || w.channel != channel)
                raise(channel, chunks);
        }
        return BULK_MOVED;
    }

    LANE_FN void raise(uint32_t channel, uint32_t chunks) const
    {
        for (uint32_t i = 1; i < j.team->nranks; i++) {
            const uint32_t peer = ring_next(*j.team, i);
            bulk_raise(*j.team, peer, BULK_DATA, channel, j.base, chunks, bulk_place(EACH ? j.block(peer) : j.input));
        }
    }

    LANE_FN void end()
    {
    }
};

/* Own slots to stages: of each chunk the peers' in turn, then the own block's. */
template <int N> struct bulk_taker {
    enum { WARPS = 1 };
    const bulk_job_t &j;
    walk w;
    bulk_reach<N> data;
    bulk_at_t at;
    uint32_t part, issued;
    bool begun;

    LANE_FN bulk_step_t step()
    {
        if (!begun)
            return begin();
        if (w.done())
            return BULK_ENDED;
        if (!bulk_free(*j.in, at))
            return BULK_IDLE;
        if (part == 0 && !bulk_reached<N>(*j.team, BULK_DATA, w, j.base, data))
            return BULK_IDLE;
        if (part + 1 == j.team->nranks)
            bulk_fill_input(*j.in, at, j.block(j.team->rank), w);
        else
            fill_arrived();
        bulk_next(*j.in, at);
        issued++;
        if (++part == j.parts) {
            part = 0;
            data.least = w.last() ? 0 : data.least; /* the next channel's */
            w.next();
        }
        return BULK_MOVED;
    }

    LANE_FN void fill_arrived() const
    {
        uint32_t place = data.place[0];
        LANE_UNROLL
        for (uint32_t p = 1; p < N - 1; p++)
            place = p == part ? data.place[p] : place;
        const uint8_t *slot = bulk_slot(*j.team, j.team->rank, other_rank(*j.team, part), w);
        bulk_fill(*j.in, at, slot, w.slot_bytes(place), false, false, place);
    }

    /* Every slot is free: the end of the last kernel came before this, and so did its reads. */
    LANE_FN bulk_step_t begin()
    {
        for (walk all = w; !all.done(); all.channel += all.stride, all.begin()) {
            for (uint32_t i = 1; i < j.team->nranks; i++)
                bulk_raise(*j.team, ring_next(*j.team, i), BULK_CREDIT, all.channel, j.base, all.plan.slots, 0);
        }
        begun = true;
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
        bulk_settle(*j.in, at, issued);
    }
};

/* Stages to the output: by a bulk copy where a chunk begins and ends with a whole vector of it, else by all lanes. */
struct bulk_keeper {
    enum { WARPS = BULK_KEEPERS };
    const bulk_job_t &j;
    walk w;
    bulk_at_t at, read; /* the next stage to empty, and the first whose copy may be under way */
    uint32_t part, pending;

    LANE_FN bulk_step_t step()
    {
        if (w.done())
            return BULK_ENDED;
        if (lane_warp_any(!bulk_filled(*j.in, at)))
            return BULK_IDLE;
        const bool own = part + 1 == j.team->nranks;
        const uint32_t from = own ? j.team->rank : other_rank(*j.team, part);
        if (!own && j.thread == 0)
            give_credit(from);
        uint8_t *const to = j.output + from * j.out_step + w.at;
        const uint32_t place = bulk_note(*j.in, at);
        if (place + bulk_place(to) + w.bytes() % VEC == 0) {
            copy(to);
        } else {
            settle<0>();
            if (place == bulk_place(to))
                keep<true>(to, place);
            else
                keep<false>(to, place);
            lane_warp_sync();
            release();
        }
        bulk_next(*j.in, at);
        if (++part == j.parts) {
            part = 0;
            w.next();
        }
        return BULK_MOVED;
    }

    LANE_FN void copy(uint8_t *to)
    {
        if (j.thread == 0) {
            bulk_store(to, *j.in, at, w.bytes());
            bulk_commit(*j.in);
        } 
        pending++;
        settle<BULK_LAG>();
    }

    /* All but LEFT copies have left their stages. */
    template <uint32_t LEFT> LANE_FN void settle()
    {
        if (pending <= LEFT)
            return;
        if (j.thread == 0)
            bulk_done<LEFT>(*j.in);
        for (; pending > LEFT; pending--) {
            if (j.thread % lane_warp_size() == 0)
                bulk_release(*j.in, read);
            bulk_next(*j.in, read);
        }
    }

    LANE_FN void release()
    {
        if (j.thread % lane_warp_size() == 0)
            bulk_release(*j.in, at);
        bulk_next(*j.in, read);
    }

    /* Vectors of the output; the bytes before the first and behind the last one singly. */
    template <bool ALIGNED> LANE_FN void keep(uint8_t *to, uint32_t place) const
    {
        const uint32_t threads = BULK_KEEPERS * lane_warp_size(), bytes = w.bytes(), offset = -(uint32_t)bulk_place(to) % VEC;
        const uint32_t head = offset < bytes ? offset : bytes, tail = (bytes - head) / VEC * VEC + head;
        for (uint32_t b = head + j.thread * VEC; b < tail; b += threads * VEC)
            lane_store(to + b, bulk_vector<ALIGNED>(*j.in, at, place + b));
        for (uint32_t b = j.thread; b < head; b += threads)
            lane_store_part(to + b, bulk_byte(*j.in, at, place + b));
        for (uint32_t b = tail + j.thread; b < bytes; b += threads)
            lane_store_part(to + b, bulk_byte(*j.in, at, place + b));
    }

    /* The chunk has left its slot. No fence: this comes after a load that is over, not after a store. Nobody waits for
     * the credit of a channel's last slots. */
    LANE_FN void give_credit(uint32_t peer) const
    {
        if (w.at + (uint64_t)w.plan.slots * w.plan.chunk < w.end)
            bulk_raise(*j.team, peer, BULK_CREDIT, w.channel, j.base, w.plan.slots + w.chunk + 1, 0);
    }

    LANE_FN void end()
    {
        if (j.thread == 0)
            bulk_done<0>(*j.in);
    }
};

#endif
