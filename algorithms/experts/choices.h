/* SPDX-License-Identifier: Apache-2.0 */
/* choices.h - all ranks' choices in a block's shared memory. They alone determine where each received row goes. */
#ifndef SHUNT_EXPERTS_CHOICES_H
#define SHUNT_EXPERTS_CHOICES_H

#include "algorithms/experts/room.h"

enum { CHOICE_NONE = 0xffff };
static const uint64_t QUAD_NONE = ~UINT64_C(0);

/* Without branches, so that loads of several choices overlap. */
LANE_FN uint32_t choice_load(const experts_call_t &c, uint32_t token, uint32_t k)
{
    const bool is = k < c.call.top_k;
    const uint64_t at = (uint64_t)token * c.call.top_k + (is ? k : 0);
    const uint32_t *const low = (const uint32_t *)c.call.choices + (at << c.call.wide), *const high = low + c.call.wide;
    const uint32_t e = *low, above = *high; /* int32_t: the same word */
    return is && e < c.experts && (!c.call.wide || above == 0) ? e : (uint32_t)CHOICE_NONE;
}

/* QUAD_NONE after this rank's last token. */
LANE_FN uint64_t quad_load(const experts_call_t &c, uint32_t i)
{
    const uint32_t token = divide(i, c.by_quads), quad = i - token * c.quads;
    uint64_t all = 0;
    if (token >= c.call.tokens)
        return QUAD_NONE;
    LANE_UNROLL
    for (uint32_t k = 0; k < 4; k++)
        all |= (uint64_t)choice_load(c, token, 4 * quad + k) << (16 * k);
    return all;
}

LANE_FN uint32_t quad_choice(uint64_t quad, uint32_t i)
{
    return (uint32_t)(quad >> (16 * i)) & 0xffff;
}

LANE_FN uint32_t choice_rank(const experts_call_t &c, uint32_t expert)
{
    return (uint32_t)(expert * c.local_inverse >> 32);
}

/* Returns the ranks (bits) that the token chose. Warp-wide. */
LANE_FN uint32_t choice_ranks(const experts_call_t &c, uint32_t token, const share_t &s)
{
    uint32_t own = 0, ranks = 0;
    for (uint32_t k = s.in_warp; k < c.call.top_k; k += s.width) {
        const uint32_t e = choice_load(c, token, k);
        if (e != CHOICE_NONE)
            own |= 1u << choice_rank(c, e);
    }
    for (uint32_t r = 0; r < c.nranks; r++)
        ranks |= (uint32_t)lane_warp_any(own >> r & 1) << r;
    return ranks;
}

typedef struct table {
    uint32_t *tokens; /* [ALG_MAX_RANKS] */
    int32_t *rows;    /* rows of `out`: [unit of this block][keys]; ROUTE_NONE: none */
    uint64_t *quads;  /* [source rank][most_tokens][quads]; QUAD_NONE: no token */
} table_t;

LANE_HOST_FN uint32_t table_bytes(const experts_call_t &c, uint32_t warps)
{
    return ALG_MAX_RANKS * 4 + (warps * c.keys + 1) / 2 * 8 + c.nranks * c.most_tokens * c.quads * 8;
}

LANE_FN table_t table_of(const experts_call_t &c, uint8_t *shared, uint32_t warps)
{
    table_t t;
    t.tokens = (uint32_t *)shared;
    t.rows = (int32_t *)(t.tokens + ALG_MAX_RANKS);
    t.quads = (uint64_t *)(t.rows + (warps * c.keys + 1) / 2 * 2);
    return t;
}

