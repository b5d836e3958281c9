/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alone.h - the kernels of the usual groups: no list has more than one message, and each item has a warp of its own,
 * which may wait for its peer.
 *
 * They do the same steps as mixed.h with less code: fetching and issuing it is most of a short message's time. The
 * counts and the first rows are loaded together. Rows whose vectors are all whole are moved without a look at single
 * lanes; what is left, or not aligned, is the work of a function. A message to this rank itself is copied by all warps:
 * those that receive, before their data can be there, and those that send, when theirs is on its way.
 */
#ifndef SHUNT_ALONE_H
#define SHUNT_ALONE_H

#include "algorithms/sendrecv/ring.h"

enum { SELF_BATCH = 4 }; /* vectors under way in a lane */

/* A message's rows in one channel. The whole ones come first. */
struct channel_rows {
    uint8_t *at;       /* this lane's vector of the first row */
    uint64_t step;     /* bytes to that of the next */
    uint32_t whole;    /* rows whose vectors are all whole */
    uint32_t all;      /* rows */
    uint32_t channels; /* of the message */
};

LANE_FN uint32_t channel_rows_count(uint32_t rows, uint32_t channel, uint32_t channels)
{
    return channel < rows ? (rows - channel - 1) / channels + 1 : 0;
}

LANE_FN channel_rows channel_rows_make(const item &it, const message_t &message, const rings_t &rings)
{
    const uint32_t lanes = lane_warp_size(), rows = (uint32_t)message_rows(message.bytes, lanes);
    const buffer_t buffer = buffer_make(message.buffer, message.bytes);
    channel_rows p;
    p.channels = rings_channels(rings, rows);
    p.at = buffer.base + (uint64_t)(it.channel * lanes + it.lane) * VEC;
    p.step = (uint64_t)p.channels * lanes * VEC;
    p.whole = channel_rows_count(buffer.whole / lanes, it.channel, p.channels);
    p.all = channel_rows_count(rows, it.channel, p.channels);
    return p;
}

