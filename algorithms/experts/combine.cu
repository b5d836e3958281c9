/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine.cu - the experts' rows back to their tokens' ranks, added there (experts.h).
 *
 * Data path: a token's rows on a rank, times their weights, added -> the token's slot in the room at its rank -> added
 * in the order of ranks. So one vector a token and rank crosses a link, not one an expert. The weights, 4 bytes a
 * choice, go ahead in the header. Rank-major, the experts' rank has added them itself.
 *
 * Sums are fp32, in the order of choices on a rank and of ranks at the token's. What crosses a link is rounded to the
 * type, in a staged call also what a rank sends itself (docs/lab/experts.md).
 */
#include <stdlib.h>

#include "algorithms/experts/routes.h"
#include "algorithms/experts/start.h"

/* Of one token, in shared memory, for each warp. */
typedef struct terms {
    route_entry_t *entries; /* [keys] */
    float *weights;         /* [keys] */
    uint32_t count;
} terms_t;

/* N: the most ranks. */
template <int TYPE, int N> struct experts_combine {
    enum { BATCH = 4 };
    typedef element<TYPE> element_t;
    enum { COUNT = element_t::COUNT };

    static LANE_HOST_FN uint32_t shared_bytes(const experts_call_t &c, uint32_t warps)
    {
        return warps * c.keys * (uint32_t)(sizeof(route_entry_t) + sizeof(float));
    }

    /* By all lanes of a warp; false in all of them: the wait was broken. */
    LANE_FN static bool load_terms(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                                   uint8_t *shared, uint32_t source, uint32_t token, const share_t &s, terms_t &t)
    {
        const route_entry_t *const entries = routes_of_token(c, routes_of(c), source, token);
        t.entries = (route_entry_t *)shared + s.warp * c.keys;
        t.weights = (float *)((route_entry_t *)shared + s.warps * c.keys) + s.warp * c.keys;
        uint32_t count = 0;
        bool broken = false;
        lane_warp_sync(); /* the warp has used its last ones */
        for (uint32_t k = s.in_warp; k < c.keys && !broken; k += s.width) {
            const route_entry_t e = entries[k];
            t.entries[k] = e;
            t.weights[k] = 1;
            if (e.row == ROUTE_NONE)
                continue;
            count++;
            broken = !c.call.rank_major && !header_weight(lane, team, c, room, source, token, e.choice, t.weights[k]);
        }
        t.count = lane_warp_sum(count);
        lane_warp_sync();
        return !lane_warp_any(broken);
    }

    /* Vector v of the sum of a token's rows on this rank. */
    LANE_FN static void add_rows(const experts_call_t &c, const terms_t &t, uint32_t v, float (&sum)[COUNT])
    {
        LANE_UNROLL
        for (int i = 0; i < COUNT; i++)
            sum[i] = 0;
        for (uint32_t k = 0; k < t.count; k += BATCH) {
            vec16_t x[BATCH];
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                const uint32_t row = (uint32_t)t.entries[k + b < t.count ? k + b : k].row;
                x[b] = lane_load((const uint8_t *)c.call.rows + ((uint64_t)row * c.token_vectors + v) * VEC);
            }
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                if (k + b >= t.count)
                    break;
                float a[COUNT];
                element_t::unpack(x[b], a);
                LANE_UNROLL
                for (int i = 0; i < COUNT; i++)
                    sum[i] += t.weights[k + b] * a[i];
            }
        }
    }

    /* The sums of the peers' tokens on this rank, to them; in a staged call also those of own tokens. False: the wait
     * was broken. */
    LANE_FN static bool send(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                             uint8_t *shared, const uint32_t (&tokens)[N])
    {
        uint32_t units = 0;
        LANE_UNROLL
        for (uint32_t r = 0; r < N; r++)
            units += tokens[r];
        const share_t s = share_make(lane, units, c.vectors);
        for (uint32_t i = lane.block * s.warps + s.warp; i < s.items; i += lane.blocks * s.warps) {
            uint32_t source, token;
            const piece_t p = piece_of(c, s, i);
            share_find(tokens, p.unit, source, token);
            terms_t t;
            if (!load_terms(lane, team, c, room, shared, source, token, s, t))
                return false;
            uint8_t *const to = team.scratch[source] + row_at(c, room, team.rank, token);
            for (uint32_t v = p.first; t.count > 0 && v < p.end; v += s.width) {
                float sum[COUNT];
                add_rows(c, t, v, sum);
                vec16_t x;
                element_t::pack(sum, x);
                mark_clean<MARK_WORD>(x);
                lane_put(to + (uint64_t)v * VEC, x);
            }
        }
        return true;
    }

    /* Wait for vector v of the ranks (bits) that send one for the token, all polled together. False: the wait was
     * broken. */
    LANE_FN static bool take(lane_t &lane, const alg_team_t &team, const uint8_t *first, uint64_t step, uint32_t ranks,
                             vec16_t (&x)[N])
    {
        lane_wait_begins(lane);
        lane_awaits(lane, ranks);
        for (;;) {
            bool arrived = true;
            LANE_UNROLL
            for (uint32_t r = 0; r < N; r++) {
                if (ranks >> r & 1)
                    x[r] = lane_poll(first + r * step);
            }
            LANE_UNROLL
            for (uint32_t r = 0; r < N; r++)
                arrived = arrived && (!(ranks >> r & 1) || mark_arrived<MARK_WORD>(x[r]));
            if (arrived)
                return true;
            if (lane_stop(lane, team))
                return false;
        }
    }

    /* Vector v of a token: the sums of all ranks. False: the wait was broken. */
    LANE_FN static bool receive_vector(lane_t &lane, const alg_team_t &team, const experts_call_t &c,
                                       const room_t &room, const terms_t &t, uint32_t token, uint32_t ranks, uint32_t v)
    {
        uint8_t *const first = team.own + row_at(c, room, 0, token) + (uint64_t)v * VEC;
        const uint64_t step = (uint64_t)c.most_tokens * c.row_bytes;
        const uint32_t peers = room_is_staged(c) ? ranks : ranks & ~(1u << team.rank);
        float sum[COUNT], own[COUNT];
        add_rows(c, t, v, own);
        vec16_t x[N];
        if (!take(lane, team, first, step, peers, x))
            return false;
        LANE_UNROLL
        for (int i = 0; i < COUNT; i++)
            sum[i] = 0;
        LANE_UNROLL
        for (uint32_t r = 0; r < N; r++) {
            float a[COUNT];
            if (!(ranks >> r & 1))
                continue;
            if (peers >> r & 1)
                element_t::unpack(x[r], a);
            LANE_UNROLL
            for (int i = 0; i < COUNT; i++)
                sum[i] += peers >> r & 1 ? a[i] : own[i];
        }
        element_t::pack(sum, x[0]);
        lane_store((uint8_t *)c.call.out + ((uint64_t)token * c.token_vectors + v) * VEC, x[0]);
        LANE_UNROLL
        for (uint32_t r = 0; r < N; r++) {
            if (peers >> r & 1)
                lane_rearm(first + r * step);
        }
        return true;
    }

    LANE_FN static bool receive(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                                uint8_t *shared)
    {
        const share_t s = share_make(lane, c.call.tokens, c.vectors);
        for (uint32_t i = share_back(lane) * s.warps + s.warp; i < s.items; i += lane.blocks * s.warps) {
            const piece_t p = piece_of(c, s, i);
            const uint32_t ranks = routes_of(c).ranks[p.unit];
            terms_t t = {NULL, NULL, 0};
            if (!room_is_staged(c) && !load_terms(lane, team, c, room, shared, team.rank, p.unit, s, t))
                return false;
            bool broken = false;
            for (uint32_t v = p.first; !broken && v < p.end; v += s.width)
                broken = !receive_vector(lane, team, c, room, t, p.unit, ranks, v);
            if (lane_warp_any(broken))
                return false;
        }
        bool broken = false;
        uint32_t tokens;
        for (uint32_t r = lane.thread; lane.block == 0 && !broken && r < c.nranks; r += lane.threads)
            broken = r != team.rank && !header_tokens(lane, team, c, room, r, tokens);
        return !broken;
    }

    LANE_FN static void run(lane_t lane, const alg_team_t &team, const experts_call_t &c, uint8_t *shared)
    {
        const uint32_t first = lane.block * lane.threads + lane.thread;
        room_t room;
        bool broken = false;
        lane_begin((uintptr_t)team.own, 0);
        if (c.call.phases & ALG_EXPERTS_SEND) {
            /* Loaded before the call's number is known, as these take as long as that. */
            const header_pair_t pair = header_load(c, first);
            uint32_t tokens[N];
            LANE_UNROLL
            for (uint32_t r = 0; r < N; r++)
                tokens[r] = r < c.nranks && !room_keeps(team, c, r) ? routes_of(c).tokens[r] : 0;
            if (!room_enter(lane, team, c, room) || (room_is_staged(c) && !room_await_credit(lane, team, c, room)))
                return;
            header_send(team, c, room, first, lane.blocks * lane.threads, pair);
            room_leave(lane, room);
            broken = !send(lane, team, c, room, shared, tokens);
        } else if (!room_enter(lane, team, c, room)) {
            return;
        }
        if (!(c.call.phases & ALG_EXPERTS_RECEIVE))
            return;
        broken = broken || !receive(lane, team, c, room, shared);
        if (room_is_staged(c) && !lane_sync_any(broken))
            room_give_credit(lane, team, c, room);
    }
};

