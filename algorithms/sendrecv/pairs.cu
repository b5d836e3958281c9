/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pairs.cu - sends and receives, all messages of a group in one kernel.
 *
 * Data path: buffer -> ring in the receiver's scratch, which may lie in the host's
 * memory -> buffer. A vector tells that it has arrived by not being all-ones, so a
 * message needs no flag; words of all-ones travel as escapes (mark.h), and data arrives
 * bit for bit.
 *
 * A message's rows go to the channels in turn: row r to channel r % channels, as
 * its next row. So both ends know from the lengths of the messages alone where
 * each vector lies, whatever else their groups hold. A channel of one direction is
 * an item, which one warp works on.
 *
 * What guards a ring: the receiver arms a row again when it has read it, and from
 * time to time tells the sender how many it has armed. The sender puts a row only
 * if its count is less than a ring ahead of that credit. Nothing else waits for the
 * receiver, so a short message is sent before anyone receives.
 *
 * No step waits for a peer: a warp with several items goes on with one as long as it
 * moves, and then to the next. So any grid serves any number of items without a lock-up,
 * and the order in which other ranks list their messages does not matter. (A grid is
 * resident as a whole, as every grid here.) A row that has arrived may have an escape
 * word that has not; its sender has stored it already, so that wait is short.
 */
#include "algorithms/device/buffers.h"
#include "algorithms/device/epoch.h"
#include "algorithms/device/launch.h"
#include "algorithms/sendrecv/exchange.h"

enum {
    PAIRS_BATCH = 8, /* rows under way in a warp */
    PAIRS_MOST_THREADS = 512,
    PAIRS_FEW = 2 * ALG_MAX_RANKS, /* messages of the usual kernels: one a list */
    PAIRS_MANY = 216,              /* of the next one, whose arguments fill 4 KiB, the most that every driver takes */
    PAIRS_VAST = 1960,             /* of the last one: 32,764 bytes, from CUDA 12.1 on */
    PAIRS_HOST_ITEMS = 64,
    PAIRS_MOST_ITEMS = 15 * ALG_PAIR_CHANNELS / 2 /* of 8 ranks (rings_make); of 4 there are 7 * ALG_PAIR_CHANNELS */
};

#define PAIRS_MOST_BYTES ((uint64_t)32 << 30)

/* Where an item stands. Alike on all lanes of its warp, and kept for it between two steps. */
typedef struct progress {
    uint64_t count;   /* rows that have passed through the ring */
    uint32_t row;     /* of the message: the channel's next */
    uint32_t ahead;   /* sender: rows of `count` for which it has seen no credit */
    uint16_t part;    /* message */
    uint8_t arriving; /* receiver: the last look found something */
    uint8_t done;     /* all messages */
} progress_t;

typedef enum step { STEP_IDLE, STEP_MOVED, STEP_DONE, STEP_BROKEN } step_t;

/* One channel of one direction, and a lane's place in it. */
struct item {
    uint32_t list, channel, peer, end; /* end: of its messages */
    bool sends;
    uint32_t lane, lanes, rows; /* rows of the ring */
    uint8_t *data, *words;      /* this lane's, of row 0 of the ring; NULL: to this rank itself */
    uint8_t *count;             /* own: SENT or RECEIVED */
    uint8_t *seen;              /* own */
    uint8_t *credit;            /* own, or for the receiver the peer's */

    LANE_FN uint8_t *vector(uint64_t row) const
    {
        return data + ((uint32_t)row & (rows - 1)) * lanes * VEC;
    }

    LANE_FN uint8_t *word(uint64_t row) const
    {
        return words + ((uint32_t)row & (rows - 1)) * lanes * 4;
    }
};