/* Messages of which no channel takes more than ROWS rows; or LONG, of more. */
template <int ROWS, bool LONG> struct pairs_alone {
    template <int MOST> LANE_FN static void run(lane_t lane, const alg_team_t &team, const messages<MOST> &m)
    {
        const uint32_t lanes = lane_warp_size(), warps = lane.threads / lanes, warp = lane.thread / lanes;
        /* Short messages: a block has sends and receives, which is faster. LONG: neighbours in the list, so a block
         * mostly has one direction; a receiver's fences would wait for what the block sends. */
        const uint32_t index = LONG ? lane.block * warps + warp : warp * lane.blocks + lane.block;
        const bool any = index < m.item_end[MESSAGES_LISTS - 1];
        const item it = item_make(team, m, any ? index : 0, lane.thread % lanes);
        const channel_rows p = channel_rows_make(it, m.message[it.end - 1], m.rings);
        const bool loads = it.sends && p.whole > 0;
        uint8_t *own = team.own;
        const uint64_t *counts = (const uint64_t *)it.count;
        const uint64_t *seen = (const uint64_t *)it.seen;
        const uint8_t *from[ROWS];
        uintptr_t held = (uintptr_t)own | (uintptr_t)it.data | (uintptr_t)counts | (uintptr_t)seen;
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS; b++) {
            from[b] = loads ? p.at + (b < p.whole ? b : 0) * p.step : own;
            held |= (uintptr_t)from[b];
        }

        lane_begin(held, m.early);
        const uint64_t epoch = epoch_read(team);
        uint64_t count = lane_read_own(counts);
        uint64_t credit = lane_read_own(seen);
        vec16_t y[ROWS];
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS; b++)
            y[b] = lane_load_if(loads, from[b], own);
        if (epoch_stopped(epoch))
            return;
        const bool copies = m.shared_self;
        if (copies && (!any || !it.sends))
            copy_self(team, m, index, lane);
        if (!any)
            return;
        lane_warp_sync(); /* all have read the count, which lane 0 is going to write */
        lane_awaits(lane, 1u << it.peer);
        const uint64_t end = count + p.all;
        uint64_t told = count;
        if (!it.sends)
            ring_renew_credit(team, it, count);
        if (p.whole > 0) {
            if (!(it.sends ? send(lane, team, it, p, count, credit, y) : receive(lane, team, it, p, count, told, y)))
                return;
            count += p.whole;
        }
        if (p.whole < p.all && !rest(lane, team, m, it, p, count, it.sends ? credit : told))
            return;
        ring_write_count(it, end, credit);
        if (copies && it.sends)
            copy_self(team, m, index, lane);
    }

    /* This warp's part of the message to this rank itself. */
    template <int MOST>
    LANE_COLD_FN void copy_self(const alg_team_t &team, const messages<MOST> &m, uint32_t warp, lane_t lane)
    {
        const uint32_t lanes = lane_warp_size(), step = lane.blocks * (lane.threads / lanes) * lanes;
        const message_t &one = m.message[m.message_end[2 * team.rank] - 1];
        const buffer_t from = buffer_make(one.buffer, one.bytes);
        const buffer_t to = buffer_make(m.message[m.message_end[2 * team.rank + 1] - 1].buffer, one.bytes);
        const uint32_t whole = from.whole < to.whole ? from.whole : to.whole, vectors = buffer_vectors(one.bytes);
        uint32_t v = warp * lanes + lane.thread % lanes;
        for (; v < whole; v += SELF_BATCH * step) {
            vec16_t x[SELF_BATCH];
            LANE_UNROLL
            for (uint32_t b = 0; b < SELF_BATCH; b++)
                x[b] = buffer_load_whole_if(v + b * step < whole, from, v + b * step, team.own);
            LANE_UNROLL
            for (uint32_t b = 0; b < SELF_BATCH; b++) {
                if (v + b * step < whole)
                    buffer_store_whole(to, v + b * step, x[b]);
            }
        }
        for (v = whole + warp * lanes + lane.thread % lanes; v < vectors; v += step)
            buffer_store<uint8_t>(to, v, buffer_load<uint8_t>(from, v));
    }

    /* The whole rows; y has the first ROWS of them. */
    LANE_FN static bool send(lane_t &lane, const alg_team_t &team, const item &it, const channel_rows &p,
                             uint64_t count, uint64_t &credit, vec16_t (&y)[ROWS])
    {
        const uint8_t *from = p.at;
        for (uint32_t left = p.whole;;) {
            const uint32_t rows = left < ROWS ? left : ROWS;
            lane_wait_begins(lane);
            while (count + rows - credit > it.rows) {
                credit = lane_flag(it.credit);
                if (lane_stop(lane, team))
                    return false;
            }
            rows_whiten(y);
            if (rows_top(y) >= ESCAPED)
                ring_put_some(it, count, rows, y);
            else {
                LANE_UNROLL
                for (uint32_t b = 0; b < ROWS; b++) {
                    if (b < rows)
                        lane_put(it.vector(count + b), y[b]);
                }
            }
            left -= rows;
            if (!LONG || left == 0)
                return true;
            count += ROWS;
            from += ROWS * p.step;
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++)
                y[b] = lane_load_if(true, from + (b < left ? b : 0) * p.step, from);
        }
    }

    LANE_FN static bool receive(lane_t &lane, const alg_team_t &team, const item &it, const channel_rows &p,
                                uint64_t count, uint64_t &told, vec16_t (&y)[ROWS])
    {
        const uint64_t end = count + p.all;
        uint8_t *to = p.at, *at[ROWS];
        for (uint32_t left = p.whole;;) {
            const uint32_t rows = left < ROWS ? left : ROWS;
            uint32_t top;
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++)
                at[b] = it.vector(count + (b < rows ? b : 0));
            lane_wait_begins(lane);
            for (;;) {
                LANE_UNROLL
                for (uint32_t b = 0; b < ROWS; b++)
                    y[b] = lane_poll(at[b]);
                top = rows_top(y);
                if (top != SENTINEL)
                    break;
                if (lane_stop(lane, team))
                    return false;
            }
            if (top == ESCAPED && !ring_unescape(
                                      lane, team, it, count, [rows](uint32_t b) { return b < rows; }, y))
                return false;
            rows_whiten(y);
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++) {
                if (b < rows)
                    lane_store(to + b * p.step, y[b]);
            }
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++)
                lane_rearm(at[b]);
            if (LONG)
                told = ring_give_credit(it, told, count + rows, end);
            left -= rows;
            if (!LONG || left == 0)
                return true;
            count += rows;
            to += ROWS * p.step;
        }
    }

    /* The rows behind the whole ones. credit: that was got, or given. */
    template <int MOST>
    LANE_COLD_FN bool rest(lane_t lane, const alg_team_t &team, const messages<MOST> &m, item it, channel_rows p,
                           uint64_t count, uint64_t credit)
    {
        const uint64_t end = count + p.all - p.whole;
        for (uint32_t done = p.whole; done < p.all; done += ROWS) {
            const uint32_t row = it.channel + done * p.channels;
            const span<ROWS> s = span_make<ROWS>(it, m.message[it.end - 1], m.rings, row);
            vec16_t y[ROWS];
            span_load(s, it.sends, team.own, y);
            if (it.sends)
                span_complete(s, y);
            if (!(it.sends ? send_rest(lane, team, it, count, credit, s, y)
                           : receive_rest(lane, team, it, count, s, y)))
                return false;
            count += s.rows;
            if (!it.sends)
                credit = ring_give_credit(it, credit, count, end);
        }
        return true;
    }

    LANE_FN static bool send_rest(lane_t &lane, const alg_team_t &team, const item &it, uint64_t count,
                                  uint64_t &credit, const span<ROWS> &s, vec16_t (&y)[ROWS])
    {
        lane_wait_begins(lane);
        while (count + s.rows - credit > it.rows) {
            credit = lane_flag(it.credit);
            if (lane_stop(lane, team))
                return false;
        }
        rows_whiten(y);
        ring_put(it, count, s, y);
        return true;
    }

    LANE_FN static bool receive_rest(lane_t &lane, const alg_team_t &team, const item &it, uint64_t count,
                                     const span<ROWS> &s, vec16_t (&y)[ROWS])
    {
        lane_wait_begins(lane);
        for (;;) {
            ring_poll(it, count, s, y);
            bool arrived = true;
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++)
                arrived = arrived && (!s.has(b) || mark_arrived<MARK_ESCAPE>(y[b]));
            if (arrived)
                break;
            if (lane_stop(lane, team))
                return false;
        }
        if (!span_unescape(lane, team, it, count, s, y))
            return false;
        rows_whiten(y);
        span_store(s, y);
        ring_rearm(it, count, s);
        return true;
    }
};

#endif