/* Kernels for the number of ranks: registers grow with it. */
template <int TYPE> static experts_start_t combine_start_of(uint32_t nranks)
{
    return nranks <= 2   ? experts_start<experts_combine<TYPE, 2>>
           : nranks <= 4 ? experts_start<experts_combine<TYPE, 4>>
                         : experts_start<experts_combine<TYPE, ALG_MAX_RANKS>>;
}

static experts_start_t combine_start(const experts_call_t &c)
{
    return c.call.type == ALG_BFLOAT16  ? combine_start_of<ALG_BFLOAT16>(c.nranks)
           : c.call.type == ALG_FLOAT16 ? combine_start_of<ALG_FLOAT16>(c.nranks)
                                        : combine_start_of<ALG_FLOAT32>(c.nranks);
}
EXPERTS_ENTRIES(combine, combine_start)

#ifdef __CUDACC__
template <int TYPE> static int combine_preload(const experts_call_t &c)
{
    return c.nranks <= 2   ? experts_preload<experts_combine<TYPE, 2>>(c)
           : c.nranks <= 4 ? experts_preload<experts_combine<TYPE, 4>>(c)
                           : experts_preload<experts_combine<TYPE, ALG_MAX_RANKS>>(c);
}

extern "C" int alg_experts_combine_preload(const alg_experts_shape_t *shape, const alg_experts_call_t *call)
{
    const experts_call_t c = experts_call_make(shape, call);
    int error = combine_preload<ALG_BFLOAT16>(c);
    error = error != 0 ? error : combine_preload<ALG_FLOAT16>(c);
    return error != 0 ? error : combine_preload<ALG_FLOAT32>(c);
}
#endif