template <int MOST>
LANE_FN item item_make(const alg_team_t &team, const exchange<MOST> &x, uint32_t index, uint32_t lane)
{
    item it;
    it.list = 0;
    while (index >= x.item_end[it.list])
        it.list++;
    it.channel = index - (it.list ? x.item_end[it.list - 1] : 0);
    it.peer = it.list / 2;
    it.sends = it.list % 2 == EXCHANGE_SEND;
    it.end = x.part_end[it.list];
    it.lanes = lane_warp_size();
    it.lane = lane;
    it.rows = x.rings.rows;
    it.data = it.words = it.count = it.seen = it.credit = NULL;
    if (it.peer == team.rank)
        return it;
    const uint32_t at = it.sends ? it.peer : team.rank, from = it.sends ? team.rank : it.peer;
    const uint64_t ring = (uint64_t)other_place(from, at) * x.rings.channels + it.channel;
    it.data = team.scratch[at] + team.rings_offset + ring * ring_bytes(it.rows, it.lanes);
    it.words = it.data + (uint64_t)it.rows * it.lanes * VEC + lane * 4;
    it.data += lane * VEC;
    const uint64_t column = (uint64_t)it.channel * 8;
    uint8_t *own = team.own_counts + column, *credits = team.scratch[team.rank] + team.counts_offset + column;
    uint8_t *theirs = team.scratch[it.peer] + team.counts_offset + column;
    it.count = own + count_place(it.sends ? COUNT_SENT : COUNT_RECEIVED, it.peer);
    it.seen = own + count_place(COUNT_SEEN, it.peer);
    it.credit = it.sends ? credits + count_place(COUNT_CREDIT, it.peer) : theirs + count_place(COUNT_CREDIT, team.rank);
    return it;
}

/* ---- Rows of a message ------------------------------------------------------------------ */

/* This lane's vectors in up to ROWS rows of a channel. */
template <int ROWS> struct span {
    buffer_t buffer;
    uint32_t vectors, first, stride; /* vectors of the message; the lane's first one, and from one to the next */
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

    /* A vector at the end, or anywhere in a buffer that is not aligned. */
    LANE_FN bool has_rest() const
    {
        return rows > 0 && vectors > buffer.whole && first < vectors && at(rows - 1) >= buffer.whole;
    }
};

/* From `row` on, which is the channel's. */
template <int ROWS> LANE_FN span<ROWS> span_make(const item &it, const part_t &part, const rings_t &rings, uint32_t row)
{
    span<ROWS> s;
    const uint32_t rows = (uint32_t)message_rows(part.bytes, it.lanes), channels = rings_channels(rings, rows);
    s.buffer = buffer_make(part.buffer, part.bytes);
    s.vectors = buffer_vectors(part.bytes);
    s.stride = channels * it.lanes;
    s.first = row * it.lanes + it.lane;
    s.rows = 0;
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++)
        s.rows += row + b * channels < rows;
    return s;
}

/* What is not a whole vector, out of the way of the rest: fetching code takes time. */
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

/* In flight beside what was loaded before; the rest is not, and comes with span_complete. */
template <int ROWS> LANE_FN void span_load(const span<ROWS> &s, bool wanted, const uint8_t *any, vec16_t (&x)[ROWS])
{
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++)
        x[b] = buffer_load_whole_if(wanted && s.whole(b), s.buffer, s.at(b), any);
}

template <int ROWS> LANE_FN void span_complete(const span<ROWS> &s, vec16_t (&x)[ROWS])
{
    if (s.has_rest()) {
        vec16_t y[ROWS]; /* x stays in registers */
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

/* ---- Through a ring ----------------------------------------------------------------------- */

LANE_COLD_FN void ring_put_escaped(uint8_t *vector, uint8_t *word, vec16_t v)
{
    const uint32_t escape = mark_clean<MARK_ESCAPE>(v);
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

template <int ROWS> LANE_FN void ring_poll(const item &it, uint64_t count, const span<ROWS> &s, vec16_t (&x)[ROWS])
{
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++) {
        if (s.has(b))
            x[b] = lane_poll(it.vector(count + b));
    }
}

/* Escape words of vectors that have arrived; they are on their way. False: the wait was broken. */
template <int ROWS>
LANE_FN bool ring_unescape(lane_t &lane, const alg_team_t &team, const item &it, uint64_t count, const span<ROWS> &s,
                           vec16_t (&x)[ROWS])
{
    bool any = false;
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++)
        any = any || (s.has(b) && mark_escaped(x[b]));
    if (!any)
        return true;
    vec16_t y[ROWS];
    vec_copy(y, x);
    LANE_ROLL
    for (uint32_t b = 0; b < s.rows; b++) {
        if (!s.has(b) || !mark_escaped(y[b]))
            continue;
        uint32_t escape;
        lane_awaits(lane, 1u << it.peer);
        while ((escape = lane_poll_word(it.word(count + b))) == SENTINEL) {
            if (lane_stop(lane, team))
                return false;
        }
        lane_rearm_word(it.word(count + b));
        mark_unescape(y[b], escape);
    }
    vec_copy(x, y);
    return true;
}

template <int ROWS> LANE_FN void ring_rearm(const item &it, uint64_t count, const span<ROWS> &s)
{
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++) {
        if (s.has(b))
            lane_rearm(it.vector(count + b));
    }
}

