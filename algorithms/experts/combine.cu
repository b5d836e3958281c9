/* SPDX-License-Identifier: Apache-2.0 */
/* combine.cu - sends experts' rows back to their tokens' ranks, and adds them by weight. A rank's number of tokens,
 * which all ranks know, chooses one of two data paths (experts_most_rows; docs/lab/experts.md):
 *
 *   rows   each row -> its slot at the token's rank -> weighed and added in the order of choices, rounded once: the
 *          bits of NVIDIA's library. Rank-major: a row per rank, in the order of its first choices
 *   sums   a rank's fp32 sum of a token's weighed rows -> two slots at the token's rank -> added in rank order. The
 *          weights go ahead in the header */
#include <math.h>
#include <stdlib.h>

#include "algorithms/experts/routes.h"
#include "algorithms/experts/start.h"

/* A summand: this rank's row `row` or, if that is ROUTE_NONE, what `rank` puts into `slot`. */
typedef struct term {
    int32_t row;
    uint32_t slot, rank;
    float weight;
} term_t;

/* The terms of one token, in a warp's shared memory. */
typedef struct terms {
    term_t *term;
    uint32_t count;
} terms_t;

template <int TYPE> struct experts_combine {
    enum { BATCH = 4 };
    typedef element<TYPE> element_t;
    enum { COUNT = element_t::COUNT, SUM_VECTORS = COUNT / 4 };
    static_assert((int)SUM_VECTORS <= (int)ROOM_SUM_SLOTS, "a row's sum leaves its slots");

    static LANE_HOST_FN uint32_t shared_bytes(const experts_call_t &c, uint32_t warps)
    {
        return warps * c.terms * (uint32_t)sizeof(term_t);
    }

    LANE_FN static bool sends_sums(const experts_call_t &c, uint32_t tokens)
    {
        return tokens * c.call.top_k > c.most_rows;
    }

    LANE_FN static uint64_t sum_at(const experts_call_t &c, const room_t &room, uint32_t sender, uint32_t token)
    {
        return slot_at(c, room, ((uint64_t)sender * c.most_tokens + token) * ROOM_SUM_SLOTS);
    }

    LANE_FN static uint32_t slot_of(const experts_call_t &c, uint32_t rank, uint32_t token, uint32_t choice)
    {
        return c.call.rank_major ? rank * c.most_tokens + token : token * c.call.top_k + choice;
    }

    LANE_FN static terms_t terms_of(const experts_call_t &c, uint8_t *shared, const share_t &s)
    {
        return terms_t{(term_t *)shared + s.warp * c.terms, 0};
    }

    /* Finds this rank's rows of a token of rank `home`. Warp-wide. */
    LANE_FN static bool load_rows(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                                  uint32_t home, uint32_t token, bool sums, const share_t &s, terms_t &t)
    {
        const route_entry_t *const entries = routes_of_token(c, routes_of(c), home, token);
        uint32_t count = 0;
        bool broken = false;
        lane_warp_sync(); /* the warp has read the previous terms */
        for (uint32_t k = s.in_warp; k < c.keys && !broken; k += s.width) {
            const route_entry_t e = entries[k];
            t.term[k] = term_t{e.row, slot_of(c, team.rank, token, e.choice), home, 1};
            if (e.row == ROUTE_NONE)
                continue;
            count++;
            broken = sums && !header_weight(lane, team, c, room, home, token, e.choice, t.term[k].weight);
        }
        t.count = lane_warp_sum(count);
        lane_warp_sync();
        return !lane_warp_any(broken);
    }

    LANE_FN static const uint8_t *row(const experts_call_t &c, const term_t &term, uint32_t v)
    {
        return (const uint8_t *)c.call.rows + ((uint64_t)(uint32_t)term.row * c.token_vectors + v) * VEC;
    }

    /* Past the end, returns the batch's first term: every load is valid. */
    LANE_FN static const term_t &term_of(const terms_t &t, uint32_t first, uint32_t b)
    {
        return t.term[first + b < t.count ? first + b : first];
    }

    LANE_FN static void load_batch(const experts_call_t &c, const terms_t &t, uint32_t first, uint32_t v,
                                   vec16_t (&x)[BATCH])
    {
        LANE_UNROLL
        for (uint32_t b = 0; b < BATCH; b++)
            x[b] = lane_load(row(c, term_of(t, first, b), v));
    }

    LANE_FN static void add(const vec16_t &x, float weight, float (&sum)[COUNT])
    {
        float a[COUNT];
        element_t::unpack(x, a);
        LANE_UNROLL
        for (int i = 0; i < COUNT; i++)
            sum[i] = fmaf(a[i], weight, sum[i]);
    }

    LANE_FN static void clear(float (&sum)[COUNT])
    {
        LANE_UNROLL
        for (int i = 0; i < COUNT; i++)
            sum[i] = 0;
    }

    LANE_FN static void send_rows(const experts_call_t &c, const room_t &room, uint8_t *to, const terms_t &t,
                                  uint32_t v)
    {
        for (uint32_t k = 0; k < t.count; k += BATCH) {
            vec16_t x[BATCH];
            load_batch(c, t, k, v, x);
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                if (k + b >= t.count)
                    break;
                mark_clean<MARK_WORD>(x[b]);
                lane_put(to + slot_at(c, room, t.term[k + b].slot) + (uint64_t)v * VEC, x[b]);
            }
        }
    }

    LANE_FN static void add_rows(const experts_call_t &c, const terms_t &t, uint32_t v, float (&sum)[COUNT])
    {
        clear(sum);
        for (uint32_t k = 0; k < t.count; k += BATCH) {
            vec16_t x[BATCH];
            load_batch(c, t, k, v, x);
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                if (k + b < t.count)
                    add(x[b], t.term[k + b].weight, sum);
            }
        }
    }

    /* All first vectors of a row's sums precede all second ones, so a warp stores contiguously. */
    LANE_FN static void send_sum(const experts_call_t &c, uint8_t *to, const terms_t &t, uint32_t v)
    {
        float sum[COUNT];
        add_rows(c, t, v, sum);
        LANE_UNROLL
        for (uint32_t i = 0; i < SUM_VECTORS; i++) {
            vec16_t x;
            memcpy(&x, sum + 4 * i, VEC);
            mark_clean<MARK_WORD>(x);
            lane_put(to + ((uint64_t)i * c.vectors + v) * VEC, x);
        }
    }

    /* Sends rows or sums of the peers' tokens; staged: also of this rank's. */
    LANE_FN static bool send(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                             uint8_t *shared, const uint32_t (&tokens)[ALG_MAX_RANKS])
    {
        uint32_t units = 0;
        LANE_UNROLL
        for (uint32_t r = 0; r < ALG_MAX_RANKS; r++)
            units += tokens[r];
        const share_t s = share_make(lane, units, c.vectors);
        for (uint32_t i = s.warp * lane.blocks + lane.block; i < s.items; i += lane.blocks * s.warps) {
            const piece_t p = piece_of(s, i);
            uint32_t home = 0, token = p.unit, its_tokens = 0;
            LANE_UNROLL
            for (uint32_t r = 0; r < ALG_MAX_RANKS; r++) {
                const bool before = home == r && token >= tokens[r];
                its_tokens = home == r ? tokens[r] : its_tokens;
                token -= before ? tokens[r] : 0;
                home += before;
            }
            const bool sums = sends_sums(c, its_tokens);
            terms_t t = terms_of(c, shared, s);
            if (!load_rows(lane, team, c, room, home, token, sums, s, t))
                return false;
            for (uint32_t v = p.first; t.count > 0 && v < p.end; v += s.width) {
                if (sums)
                    send_sum(c, team.scratch[home] + sum_at(c, room, team.rank, token), t, v);
                else
                    send_rows(c, room, team.scratch[home], t, v);
            }
        }
        return true;
    }

    /* Warp-wide. */
    LANE_FN static void load_terms(const alg_team_t &team, const experts_call_t &c, uint32_t token, const share_t &s,
                                   terms_t &t)
    {
        const route_entry_t *const origins = routes_of(c).origins + (uint64_t)token * c.terms;
        uint32_t count = 0;
        lane_warp_sync();
        for (uint32_t k = s.in_warp; k < c.terms; k += s.width) {
            const route_entry_t e = origins[k];
            if (e.row == ROUTE_NONE)
                continue;
            const uint32_t rank = route_rank(team, e.row);
            const float weight = c.call.rank_major ? 1 : c.call.weights[(uint64_t)token * c.call.top_k + e.choice];
            t.term[k] =
                term_t{room_keeps(team, c, rank) ? e.row : ROUTE_NONE, slot_of(c, rank, token, e.choice), rank, weight};
            count++;
        }
        t.count = lane_warp_sum(count);
        lane_warp_sync();
    }

    /* Returns the ranks (bits) that have rows of the token. */
    LANE_FN static uint32_t ranks_of(const alg_team_t &team, const experts_call_t &c, uint32_t token)
    {
        const route_entry_t *const origins = routes_of(c).origins + (uint64_t)token * c.terms;
        uint32_t ranks = 0;
        for (uint32_t k = 0; k < c.terms; k++)
            ranks |= origins[k].row != ROUTE_NONE ? 1u << route_rank(team, origins[k].row) : 0;
        return ranks;
    }

    LANE_FN static bool take_batch(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                                   const terms_t &t, uint32_t first, uint32_t v, vec16_t (&x)[BATCH])
    {
        lane_wait_begins(lane);
        for (;;) {
            uint32_t missing = 0; /* bits: ranks still needed; others may have left */
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                const term_t &term = term_of(t, first, b);
                x[b] = term.row >= 0 ? lane_load(row(c, term, v))
                                     : lane_poll(team.own + slot_at(c, room, term.slot) + (uint64_t)v * VEC);
            }
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                const term_t &term = term_of(t, first, b);
                if (term.row < 0 && !mark_arrived<MARK_WORD>(x[b]))
                    missing |= 1u << term.rank;
            }
            if (missing == 0)
                return true;
            lane_awaits(lane, missing);
            if (lane_stop(lane, team))
                return false;
        }
    }

    LANE_FN static bool receive_rows(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                                     const terms_t &t, uint32_t v, float (&sum)[COUNT])
    {
        clear(sum);
        for (uint32_t k = 0; k < t.count; k += BATCH) {
            vec16_t x[BATCH];
            if (!take_batch(lane, team, c, room, t, k, v, x))
                return false;
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                if (k + b >= t.count)
                    break;
                add(x[b], t.term[k + b].weight, sum);
                if (t.term[k + b].row < 0)
                    lane_rearm(team.own + slot_at(c, room, t.term[k + b].slot) + (uint64_t)v * VEC);
            }
        }
        return true;
    }

    LANE_FN static bool take_sum(lane_t &lane, const alg_team_t &team, const experts_call_t &c, uint32_t rank,
                                 uint8_t *from, uint32_t v, float (&sum)[COUNT])
    {
        vec16_t x[SUM_VECTORS];
        bool arrived;
        lane_wait_begins(lane);
        lane_awaits(lane, 1u << rank);
        do {
            arrived = true;
            LANE_UNROLL
            for (uint32_t i = 0; i < SUM_VECTORS; i++)
                x[i] = lane_poll(from + ((uint64_t)i * c.vectors + v) * VEC);
            LANE_UNROLL
            for (uint32_t i = 0; i < SUM_VECTORS; i++)
                arrived = arrived && mark_arrived<MARK_WORD>(x[i]);
        } while (!arrived && !lane_stop(lane, team));
        if (!arrived)
            return false;
        LANE_UNROLL
        for (uint32_t i = 0; i < SUM_VECTORS; i++) {
            float a[4];
            memcpy(a, &x[i], VEC);
            LANE_UNROLL
            for (int j = 0; j < 4; j++)
                sum[4 * i + j] += a[j];
            lane_rearm(from + ((uint64_t)i * c.vectors + v) * VEC);
        }
        return true;
    }

    LANE_FN static bool receive_sums(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                                     const terms_t &own_rows, uint32_t ranks, uint32_t token, uint32_t v,
                                     float (&sum)[COUNT])
    {
        float own[COUNT];
        add_rows(c, own_rows, v, own);
        clear(sum);
        for (uint32_t r = 0; r < c.nranks; r++) {
            if (!(ranks >> r & 1))
                continue;
            if (!room_keeps(team, c, r)) {
                if (!take_sum(lane, team, c, r, team.own + sum_at(c, room, r, token), v, sum))
                    return false;
                continue;
            }
            LANE_UNROLL
            for (int i = 0; i < COUNT; i++)
                sum[i] += own[i];
        }
        return true;
    }

    LANE_FN static bool receive(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                                uint8_t *shared)
    {
        const bool sums = sends_sums(c, c.call.tokens);
        const share_t s = share_make(lane, c.call.tokens, c.vectors);
        bool broken = false;
        for (uint32_t i = s.warp * lane.blocks + share_back(lane); i < s.items; i += lane.blocks * s.warps) {
            const piece_t p = piece_of(s, i);
            terms_t t = terms_of(c, shared, s);
            if (!sums)
                load_terms(team, c, p.unit, s, t);
            else if (!room_is_staged(c)) /* this rank's weights need no wait */
                load_rows(lane, team, c, room, team.rank, p.unit, true, s, t);
            const uint32_t ranks = sums ? ranks_of(team, c, p.unit) : 0;
            for (uint32_t v = p.first; !broken && v < p.end; v += s.width) {
                float sum[COUNT];
                vec16_t x;
                broken = sums ? !receive_sums(lane, team, c, room, t, ranks, p.unit, v, sum)
                              : !receive_rows(lane, team, c, room, t, v, sum);
                element_t::pack(sum, x);
                if (!broken)
                    lane_store((uint8_t *)c.call.out + ((uint64_t)p.unit * c.token_vectors + v) * VEC, x);
            }
            if (lane_warp_any(broken))
                return false;
        }
        /* A call hears from every rank (algorithm.h), also from one without rows. */
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
        const uint64_t epoch = epoch_read(team);
        if (c.call.phases & ALG_EXPERTS_SEND) {
            const header_pair_t pair = header_load(c, first);
            uint32_t tokens[ALG_MAX_RANKS];
            LANE_UNROLL
            for (uint32_t r = 0; r < ALG_MAX_RANKS; r++)
                tokens[r] = r < c.nranks && !room_keeps(team, c, r) ? routes_of(c).tokens[r] : 0;
            if (!room_enter(lane, team, c, epoch, room) ||
                (room_is_staged(c) && !room_await_credit(lane, team, c, room)))
                return;
            header_send(team, c, room, first, lane.blocks * lane.threads, pair);
            room_leave(lane, room);
            broken = !send(lane, team, c, room, shared, tokens);
        } else if (!room_enter(lane, team, c, epoch, room)) {
            return;
        }
        if (!(c.call.phases & ALG_EXPERTS_RECEIVE))
            return;
        broken = broken || !receive(lane, team, c, room, shared);
        if (room_is_staged(c) && !lane_sync_any(broken))
            room_give_credit(lane, team, c, room);
    }
};

static experts_start_t combine_start(const experts_call_t &c)
{
    return c.call.type == ALG_BFLOAT16  ? experts_start<experts_combine<ALG_BFLOAT16>>
           : c.call.type == ALG_FLOAT16 ? experts_start<experts_combine<ALG_FLOAT16>>
                                        : experts_start<experts_combine<ALG_FLOAT32>>;
}
EXPERTS_ENTRIES(combine, combine_start)

#ifdef __CUDACC__
extern "C" int alg_experts_combine_preload(const alg_experts_shape_t *shape, const alg_experts_call_t *call)
{
    const experts_call_t c = experts_call_make(shape, call);
    int error = experts_preload<experts_combine<ALG_BFLOAT16>>(c);
    error = error != 0 ? error : experts_preload<experts_combine<ALG_FLOAT16>>(c);
    return error != 0 ? error : experts_preload<experts_combine<ALG_FLOAT32>>(c);
}
#endif
