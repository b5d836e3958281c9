/* SPDX-License-Identifier: Apache-2.0 */
/* room.h - the memory of one call of a group (experts.h), at the same place in every rank's scratch.
 *
 *   headers   per source rank: number of tokens, choices, weights. Half of each 8-byte word is the call's number,
 *             which shows arrival
 *   slots     of row_bytes, all-ones until a vector arrives (mark.h); the lane that takes it re-arms it. Dispatch and
 *             rank-major: one per source rank and token; else see combine.cu
 *   escapes   a word per vector of a dispatch
 *
 * Calls that are not staged take two rooms in turn, by the rule of two halves (algorithm.h). Staged calls have a count
 * and rooms of their own. Their sender waits for credit: how many calls a peer has received in that room. In a staged
 * call a rank also sends to itself, since the program may change its buffers before it receives. */
#ifndef SHUNT_EXPERTS_ROOM_H
#define SHUNT_EXPERTS_ROOM_H

#include "algorithms/device/epoch.h"
#include "algorithms/device/mark.h"
#include "algorithms/device/peers.h"
#include "algorithms/experts/experts.h"
#include "algorithms/experts/share.h"

/* 8-byte words of the control page: number of staged calls; per staged room the blocks that have received, and each
 * peer's credit. */
enum {
    ROOM_SENT_OFFSET = 3072,
    ROOM_DONE_OFFSET = ROOM_SENT_OFFSET + 8,
    ROOM_CREDIT_OFFSET = ROOM_DONE_OFFSET + 8 * ALG_EXPERTS_STAGED,
    ROOM_WORDS_END = ROOM_CREDIT_OFFSET + 8 * ALG_EXPERTS_STAGED * ALG_MAX_RANKS
};
static_assert((int)ROOM_SENT_OFFSET >= (int)ALG_MAILBOX_OFFSET + 8 * (int)ALG_MAX_RANKS,
              "words of the control page overlap");
static_assert((int)ROOM_WORDS_END <= (int)ALG_CONTROL_BYTES, "rooms' words leave the control page");

/* 16 bytes carry a quad (four choices) or two weights. */
LANE_HOST_FN uint32_t room_quads(uint32_t top_k)
{
    return (top_k + 3) / 4;
}

LANE_HOST_FN uint32_t room_weight_pairs(uint32_t top_k)
{
    return (top_k + 1) / 2;
}

typedef struct room_map {
    uint64_t header_bytes; /* per source rank */
    uint64_t weights;      /* offset in a header */
    uint64_t slots;
    uint64_t rows, escapes, bytes;
} room_map_t;

enum { ROOM_SUM_SLOTS = 2 };   /* slots that a row's sum in fp32 takes */
enum { ROOM_USUAL_TOP_K = 8 }; /* choices with slots for fp32 rows */

/* From so many rows of a rank's tokens on, sums save more time than their extra trip takes (docs/lab/proofs.md). */
enum { ROOM_FEW_ROWS = 128 };

static inline room_map_t room_map_of(const alg_experts_shape_t *shape)
{
    const uint64_t tokens = shape->most_tokens, all = shape->nranks * tokens;
    const uint64_t sums = ROOM_SUM_SLOTS * all, rows = tokens * shape->most_top_k;
    const uint64_t few_rows = rows < ROOM_FEW_ROWS ? rows : (uint64_t)ROOM_FEW_ROWS;
    const uint64_t usual_rows = rows < tokens * ROOM_USUAL_TOP_K ? rows : tokens * ROOM_USUAL_TOP_K;
    room_map_t map;
    map.slots = shape->exact == ALG_EXPERTS_EXACT_ALL || rows < sums ? rows : sums > few_rows ? sums : few_rows;
    if (shape->exact == ALG_EXPERTS_EXACT_FP32 && map.slots < usual_rows)
        map.slots = usual_rows;
    if (map.slots < all)
        map.slots = all;
    map.weights = VEC + tokens * room_quads(shape->most_top_k) * VEC;
    map.header_bytes = (map.weights + tokens * room_weight_pairs(shape->most_top_k) * VEC + 127) / 128 * 128;
    map.rows = shape->nranks * map.header_bytes;
    map.escapes = map.rows + map.slots * shape->row_bytes;
    map.bytes = (map.escapes + all * shape->row_bytes / 4 + 4095) / 4096 * 4096;
    return map;
}

typedef struct experts_call {
    alg_experts_call_t call;
    room_map_t map;
    uint32_t staged;
    uint32_t nranks, most_tokens, row_bytes;
    uint32_t experts, local;
    uint64_t local_inverse; /* ceil(2^32 / local): exact, as experts have 16 bits */
    uint32_t quads;
    divisor_t by_quads, by_keys, by_table;
    uint32_t keys;      /* most rows that a rank receives of a token */
    uint32_t terms;     /* of a token's sum */
    uint32_t most_rows; /* combine: sums cross if a rank's tokens have more choices */
    bool sends_weights;
    uint32_t vectors; /* of a row, with scales */
    uint32_t token_vectors;
} experts_call_t;