/* For rows that the whole warp has armed again. Some batches at a time, since a fence waits for the warp's stores: at
 * most half a ring, so that a sender sees the other half when all has been received. */
LANE_FN void ring_give_credit(const item &it, uint64_t from, uint64_t to)
{
    const uint64_t part = it.rows < 4 * PAIRS_BATCH ? it.rows / 2 : 2 * PAIRS_BATCH, told = to & ~(part - 1);
    if (told == (from & ~(part - 1)))
        return;
    lane_warp_sync();
    if (it.lane == 0) {
        lane_fence();
        lane_raise(it.credit, told);
    }
}

LANE_FN void ring_write_count(const item &it, uint64_t count, uint64_t credit)
{
    if (it.lane != 0)
        return;
    lane_write_own((uint64_t *)it.count, count);
    if (it.sends)
        lane_write_own((uint64_t *)it.seen, credit);
}

/* ---- The kernels -------------------------------------------------------------------------- */

/* Messages of which no channel takes more than ROWS rows, nor any list more than one message, with a warp for each
 * item: the usual short ones. The same steps as below without what the others need; and lanes go their own ways. */
template <int ROWS> struct pairs_brief {
    template <int MOST> LANE_FN static void run(lane_t lane, const alg_team_t &team, const exchange<MOST> &x)
    {
        const uint32_t lanes = lane_warp_size();
        const uint32_t index = lane.block * (lane.threads / lanes) + lane.thread / lanes;
        const bool any = index < x.item_end[EXCHANGE_LISTS - 1];
        const item it = item_make(team, x, any ? index : 0, lane.thread % lanes);
        const span<ROWS> s = span_make<ROWS>(it, x.part[it.end - 1], x.rings, it.channel);
        uint8_t *own = team.own;

        lane_begin((uintptr_t)own | (uintptr_t)it.data, x.early);
        const uint64_t epoch = epoch_read(team);
        const uint64_t count = lane_read_own((const uint64_t *)(it.data ? it.count : own + ALG_EPOCH_OFFSET));
        uint64_t credit = lane_read_own((const uint64_t *)(it.data ? it.seen : own + ALG_EPOCH_OFFSET));
        vec16_t y[ROWS];
        span_load(s, any && it.sends, own, y);
        if (epoch_stopped(epoch) || !any)
            return;
        if (it.sends)
            span_complete(s, y);
        if (!it.data) {
            span_store(span_make<ROWS>(it, x.part[it.end], x.rings, it.channel), y);
            return;
        }
        lane_awaits(lane, 1u << it.peer);
        if (it.sends) {
            while (count + s.rows - credit > it.rows) {
                credit = lane_flag(it.credit);
                if (lane_stop(lane, team))
                    return;
            }
            ring_put(it, count, s, y);
            ring_write_count(it, count + s.rows, credit);
            return;
        }
        for (;;) {
            ring_poll(it, count, s, y);
            bool arrived = true;
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++)
                arrived = arrived && (!s.has(b) || mark_arrived<MARK_ESCAPE>(y[b]));
            if (arrived)
                break;
            if (lane_stop(lane, team))
                return;
        }
        if (!ring_unescape(lane, team, it, count, s, y))
            return;
        span_store(s, y);
        ring_rearm(it, count, s);
        ring_give_credit(it, count, count + s.rows);
        ring_write_count(it, count + s.rows, 0);
    }
};

/* Any messages. */
struct pairs {
    typedef span<PAIRS_BATCH> batch_t;

