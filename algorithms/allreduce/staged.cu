/* SPDX-License-Identifier: Apache-2.0 */
/* staged.cu - all-reduce, two-shot push through staging chunks, for buffers too large for the halves.
 *
 * Data path: chunk of input slice o -> scatter staging at rank o -> flag -> rank o adds in rank order -> output, and
 * gather staging at every peer -> flag -> output. Data is raw, so nothing is re-armed.
 *
 * A channel is an independent share of the buffer, served by one warp. Ranks agree on the number of channels, not of
 * warps. A warp serves its channels in increasing order, which prevents deadlock. Staging holds one chunk per channel
 * and peer. It needs no credit, and calls may follow each other with any grids (docs/lab/proofs.md).
 *
 * A flag is 8 bytes, never cleared: the call's number in the high bits, the chunk's in the low ones. A reader accepts
 * numbers up to two calls ahead of the awaited one: peers may be in the next call, and numbers wrap. */
#include "algorithms/device/epoch.h"
#include "algorithms/device/input.h"
#include "algorithms/device/launch.h"
#include "algorithms/device/peers.h"

enum {
    STAGED_BATCH = 4,          /* loads in flight before the first store */
    STAGED_MOST_ROWS = 24,     /* of a chunk (12 KiB a warp), so 1024 channels of two ranks fit staging */
    STAGED_MOST_CHUNKS = 60000 /* less than EPOCH_UNIT; longer buffers get larger chunks */
};

/* Sums of positions, in vectors, must fit 32 bits. */
#define STAGED_MOST_BYTES ((uint64_t)32 << 30)

/* A row is one vector of every lane of a channel. */
typedef struct staged_plan {
    uint32_t slice;
    uint32_t channels; /* of the call */
    uint32_t chunks;   /* of each slice and channel */
    uint32_t rows;     /* of a chunk; a slice's last may be shorter */
} staged_plan_t;

/* Bytes of one row of all channels, in both phases. */
LANE_HOST_FN uint64_t staged_row(uint32_t nranks, uint32_t channels, uint32_t lanes)
{
    return (uint64_t)2 * (nranks - 1) * channels * lanes * VEC;
}

/* Cuts slices into as few equal chunks as staging allows. */
LANE_HOST_FN staged_plan_t staged_plan(uint64_t staging_bytes, uint32_t vectors, uint32_t nranks, uint32_t channels,
                                       uint32_t lanes)
{
    staged_plan_t p;
    p.slice = (vectors + nranks - 1) / nranks;
    p.channels = channels;
    const uint32_t rows = (p.slice + channels * lanes - 1) / (channels * lanes);
    const uint64_t row = staged_row(nranks, channels, lanes); /* 0 for one rank */
    const uint32_t room = row ? (uint32_t)(staging_bytes / row) : (uint32_t)STAGED_MOST_ROWS;
    const uint32_t wanted = rows / STAGED_MOST_CHUNKS + 1;
    const uint32_t most = wanted > STAGED_MOST_ROWS ? wanted : (uint32_t)STAGED_MOST_ROWS;
    p.chunks = (rows + (most < room ? most : room) - 1) / (most < room ? most : room);
    p.rows = (rows + p.chunks - 1) / p.chunks;
    return p;
}

enum { STAGED_SCATTER = 0, STAGED_GATHER = 1 };

typedef struct span {
    uint32_t first; /* first vector in the buffers; the next row is `lanes` further */
    uint32_t rows;
} span_t;

struct channel {
    uint32_t index, lane, lanes;
    uint32_t vectors; /* of the buffer */
    staged_plan_t plan;

    LANE_FN uint8_t *flag(const alg_team_t &team, uint32_t at, int phase, uint32_t from) const
    {
        return team.scratch[at] + team.flags_offset +
               (((uint64_t)phase * ALG_STAGED_CHANNELS + index) * ALG_MAX_RANKS + from) * 8;
    }

