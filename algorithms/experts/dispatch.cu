/* SPDX-License-Identifier: Apache-2.0 */
/* dispatch.cu - sends each token's row to its experts: row -> its slot at each rank that wants it -> its rows in `out`.
 * A row crosses a link once. Choices go ahead in the header; from all ranks' choices the receiver finds the rows in
 * `out` while data is under way (docs/lab/experts.md).
 *
 * A block sends its part before it receives, so no waiting block keeps another one from sending. */
#include <stdlib.h>

#include "algorithms/experts/choices.h"
#include "algorithms/experts/parts.h"
#include "algorithms/experts/routes.h"
#include "algorithms/experts/rows.h"
#include "algorithms/experts/start.h"

template <alg_experts_recipe_t RECIPE> struct experts_dispatch {
    enum { ROWS = 2 };

    static LANE_HOST_FN uint32_t shared_bytes(const experts_call_t &c, uint32_t warps)
    {
        return table_bytes(c, warps);
    }

    typedef row_source<RECIPE> source_t;

    typedef struct early {
        uint64_t quad;
        header_pair_t pair;
        uint32_t ranks;
        vec16_t x[ROWS];
    } early_t;

    LANE_FN static void load_rows(const experts_call_t &c, const share_t &s, const piece_t &p, uint32_t token,
                                  uint32_t v, vec16_t (&x)[ROWS])
    {
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS; b++) {
            if (v + b * s.width < p.end)
                x[b] = source_t::load(c, token, v + b * s.width);
        }
    }

    LANE_FN static early_t load_early(const lane_t &lane, const experts_call_t &c, const share_t &s)
    {
        early_t e;
        const uint32_t first = lane.block * lane.threads + lane.thread, item = lane.block * s.warps + s.warp;
        e.ranks = 0;
        e.quad = quad_load(c, first);
        e.pair = header_load(c, first);
        if (item < s.items) {
            const piece_t p = piece_of(s, item);
            load_rows(c, s, p, p.unit, p.first, e.x);
            e.ranks = choice_ranks(c, p.unit, s);
        }
        return e;
    }

    LANE_FN static void send_choices(const lane_t &lane, const alg_team_t &team, const experts_call_t &c,
                                     const room_t &room, const early_t &e)
    {
        const uint32_t first = lane.block * lane.threads + lane.thread, stride = lane.blocks * lane.threads;
        for (uint32_t i = first; i < c.most_tokens * c.quads; i += stride) {
            const uint64_t quad = i == first ? e.quad : quad_load(c, i);
            header_put(team, c, room, VEC + (uint64_t)i * VEC,
                       header_vector(room, (uint32_t)quad, (uint32_t)(quad >> 32)));
        }
        header_send(team, c, room, first, stride, e.pair);
    }

    LANE_FN static void send_rows(const lane_t &lane, const alg_team_t &team, const experts_call_t &c,
                                  const room_t &room, const share_t &s, early_t &e)
    {
        const uint32_t first = lane.block * s.warps + s.warp;
        for (uint32_t i = first; i < s.items; i += lane.blocks * s.warps) {
            const piece_t p = piece_of(s, i);
            const uint32_t ranks = i == first ? e.ranks : choice_ranks(c, p.unit, s);
            const uint32_t to_ranks = room_is_staged(c) ? ranks : ranks & ~(1u << team.rank);
            const uint64_t to = row_at(c, room, team.rank, p.unit);
            const uint64_t words = row_escapes_at(c, room, team.rank, p.unit);
            for (uint32_t v = p.first; to_ranks != 0 && v < p.end; v += ROWS * s.width) {
                if (i != first || v != p.first)
                    load_rows(c, s, p, p.unit, v, e.x);
                LANE_UNROLL
                for (uint32_t b = 0; b < ROWS; b++) {
                    if (v + b * s.width < p.end)
                        row_put(team, c, to_ranks, to, words, v + b * s.width, e.x[b]);
                }
            }
        }
    }

    /* Finds this round's units' rows in `out`. Block-wide. */
    LANE_FN static void find_rows(const alg_team_t &team, const experts_call_t &c, const table_t &t, const share_t &s,
                                  uint32_t first, uint32_t units)
    {
        for (uint32_t i = s.warp; i < units * c.keys; i += s.warps) {
            uint32_t source, token;
            share_find(t.tokens, first + divide(i, c.by_keys), source, token);
            const int32_t row = table_row(team, c, t, source, token, remainder_of(i, c.by_keys), s);
            if (s.in_warp == 0)
                t.rows[i] = row;
        }
        lane_sync();
    }

    LANE_FN static route_entry_t origin(const alg_team_t &team, const int32_t *rows, uint32_t rank, uint32_t key,
                                        uint32_t choice)
    {
        return route_entry_t{rank == team.rank ? rows[key] : route_of_rank(rank), choice};
    }

    /* Lists, without gaps, where the rows of a token's choices are; a lane per choice. */
    LANE_FN static void note_choices(const alg_team_t &team, const experts_call_t &c, const table_t &t,
                                     const int32_t *rows, uint32_t token, const share_t &s)
    {
        route_entry_t *const origins = routes_of(c).origins + (uint64_t)token * c.terms;
        for (uint32_t k = s.in_warp; k < c.terms; k += s.width) {
            const uint32_t e = table_choice(c, t, team.rank, token, k);
            uint32_t before = 0, all = 0;
            for (uint32_t j = 0; j < c.terms; j++) {
                const bool is = table_choice(c, t, team.rank, token, j) != CHOICE_NONE;
                before += is && j < k;
                all += is;
            }
            if (e != CHOICE_NONE)
                origins[before] = origin(team, rows, choice_rank(c, e), k, k);
            if (k >= all)
                origins[k] = route_entry_t{ROUTE_NONE, 0};
        }
    }

    /* Notes the same per rank, in the order of choices; a lane per term. */
    LANE_FN static void note_ranks(const alg_team_t &team, const experts_call_t &c, const table_t &t,
                                   const int32_t *rows, uint32_t token, const share_t &s)
    {
        for (uint32_t k = s.in_warp; k < c.terms; k += s.width) {
            route_entry_t entry = {ROUTE_NONE, 0};
            uint32_t seen = 0, terms = 0;
            for (uint32_t j = 0; j < c.call.top_k && terms <= k; j++) {
                const uint32_t e = table_choice(c, t, team.rank, token, j), r = choice_rank(c, e);
                if (e == CHOICE_NONE || seen >> r & 1)
                    continue;
                seen |= 1u << r;
                if (terms++ == k)
                    entry = origin(team, rows, r, 0, j);
            }
            routes_of(c).origins[(uint64_t)token * c.terms + k] = entry;
        }
    }

    /* The warp with a unit's first piece notes routes, and rank-major choices and weights. */
    LANE_FN static bool note_unit(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                                  const table_t &t, const int32_t *rows, uint32_t source, uint32_t token,
                                  const share_t &s)
    {
        route_entry_t *const entries = routes_of_token(c, routes_of(c), source, token);
        for (uint32_t k = s.in_warp; k < c.keys; k += s.width) {
            uint32_t before = 0, all = 0;
            for (uint32_t j = 0; j < c.keys; j++) {
                before += j < k && rows[j] >= 0;
                all += rows[j] >= 0;
            }
            if (rows[k] >= 0)
                entries[before] = route_entry_t{rows[k], k};
            if (k >= all)
                entries[k] = route_entry_t{ROUTE_NONE, 0};
        }
        if (source == team.rank && c.call.rank_major)
            note_ranks(team, c, t, rows, token, s);
        else if (source == team.rank)
            note_choices(team, c, t, rows, token, s);
        if (!c.call.rank_major || rows[0] < 0)
            return true;
        for (uint32_t k = s.in_warp; k < c.call.top_k; k += s.width) {
            const uint32_t e = table_choice(c, t, source, token, k);
            const uint64_t at = (uint64_t)rows[0] * c.call.top_k + k;
            c.call.out_choices[at] =
                choice_is_here(team, c, e) ? (int32_t)(c.call.global_ids ? e : e - team.rank * c.local) : -1;
            if (!header_weight(lane, team, c, room, source, token, k, c.call.out_weights[at]))
                return false;
        }
        return true;
    }

    LANE_FN static void store(const experts_call_t &c, const int32_t *rows, uint32_t v, const vec16_t &x)
    {
        for (uint32_t k = 0; k < c.keys; k++) {
            if (rows[k] < 0)
                continue;
            if (v < c.token_vectors)
                lane_store((uint8_t *)c.call.out + ((uint64_t)(uint32_t)rows[k] * c.token_vectors + v) * VEC, x);
            else
                source_t::store_scales((uint8_t *)c.call.out_scales + (uint64_t)(uint32_t)rows[k] * c.call.scale_bytes +
                                           (uint64_t)(v - c.token_vectors) * VEC,
                                       x);
        }
    }

    LANE_FN static bool receive_piece(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                                      const int32_t *rows, uint32_t source, uint32_t token, const piece_t &p,
                                      const share_t &s)
    {
        uint8_t *const from = team.own + row_at(c, room, source, token);
        uint8_t *const words = team.own + row_escapes_at(c, room, source, token);
        for (uint32_t v = p.first; v < p.end; v += ROWS * s.width) {
            vec16_t x[ROWS];
            if (room_keeps(team, c, source))
                load_rows(c, s, p, token, v, x);
            else if (!row_take<ROWS>(lane, team, source, from, words, v, s.width, p.end, x))
                return false;
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++) {
                if (v + b * s.width >= p.end)
                    continue;
                store(c, rows, v + b * s.width, x[b]);
                if (!room_keeps(team, c, source))
                    lane_rearm(from + (uint64_t)(v + b * s.width) * VEC);
            }
        }
        return true;
    }

    LANE_FN static bool wanted(const experts_call_t &c, const int32_t *rows)
    {
        bool any = false;
        for (uint32_t k = 0; k < c.keys; k++)
            any = any || rows[k] >= 0;
        return any;
    }

    /* Block-wide. */
    LANE_FN static bool receive_rows(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                                     const table_t &t, const share_t &s)
    {
        for (uint32_t base = share_back(lane) * s.warps; base < s.items; base += lane.blocks * s.warps) {
            const uint32_t item = base + s.warp, last = base + s.warps < s.items ? base + s.warps : s.items;
            const uint32_t first = divide(base, s.pieces);
            find_rows(team, c, t, s, first, divide(last - 1, s.pieces) - first + 1);
            bool broken = false;
            if (item < s.items) {
                const piece_t p = piece_of(s, item);
                const int32_t *const rows = t.rows + (p.unit - first) * c.keys;
                uint32_t source, token;
                share_find(t.tokens, p.unit, source, token);
                broken = item == p.unit * s.pieces.by && !note_unit(lane, team, c, room, t, rows, source, token, s);
                if (!broken && wanted(c, rows))
                    broken = !receive_piece(lane, team, c, room, rows, source, token, p, s);
            }
            if (lane_sync_any(broken))
                return false;
        }
        return true;
    }

    /* A warp counts the rows of each local expert or source rank. Rank-major entries without a row get choice -1. */
    LANE_FN static void count_rows(const lane_t &lane, const alg_team_t &team, const experts_call_t &c,
                                   const table_t &t, const share_t &s)
    {
        const uint32_t all = lane.blocks * s.warps;
        for (uint32_t i = lane.block * s.warps + s.warp; i < (c.call.rank_major ? c.nranks : c.local); i += all) {
            const uint32_t count = c.call.rank_major ? table_count_tokens(team, c, t, i, t.tokens[i], s)
                                                     : table_count(c, t, team.rank * c.local + i, c.nranks, 0, s);
            if (s.in_warp == 0 && c.call.counters != NULL)
                c.call.counters[i] = (int32_t)count;
            const uint64_t top_k = c.call.top_k, end = (uint64_t)(i + 1) * c.most_tokens * top_k;
            for (uint64_t k = ((uint64_t)i * c.most_tokens + count) * top_k + s.in_warp; c.call.rank_major && k < end;
                 k += s.width)
                c.call.out_choices[k] = -1;
        }
        if (lane.block == 0) {
            for (uint32_t r = lane.thread; r < c.nranks; r += lane.threads)
                routes_of(c).tokens[r] = t.tokens[r];
        }
    }

    LANE_FN static void run(lane_t lane, const alg_team_t &team, const experts_call_t &c, uint8_t *shared)
    {
        room_t room;
        lane_begin((uintptr_t)team.own, 0);
        const uint64_t epoch = epoch_read(team);
        if (c.call.phases & ALG_EXPERTS_SEND) {
            const share_t s = share_make(lane, c.call.tokens, c.vectors);
            early_t e = load_early(lane, c, s);
            if (!room_enter(lane, team, c, epoch, room) ||
                (room_is_staged(c) && !room_await_credit(lane, team, c, room)))
                return;
            send_choices(lane, team, c, room, e);
            send_rows(lane, team, c, room, s, e);
            room_leave(lane, room);
        } else if (!room_enter(lane, team, c, epoch, room)) {
            return;
        }
        if (!(c.call.phases & ALG_EXPERTS_RECEIVE))
            return;
        const table_t t = table_of(c, shared, lane.threads / lane_warp_size());
        if (!table_fill(lane, team, c, room, t))
            return;
        uint32_t units = 0;
        for (uint32_t r = 0; r < c.nranks; r++)
            units += t.tokens[r];
        const share_t s = share_make(lane, units, c.vectors);
        count_rows(lane, team, c, t, s);
        if (!receive_rows(lane, team, c, room, t, s))
            return;
        if (room_is_staged(c))
            room_give_credit(lane, team, c, room);
    }
};

static experts_start_t dispatch_start(const experts_call_t &c)
{
    return c.call.recipe == ALG_EXPERTS_E4M3 ? experts_start<experts_dispatch<ALG_EXPERTS_E4M3>>
                                             : experts_start<experts_dispatch<ALG_EXPERTS_BYTES>>;
}
EXPERTS_ENTRIES(dispatch, dispatch_start)

#ifdef __CUDACC__
extern "C" int alg_experts_dispatch_preload(const alg_experts_shape_t *shape, const alg_experts_call_t *call)
{
    const experts_call_t c = experts_call_make(shape, call);
    const int error = experts_preload<experts_dispatch<ALG_EXPERTS_BYTES>>(c);
    return error != 0 ? error : experts_preload<experts_dispatch<ALG_EXPERTS_E4M3>>(c);
}
#else
extern "C" uint64_t alg_experts_room_bytes(const alg_experts_shape_t *shape)
{
    return room_map_of(shape).bytes;
}

extern "C" size_t alg_experts_routes_bytes(const alg_experts_shape_t *shape, uint32_t top_k)
{
    return routes_bytes(shape, top_k);
}
#endif