    template <int MOST> LANE_FN static void run(lane_t lane, const alg_team_t &team, const exchange<MOST> &x)
    {
#ifdef __CUDACC__
        extern __shared__ progress_t kept[];
#else
        progress_t kept[PAIRS_HOST_ITEMS];
#endif
        const uint32_t lanes = lane_warp_size(), warps = lane.threads / lanes, items = x.item_end[EXCHANGE_LISTS - 1];
        /* Neighbouring items share a block: a receiver's fences wait for what else its multiprocessor stores, and
         * the stores of senders take long. */
        const uint32_t first = lane.block * warps + lane.thread / lanes, workers = lane.blocks * warps;
        const bool alone = items <= workers; /* every item has a warp of its own */
        progress_t *mine = kept + lane.thread / lanes * ((items + workers - 1) / workers);
        const uint32_t here = lane.thread % lanes;
        uint32_t index = first < items ? first : 0, at = 0, left = 0;
        item it = item_make(team, x, index, here);

        lane_begin((uintptr_t)team.own | (uintptr_t)it.data, x.early);
        const uint64_t epoch = epoch_read(team);
        progress_t p = progress_make(x, it);
        if (epoch_stopped(epoch) || first >= items)
            return;
        for (uint32_t i = first; i < items; i += workers, left++) {
            if (i == first)
                continue;
            const progress_t other = progress_make(x, item_make(team, x, i, here));
            if (here == 0)
                mine[left] = other;
        }
        lane_warp_sync();
        bool moved = true;
        uint32_t idle = 0; /* ranks (bits) with which no item has moved */
        for (;;) {
            const step_t step = work(lane, team, x, it, p);
            idle |= step == STEP_IDLE ? 1u << it.peer : 0;
            if (step == STEP_BROKEN || (step == STEP_DONE && --left == 0))
                return;
            moved = moved || step != STEP_IDLE;
            if (step == STEP_MOVED)
                continue;
            if (!alone && !next_item(team, x, mine, workers, here, index, at, it, p))
                continue;
            /* All have been tried. */
            lane_awaits(lane, idle);
            idle = 0;
            if (moved)
                lane_wait_begins(lane);
            else if (lane_warp_any(lane_stop(lane, team)))
                return;
            moved = false;
        }
    }

    /* To this warp's next item that is not done; true when it begins again with its first. */
    template <int MOST>
    LANE_FN static bool next_item(const alg_team_t &team, const exchange<MOST> &x, progress_t *mine, uint32_t workers,
                                  uint32_t lane, uint32_t &index, uint32_t &at, item &it, progress_t &p)
    {
        const uint32_t items = x.item_end[EXCHANGE_LISTS - 1];
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
        it = item_make(team, x, index, lane);
        return round;
    }

    template <int MOST> LANE_FN static progress_t progress_make(const exchange<MOST> &x, const item &it)
    {
        progress_t p = {0, it.channel, 0, it.list ? x.part_end[it.list - 1] : (uint16_t)0, 1, 0};
        if (it.data) {
            p.count = lane_read_own((const uint64_t *)it.count);
            p.ahead = it.sends ? (uint32_t)(p.count - lane_read_own((const uint64_t *)it.seen)) : 0;
        }
        return p;
    }

    template <int MOST>
    LANE_FN static step_t work(lane_t &lane, const alg_team_t &team, const exchange<MOST> &x, const item &it,
                               progress_t &p)
    {
        step_t step = STEP_MOVED;
        if (p.row < message_rows(x.part[p.part].bytes, it.lanes)) {
            if (it.peer == team.rank)
                copy(team, x, it, p);
            else if (it.sends)
                step = send(team, x, it, p);
            else
                step = receive(lane, team, x, it, p);
        }
        if (step == STEP_BROKEN || p.row < message_rows(x.part[p.part].bytes, it.lanes))
            return step;
        p.row = it.channel;
        if (++p.part < it.end)
            return STEP_MOVED;
        p.done = 1;
        if (it.data)
            ring_write_count(it, p.count, p.count - p.ahead);
        return STEP_DONE;
    }