/* Sums cross the link where they take fewer slots than rows, unless `exact` demands rows. */
static inline uint32_t experts_most_rows(const alg_experts_shape_t *shape, const room_map_t *map,
                                         const alg_experts_call_t *call)
{
    const bool fit = (uint64_t)shape->most_tokens * call->top_k <= map->slots;
    const bool exact = shape->exact == ALG_EXPERTS_EXACT_ALL ||
                       (shape->exact == ALG_EXPERTS_EXACT_FP32 && call->type == ALG_FLOAT32 && fit);
    const bool rows = call->rank_major || exact || call->top_k <= ROOM_SUM_SLOTS * shape->nranks;
    return rows ? UINT32_MAX : (uint32_t)ROOM_FEW_ROWS;
}

static inline experts_call_t experts_call_make(const alg_experts_shape_t *shape, const alg_experts_call_t *call)
{
    experts_call_t c;
    c.call = *call;
    c.map = room_map_of(shape);
    c.staged = alg_experts_staged(shape);
    c.nranks = shape->nranks;
    c.most_tokens = shape->most_tokens;
    c.row_bytes = shape->row_bytes;
    c.experts = shape->experts;
    c.local = shape->experts / shape->nranks;
    c.local_inverse = ((UINT64_C(1) << 32) + c.local - 1) / c.local;
    c.quads = room_quads(call->top_k);
    c.keys = call->rank_major ? 1 : call->top_k;
    c.by_quads = divisor_make(c.quads);
    c.by_keys = divisor_make(c.keys);
    c.by_table = divisor_make(c.most_tokens * c.quads);
    c.terms = call->rank_major ? shape->nranks : call->top_k;
    c.most_rows = experts_most_rows(shape, &c.map, call);
    c.sends_weights = call->weights != NULL && (!call->combine || call->tokens * call->top_k > c.most_rows);
    c.token_vectors = call->token_bytes / VEC;
    c.vectors = c.token_vectors + call->scale_bytes / VEC;
    return c;
}

typedef struct room {
    uint64_t at, number; /* the call's number; a staged call's number in its room */
    uint32_t tag, staged;
    uint64_t *counter;
} room_t;

LANE_FN bool room_is_staged(const experts_call_t &c)
{
    return c.call.phases != ALG_EXPERTS_BOTH;
}

/* Whether the data of `source` stays on this rank, outside the room. */
LANE_FN bool room_keeps(const alg_team_t &team, const experts_call_t &c, uint32_t source)
{
    return source == team.rank && !room_is_staged(c);
}

/* Block-wide. epoch: from epoch_read. Routes begin with a staged call's number. False: an earlier call was given up;
 * all lanes leave. After SEND call room_leave. */
LANE_FN bool room_enter(const lane_t &lane, const alg_team_t &team, const experts_call_t &c, uint64_t epoch,
                        room_t &room)
{
    uint64_t *const open = (uint64_t *)c.call.routes;
    if (lane_sync_any(epoch_stopped(epoch)))
        return false;
    room.counter = (uint64_t *)(team.own + ALG_EPOCH_OFFSET);
    room.number = epoch / EPOCH_UNIT;
    room.staged = 0;
    uint64_t place = room.number & 1;
    if (room_is_staged(c)) {
        const bool sends = c.call.phases == ALG_EXPERTS_SEND;
        room.counter = (uint64_t *)(team.own + ROOM_SENT_OFFSET);
        const uint64_t call = sends ? lane_read_own(room.counter) / EPOCH_UNIT : lane_read_own(open);
        if (sends && lane.block == 0 && lane.thread == 0)
            lane_write_own(open, call);
        room.number = call / c.staged;
        room.staged = (uint32_t)(call % c.staged);
        place = 2 + room.staged;
    }
    room.at = ALG_CONTROL_BYTES + place * c.map.bytes;
    room.tag = (uint32_t)room.number & 0x7fffffff; /* never all-ones */
    return true;
}

/* Block-wide. */
LANE_FN void room_leave(const lane_t &lane, const room_t &room)
{
    lane_sync();
    epoch_add_share_to(lane, room.counter);
}

LANE_FN uint64_t *room_credit(uint8_t *scratch, uint32_t room, uint32_t rank)
{
    return (uint64_t *)(scratch + ROOM_CREDIT_OFFSET) + room * ALG_MAX_RANKS + rank;
}

/* Waits until the peers have received the room's last call. Block-wide; lanes that wait acquire for all. */
LANE_FN bool room_await_credit(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room)
{
    bool broken = false;
    lane_wait_begins(lane);
    for (uint32_t r = lane.thread; r < c.nranks; r += lane.threads) {
        lane_awaits(lane, 1u << r);
        while (!broken && lane_flag(room_credit(team.own, room.staged, r)) < room.number)
            broken = lane_stop(lane, team);
    }
    return !lane_sync_any(broken);
}

