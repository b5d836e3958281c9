/* SPDX-License-Identifier: Apache-2.0 */
/* alone.h - kernels for groups with at most one message to and one from each peer. They have less code than mixed.h:
 * most of a short message's time goes into fetching and issuing instructions. A warp serves one item, and may wait for
 * it: a channel in one direction, or GROUP channels if there are fewer warps than channels.
 *
 * A warp moves its channels' rows in order, in batches of ROWS / GROUP rows a channel. Batches divide ring_credit_rows,
 * so there is no deadlock, even if the peer groups its channels differently (docs/lab/kernels.md). All warps share the
 * copy of a message to this rank itself. */
#ifndef SHUNT_ALONE_H
#define SHUNT_ALONE_H

#include "algorithms/sendrecv/ring.h"

enum { SELF_BATCH = 4 };

/* The rows of a message that a warp moves, whole rows first. */
struct warp_rows {
    uint8_t *at;    /* this lane's vector of the first row */
    uint64_t step;  /* bytes between rows */
    uint32_t whole; /* rows of whole vectors */
    uint32_t all;
    uint32_t width; /* distance between the warp's rows, and between its channels */
};

/* The number of rows first, first + width, ... below `rows`. */
LANE_FN uint32_t rows_apart(uint32_t rows, uint32_t first, uint32_t width)
{
    return first < rows ? (rows - first - 1) / width + 1 : 0;
}

template <int GROUP> LANE_FN warp_rows warp_rows_make(const item &it, const message_t &message, const rings_t &rings)
{
    const uint32_t lanes = lane_warp_size(), rows = (uint32_t)message_rows(message.bytes, lanes);
    const buffer_t buffer = buffer_make(message.buffer, message.bytes);
    warp_rows p;
    p.width = (rings_channels(rings, rows) + GROUP - 1) / GROUP;
    p.at = buffer.base + (uint64_t)(it.channel * lanes + it.lane) * VEC;
    p.step = (uint64_t)p.width * lanes * VEC;
    p.whole = rows_apart(buffer.whole / lanes, it.channel, p.width);
    p.all = rows_apart(rows, it.channel, p.width);
    return p;
}

/* The rings of a warp's channels. Row `b` of a batch is in channel b % GROUP. */
template <int GROUP> struct warp_rings {
    item it; /* first channel */
    uint32_t width;
    uint64_t count[GROUP];  /* rows sent, or received */
    uint64_t credit[GROUP]; /* last read (sender), or given (receiver) */

    LANE_FN uint8_t *vector(uint32_t b) const
    {
        return it.vector(count[b % GROUP] + b / GROUP) + (uint64_t)(b % GROUP) * ring_step();
    }

    LANE_FN uint8_t *word(uint32_t b) const
    {
        return it.word(count[b % GROUP] + b / GROUP) + (uint64_t)(b % GROUP) * ring_step();
    }

    LANE_FN uint64_t ring_step() const
    {
        return (uint64_t)width * ring_bytes(it.rows, lane_warp_size());
    }

    LANE_FN uint64_t count_step() const
    {
        return (uint64_t)width * 8;
    }

    LANE_FN item channel(uint32_t j) const
    {
        item one = it;
        one.channel += j * width;
        one.data += j * ring_step();
        one.words += j * ring_step();
        one.count += j * count_step();
        one.seen += j * count_step();
        one.credit += j * count_step();
        return one;
    }

    LANE_FN static uint32_t share(uint32_t rows, uint32_t j)
    {
        return (rows + GROUP - 1 - j) / GROUP;
    }

    LANE_FN void move(uint32_t rows)
    {
        LANE_UNROLL
        for (uint32_t j = 0; j < GROUP; j++)
            count[j] += share(rows, j);
    }

    LANE_FN ring_sender<GROUP> sender()
    {
        return {it, count_step(), count, credit};
    }

    LANE_FN ring_receiver<GROUP> receiver() const
    {
        return {it, count_step()};
    }

    LANE_FN void renew(const alg_team_t &team)
    {
        receiver().renew(team, count);
        set(credit, count);
    }

    /* All channels give credit at the same time. */
    LANE_FN void give()
    {
        receiver().give(count);
        set(credit, count);
    }

    LANE_FN static void set(uint64_t (&to)[GROUP], const uint64_t (&from)[GROUP])
    {
        LANE_UNROLL
        for (uint32_t j = 0; j < GROUP; j++)
            to[j] = from[j];
    }

    LANE_FN void write() const
    {
        LANE_UNROLL
        for (uint32_t j = 0; j < GROUP; j++)
            ring_write_count(channel(j), count[j], credit[j]);
    }
};

