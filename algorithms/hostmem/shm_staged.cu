/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_staged.cu - all-reduce through the host's memory for longer messages: two
 * crossings, chunk by chunk, raw data behind flags.
 *
 * Data path: input chunk of slice o -> own outbox -> flag -> rank o adds in rank
 * order -> output, and its outbox -> flag -> output of every peer. S written,
 * 2 (n-1)/n S read over each GPU's PCIe link. What counts there:
 *   - a rank's flags to a block of ours lie in one line of our own scratch, so one
 *     warp of the block waits for all of them with one load, and lets the block go on;
 *   - one fence and one flag a step serve both crossings: in step c the scattered
 *     chunk c is added while the sums of chunk c - 1 are fetched;
 *   - chunk c + 1 is scattered before flag c is waited for, so that a GPU stores
 *     while it loads.
 *
 * A block is a channel, and its memory is ordered by its own flags. Of scattered
 * chunks an outbox holds three: chunk c + 1 takes the place of c - 2 after flag c - 1
 * came from everybody, who had read it by then. Of sums two: those of chunk c take the
 * place of c - 2 after flag c came, whose sender had fetched them. Between two calls,
 * whatever their grids: a rank ends when everybody's last flag came, so all that it
 * scattered was read; and it stores sums only behind a flag of the new call from every
 * rank, which had fetched the last ones. That is why both areas are fixed.
 *
 * Flags hold the number of the step counted over all calls, and are never cleared. A
 * flag is new if it is at most two calls ahead of what is waited for.
 */
#include "algorithms/device/input.h"
#include "algorithms/device/launch.h"
#include "algorithms/hostmem/outbox.h"

enum {
    SHM_SCATTERED = 3, /* chunks in an outbox */
    SHM_SUMS = 2,
    SHM_LANES = 8192,       /* of a call, at most: 512 each in 16 blocks */
    SHM_MOST_ROWS = 4,      /* of a chunk; more only make the pipeline's ends longer */
    SHM_MOST_STEPS = 60000, /* less than EPOCH_UNIT; of more, chunks grow */
    SHM_FLAGS_LINE = 8 * ALG_MAX_RANKS
};

/* Of a message that one kernel takes. */
#define SHM_SEGMENT ((uint64_t)256 << 20)

/* Bytes of both areas for chunks of one row. */
LANE_HOST_FN uint64_t shm_row(uint32_t nranks, uint32_t all_lanes)
{
    return (uint64_t)(SHM_SCATTERED * (nranks - 1) + SHM_SUMS) * all_lanes * VEC;
}

/* Where that of the sums begins. The scattered chunks before it take their share of each row. */
LANE_HOST_FN uint64_t shm_sums_area(uint64_t staging_bytes, uint32_t nranks)
{
    const uint64_t scattered = SHM_SCATTERED * (nranks - 1);
    return staging_bytes / (scattered + SHM_SUMS) * scattered / VEC * VEC;
}

/* A row is one vector of every lane of a channel. */
typedef struct shm_plan {
    uint32_t slice; /* vectors of a rank's slice */
    uint32_t channels;
    uint32_t chunks; /* each channel's, of each slice */
    uint32_t rows;   /* of a chunk; the slice's last may have fewer */
} shm_plan_t;

LANE_FN shm_plan_t shm_plan(const alg_team_t &team, uint32_t vectors, uint32_t channels, uint32_t lanes)
{
    const uint32_t all = channels * lanes;
    const uint64_t row = (uint64_t)all * VEC, sums = shm_sums_area(team.staging_bytes, team.nranks);
    const uint64_t scattered_room = sums / (SHM_SCATTERED * (team.nranks - 1) * row);
    const uint64_t sums_room = (team.staging_bytes - sums) / (SHM_SUMS * row);
    const uint32_t room = (uint32_t)(scattered_room < sums_room ? scattered_room : sums_room);
    shm_plan_t p;
    p.slice = (vectors + team.nranks - 1) / team.nranks;
    p.channels = channels;
    const uint32_t rows = (p.slice + all - 1) / all, wanted = rows / SHM_MOST_STEPS + 1;
    const uint32_t most = wanted > SHM_MOST_ROWS ? wanted : (uint32_t)SHM_MOST_ROWS;
    p.rows = most < room ? most : room;
    p.chunks = (rows + p.rows - 1) / p.rows;
    return p;
}

