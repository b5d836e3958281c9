/*
 * staged.cu - all-reduce, two-shot push through a ring of staging chunks, for
 * messages that outgrow the halves.
 *
 * Data path: input chunk of slice o -> rank o's scatter staging [own rank] ->
 * flag -> rank o adds in rank order -> output, and every peer's gather staging
 * [o] -> flag -> output. 2 (n-1)/n S bytes out of each rank, as for two-shot, but
 * raw data behind flags: nothing is polled but flags and nothing is re-armed, so
 * every type runs alike, and staging of a few MB stays in L2.
 *
 * A warp is a channel: it takes every chunk in turn through both crossings alone,
 * and hundreds of channels in different steps keep the link busy. Staging holds
 * one chunk a channel, and no credit crosses the link:
 *   - scatter chunk c+1 goes to owner o after its gather chunk c came from there,
 *     which o sent after it had read scatter chunk c;
 *   - gather chunk c+1 goes to rank p after p's scatter chunk c+1 came, which p
 *     sent after it had read gather chunk c.
 * Between two calls, whatever their grids: a rank ends when it has every owner's
 * last gather chunk, so every owner has read its whole scatter staging; and it
 * puts into gather staging only behind a scatter flag that its reader raised in
 * the new call. That is why scatter and gather staging never share memory.
 *
 * Flags hold the number of the chunk counted over all calls, in 8 bytes: they
 * only grow, and are never cleared.
 */
#include "algorithms/device/epoch.h"
#include "algorithms/device/input.h"
#include "algorithms/device/launch.h"

enum { STAGED_BATCH = 4 /* loads in flight before the first store */ };

typedef struct staged_plan {
    uint64_t slice;    /* vectors of a rank's slice */
    uint64_t chunks;   /* each channel's, of each slice */
    uint32_t channels; /* warps of the grid */
    uint32_t unit;     /* vectors of a chunk */
} staged_plan_t;

/* The largest chunk for which all channels fit, at most 8 vectors a lane. */
LANE_HOST_FN staged_plan_t staged_plan(uint64_t staging_bytes, uint64_t vectors, uint32_t nranks, uint32_t channels,
                                       uint32_t lanes)
{
    staged_plan_t p;
    p.slice = (vectors + nranks - 1) / nranks;
    p.channels = channels;
    uint32_t per_lane = 8;
    while (per_lane > 1 && (uint64_t)2 * nranks * channels * per_lane * lanes * VEC > staging_bytes)
        per_lane /= 2;
    p.unit = per_lane * lanes;
    p.chunks = (p.slice + (uint64_t)channels * p.unit - 1) / ((uint64_t)channels * p.unit);
    return p;
}

enum { STAGED_SCATTER = 0, STAGED_GATHER = 1 };

/* One warp's view of the scratch. */
struct channel {
    uint32_t index, lane, lanes;
    staged_plan_t plan;

    LANE_FN uint8_t *flag(const alg_team_t &team, uint32_t at, int phase, uint32_t from) const
    {
        return team.scratch[at] + team.flags_offset +
               (((uint64_t)phase * ALG_STAGED_CHANNELS + index) * ALG_MAX_RANKS + from) * 8;
    }

    LANE_FN uint8_t *staging(const alg_team_t &team, uint32_t at, int phase, uint32_t from) const
    {
        const uint64_t slot = ((uint64_t)phase * team.nranks + from) * plan.channels + index;
        return team.scratch[at] + team.staging_offset + slot * plan.unit * VEC + lane * VEC;
    }

    /* What this channel stored for the peers is there when they see the flag. */
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

    /* Until every peer has raised its flag to `value`. False: the wait was broken. */
    LANE_FN bool wait(lane_t &l, const alg_team_t &team, int phase, uint64_t value) const
    {
        bool broken = false;
        for (uint32_t r = lane; r < team.nranks && !broken; r += lanes) {
            while (r != team.rank && !broken && lane_flag(flag(team, team.rank, phase, r)) < value)
                broken = lane_stop(l, team);
        }
        broken = lane_warp_any(broken);
        lane_warp_sync();
        return !broken;
    }
};

struct staged {
    template <int TYPE, int OPS> LANE_FN static void run(lane_t lane, const alg_team_t &team, const alg_call_t &call)
    {
        typedef reduction<TYPE, OPS> R;
        const R r = R::make(team, call);
        const uint32_t lanes = lane_warp_size(), warps = lane.threads / lanes;
        channel ch;
        ch.index = lane.block * warps + lane.thread / lanes;
        ch.lane = lane.thread % lanes;
        ch.lanes = lanes;
        ch.plan = staged_plan(team.staging_bytes, r.vectors(), team.nranks, lane.blocks * warps, lanes);
        const uint64_t base = epoch_read(team, ALG_STAGED_OFFSET);
        epoch_leave(lane, team, ALG_STAGED_OFFSET, base, ch.plan.chunks);

        for (uint64_t c = 0; c < ch.plan.chunks; c++) {
            /* First vector of this lane in every slice. */
            const uint64_t v = (c * ch.plan.channels + ch.index) * ch.plan.unit + ch.lane;
            scatter(team, r, ch, v);
            ch.raise(team, STAGED_SCATTER, base + c + 1);
            if (!ch.wait(lane, team, STAGED_SCATTER, base + c + 1))
                return;
            reduce(team, r, ch, v);
            ch.raise(team, STAGED_GATHER, base + c + 1);
            if (!ch.wait(lane, team, STAGED_GATHER, base + c + 1))
                return;
            gather(team, r, ch, v);
        }
    }

