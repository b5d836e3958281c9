/*
 * pairs.cu - sends and receives, all messages of a group in one kernel.
 *
 * Data path: buffer -> ring in the receiver's scratch -> buffer. A vector tells
 * that it has arrived by not being all-ones, so a message needs no flag; words of
 * all-ones travel as escapes (mark.h), and data arrives bit for bit.
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
    PAIRS_FEW = 16,   /* messages of the usual kernel: its arguments are short */
    PAIRS_MANY = 216, /* of the other one; its arguments fill 4 KiB, the most that every driver takes */
    PAIRS_HOST_ITEMS = 64
};

#define PAIRS_MOST_BYTES ((uint64_t)32 << 30)

/* Where an item stands. Alike on all lanes of its warp, and kept for it between two steps. */
typedef struct progress {
    uint64_t count;    /* rows that have passed through the ring */
    uint64_t row;      /* of the message: the channel's next */
    uint64_t credit;   /* sender: rows that were armed again, as it last saw it */
    uint32_t part;     /* message */
    uint32_t arriving; /* receiver: the last look found something */
} progress_t;

typedef enum step { STEP_IDLE, STEP_MOVED, STEP_DONE, STEP_BROKEN } step_t;

/* One channel of one direction, and a lane's place in it. */
struct item {
    uint32_t list, channel, peer, end; /* end: of its messages */
    bool sends;
    uint32_t lane, lanes, rows; /* rows of the ring */
    uint8_t *data, *words;      /* this lane's, of row 0 of the ring */
    uint8_t *count;             /* own: SENT or RECEIVED */
    uint8_t *credit;            /* own, or for the receiver the peer's */

    LANE_FN uint8_t *vector(uint64_t row) const
    {
        return data + (row & (rows - 1)) * lanes * VEC;
    }

    LANE_FN uint8_t *word(uint64_t row) const
    {
        return words + (row & (rows - 1)) * lanes * 4;
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
    if (it.peer == team.rank)
        return it;
    const uint32_t at = it.sends ? it.peer : team.rank, from = it.sends ? team.rank : it.peer;
    const uint64_t ring = (uint64_t)other_place(from, at) * x.rings.channels + it.channel;
    it.data = team.scratch[at] + team.rings_offset + ring * ring_bytes(it.rows, it.lanes);
    it.words = it.data + (uint64_t)it.rows * it.lanes * VEC + lane * 4;
    it.data += lane * VEC;
    const uint64_t column = (uint64_t)it.channel * 8;
    uint8_t *own = team.scratch[team.rank] + team.counts_offset + column;
    uint8_t *counts = team.scratch[it.peer] + team.counts_offset + column;
    const uint32_t kind = it.sends ? COUNT_SENT : COUNT_RECEIVED;
    it.count = own + (uint64_t)(kind * ALG_MAX_RANKS + it.peer) * ALG_PAIR_CHANNELS * 8;
    it.credit = it.sends ? own + (uint64_t)(COUNT_CREDIT * ALG_MAX_RANKS + it.peer) * ALG_PAIR_CHANNELS * 8
                         : counts + (uint64_t)(COUNT_CREDIT * ALG_MAX_RANKS + team.rank) * ALG_PAIR_CHANNELS * 8;
    return it;
}

/* Rows of the buffer at `row`, `row + stride` and so on. */
struct span {
    buffer_t buffer;
    uint32_t vectors, first, stride; /* first: this lane's vector of the first row */
    uint32_t rows;                   /* at most PAIRS_BATCH */
    bool whole;                      /* every lane has a whole vector in each */