/* This lane's part of a chunk. */
typedef struct shm_span {
    uint32_t first; /* vector of the buffers; the next row's is `lanes` further */
    uint32_t rows;
} shm_span_t;

/* One block's view of buffers and outboxes. */
struct shm_channel {
    uint32_t index, lane, lanes;
    uint32_t vectors; /* of the message */
    uint64_t sums;    /* where their area begins, from staging's begin */
    shm_plan_t plan;

    /* This lane's first vector of a chunk that rank `from` scattered to `to`; its sums if these are one. */
    LANE_FN uint8_t *outbox(const alg_team_t &team, uint32_t from, uint32_t to, uint32_t c) const
    {
        const bool own = from == to;
        const uint32_t slot = own ? c % SHM_SUMS : c % SHM_SCATTERED * (team.nranks - 1) + other_place(to, from);
        const uint64_t row = (uint64_t)(slot * plan.channels + index) * plan.rows;
        return team.scratch[from] + team.staging_offset + (own ? sums : 0) + (row * lanes + lane) * VEC;
    }

    /* Of chunk c of rank `owner`'s slice. */
    LANE_FN shm_span_t span(uint32_t owner, uint32_t c) const
    {
        const uint32_t begin = owner * plan.slice;
        const uint32_t end = begin + plan.slice < vectors ? begin + plan.slice : vectors;
        const uint32_t first = begin + (c * plan.channels + index) * plan.rows * lanes + lane;
        const uint32_t left = first < end ? (end - first + lanes - 1) / lanes : 0;
        return shm_span_t{first, left < plan.rows ? left : plan.rows};
    }

    LANE_FN uint8_t *flag(const alg_team_t &team, uint32_t at, uint32_t from) const
    {
        return team.scratch[at] + team.flags_offset + (uint64_t)index * SHM_FLAGS_LINE + 8 * from;
    }

    /* What this block posted and fetched is done with when they see the flag. */
    LANE_FN void raise(const lane_t &l, const alg_team_t &team, uint64_t value) const
    {
        lane_sync();
        for (uint32_t r = l.thread; r < team.nranks; r += l.threads) {
            if (r == team.rank)
                continue;
            lane_fence();
            lane_raise(flag(team, r, team.rank), value);
        }
    }

    /* Until every peer has raised its flag to `value`. False: the wait was broken. */
    LANE_FN bool wait(lane_t &l, const alg_team_t &team, uint64_t value) const
    {
        bool broken = false;
        lane_wait_begins(l);
        for (uint32_t r = l.thread; r < team.nranks && !broken; r += l.threads) {
            while (r != team.rank && !broken && lane_flag(flag(team, team.rank, r)) - value >= 2 * EPOCH_UNIT)
                broken = lane_stop(l, team);
        }
        return !lane_sync_any(broken);
    }
};