/* LONG: warps may have more than ROWS rows. */
template <int ROWS, bool LONG, int GROUP = 1> struct pairs_alone {
    static_assert(GROUP == 1 || ROWS % GROUP == 0, "a batch has as many rows of each channel");
    typedef warp_rings<GROUP> rings;

    template <int MOST> LANE_FN static void run(lane_t lane, const alg_team_t &team, const messages<MOST> &m)
    {
        const uint32_t lanes = lane_warp_size(), warps = lane.threads / lanes, warp = lane.thread / lanes;
        /* Short messages are faster if a block mixes sends and receives. With LONG most blocks have one direction,
         * since a receiver's fence also waits for its block's sends. */
        const uint32_t index = LONG ? lane.block * warps + warp : warp * lane.blocks + lane.block;
        const bool any = index < m.item_end[MESSAGES_LISTS - 1];
        const item it = item_make(team, m, any ? index : 0, lane.thread % lanes);
        const warp_rows p = warp_rows_make<GROUP>(it, m.message[it.end - 1], m.rings);
        const bool loads = it.sends && p.whole > 0;
        rings r = {it, p.width, {}, {}};
        uint8_t *own = team.own;
        const uint8_t *from[ROWS];
        uintptr_t held = (uintptr_t)own | (uintptr_t)it.data | (uintptr_t)it.count | (uintptr_t)it.seen;
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS; b++) {
            from[b] = loads ? p.at + (b < p.whole ? b : 0) * p.step : own;
            held |= (uintptr_t)from[b];
        }

        lane_begin(held, m.early);
        const uint64_t epoch = epoch_read(team);
        LANE_UNROLL
        for (uint32_t j = 0; j < GROUP; j++) {
            r.count[j] = lane_read_own((const uint64_t *)(it.count + j * r.count_step()));
            r.credit[j] = lane_read_own((const uint64_t *)(it.seen + j * r.count_step()));
        }
        vec16_t y[ROWS];
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS; b++)
            y[b] = lane_load_if(loads, from[b], own);
        if (lane_warp_any(epoch_stopped(epoch)))
            return;
        const bool copies = m.shared_self;
        if (copies && (!any || !it.sends))
            copy_self(team, m, index, lane);
        if (!any)
            return;
        lane_warp_sync(); /* all lanes have read the counts, which lane 0 will write */
        lane_awaits(lane, 1u << it.peer);
        if (!it.sends)
            r.renew(team);
        const bool broken = p.whole > 0 && !(it.sends ? send(lane, team, r, p, y) : receive(lane, team, r, p, y));
        if (LONG ? lane_warp_any(broken) : broken)
            return;
        if (p.whole == p.all)
            r.write();
        else if (!rest(lane, team, m, r, p))
            return;
        if (copies && it.sends)
            copy_self(team, m, index, lane);
    }

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

    LANE_FN static bool send(lane_t &lane, const alg_team_t &team, rings &r, const warp_rows &p, vec16_t (&y)[ROWS])
    {
        const uint8_t *from = p.at;
        for (uint32_t left = p.whole;;) {
            const uint32_t rows = left < ROWS ? left : ROWS;
            lane_wait_begins(lane);
            LANE_UNROLL
            for (uint32_t j = 0; j < GROUP; j++) {
                while (r.sender().lacks_credit(j, r.share(rows, j))) {
                    r.sender().look(j);
                    if (lane_stop(lane, team))
                        return false;
                }
            }
            rows_whiten(y);
            if (rows_top(y) >= ESCAPED)
                ring_put_some(r, rows, y);
            else {
                LANE_UNROLL
                for (uint32_t b = 0; b < ROWS; b++) {
                    if (b < rows)
                        lane_put(r.vector(b), y[b]);
                }
            }
            left -= rows;
            r.move(rows);
            if (!LONG || left == 0)
                return true;
            from += ROWS * p.step;
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++)
                y[b] = lane_load_if(true, from + (b < left ? b : 0) * p.step, from);
        }
    }

    /* LONG: a lane whose wait was broken goes on without work until its warp leaves. */
    LANE_FN static bool receive(lane_t &lane, const alg_team_t &team, rings &r, const warp_rows &p, vec16_t (&y)[ROWS])
    {
        bool broken = false;
        const uint64_t end = r.count[0] + r.share(p.all, 0);
        uint8_t *to = p.at, *at[ROWS];
        for (uint32_t left = p.whole;;) {
            const uint32_t rows = left < ROWS ? left : ROWS;
            uint32_t top;
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++)
                at[b] = r.vector(b < rows ? b : 0);
            lane_wait_begins(lane);
            do {
                LANE_UNROLL
                for (uint32_t b = 0; b < ROWS; b++)
                    y[b] = lane_poll(at[b]);
                top = rows_top(y);
            } while (top == SENTINEL && !broken && !(broken = lane_stop(lane, team)));
            broken = broken || (top == ESCAPED && !ring_unescape(
                                                      lane, team, r.it, [&r](uint32_t b) { return r.word(b); },
                                                      [rows](uint32_t b) { return b < rows; }, y));
            if (!broken)
                store(p, to, rows, at, y);
            else if (!LONG)
                return false;
            r.move(rows);
            if (LONG && r.receiver().owes_credit(r.credit[0], r.count[0], end)) {
                if (lane_warp_any(broken))
                    return false;
                r.give();
            }
            left -= rows;
            if (!LONG || left == 0)
                return !broken;
            to += ROWS * p.step;
        }
    }

    LANE_FN static void store(const warp_rows &p, uint8_t *to, uint32_t rows, uint8_t *const (&at)[ROWS],
                              vec16_t (&y)[ROWS])
    {
        rows_whiten(y);
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS; b++) {
            if (b < rows)
                lane_store(to + b * p.step, y[b]);
        }
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS; b++)
            lane_rearm(at[b]);
    }

    /* Moves the rows that are not whole. */
    template <int MOST>
    LANE_COLD_FN bool rest(lane_t lane, const alg_team_t &team, const messages<MOST> &m, rings r, warp_rows p)
    {
        constexpr uint32_t STEP = GROUP == 1 ? ROWS : 1; /* with several channels, one row at a time */
        bool broken = false;
        for (uint32_t done = p.whole; done < p.all; done += STEP) {
            const uint32_t j = done % GROUP, row = r.it.channel + done * p.width;
            const item it = r.channel(j);
            const span<STEP> s = span_make<STEP>(it, m.message[it.end - 1], m.rings, row);
            const uint64_t end = r.count[j] + r.share(p.all - done, 0);
            vec16_t y[STEP];
            span_load(s, it.sends, team.own, y);
            if (it.sends)
                span_complete(s, y);
            broken = broken || !(it.sends ? send_rest(lane, team, {it, 0, &r.count[j], &r.credit[j]}, s, y)
                                          : receive_rest(lane, team, it, r.count[j], s, y));
            if (broken && !LONG)
                return false;
            r.count[j] += s.rows;
            const ring_receiver<1> receiver = {it, 0};
            if (!it.sends && receiver.owes_credit(r.credit[j], r.count[j], end)) {
                if (lane_warp_any(broken))
                    return false;
                const uint64_t next[1] = {r.count[j]};
                receiver.give(next);
                r.credit[j] = next[0];
            }
        }
        if (!broken)
            r.write();
        return !broken;
    }

    template <int STEP>
    LANE_FN static bool send_rest(lane_t &lane, const alg_team_t &team, const ring_sender<1> &sender,
                                  const span<STEP> &s, vec16_t (&y)[STEP])
    {
        lane_wait_begins(lane);
        while (sender.lacks_credit(0, s.rows)) {
            sender.look(0);
            if (lane_stop(lane, team))
                return false;
        }
        rows_whiten(y);
        ring_put(sender.it, *sender.sent, s, y);
        return true;
    }

    template <int STEP>
    LANE_FN static bool receive_rest(lane_t &lane, const alg_team_t &team, const item &it, uint64_t count,
                                     const span<STEP> &s, vec16_t (&y)[STEP])
    {
        lane_wait_begins(lane);
        for (;;) {
            ring_poll(it, count, s, y);
            bool arrived = true;
            LANE_UNROLL
            for (uint32_t b = 0; b < STEP; b++)
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