    /* Vectors of slice `owner` that this lane has in a chunk: v, v + lanes, ... below the bound. */
    LANE_FN static uint64_t bound(const channel &ch, uint64_t vectors, uint32_t owner)
    {
        const uint64_t end = (uint64_t)(owner + 1) * ch.plan.slice;
        return end < vectors ? end : vectors;
    }

    template <class R> LANE_FN static void scatter(const alg_team_t &team, const R &r, const channel &ch, uint64_t v)
    {
        const uint32_t per_lane = ch.plan.unit / ch.lanes;
        for (uint32_t i = 1; i < team.nranks; i++) {
            const uint32_t owner = (team.rank + i) % team.nranks;
            const uint64_t first = owner * ch.plan.slice + v, end = bound(ch, r.vectors(), owner);
            uint8_t *to = ch.staging(team, owner, STAGED_SCATTER, team.rank);
            for (uint32_t k = 0; k < per_lane; k += STAGED_BATCH) {
                vec16_t x[STAGED_BATCH];
                LANE_UNROLL
                for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                    if (k + b < per_lane && first + (k + b) * ch.lanes < end)
                        x[b] = r.load(first + (k + b) * ch.lanes);
                }
                LANE_UNROLL
                for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                    if (k + b < per_lane && first + (k + b) * ch.lanes < end)
                        lane_copy_out(to + (k + b) * ch.lanes * VEC, x[b]);
                }
            }
        }
    }

    template <class R> LANE_FN static void reduce(const alg_team_t &team, const R &r, const channel &ch, uint64_t v)
    {
        const uint32_t per_lane = ch.plan.unit / ch.lanes;
        const uint64_t first = team.rank * ch.plan.slice + v, end = bound(ch, r.vectors(), team.rank);
        for (uint32_t k = 0; k < per_lane && first + k * ch.lanes < end; k++) {
            vec16_t x[ALG_MAX_RANKS];
            LANE_UNROLL
            for (uint32_t s = 0; s < ALG_MAX_RANKS; s++) {
                if (s < team.nranks && s != team.rank)
                    x[s] = lane_copy_in(ch.staging(team, team.rank, STAGED_SCATTER, s) + k * ch.lanes * VEC);
            }
            const vec16_t result = r.combine(x, team.rank, r.load(first + k * ch.lanes));
            r.store(first + k * ch.lanes, result);
            for (uint32_t i = 1; i < team.nranks; i++) {
                const uint32_t peer = (team.rank + i) % team.nranks;
                lane_copy_out(ch.staging(team, peer, STAGED_GATHER, team.rank) + k * ch.lanes * VEC, result);
            }
        }
    }

    template <class R> LANE_FN static void gather(const alg_team_t &team, const R &r, const channel &ch, uint64_t v)
    {
        const uint32_t per_lane = ch.plan.unit / ch.lanes;
        for (uint32_t i = 1; i < team.nranks; i++) {
            const uint32_t owner = (team.rank + i) % team.nranks;
            const uint64_t first = owner * ch.plan.slice + v, end = bound(ch, r.vectors(), owner);
            const uint8_t *from = ch.staging(team, team.rank, STAGED_GATHER, owner);
            for (uint32_t k = 0; k < per_lane; k += STAGED_BATCH) {
                vec16_t x[STAGED_BATCH];
                LANE_UNROLL
                for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                    if (k + b < per_lane && first + (k + b) * ch.lanes < end)
                        x[b] = lane_copy_in(from + (k + b) * ch.lanes * VEC);
                }
                LANE_UNROLL
                for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                    if (k + b < per_lane && first + (k + b) * ch.lanes < end)
                        r.store(first + (k + b) * ch.lanes, x[b]);
                }
            }
        }
    }

    static uint64_t max_bytes(const alg_map_t *map, uint32_t nranks, alg_type_t type)
    {
        (void)type;
        const uint64_t least = (uint64_t)2 * nranks * ALG_STAGED_CHANNELS * 32 * VEC;
        return map->staging_bytes >= least ? UINT64_MAX : 0;
    }

    static void shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        launch_shape((buffer_vectors(bytes) + nranks - 1) / nranks, blocks, threads);
        while (*blocks > 1 && (uint64_t)*blocks * (*threads / 32) > ALG_STAGED_CHANNELS)
            --*blocks;
    }
};

ALG_DEFINE(alg_allreduce_staged, "staged", ALG_ALL_REDUCE, staged)