    LANE_FN bool has(uint32_t b) const
    {
        return b < rows && first + b * stride < vectors;
    }
};

LANE_FN span span_make(const item &it, const part_t &part, const rings_t &rings, uint64_t row)
{
    span s;
    const uint32_t rows = (uint32_t)message_rows(part.bytes, it.lanes), channels = rings_channels(rings, rows);
    s.buffer = buffer_make(part.buffer, part.bytes);
    s.vectors = buffer_vectors(part.bytes);
    s.stride = channels * it.lanes;
    s.first = (uint32_t)row * it.lanes + it.lane;
    s.rows = 0;
    LANE_UNROLL
    for (uint32_t b = 0; b < PAIRS_BATCH; b++)
        s.rows += (uint32_t)row + b * channels < rows;
    s.whole = s.first - it.lane + (s.rows - 1) * s.stride + it.lanes <= s.buffer.whole;
    return s;
}

template <bool WHOLE> LANE_FN void span_load(const span &s, vec16_t (&x)[PAIRS_BATCH])
{
    LANE_UNROLL
    for (uint32_t b = 0; b < PAIRS_BATCH; b++) {
        if (WHOLE ? b < s.rows : s.has(b))
            x[b] = WHOLE ? buffer_load_whole(s.buffer, s.first + b * s.stride)
                         : buffer_load<uint8_t>(s.buffer, s.first + b * s.stride);
    }
}

template <bool WHOLE> LANE_FN void span_store(const span &s, const vec16_t (&x)[PAIRS_BATCH])
{
    LANE_UNROLL
    for (uint32_t b = 0; b < PAIRS_BATCH; b++) {
        if (WHOLE ? b < s.rows : s.has(b)) {
            if (WHOLE)
                buffer_store_whole(s.buffer, s.first + b * s.stride, x[b]);
            else
                buffer_store<uint8_t>(s.buffer, s.first + b * s.stride, x[b]);
        }
    }
}

struct pairs {
    template <int MOST> LANE_FN static void run(lane_t lane, const alg_team_t &team, const exchange<MOST> &x)
    {
#ifdef __CUDACC__
        extern __shared__ progress_t kept[];
#else
        progress_t kept[PAIRS_HOST_ITEMS];
#endif
        const uint32_t lanes = lane_warp_size(), warps = lane.threads / lanes, items = x.item_end[EXCHANGE_LISTS - 1];
        /* Neighbouring items go to different blocks. */
        const uint32_t first = lane.thread / lanes * lane.blocks + lane.block, workers = lane.blocks * warps;
        progress_t *mine = kept + lane.thread / lanes * ((items + workers - 1) / workers);
        const uint32_t here = lane.thread % lanes;
        uint32_t left = 0;

        lane_begin((uintptr_t)team.scratch[team.rank], x.early);
        const uint64_t epoch = epoch_read(team);
        for (uint32_t i = first, k = 0; i < items; i += workers, k++) {
            const item it = item_make(team, x, i, here);
            progress_t p = {0, it.channel, 0, it.list ? x.part_end[it.list - 1] : 0u, 1};
            if (it.peer != team.rank) {
                p.count = lane_read_own((const uint64_t *)it.count);
                p.credit = it.sends ? lane_flag(it.credit) : 0;
            }
            if (here == 0)
                mine[k] = p;
            left++;
        }
        if (epoch_stopped(epoch))
            return;
        lane_warp_sync();
        while (left > 0) {
            bool moved = false;
            for (uint32_t i = first, k = 0; i < items; i += workers, k++) {
                progress_t p = mine[k];
                const item it = item_make(team, x, i, here);
                if (p.part == it.end)
                    continue;
                step_t step;
                while ((step = work(lane, team, x, it, p)) == STEP_MOVED)
                    moved = true;
                if (step == STEP_BROKEN)
                    return;
                moved = moved || step == STEP_DONE;
                left -= step == STEP_DONE;
                lane_warp_sync();
                if (here == 0)
                    mine[k] = p;
                lane_warp_sync();
            }
            if (moved)
                lane_wait_begins(lane);
            else if (left > 0 && lane_warp_any(lane_stop(lane, team)))
                return;
        }
    }

    template <int MOST>
    LANE_FN static step_t work(lane_t &lane, const alg_team_t &team, const exchange<MOST> &x, const item &it,
                               progress_t &p)
    {
        step_t step = STEP_MOVED;
        if (p.row < message_rows(x.part[p.part].bytes, it.lanes)) {
            if (it.peer == team.rank)
                copy(x, it, p);
            else if (it.sends)
                step = send(x, it, p);
            else
                step = receive(lane, team, x, it, p);
        }
        if (step == STEP_BROKEN || p.row < message_rows(x.part[p.part].bytes, it.lanes))
            return step;
        p.row = it.channel;
        if (++p.part < it.end)
            return STEP_MOVED;
        if (it.peer != team.rank && it.lane == 0)
            lane_write_own((uint64_t *)it.count, p.count);
        return STEP_DONE;
    }