/* Block-wide. */
LANE_FN bool table_fill(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                        const table_t &t)
{
    bool broken = false;
    for (uint32_t i = lane.thread; !broken && i < c.nranks * c.by_table.by; i += lane.threads) {
        const uint32_t source = divide(i, c.by_table), place = i - source * c.by_table.by;
        if (room_keeps(team, c, source)) {
            t.quads[i] = quad_load(c, place);
            continue;
        }
        const uint8_t *const at = team.own + header_at(c, room, source) + VEC + (uint64_t)place * VEC;
        vec16_t v;
        lane_wait_begins(lane);
        lane_awaits(lane, 1u << source);
        while (!broken && !header_arrived(room, v = lane_poll(at)))
            broken = lane_stop(lane, team);
        t.quads[i] = (uint64_t)v.w[2] << 32 | v.w[0];
    }
    /* The last lanes read headers, since they have the fewest quads. */
    for (uint32_t r = lane.threads - 1 - lane.thread; !broken && r < c.nranks; r += lane.threads) {
        if (room_keeps(team, c, r))
            t.tokens[r] = c.call.tokens;
        else
            broken = !header_tokens(lane, team, c, room, r, t.tokens[r]);
    }
    return !lane_sync_any(broken);
}

LANE_FN uint64_t table_place(const experts_call_t &c, uint32_t source, uint32_t token)
{
    return ((uint64_t)source * c.most_tokens + token) * c.quads;
}

LANE_FN uint32_t table_choice(const experts_call_t &c, const table_t &t, uint32_t source, uint32_t token, uint32_t k)
{
    return quad_choice(t.quads[table_place(c, source, token) + k / 4], k % 4);
}

LANE_FN bool choice_is_here(const alg_team_t &team, const experts_call_t &c, uint32_t expert)
{
    return expert != CHOICE_NONE && choice_rank(c, expert) == team.rank;
}

LANE_FN bool table_has(const experts_call_t &c, const table_t &t, uint64_t place, uint32_t expert)
{
    bool has = false;
    for (uint32_t i = 0; i < c.quads; i++) {
        const uint64_t quad = t.quads[place + i];
        LANE_UNROLL
        for (uint32_t k = 0; k < 4; k++)
            has = has || quad_choice(quad, k) == expert;
    }
    return has;
}

/* Warp-wide. Counts tokens that chose the expert: all of ranks before `source`, and the first `end` of `source`. */
LANE_FN uint32_t table_count(const experts_call_t &c, const table_t &t, uint32_t expert, uint32_t source, uint32_t end,
                             const share_t &s)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < c.nranks && r <= source; r++) {
        const uint32_t tokens = r < source ? t.tokens[r] : end;
        for (uint32_t i = s.in_warp; i < tokens; i += s.width)
            count += table_has(c, t, table_place(c, r, i), expert);
    }
    return lane_warp_sum(count);
}

LANE_FN bool table_token_is_here(const alg_team_t &team, const experts_call_t &c, const table_t &t, uint32_t source,
                                 uint32_t token)
{
    bool here = false;
    for (uint32_t k = 0; k < c.call.top_k; k++)
        here = here || choice_is_here(team, c, table_choice(c, t, source, token, k));
    return here;
}

/* Counts the tokens of `source` before `end` that chose an expert of this rank. Warp-wide. */
LANE_FN uint32_t table_count_tokens(const alg_team_t &team, const experts_call_t &c, const table_t &t, uint32_t source,
                                    uint32_t end, const share_t &s)
{
    uint32_t count = 0;
    for (uint32_t token = s.in_warp; token < end; token += s.width)
        count += table_token_is_here(team, c, t, source, token);
    return lane_warp_sum(count);
}

/* Returns the row of `out` for a token's key (a choice if expert-major, 0 if rank-major); -1: none. A token that chose
 * an expert twice has one row there, so rows suffice. Warp-wide. */
LANE_FN int32_t table_row(const alg_team_t &team, const experts_call_t &c, const table_t &t, uint32_t source,
                          uint32_t token, uint32_t key, const share_t &s)
{
    if (c.call.rank_major) {
        const uint32_t before = table_count_tokens(team, c, t, source, token, s);
        return table_token_is_here(team, c, t, source, token) ? (int32_t)(source * c.most_tokens + before) : -1;
    }
    const uint32_t expert = table_choice(c, t, source, token, key);
    if (!choice_is_here(team, c, expert))
        return -1;
    const uint32_t before = table_count(c, t, expert, source, token, s);
    return (int32_t)((expert - team.rank * c.local) * c.nranks * c.most_tokens + before);
}

#endif