    template <int MOST>
    LANE_FN static void copy(const alg_team_t &team, const exchange<MOST> &x, const item &it, progress_t &p)
    {
        const uint32_t parts = it.end - (it.list ? x.part_end[it.list - 1] : 0u);
        const batch_t s = span_make<PAIRS_BATCH>(it, x.part[p.part], x.rings, p.row);
        vec16_t v[PAIRS_BATCH];
        span_load(s, true, team.own, v);
        span_complete(s, v);
        span_store(span_make<PAIRS_BATCH>(it, x.part[p.part + parts], x.rings, p.row), v);
        p.row += s.rows * (s.stride / it.lanes);
    }

    template <int MOST>
    LANE_FN static step_t send(const alg_team_t &team, const exchange<MOST> &x, const item &it, progress_t &p)
    {
        /* Lanes may see different credits; each has acquired the least. */
        if (p.ahead >= it.rows)
            p.ahead = it.rows - lane_warp_least(it.rows - (uint32_t)(p.count - lane_flag(it.credit)));
        const uint32_t room = it.rows - p.ahead;
        batch_t s = span_make<PAIRS_BATCH>(it, x.part[p.part], x.rings, p.row);
        s.rows = room < s.rows ? room : s.rows;
        if (s.rows == 0)
            return STEP_IDLE;
        vec16_t v[PAIRS_BATCH];
        span_load(s, true, team.own, v);
        span_complete(s, v);
        ring_put(it, p.count, s, v);
        p.count += s.rows;
        p.ahead += s.rows;
        p.row += s.rows * (s.stride / it.lanes);
        return STEP_MOVED;
    }

    /* What has arrived of the next rows, up to the first that has not. */
    template <int MOST>
    LANE_FN static step_t receive(lane_t &lane, const alg_team_t &team, const exchange<MOST> &x, const item &it,
                                  progress_t &p)
    {
        batch_t s = span_make<PAIRS_BATCH>(it, x.part[p.part], x.rings, p.row);
        vec16_t v[PAIRS_BATCH];
        /* A look that found nothing is repeated at the first row alone: others need the memory more. */
        if (!p.arriving)
            s.rows = 1;
        ring_poll(it, p.count, s, v);
        uint32_t here = 0;
        LANE_UNROLL
        for (uint32_t b = 0; b < PAIRS_BATCH; b++)
            here += here == b && b < s.rows && (!s.has(b) || mark_arrived<MARK_ESCAPE>(v[b]));
        s.rows = lane_warp_least(here);
        p.arriving = s.rows > 0;
        if (s.rows == 0)
            return STEP_IDLE;
        if (lane_warp_any(!ring_unescape(lane, team, it, p.count, s, v)))
            return STEP_BROKEN;
        span_store(s, v);
        ring_rearm(it, p.count, s);
        ring_give_credit(it, p.count, p.count + s.rows);
        p.count += s.rows;
        p.row += s.rows * (s.stride / it.lanes);
        return STEP_MOVED;
    }
};

/* ---- Launch ------------------------------------------------------------------------------- */

#ifdef __CUDACC__
enum { PAIRS_LANES = 32 };
#else
enum { PAIRS_LANES = 1 };
#endif

static uint32_t pairs_list(const alg_message_t &m)
{
    return 2 * m.peer + (m.send ? EXCHANGE_SEND : EXCHANGE_RECEIVE);
}

/* The messages in slices that a kernel's arguments can hold: of each list its next `share`. That what this slice needs
 * does not wait, at a peer, for a message of a later one is sure for ranks that group the same messages; so a slice is
 * as large as can be. */