    LANE_FN uint8_t *staging(const alg_team_t &team, uint32_t at, int phase, uint32_t from) const
    {
        const uint64_t slot = (uint64_t)other_place(from, at) * plan.channels + index;
        return team.scratch[at] + team.staging_offset + phase * (team.staging_bytes / 2) +
               (slot * plan.rows * lanes + lane) * VEC;
    }

    LANE_FN span_t span(uint32_t owner, uint32_t c) const
    {
        const uint32_t begin = owner * plan.slice;
        const uint32_t end = begin + plan.slice < vectors ? begin + plan.slice : vectors;
        const uint32_t first = begin + (c * plan.channels + index) * plan.rows * lanes + lane;
        const uint32_t left = first < end ? (end - first + lanes - 1) / lanes : 0;
        return span_t{first, left < plan.rows ? left : plan.rows};
    }

    LANE_FN void raise(const alg_team_t &team, int phase, uint64_t value) const
    {
        lane_warp_sync();
        for (uint32_t r = lane; r < team.nranks; r += lanes) {
            if (r == team.rank)
                continue;
            lane_fence();
            lane_raise(flag(team, r, phase, team.rank), value);
        }
    }

    LANE_FN bool wait(lane_t &l, const alg_team_t &team, int phase, uint64_t value) const
    {
        bool broken = false;
        lane_wait_begins(l);
        for (uint32_t r = lane; r < team.nranks && !broken; r += lanes) {
            while (r != team.rank && !broken && lane_flag(flag(team, team.rank, phase, r)) - value >= 2 * EPOCH_UNIT)
                broken = lane_stop(l, team);
        }
        broken = lane_warp_any(broken);
        lane_warp_sync();
        return !broken;
    }
};

struct staged {
    enum { MOST_THREADS = 512 };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        typedef reduction<TYPE, OPS, N, WHOLE> R;
        R r = R::make(team, call);
        const uint32_t lanes = lane_warp_size(), warps = lane.threads / lanes;
        channel ch;
        ch.index = lane.block * warps + lane.thread / lanes;
        ch.lane = lane.thread % lanes;
        ch.lanes = lanes;
        ch.vectors = r.vectors();
        ch.plan = staged_plan(team.staging_bytes, ch.vectors, team.nranks, call.blocks * (call.threads / lanes), lanes);
        const uint32_t chunks = ch.plan.chunks;

        lane_begin(r.held(), call.early);
        const uint64_t epoch = epoch_read(team), base = epoch_base(epoch);
        r.begin(call);
        epoch_leave(lane, team);
        if (lane_warp_any(epoch_stopped(epoch)))
            return;