/* The last block to receive tells the peers. Block-wide. */
LANE_FN void room_give_credit(const lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room)
{
    lane_sync();
    if (lane.thread != 0)
        return;
    uint64_t *const done = (uint64_t *)(team.own + ROOM_DONE_OFFSET) + room.staged;
    lane_fence(); /* orders this block's re-arming before the count */
    if (lane_take_own(done, 1) + 1 != lane.blocks)
        return;
    lane_write_own(done, 0);
    lane_fence(); /* orders all blocks' re-arming before the peers' next stores */
    for (uint32_t i = 0; i < c.nranks; i++)
        lane_raise(room_credit(team.scratch[ring_next(team, i)], room.staged, team.rank), room.number + 1);
}

LANE_FN uint64_t header_at(const experts_call_t &c, const room_t &room, uint32_t source)
{
    return room.at + source * c.map.header_bytes;
}

LANE_FN vec16_t header_vector(const room_t &room, uint32_t first, uint32_t second)
{
    return vec16_t{{first, room.tag, second, room.tag}};
}

LANE_FN bool header_arrived(const room_t &room, const vec16_t &v)
{
    return v.w[1] == room.tag && v.w[3] == room.tag;
}

LANE_FN void header_put(const alg_team_t &team, const experts_call_t &c, const room_t &room, uint64_t offset,
                        const vec16_t &v)
{
    for (uint32_t i = room_is_staged(c) ? 0 : 1; i < c.nranks; i++)
        lane_put(team.scratch[ring_next(team, i)] + header_at(c, room, team.rank) + offset, v);
}

LANE_FN uint64_t header_weights(const experts_call_t &c, uint32_t token, uint32_t pair)
{
    return c.map.weights + ((uint64_t)token * room_weight_pairs(c.call.top_k) + pair) * VEC;
}

/* Weights, loaded before the call's number is known. */
typedef struct header_pair {
    uint32_t w[2];
} header_pair_t;

LANE_FN header_pair_t header_load(const experts_call_t &c, uint32_t i)
{
    const uint32_t top_k = c.call.top_k, pairs = room_weight_pairs(top_k);
    if (!c.sends_weights || i >= c.call.tokens * pairs)
        return header_pair_t{{0, 0}};
    const uint32_t token = i / pairs, k = i % pairs * 2;
    const uint32_t *const at = (const uint32_t *)c.call.weights + (uint64_t)token * top_k + k;
    return header_pair_t{{lane_load_word(at), k + 1 < top_k ? lane_load_word(at + 1) : 0}};
}

/* Sends the number of tokens, and each `stride`-th pair of weights from pair `first`, which is `pair`, on. */
LANE_FN void header_send(const alg_team_t &team, const experts_call_t &c, const room_t &room, uint32_t first,
                         uint32_t stride, header_pair_t pair)
{
    if (first == 0)
        header_put(team, c, room, 0, header_vector(room, c.call.tokens, 0));
    if (!c.sends_weights)
        return;
    const uint32_t pairs = room_weight_pairs(c.call.top_k);
    for (uint32_t i = first; i < c.call.tokens * pairs; i += stride) {
        if (i != first)
            pair = header_load(c, i);
        header_put(team, c, room, header_weights(c, i / pairs, i % pairs), header_vector(room, pair.w[0], pair.w[1]));
    }
}

LANE_FN bool header_weight(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                           uint32_t source, uint32_t token, uint32_t k, float &weight)
{
    vec16_t v;
    if (room_keeps(team, c, source)) {
        v.w[k % 2 * 2] = lane_load_word((const uint32_t *)c.call.weights + (uint64_t)token * c.call.top_k + k);
    } else {
        const uint8_t *const at = team.own + header_at(c, room, source) + header_weights(c, token, k / 2);
        lane_wait_begins(lane);
        lane_awaits(lane, 1u << source);
        while (!header_arrived(room, v = lane_poll(at))) {
            if (lane_stop(lane, team))
                return false;
        }
    }
    memcpy(&weight, &v.w[k % 2 * 2], sizeof weight);
    return true;
}

LANE_FN bool header_tokens(lane_t &lane, const alg_team_t &team, const experts_call_t &c, const room_t &room,
                           uint32_t source, uint32_t &tokens)
{
    vec16_t v;
    lane_wait_begins(lane);
    lane_awaits(lane, 1u << source);
    while (!header_arrived(room, v = lane_poll(team.own + header_at(c, room, source)))) {
        if (lane_stop(lane, team))
            return false;
    }
    tokens = v.w[0];
    return true;
}

LANE_FN uint64_t slot_at(const experts_call_t &c, const room_t &room, uint64_t slot)
{
    return room.at + c.map.rows + slot * c.row_bytes;
}

LANE_FN uint64_t row_at(const experts_call_t &c, const room_t &room, uint32_t source, uint32_t token)
{
    return slot_at(c, room, (uint64_t)source * c.most_tokens + token);
}

LANE_FN uint64_t row_escapes_at(const experts_call_t &c, const room_t &room, uint32_t source, uint32_t token)
{
    return room.at + c.map.escapes + ((uint64_t)source * c.most_tokens + token) * (c.row_bytes / 4);
}

#endif