template <int MOST, class F> static int pairs_slices(const alg_team_t *team, const alg_call_t *call, F launch)
{
    uint32_t length[EXCHANGE_LISTS] = {0}, longest = 0, lists = 0;
    for (uint32_t i = 0; i < call->message_count; i++) {
        const uint32_t list = pairs_list(call->messages[i]);
        lists += length[list]++ == 0;
        longest = length[list] > longest ? length[list] : longest;
    }
    const uint32_t share = call->message_count <= (uint32_t)MOST ? longest : MOST / lists;
    exchange<MOST> x = {};
    x.rings = rings_make(team->rings_bytes, team->nranks, PAIRS_LANES);
    x.early = call->early;
    int error = 0;
    for (uint32_t begin = 0; begin < longest && error == 0; begin += share) {
        uint16_t next[EXCHANGE_LISTS];
        uint32_t parts = 0, items = 0;
        for (uint32_t l = 0; l < EXCHANGE_LISTS; l++) {
            next[l] = (uint16_t)parts;
            const uint32_t rest = length[l] > begin ? length[l] - begin : 0;
            parts += rest < share ? rest : share;
            x.part_end[l] = (uint16_t)parts;
        }
        uint32_t seen[EXCHANGE_LISTS] = {0}, channels[EXCHANGE_LISTS] = {0};
        uint32_t most = longest == 1 ? 1 : UINT32_MAX; /* rows of a channel, if there is one message a list */
        for (uint32_t i = 0; i < call->message_count; i++) {
            const alg_message_t &m = call->messages[i];
            const uint32_t l = pairs_list(m), at = seen[l]++;
            if (at < begin || at >= begin + share)
                continue;
            x.part[next[l]++] = part_t{(uint8_t *)m.buffer, m.bytes};
            const uint64_t rows = message_rows(m.bytes, PAIRS_LANES);
            const uint32_t wanted = rings_channels(x.rings, rows);
            if (longest == 1 && (rows - 1) / wanted >= most)
                most = (uint32_t)((rows - 1) / wanted + 1);
            channels[l] = wanted > channels[l] ? wanted : channels[l];
        }
        for (uint32_t l = 0; l < EXCHANGE_LISTS; l++) {
            items += l == 2 * team->rank + EXCHANGE_RECEIVE ? 0 : channels[l];
            x.item_end[l] = (uint16_t)items;
        }
        error = launch(x, items, most);
    }
    return error;
}

/* `most` rows in a channel find room in a ring of which all but the last part has been told free. */
template <int MOST> static bool pairs_is_brief(const exchange<MOST> &x, uint32_t most)
{
    return most <= (uint32_t)PAIRS_BATCH && most <= x.rings.rows / 2;
}

/* Blocks and threads for so many items, within the call's: few warps a block, which hold each other up. */
static void pairs_grid(uint32_t items, uint32_t *blocks, uint32_t *threads)
{
    uint32_t wanted = 64;
    *threads = *threads < (uint32_t)PAIRS_MOST_THREADS ? *threads : (uint32_t)PAIRS_MOST_THREADS;
    while (wanted * 2 <= *threads && (uint64_t)*blocks * (wanted / 32) < items)
        wanted *= 2;
    *threads = wanted < *threads ? wanted : *threads;
    const uint32_t warps = *threads < 32 ? 1 : *threads / 32, filled = (items + warps - 1) / warps;
    *blocks = filled < *blocks ? filled : *blocks;
}

#ifdef __CUDACC__

static_assert(sizeof(alg_team_t) + sizeof(exchange<PAIRS_MANY>) <= 4096, "too many messages");
static_assert(sizeof(alg_team_t) + sizeof(exchange<PAIRS_VAST>) <= 32764, "too many messages");

template <class A, int MOST>
__global__ void __launch_bounds__(PAIRS_MOST_THREADS, LAUNCH_BLOCKS_A_MULTIPROCESSOR)
    pairs_kernel(const __grid_constant__ alg_team_t team, const __grid_constant__ exchange<MOST> x)
{
    A::template run<MOST>(lane_here(), team, x);
}

template <int MOST> static int pairs_launch(const alg_team_t *team, const alg_call_t *call, void *stream)
{
    return pairs_slices<MOST>(team, call, [team, call, stream](const exchange<MOST> &x, uint32_t items, uint32_t most) {
        alg_call_t part = *call;
        part.blocks = launch_blocks(call);
        pairs_grid(items, &part.blocks, &part.threads);
        const uint32_t workers = part.blocks * (part.threads / 32);
        const size_t kept = (items + workers - 1) / workers * (part.threads / 32) * sizeof(progress_t);
        void (*kernel)(alg_team_t, exchange<MOST>) = pairs_kernel<pairs, MOST>;
        if constexpr (MOST == PAIRS_FEW) {
            if (items <= workers && pairs_is_brief(x, most))
                kernel = most == 1 ? pairs_kernel<pairs_brief<1>, MOST> : pairs_kernel<pairs_brief<PAIRS_BATCH>, MOST>;
        }
        return launch_grid(kernel, team, x, part.blocks, part.threads, kept, stream);
    });
}