    template <int MOST> LANE_FN static void copy(const exchange<MOST> &x, const item &it, progress_t &p)
    {
        const uint32_t parts = it.end - (it.list ? x.part_end[it.list - 1] : 0u);
        span s = span_make(it, x.part[p.part], x.rings, p.row);
        span d = span_make(it, x.part[p.part + parts], x.rings, p.row);
        vec16_t v[PAIRS_BATCH];
        if (s.whole && d.whole) {
            span_load<true>(s, v);
            span_store<true>(d, v);
        } else {
            span_load<false>(s, v);
            span_store<false>(d, v);
        }
        p.row += (uint64_t)s.rows * (s.stride / it.lanes);
    }

    template <int MOST> LANE_FN static step_t send(const exchange<MOST> &x, const item &it, progress_t &p)
    {
        if (p.count - p.credit >= it.rows)
            p.credit = lane_flag(it.credit);
        const uint32_t room = it.rows - (uint32_t)(p.count - p.credit);
        span s = span_make(it, x.part[p.part], x.rings, p.row);
        if (room < s.rows) {
            if (room == 0)
                return STEP_IDLE;
            s.rows = room;
        }
        vec16_t v[PAIRS_BATCH];
        if (s.whole)
            span_load<true>(s, v);
        else
            span_load<false>(s, v);
        LANE_UNROLL
        for (uint32_t b = 0; b < PAIRS_BATCH; b++) {
            if (!s.has(b))
                continue;
            const uint32_t escape = mark_clean<MARK_ESCAPE>(v[b]);
            lane_put(it.vector(p.count + b), v[b]);
            if (escape != 0)
                lane_put_word(it.word(p.count + b), escape);
        }
        p.count += s.rows;
        p.row += (uint64_t)s.rows * (s.stride / it.lanes);
        return STEP_MOVED;
    }

    /* What has arrived of the next rows, up to the first that has not. */
    template <int MOST>
    LANE_FN static step_t receive(lane_t &lane, const alg_team_t &team, const exchange<MOST> &x, const item &it,
                                  progress_t &p)
    {
        span s = span_make(it, x.part[p.part], x.rings, p.row);
        vec16_t v[PAIRS_BATCH];
        /* A look that found nothing is repeated at the first row alone: others need the memory more. */
        if (!p.arriving)
            s.rows = 1;
        LANE_UNROLL
        for (uint32_t b = 0; b < PAIRS_BATCH; b++) {
            if (s.has(b))
                v[b] = lane_poll(it.vector(p.count + b));
        }
        uint32_t here = 0;
        LANE_UNROLL
        for (uint32_t b = 0; b < PAIRS_BATCH; b++)
            here += here == b && b < s.rows && (!s.has(b) || mark_arrived<MARK_ESCAPE>(v[b]));
        s.rows = lane_warp_least(here);
        p.arriving = s.rows > 0;
        if (s.rows == 0)
            return STEP_IDLE;
        bool broken = false;
        LANE_UNROLL
        for (uint32_t b = 0; b < PAIRS_BATCH; b++) {
            if (s.has(b) && mark_escaped(v[b]))
                broken = broken || !take_escape(lane, team, it.word(p.count + b), v[b]);
        }
        if (lane_warp_any(broken))
            return STEP_BROKEN;
        if (s.whole)
            span_store<true>(s, v);
        else
            span_store<false>(s, v);
        LANE_UNROLL
        for (uint32_t b = 0; b < PAIRS_BATCH; b++) {
            if (s.has(b))
                lane_rearm(it.vector(p.count + b));
        }
        give_credit(it, p.count, p.count + s.rows);
        p.count += s.rows;
        p.row += (uint64_t)s.rows * (s.stride / it.lanes);
        return STEP_MOVED;
    }

    /* The word beside x, which x says is on its way. */
    LANE_FN static bool take_escape(lane_t &lane, const alg_team_t &team, uint8_t *word, vec16_t &x)
    {
        uint32_t escape;
        while ((escape = lane_poll_word(word)) == SENTINEL) {
            if (lane_stop(lane, team))
                return false;
        }
        lane_rearm_word(word);
        mark_unescape(x, escape);
        return true;
    }

