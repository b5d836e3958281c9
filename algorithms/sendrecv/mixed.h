/* SPDX-License-Identifier: Apache-2.0 */
/* mixed.h - the kernel for any group: a list may have several messages, a warp several items.
 *
 * A warp works on an item while the item advances, then on its next item. No step waits for a peer, except for an
 * arrived row's escape word (ring_unescape). All blocks of a grid are resident. So any grid serves any number of items
 * without deadlock, whatever the order of other ranks' messages. */
#ifndef SHUNT_MIXED_H
#define SHUNT_MIXED_H

#include "algorithms/sendrecv/ring.h"

enum { PAIRS_CPU_ITEMS = 64 };

/* State of an item, equal on all lanes of its warp. */
typedef struct progress {
    uint64_t count; /* rows sent or received */
    uint32_t row;   /* the message's next row for this channel; channels take its rows in turn */
    uint32_t ahead; /* sender: rows sent beyond the credit last read */
    uint16_t message;
    uint8_t arriving; /* receiver: the last poll found a row */
    uint8_t done;
} progress_t;

typedef enum step { STEP_IDLE, STEP_MOVED, STEP_DONE, STEP_BROKEN } step_t;

struct pairs_mixed {
    typedef span<RING_BATCH> batch_t;

    template <int MOST> LANE_FN static void run(lane_t lane, const alg_team_t &team, const messages<MOST> &m)
    {
#ifdef __CUDACC__
        extern __shared__ progress_t kept[];
#else
        progress_t kept[PAIRS_CPU_ITEMS];
#endif
        serve(lane, team, m, kept);
    }

    /* kept: the progress of the block's items; each warp has an equal part. */
    template <int MOST>
    LANE_FN static void serve(lane_t lane, const alg_team_t &team, const messages<MOST> &m, progress_t *kept)
    {
        const uint32_t lanes = lane_warp_size(), warps = lane.threads / lanes, items = m.item_end[MESSAGES_LISTS - 1];
        /* Neighbouring items share a block, as with LONG in alone.h. */
        const uint32_t first = lane.block * warps + lane.thread / lanes, workers = lane.blocks * warps;
        const bool alone = items <= workers;
        progress_t *mine = kept + lane.thread / lanes * ((items + workers - 1) / workers);
        const uint32_t here = lane.thread % lanes;
        uint32_t index = first < items ? first : 0, at = 0, left = 0;
        item it = item_make(team, m, index, here);

        lane_begin((uintptr_t)team.own | (uintptr_t)it.data, m.early);
        const uint64_t epoch = epoch_read(team);
        progress_t p = progress_make(m, it);
        if (lane_warp_any(epoch_stopped(epoch)) || first >= items)
            return;
        if (it.data && !it.sends)
            renew_credit(team, it, p);
        for (uint32_t i = first; i < items; i += workers, left++) {
            if (i == first)
                continue;
            const item next = item_make(team, m, i, here);
            const progress_t other = progress_make(m, next);
            if (here == 0)
                mine[left] = other;
            if (next.data && !next.sends)
                renew_credit(team, next, other);
        }
        lane_warp_sync();
        bool moved = true;
        uint32_t idle = 0; /* ranks (bits) whose items have not advanced */
        for (;;) {
            const step_t step = work(lane, team, m, it, p);
            idle |= step == STEP_IDLE ? 1u << it.peer : 0;
            if (step == STEP_BROKEN || (step == STEP_DONE && --left == 0))
                return;
            moved = moved || step != STEP_IDLE;
            if (step == STEP_MOVED)
                continue;
            if (!alone && !next_item(team, m, mine, workers, here, index, at, it, p))
                continue;
            lane_awaits(lane, idle);
            idle = 0;
            if (moved)
                lane_wait_begins(lane);
            else if (lane_warp_any(lane_stop(lane, team)))
                return;
            moved = false;
        }
    }

    /* Goes to the warp's next unfinished item. Returns whether it wrapped around. */
    template <int MOST>
    LANE_FN static bool next_item(const alg_team_t &team, const messages<MOST> &m, progress_t *mine, uint32_t workers,
                                  uint32_t lane, uint32_t &index, uint32_t &at, item &it, progress_t &p)
    {
        const uint32_t items = m.item_end[MESSAGES_LISTS - 1];
        bool round = false;
        lane_warp_sync();
        if (lane == 0)
            mine[at] = p;
        lane_warp_sync();
        do {
            index += workers;
            at++;
            if (index >= items) {
                index -= at * workers;
                at = 0;
                round = true;
            }
            p = mine[at];
        } while (p.done);
        it = item_make(team, m, index, lane);
        return round;
    }