#if CUDART_VERSION >= 12010
/* Whether a kernel may have more than 4 KiB of arguments. */
static bool pairs_vast(void)
{
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess && version >= 12010;
}
#endif

extern "C" int alg_pairs_launch(const alg_team_t *team, const alg_call_t *call, void *stream)
{
    if (call->message_count <= (uint32_t)PAIRS_FEW)
        return pairs_launch<PAIRS_FEW>(team, call, stream);
#if CUDART_VERSION >= 12010
    if (call->message_count > (uint32_t)PAIRS_MANY && pairs_vast())
        return pairs_launch<PAIRS_VAST>(team, call, stream);
#endif
    return pairs_launch<PAIRS_MANY>(team, call, stream);
}

/* 0, or not. One block may have to keep the progress of all items. */
template <int MOST> static int pairs_preload_of(void)
{
    return (int)cudaFuncSetAttribute(pairs_kernel<pairs, MOST>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     PAIRS_MOST_ITEMS * sizeof(progress_t)) |
           launch_preload(pairs_kernel<pairs, MOST>);
}

extern "C" int alg_pairs_preload(void)
{
    int error = pairs_preload_of<PAIRS_FEW>() | pairs_preload_of<PAIRS_MANY>();
#if CUDART_VERSION >= 12010
    error |= pairs_vast() ? pairs_preload_of<PAIRS_VAST>() : 0;
#endif
    return error | launch_preload(pairs_kernel<pairs_brief<1>, PAIRS_FEW>) |
           launch_preload(pairs_kernel<pairs_brief<PAIRS_BATCH>, PAIRS_FEW>);
}

#else

template <class A, int MOST> static void pairs_body(lane_t lane, const alg_team_t &team, const exchange<MOST> &x)
{
    A::template run<MOST>(lane, team, x);
}

static int alg_pairs_host(const alg_team_t *team, const alg_call_t *call)
{
    return pairs_slices<PAIRS_VAST>(
        team, call, [team, call](const exchange<PAIRS_VAST> &x, uint32_t items, uint32_t most) {
            const uint32_t blocks = launch_blocks(call),
                           workers = blocks < LAUNCH_HOST_BLOCKS ? blocks : (uint32_t)LAUNCH_HOST_BLOCKS;
            void (*body)(lane_t, const alg_team_t &, const exchange<PAIRS_VAST> &) = pairs_body<pairs, PAIRS_VAST>;
            if (items <= workers && pairs_is_brief(x, most))
                body = most == 1 ? pairs_body<pairs_brief<1>, PAIRS_VAST>
                                 : pairs_body<pairs_brief<PAIRS_BATCH>, PAIRS_VAST>;
            return launch_threads(body, team, x, items < workers ? items : workers, false, 0);
        });
}

ALG_CUDA_DECLARE(alg_pairs)

static uint64_t pairs_max_bytes(const alg_map_t *, uint32_t, alg_type_t)
{
    return PAIRS_MOST_BYTES;
}

/* Both directions with every peer, at most; what is launched follows the messages. */
static void pairs_shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
{
    const uint64_t rows = message_rows(bytes, 32), most = ALG_PAIR_CHANNELS;
    pairs_grid((uint32_t)(rows < most ? rows : most) * 2 * nranks, blocks, threads);
}

#define PAIRS_DESCRIBE(memory, symbol, title)                     \
    extern "C" {                                                  \
    extern const alg_algorithm_t symbol;                          \
    const alg_algorithm_t symbol = {title,                        \
                                    ALG_SEND_RECV,                \
                                    pairs_max_bytes,              \
                                    pairs_shape,                  \
                                    ALG_CUDA(alg_pairs, launch),  \
                                    alg_pairs_host,               \
                                    ALG_CUDA(alg_pairs, preload), \
                                    memory,                       \
                                    NULL};                        \
    }
PAIRS_DESCRIBE(ALG_MEMORY_PEER, alg_sendrecv_pairs, "pairs")
PAIRS_DESCRIBE(ALG_MEMORY_HOST, alg_sendrecv_shm_pairs, "shm-pairs")

#endif