struct shm_staged {
    enum { MOST_THREADS = 512 };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const alg_call_t &call)
    {
        typedef reduction<TYPE, OPS, N, WHOLE> R;
        R r = R::make(team, call);
        shm_channel ch;
        ch.index = lane.block;
        ch.lane = lane.thread;
        ch.lanes = lane.threads;
        ch.vectors = r.vectors();
        ch.plan = shm_plan(team, ch.vectors, call.blocks, lane.threads);
        ch.sums = shm_sums_area(team.staging_bytes, team.nranks);

        lane_begin(r.held(), call.early);
        const uint64_t epoch = epoch_read(team), base = epoch_base(epoch);
        r.begin(call);
        epoch_leave(lane, team);
        if (epoch_stopped(epoch))
            return;
        outbox_clear_one(lane, team, epoch, 0);

        for (; ch.index < ch.plan.channels; ch.index += lane.blocks) {
            scatter(team, r, ch, 0);
            for (uint32_t c = 0; c <= ch.plan.chunks; c++) {
                ch.raise(lane, team, base + c + 1);
                if (c + 1 < ch.plan.chunks)
                    scatter(team, r, ch, c + 1);
                if (!ch.wait(lane, team, base + c + 1))
                    return;
                if (c > 0)
                    gather<R, N>(team, r, ch, c - 1);
                if (c < ch.plan.chunks)
                    reduce<R, N>(team, r, ch, c);
            }
        }
    }

    template <class R>
    LANE_FN static void scatter(const alg_team_t &team, const R &r, const shm_channel &ch, uint32_t c)
    {
        for (uint32_t i = 1; i < team.nranks; i++) {
            const uint32_t owner = ring_next(team, i);
            const shm_span_t s = ch.span(owner, c);
            uint8_t *to = ch.outbox(team, team.rank, owner, c);
            for (uint32_t k = 0; k < s.rows; k += SHM_MOST_ROWS) {
                vec16_t x[SHM_MOST_ROWS];
                LANE_UNROLL
                for (uint32_t b = 0; b < SHM_MOST_ROWS; b++) {
                    if (k + b < s.rows)
                        x[b] = r.load(s.first + (k + b) * ch.lanes);
                }
                LANE_UNROLL
                for (uint32_t b = 0; b < SHM_MOST_ROWS; b++) {
                    if (k + b < s.rows)
                        lane_post(to + (uint64_t)(k + b) * ch.lanes * VEC, x[b]);
                }
            }
        }
    }

    template <class R, int N>
    LANE_FN static void reduce(const alg_team_t &team, const R &r, const shm_channel &ch, uint32_t c)
    {
        constexpr int BATCH = N <= 4 ? 8 / N : 1;
        const shm_span_t s = ch.span(team.rank, c);
        uint8_t *to = ch.outbox(team, team.rank, team.rank, c);
        const uint8_t *from[N - 1];
        LANE_UNROLL
        for (uint32_t j = 0; j < N - 1; j++) {
            if (j + 1 < team.nranks)
                from[j] = ch.outbox(team, other_rank(team, j), team.rank, c);
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
                        x[b][j] = lane_fetch(from[j] + (uint64_t)(k + b) * ch.lanes * VEC);
                }
            }
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                if (k + b >= s.rows)
                    continue;
                const vec16_t sum = r.combine(x[b], team.rank, own[b]);
                r.store(s.first + (k + b) * ch.lanes, sum);
                lane_post(to + (uint64_t)(k + b) * ch.lanes * VEC, sum);
            }
        }
    }

    template <class R, int N>
    LANE_FN static void gather(const alg_team_t &team, const R &r, const shm_channel &ch, uint32_t c)
    {
        constexpr int BATCH = N <= 4 ? 8 / N : 1;
        shm_span_t s[N - 1];
        const uint8_t *from[N - 1];
        LANE_UNROLL
        for (uint32_t j = 0; j < N - 1; j++) {
            s[j] = shm_span_t{0, 0};
            if (j + 1 < team.nranks) {
                s[j] = ch.span(other_rank(team, j), c);
                from[j] = ch.outbox(team, other_rank(team, j), other_rank(team, j), c);
            }
        }
        for (uint32_t k = 0; k < ch.plan.rows; k += BATCH) {
            vec16_t x[BATCH][N - 1];
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                LANE_UNROLL
                for (uint32_t j = 0; j < N - 1; j++) {
                    if (k + b < s[j].rows)
                        x[b][j] = lane_fetch(from[j] + (uint64_t)(k + b) * ch.lanes * VEC);
                }
            }
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                LANE_UNROLL
                for (uint32_t j = 0; j < N - 1; j++) {
                    if (k + b < s[j].rows)
                        r.store(s[j].first + (k + b) * ch.lanes, x[b][j]);
                }
            }
        }
    }

    static uint64_t segment(const alg_team_t *, const alg_call_t *)
    {
        return SHM_SEGMENT;
    }

    template <int COLLECTIVE> static uint64_t max_bytes(const alg_map_t *map, uint32_t nranks, alg_type_t)
    {
        return nranks >= 2 && map->staging_bytes >= shm_row(nranks, SHM_LANES) + VEC * ALG_MAX_RANKS ? UINT64_MAX : 0;
    }

    template <int COLLECTIVE> static void shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        launch_shape((buffer_vectors(bytes) + nranks - 1) / nranks, launch_most_threads<shm_staged>(nranks), blocks,
                     threads);
        while (*blocks > 1 && (*blocks > ALG_HOST_CHANNELS || *blocks * *threads > SHM_LANES))
            --*blocks;
    }
};

ALG_REDUCER(alg_shm_staged, shm_staged)
ALG_DESCRIBE_FOR(ALG_MEMORY_HOST, alg_allreduce_shm_staged, "shm-staged", ALG_ALL_REDUCE, alg_shm_staged, shm_staged)
