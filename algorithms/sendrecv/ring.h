/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h - one channel of a pair of ranks, and a message's rows in its ring.
 *
 * Flow control: the receiver re-arms a row after reading it, and then gives credit. The sender writes a row only if its
 * count is less than a ring ahead of the credit. A receiving launch first gives credit for all rows of earlier
 * launches; kernel boundaries (in pinned memory, a fence) order their re-arming before it. Credit within a launch needs
 * a fence, which takes time. So it is given only while more than half a ring is left to receive. */
#ifndef SHUNT_RING_H
#define SHUNT_RING_H

#include "algorithms/device/buffers.h"
#include "algorithms/device/epoch.h"
#include "algorithms/device/peers.h"
#include "algorithms/sendrecv/messages.h"

enum { RING_BATCH = 8 }; /* rows that a warp has in flight */

struct item {
    uint32_t list, channel, peer, end; /* end: of the list's messages */
    bool sends;
    uint32_t lane, rows;   /* rows: of the ring */
    uint8_t *data, *words; /* in row 0: this lane's vector, escape word; NULL: a message to this rank itself */
    uint8_t *count;        /* COUNT_SENT or COUNT_RECEIVED */
    uint8_t *seen;         /* COUNT_SEEN */
    uint8_t *credit;       /* COUNT_CREDIT, in the sender's scratch */

    LANE_FN uint8_t *vector(uint64_t row) const
    {
        return data + ((uint32_t)row & (rows - 1)) * lane_warp_size() * VEC;
    }

    LANE_FN uint8_t *word(uint64_t row) const
    {
        return words + ((uint32_t)row & (rows - 1)) * lane_warp_size() * 4;
    }
};

template <int MOST>
LANE_FN item item_make(const alg_team_t &team, const messages<MOST> &m, uint32_t index, uint32_t lane)
{
    item it;
    it.list = 0;
    while (index >= m.item_end[it.list])
        it.list++;
    it.channel = index - (it.list ? m.item_end[it.list - 1] : 0);
    it.peer = it.list / 2;
    it.sends = it.list % 2 == MESSAGES_SEND;
    it.end = m.message_end[it.list];
    it.lane = lane;
    it.rows = m.rings.rows;
    it.data = it.words = it.count = it.seen = it.credit = NULL;
    if (it.peer == team.rank)
        return it;
    const uint32_t at = it.sends ? it.peer : team.rank, from = it.sends ? team.rank : it.peer;
    const uint64_t ring = (uint64_t)other_place(from, at) * m.rings.channels + it.channel;
    it.data = team.scratch[at] + team.rings_offset + ring * ring_bytes(it.rows, lane_warp_size());
    it.words = it.data + (uint64_t)it.rows * lane_warp_size() * VEC + lane * 4;
    it.data += lane * VEC;
    const uint64_t column = (uint64_t)it.channel * 8;
    uint8_t *own = team.own_counts + column, *credits = team.scratch[team.rank] + team.counts_offset + column;
    uint8_t *theirs = team.scratch[it.peer] + team.counts_offset + column;
    it.count = own + count_place(it.sends ? COUNT_SENT : COUNT_RECEIVED, it.peer);
    it.seen = own + count_place(COUNT_SEEN, it.peer);
    it.credit = it.sends ? credits + count_place(COUNT_CREDIT, it.peer) : theirs + count_place(COUNT_CREDIT, team.rank);
    return it;
}

template <int ROWS> struct span {
    buffer_t buffer;
    uint32_t vectors, first, stride; /* the message's number; this lane's first; their distance */
    uint32_t rows;

    LANE_FN uint32_t at(uint32_t b) const
    {
        return first + b * stride;
    }

    LANE_FN bool has(uint32_t b) const
    {
        return b < rows && at(b) < vectors;
    }

    LANE_FN bool whole(uint32_t b) const
    {
        return b < rows && at(b) < buffer.whole;
    }

    /* Whether any vector is partial or unaligned. */
    LANE_FN bool has_rest() const
    {
        return rows > 0 && vectors > buffer.whole && first < vectors && at(rows - 1) >= buffer.whole;
    }
};