    /* A quarter of the ring at a time, since a fence waits for the warp's stores. A sender whose ring is empty but for
     * what was not told sees three quarters of it. */
    LANE_FN static void give_credit(const item &it, uint64_t from, uint64_t to)
    {
        const uint64_t quarter = it.rows / 4, told = to & ~(quarter - 1);
        if (told == (from & ~(quarter - 1)))
            return;
        lane_warp_sync();
        if (it.lane == 0) {
            lane_fence();
            lane_raise(it.credit, told);
        }
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

/* The messages in slices that a kernel's arguments can hold: of each list its next `share`. What a peer lists together
 * with messages of a later slice must not be needed for this one to end; so a slice is as large as can be. */
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
        for (uint32_t i = 0; i < call->message_count; i++) {
            const alg_message_t &m = call->messages[i];
            const uint32_t l = pairs_list(m), at = seen[l]++;
            if (at < begin || at >= begin + share)
                continue;
            x.part[next[l]++] = part_t{(uint8_t *)m.buffer, m.bytes};
            const uint32_t wanted = rings_channels(x.rings, message_rows(m.bytes, PAIRS_LANES));
            channels[l] = wanted > channels[l] ? wanted : channels[l];
        }
        for (uint32_t l = 0; l < EXCHANGE_LISTS; l++) {
            items += l == 2 * team->rank + EXCHANGE_RECEIVE ? 0 : channels[l];
            x.item_end[l] = (uint16_t)items;
        }
        error = launch(x, items);
    }
    return error;
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

template <int MOST>
__global__ void __launch_bounds__(PAIRS_MOST_THREADS, LAUNCH_BLOCKS_A_MULTIPROCESSOR)
    pairs_kernel(const __grid_constant__ alg_team_t team, const __grid_constant__ exchange<MOST> x)
{
    pairs::run<MOST>(lane_here(), team, x);
}

template <int MOST> static int pairs_launch(const alg_team_t *team, const alg_call_t *call, void *stream)
{
    return pairs_slices<MOST>(team, call, [team, call, stream](const exchange<MOST> &x, uint32_t items) {
        alg_call_t part = *call;
        part.blocks = launch_blocks(call);
        pairs_grid(items, &part.blocks, &part.threads);
        const uint32_t workers = part.blocks * (part.threads / 32);
        const size_t kept = (items + workers - 1) / workers * (part.threads / 32) * sizeof(progress_t);
        return launch_grid(pairs_kernel<MOST>, team, x, part.blocks, part.threads, kept, stream);
    });
}

extern "C" int alg_pairs_launch(const alg_team_t *team, const alg_call_t *call, void *stream)
{
    return call->message_count <= (uint32_t)PAIRS_FEW ? pairs_launch<PAIRS_FEW>(team, call, stream)
                                                      : pairs_launch<PAIRS_MANY>(team, call, stream);
}

extern "C" int alg_pairs_preload(void)
{
    const int error = launch_preload(pairs_kernel<PAIRS_FEW>);
    return error ? error : launch_preload(pairs_kernel<PAIRS_MANY>);
}

#else

template <int MOST> static void pairs_body(lane_t lane, const alg_team_t &team, const exchange<MOST> &x)
{
    pairs::run<MOST>(lane, team, x);
}

static int alg_pairs_host(const alg_team_t *team, const alg_call_t *call)
{
    return pairs_slices<PAIRS_MANY>(team, call, [team, call](const exchange<PAIRS_MANY> &x, uint32_t items) {
        const uint32_t blocks = launch_blocks(call);
        return launch_threads(pairs_body<PAIRS_MANY>, team, x, items < blocks ? items : blocks);
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

extern "C" {
extern const alg_algorithm_t alg_sendrecv_pairs;
const alg_algorithm_t alg_sendrecv_pairs = {
    "pairs",
    ALG_SEND_RECV,
    pairs_max_bytes,
    pairs_shape,
    ALG_CUDA(alg_pairs, launch),
    alg_pairs_host,
    ALG_CUDA(alg_pairs, preload),
};
}

#endif
