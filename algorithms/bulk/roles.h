/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roles.h - what the warps of a block do (bulk_move.cu, bulk_add.cu): each role has its own walk
 * through the chunks, and no step of one waits for another. plain.h has two of them
 * for buffers that are not whole.
 */
#ifndef SHUNT_BULK_ROLES_H
#define SHUNT_BULK_ROLES_H

#include "algorithms/bulk/walk.h"

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
        const uint8_t *from = j.input + (EACH ? ring_next(*j.team, piece + 1) * j.in_step : 0);
        bulk_load(*j.out, at, from + w.at, w.bytes());
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

/* Stages to the peers. KEEPS: and the own block to the output. */
template <int N, bool EACH, bool KEEPS> struct bulk_sender {
    enum { WARPS = 1, LAG = BULK_SIZE<EACH>.lag };
    const bulk_job_t &j;
    walk w;
    bulk_at_t at, read; /* the next stage to send, and to release */
    uint32_t piece, issued, credit;

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
                bulk_store(bulk_slot(*j.team, peer, j.team->rank, w), *j.out, at, w.slot_bytes());
            }
        }
        if (KEEPS && j.keep && (!EACH || piece + 1 == j.pieces))
            bulk_store(j.output + j.team->rank * j.out_step + w.at, *j.out, at, w.bytes());
        bulk_commit(*j.out);
        bulk_next(*j.out, at);
        issued++;
        bulk_done<LAG>(*j.out);
        if (issued > LAG) {
            bulk_release(*j.out, read);
            bulk_next(*j.out, read);
            bulk_tell(j.sent, issued - LAG);
        }
        if (++piece == j.pieces) {
            piece = 0;
            credit = w.last() ? 0 : credit; /* the next channel's */
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
struct bulk_herald {
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
        for (uint32_t i = 1; i < j.team->nranks; i++)
            bulk_raise(*j.team, ring_next(*j.team, i), BULK_DATA, channel, j.base + chunks);
    }

    LANE_FN void end()
    {
    }
};

/* Own slots to stages: of each chunk the peers' in turn, from who sends to us first. OWN: behind it the chunk of the
 * own input. */
template <int N, bool OWN> struct bulk_taker {
    enum { WARPS = 1 };
    const bulk_job_t &j;
    walk w;
    bulk_at_t at;
    uint32_t piece, issued, arrived;
    bool begun;

    LANE_FN bulk_step_t step()
    {
        if (!begun)
            return begin();
        if (w.done())
            return BULK_ENDED;
        if (!bulk_free(*j.in, at))
            return BULK_IDLE;
        if (piece == 0 && !bulk_reached<N>(*j.team, BULK_DATA, w, j.base, arrived))
            return BULK_IDLE;
        const uint32_t peer = ring_next(*j.team, j.team->nranks - 1 - piece);
        bulk_load(*j.in, at, bulk_slot(*j.team, j.team->rank, peer, w), w.slot_bytes());
        if (OWN)
            bulk_load(*j.in, at, j.own + w.at, w.bytes(), w.plan.slot);
        bulk_next(*j.in, at);
        issued++;
        if (++piece == j.team->nranks - 1) {
            piece = 0;
            arrived = w.last() ? 0 : arrived; /* the next channel's */
            w.next();
        }
        return BULK_MOVED;
    }

    /* Every slot is free: the end of the last kernel came before this, and so did its reads. */
    LANE_FN bulk_step_t begin()
    {
        for (walk all = w; !all.done(); all.channel += all.stride, all.begin()) {
            for (uint32_t i = 1; i < j.team->nranks; i++)
                bulk_raise(*j.team, ring_next(*j.team, i), BULK_CREDIT, all.channel, j.base + all.plan.slots);
        }
        begun = true;
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
        bulk_settle(*j.in, at, issued);
    }
};

/* The chunk has left its slot: its load is over, so this store, which waited for that, needs no fence. Nobody waits for
 * the credit of a channel's last slots. */
LANE_FN void bulk_give_credit(const bulk_job_t &j, const walk &w, uint32_t peer)
{
    if (w.at + (uint64_t)w.plan.slots * w.plan.chunk < w.end)
        bulk_raise(*j.team, peer, BULK_CREDIT, w.channel, j.base + w.plan.slots + w.chunk + 1);
}

/* What the keeper waits for. ADDED: what has arrived, with the own input added. */
template <bool ADDED> LANE_FN bool bulk_ready(const bulk_job_t &j, const bulk_at_t &at)
{
    return ADDED ? bulk_changed(*j.in, at) : bulk_filled(*j.in, at);
}

/* Stages to the output. */
template <bool EACH, bool ADDED> struct bulk_keeper {
    enum { WARPS = 1, LAG = BULK_SIZE<EACH>.lag };
    const bulk_job_t &j;
    walk w;
    bulk_at_t at, read; /* the next stage to empty, and to release */
    uint32_t piece, issued;

    LANE_FN bulk_step_t step()
    {
        if (w.done())
            return BULK_ENDED;
        if (!bulk_ready<ADDED>(j, at))
            return BULK_IDLE;
        issued++;
        const uint32_t peer = ring_next(*j.team, j.team->nranks - 1 - piece);
        bulk_give_credit(j, w, peer);
        bulk_store(j.output + peer * j.out_step + w.at, *j.in, at, w.bytes());
        bulk_commit(*j.in);
        bulk_next(*j.in, at);
        bulk_read<LAG>(*j.in);
        if (issued > LAG) {
            bulk_release(*j.in, read);
            bulk_next(*j.in, read);
        }
        if (++piece == j.team->nranks - 1) {
            piece = 0;
            w.next();
        }
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
        bulk_done<0>(*j.in);
    }
};

#endif