template <int ROWS>
LANE_FN span<ROWS> span_make(const item &it, const message_t &message, const rings_t &rings, uint32_t row)
{
    span<ROWS> s;
    const uint32_t rows = (uint32_t)message_rows(message.bytes, lane_warp_size()),
                   channels = rings_channels(rings, rows);
    s.buffer = buffer_make(message.buffer, message.bytes);
    s.vectors = buffer_vectors(message.bytes);
    s.stride = channels * lane_warp_size();
    s.first = row * lane_warp_size() + it.lane;
    s.rows = 0;
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++)
        s.rows += row + b * channels < rows;
    return s;
}

/* Loads vectors that are not whole. Not inlined, since fetching code takes time. */
template <int ROWS> LANE_COLD_FN void span_load_rest(span<ROWS> s, vec16_t *x)
{
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++) {
        if (s.has(b) && !s.whole(b))
            x[b] = buffer_load<uint8_t>(s.buffer, s.at(b));
    }
}

template <int ROWS> LANE_COLD_FN void span_store_rest(span<ROWS> s, const vec16_t *x)
{
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++) {
        if (s.has(b) && !s.whole(b))
            buffer_store<uint8_t>(s.buffer, s.at(b), x[b]);
    }
}

template <int ROWS> LANE_FN void vec_copy(vec16_t (&to)[ROWS], const vec16_t (&from)[ROWS])
{
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++)
        to[b] = from[b];
}

/* Starts loads of whole vectors; span_complete loads the others. */
template <int ROWS> LANE_FN void span_load(const span<ROWS> &s, bool wanted, const uint8_t *dummy, vec16_t (&x)[ROWS])
{
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++)
        x[b] = buffer_load_whole_if(wanted && s.whole(b), s.buffer, s.at(b), dummy);
}

template <int ROWS> LANE_FN void span_complete(const span<ROWS> &s, vec16_t (&x)[ROWS])
{
    if (s.has_rest()) {
        vec16_t y[ROWS]; /* keeps x in registers */
        vec_copy(y, x);
        span_load_rest(s, y);
        vec_copy(x, y);
    }
}

template <int ROWS> LANE_FN void span_store(const span<ROWS> &s, const vec16_t (&x)[ROWS])
{
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++) {
        if (s.whole(b))
            buffer_store_whole(s.buffer, s.at(b), x[b]);
    }
    if (s.has_rest()) {
        vec16_t y[ROWS];
        vec_copy(y, x);
        span_store_rest(s, y);
    }
}

template <int ROWS> LANE_FN void rows_whiten(vec16_t (&x)[ROWS])
{
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++)
        mark_whiten(x[b]);
}

template <int ROWS> LANE_FN uint32_t rows_top(const vec16_t (&x)[ROWS])
{
    uint32_t top = 0;
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++) {
        const uint32_t one = mark_top(x[b]);
        top = one > top ? one : top;
    }
    return top;
}

/* Rings carry whitened vectors. */

LANE_COLD_FN void ring_put_escaped(uint8_t *vector, uint8_t *word, vec16_t v)
{
    const uint32_t escape = mark_escape(v);
    lane_put(vector, v);
    lane_put_word(word, escape);
}

template <int ROWS> LANE_FN void ring_put(const item &it, uint64_t count, const span<ROWS> &s, const vec16_t (&x)[ROWS])
{
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++) {
        if (!s.has(b))
            continue;
        if (mark_top(x[b]) >= ESCAPED)
            ring_put_escaped(it.vector(count + b), it.word(count + b), x[b]);
        else
            lane_put(it.vector(count + b), x[b]);
    }
}

/* Puts the batch's first `rows` rows, of whole vectors. */
template <int ROWS, class R> LANE_FN void ring_put_some(const R &r, uint32_t rows, const vec16_t (&x)[ROWS])
{
    vec16_t y[ROWS]; /* keeps x and r in registers */
    uint8_t *vector[ROWS], *word[ROWS];
    vec_copy(y, x);
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++) {
        vector[b] = r.vector(b);
        word[b] = r.word(b);
    }
    LANE_ROLL
    for (uint32_t b = 0; b < rows; b++) {
        if (mark_top(y[b]) >= ESCAPED)
            ring_put_escaped(vector[b], word[b], y[b]);
        else
            lane_put(vector[b], y[b]);
    }
}