    LANE_FN static void renew_credit(const alg_team_t &team, const item &it, const progress_t &p)
    {
        const uint64_t received[1] = {p.count};
        ring_receiver<1>{it, 0}.renew(team, received);
    }

    template <int MOST> LANE_FN static progress_t progress_make(const messages<MOST> &m, const item &it)
    {
        progress_t p = {0, it.channel, 0, it.list ? m.message_end[it.list - 1] : (uint16_t)0, 1, 0};
        if (it.data) {
            p.count = lane_read_own((const uint64_t *)it.count);
            const uint64_t ahead = it.sends ? p.count - lane_read_own((const uint64_t *)it.seen) : 0;
            p.ahead = ahead < it.rows ? (uint32_t)ahead : it.rows; /* it.rows: `send` first polls for credit */
        }
        return p;
    }

    template <int MOST>
    LANE_FN static step_t work(lane_t &lane, const alg_team_t &team, const messages<MOST> &m, const item &it,
                               progress_t &p)
    {
        step_t step = STEP_MOVED;
        if (p.row < message_rows(m.message[p.message].bytes, lane_warp_size())) {
            if (it.peer == team.rank)
                copy(team, m, it, p);
            else if (it.sends)
                step = send(team, m, it, p);
            else
                step = receive(lane, team, m, it, p);
        }
        if (step == STEP_BROKEN || p.row < message_rows(m.message[p.message].bytes, lane_warp_size()))
            return step;
        p.row = it.channel;
        if (++p.message < it.end)
            return STEP_MOVED;
        p.done = 1;
        if (it.data)
            ring_write_count(it, p.count, p.count - p.ahead);
        return STEP_DONE;
    }

    template <int MOST>
    LANE_FN static void copy(const alg_team_t &team, const messages<MOST> &m, const item &it, progress_t &p)
    {
        const uint32_t count = it.end - (it.list ? m.message_end[it.list - 1] : 0u);
        const batch_t s = span_make<RING_BATCH>(it, m.message[p.message], m.rings, p.row);
        vec16_t v[RING_BATCH];
        span_load(s, true, team.own, v);
        span_complete(s, v);
        span_store(span_make<RING_BATCH>(it, m.message[p.message + count], m.rings, p.row), v);
        p.row += s.rows * (s.stride / lane_warp_size());
    }

    template <int MOST>
    LANE_FN static step_t send(const alg_team_t &team, const messages<MOST> &m, const item &it, progress_t &p)
    {
        /* Lanes may read different credits. The warp uses the least, which all of them have acquired. */
        if (p.ahead >= it.rows)
            p.ahead = it.rows - lane_warp_least(it.rows - (uint32_t)(p.count - lane_flag(it.credit)));
        const uint32_t room = it.rows - p.ahead;
        batch_t s = span_make<RING_BATCH>(it, m.message[p.message], m.rings, p.row);
        s.rows = room < s.rows ? room : s.rows;
        if (s.rows == 0)
            return STEP_IDLE;
        vec16_t v[RING_BATCH];
        span_load(s, true, team.own, v);
        span_complete(s, v);
        rows_whiten(v);
        ring_put(it, p.count, s, v);
        p.count += s.rows;
        p.ahead += s.rows;
        p.row += s.rows * (s.stride / lane_warp_size());
        return STEP_MOVED;
    }

    template <int MOST>
    LANE_FN static step_t receive(lane_t &lane, const alg_team_t &team, const messages<MOST> &m, const item &it,
                                  progress_t &p)
    {
        batch_t s = span_make<RING_BATCH>(it, m.message[p.message], m.rings, p.row);
        vec16_t v[RING_BATCH];
        /* After a poll that found nothing, one row is polled, to save bandwidth. */
        if (!p.arriving)
            s.rows = 1;
        ring_poll(it, p.count, s, v);
        uint32_t here = 0;
        LANE_UNROLL
        for (uint32_t b = 0; b < RING_BATCH; b++)
            here += here == b && b < s.rows && (!s.has(b) || mark_arrived<MARK_ESCAPE>(v[b]));
        s.rows = lane_warp_least(here);
        p.arriving = s.rows > 0;
        if (s.rows == 0)
            return STEP_IDLE;
        if (lane_warp_any(!span_unescape(lane, team, it, p.count, s, v)))
            return STEP_BROKEN;
        rows_whiten(v);
        span_store(s, v);
        ring_rearm(it, p.count, s);
        const uint64_t next[1] = {p.count + s.rows}, given = p.count & ~(uint64_t)(ring_credit_rows(it) - 1);
        const ring_receiver<1> receiver = {it, 0};
        if (receiver.owes_credit(given, next[0], UINT64_MAX))
            receiver.give(next);
        p.count = next[0];
        p.row += s.rows * (s.stride / lane_warp_size());
        return STEP_MOVED;
    }
};

#endif