        for (; ch.index < ch.plan.channels; ch.index += lane.blocks * warps) {
            for (uint32_t c = 0; c < chunks; c++) {
                scatter(team, r, ch, c);
                ch.raise(team, STAGED_SCATTER, base + c + 1);
                if (!ch.wait(lane, team, STAGED_SCATTER, base + c + 1))
                    return;
                reduce<R, N>(team, r, ch, c);
                ch.raise(team, STAGED_GATHER, base + c + 1);
                if (!ch.wait(lane, team, STAGED_GATHER, base + c + 1))
                    return;
                gather(team, r, ch, c);
            }
        }
    }

    template <class R> LANE_FN static void scatter(const alg_team_t &team, const R &r, const channel &ch, uint32_t c)
    {
        for (uint32_t i = 1; i < team.nranks; i++) {
            const uint32_t owner = ring_next(team, i);
            const span_t s = ch.span(owner, c);
            uint8_t *to = ch.staging(team, owner, STAGED_SCATTER, team.rank);
            for (uint32_t k = 0; k < s.rows; k += STAGED_BATCH) {
                vec16_t x[STAGED_BATCH];
                LANE_UNROLL
                for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                    if (k + b < s.rows)
                        x[b] = r.load(s.first + (k + b) * ch.lanes);
                }
                LANE_UNROLL
                for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                    if (k + b < s.rows)
                        lane_copy_out(to + (k + b) * ch.lanes * VEC, x[b]);
                }
            }
        }
    }

    template <class R, int N>
    LANE_FN static void reduce(const alg_team_t &team, const R &r, const channel &ch, uint32_t c)
    {
        constexpr int BATCH = N <= 4 ? 8 / N : 1;
        const span_t s = ch.span(team.rank, c);
        const uint8_t *from[N - 1];
        uint8_t *to[N - 1];
        LANE_UNROLL
        for (uint32_t j = 0; j < N - 1; j++) {
            if (j + 1 < team.nranks) {
                from[j] = ch.staging(team, team.rank, STAGED_SCATTER, other_rank(team, j));
                to[j] = ch.staging(team, ring_next(team, j + 1), STAGED_GATHER, team.rank);
            }
        }
        for (uint32_t k = 0; k < s.rows; k += BATCH) {
            vec16_t x[BATCH][N - 1], own[BATCH];
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                if (k + b >= s.rows)
                    continue;
                own[b] = r.load(s.first + (k + b) * ch.lanes);
                LANE_UNROLL
                for (uint32_t j = 0; j < N - 1; j++) {
                    if (j + 1 < team.nranks)
                        x[b][j] = lane_copy_in(from[j] + (k + b) * ch.lanes * VEC);
                }
            }
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                if (k + b >= s.rows)
                    continue;
                const vec16_t result = r.combine(x[b], team.rank, own[b]);
                r.store(s.first + (k + b) * ch.lanes, result);
                LANE_UNROLL
                for (uint32_t j = 0; j < N - 1; j++) {
                    if (j + 1 < team.nranks)
                        lane_copy_out(to[j] + (k + b) * ch.lanes * VEC, result);
                }
            }
        }
    }

    template <class R> LANE_FN static void gather(const alg_team_t &team, const R &r, const channel &ch, uint32_t c)
    {
        for (uint32_t i = 1; i < team.nranks; i++) {
            const uint32_t owner = ring_next(team, i);
            const span_t s = ch.span(owner, c);
            const uint8_t *from = ch.staging(team, team.rank, STAGED_GATHER, owner);
            for (uint32_t k = 0; k < s.rows; k += STAGED_BATCH) {
                vec16_t x[STAGED_BATCH];
                LANE_UNROLL
                for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                    if (k + b < s.rows)
                        x[b] = lane_copy_in(from + (k + b) * ch.lanes * VEC);
                }
                LANE_UNROLL
                for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                    if (k + b < s.rows)
                        r.store(s.first + (k + b) * ch.lanes, x[b]);
                }
            }
        }
    }

    static uint64_t segment_bytes(const alg_team_t *, const alg_call_t *)
    {
        return UINT64_MAX;
    }

    static uint64_t max_bytes(alg_collective_t, const alg_map_t *map, uint32_t nranks, alg_type_t)
    {
        return map->staging_bytes >= staged_row(nranks, ALG_STAGED_CHANNELS, 32) ? STAGED_MOST_BYTES : 0;
    }

    static void shape(alg_collective_t, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        grid_shape((buffer_vectors(bytes) + nranks - 1) / nranks, grid_most_threads<staged>(nranks), blocks, threads);
        while (*blocks > 1 && (uint64_t)*blocks * (*threads / 32) > ALG_STAGED_CHANNELS)
            --*blocks;
    }
};

/* Limits the kernel of two ranks to 64 registers. Two blocks then fit a multiprocessor, which is faster beside matrix
 * products (docs/lab/results/few-blocks-2-h200.csv). Kernels of more ranks would spill. */
template <> inline constexpr int BLOCKS_A_MULTIPROCESSOR<staged, 2> = 2;
template <> inline constexpr uint32_t PIECE<staged> = ALG_PIECE_STAGING;
template <> inline constexpr alg_cost_t COST<staged, ALG_ALL_REDUCE> = {ALG_LOAD_TWICE, 7.0, 0.82, 2};

ALG_ENTRIES(alg_staged, reducer<staged>)
ALG_DESCRIBE(alg_allreduce_staged, "staged", ALG_ALL_REDUCE, ALG_MEMORY_PEER, alg_staged)