template <int ROWS> LANE_FN void ring_poll(const item &it, uint64_t count, const span<ROWS> &s, vec16_t (&x)[ROWS])
{
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++) {
        if (s.has(b))
            x[b] = lane_poll(it.vector(count + b));
    }
}

/* Waits for the escape word, at word(b), of each vector b with has(b). The sender stores it right after the vector. */
template <int ROWS, class W, class H>
LANE_FN bool ring_unescape(lane_t &lane, const alg_team_t &team, const item &it, W word, H has, vec16_t (&x)[ROWS])
{
    vec16_t y[ROWS];
    uint8_t *at[ROWS];
    vec_copy(y, x);
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++)
        at[b] = word(b);
    LANE_ROLL
    for (uint32_t b = 0; b < ROWS; b++) {
        if (!has(b) || !mark_escaped(y[b]))
            continue;
        uint32_t escape;
        lane_awaits(lane, 1u << it.peer);
        while ((escape = lane_poll_word(at[b])) == SENTINEL) {
            if (lane_stop(lane, team))
                return false;
        }
        lane_rearm_word(at[b]);
        mark_unescape(y[b], escape);
    }
    vec_copy(x, y);
    return true;
}

template <int ROWS>
LANE_FN bool span_unescape(lane_t &lane, const alg_team_t &team, const item &it, uint64_t count, const span<ROWS> &s,
                           vec16_t (&x)[ROWS])
{
    bool any = false;
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++)
        any = any || (s.has(b) && mark_escaped(x[b]));
    return !any || ring_unescape(
                       lane, team, it, [&it, count](uint32_t b) { return it.word(count + b); },
                       [&s](uint32_t b) { return s.has(b); }, x);
}

template <int ROWS> LANE_FN void ring_rearm(const item &it, uint64_t count, const span<ROWS> &s)
{
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++) {
        if (s.has(b))
            lane_rearm(it.vector(count + b));
    }
}

/* Rows between credits: a power of two. */
LANE_FN uint32_t ring_credit_rows(const item &it)
{
    return it.rows < 4 * RING_BATCH ? it.rows / 2 : 2 * RING_BATCH;
}

/* The sending end of GROUP channels, whose counts are `step` bytes apart. */
template <int GROUP> struct ring_sender {
    const item &it;
    uint64_t step;
    uint64_t *sent, *credit; /* rows; credit: as last read */

    LANE_FN bool lacks_credit(uint32_t j, uint32_t rows) const
    {
        return sent[j] + rows - credit[j] > it.rows;
    }

    LANE_FN void look(uint32_t j) const
    {
        credit[j] = lane_flag(it.credit + j * step);
    }
};

template <int GROUP> struct ring_receiver {
    const item &it;
    uint64_t step;

    /* Gives credit for what earlier launches received. */
    LANE_FN void renew(const alg_team_t &team, const uint64_t (&received)[GROUP]) const
    {
        if (it.lane != 0)
            return;
        if (team.own != team.scratch[team.rank])
            lane_fence();
        LANE_UNROLL
        for (uint32_t j = 0; j < GROUP; j++)
            lane_raise(it.credit + j * step, received[j]);
    }

    /* Whether to give credit for `received` rows. `given`: rows in the last credit. `end`: rows received at the
     * launch's end. */
    LANE_FN bool owes_credit(uint64_t given, uint64_t received, uint64_t end) const
    {
        return received - given >= ring_credit_rows(it) && given + it.rows / 2 < end;
    }

    /* Gives credit for rows before `next`, which the whole warp has re-armed. */
    LANE_FN void give(const uint64_t (&next)[GROUP]) const
    {
        lane_warp_sync();
        if (it.lane != 0)
            return;
        lane_fence();
        LANE_UNROLL
        for (uint32_t j = 0; j < GROUP; j++)
            lane_raise(it.credit + j * step, next[j]);
    }
};

LANE_FN void ring_write_count(const item &it, uint64_t count, uint64_t credit)
{
    if (it.lane != 0)
        return;
    lane_write_own((uint64_t *)it.count, count);
    if (it.sends)
        lane_write_own((uint64_t *)it.seen, credit);
}

#endif
