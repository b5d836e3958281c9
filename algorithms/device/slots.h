/* SPDX-License-Identifier: Apache-2.0 */
/* slots.h - mailboxes of vectors in a half of scratch.
 *
 * Every scratch has, at the same place, a slot of `vectors` vectors per peer, in rank order; a second set may follow. A
 * peer puts vectors into its slot; the owner takes and re-arms them. Addresses are in half 0 until `move` is called. */
#ifndef SHUNT_SLOTS_H
#define SHUNT_SLOTS_H

#include "algorithms/device/epoch.h"
#include "algorithms/device/peers.h"
#include "algorithms/device/reduce.h"

/* Vectors that a lane polls together. With two, 512 threads are as fast as 1024: two blocks fit a multiprocessor. */
#ifdef __CUDACC__
template <int N> constexpr uint32_t SLOTS_ROWS = N == 2 ? 2 : 1;
#else
template <int N> constexpr uint32_t SLOTS_ROWS = 2;
#endif

LANE_HOST_FN uint64_t slots_bytes(mark_t mark, uint32_t slots, uint32_t vectors)
{
    const uint64_t all = (uint64_t)slots * vectors;
    return all * VEC + (mark == MARK_ESCAPE ? (all * 4 + VEC - 1) / VEC * VEC : 0);
}

/* k: offset from the lane's first vector; the second set is at k + second_set(). */
template <mark_t MARK, int N> struct slots {
    uint8_t *to[N]; /* [i]: at the i-th rank after this one; [0]: unused */
    uint8_t *from;
    uint8_t *to_word[N];
    uint8_t *from_word;
    uint32_t vectors, nranks;

    LANE_FN uint32_t ranks() const
    {
        return N <= EXACT_RANKS ? N : nranks;
    }

    LANE_FN uint32_t second_set() const
    {
        return (ranks() - 1) * vectors;
    }

    LANE_FN static slots make(const alg_team_t &team, uint32_t sets, uint32_t vectors, uint32_t first)
    {
        slots s;
        s.vectors = vectors;
        s.nranks = team.nranks;
        const uint64_t data = team.half_offset, words = data + (uint64_t)sets * s.second_set() * VEC;
        s.from = team.scratch[team.rank] + data + (uint64_t)first * VEC;
        s.from_word = team.scratch[team.rank] + words + (uint64_t)first * 4;
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i >= s.ranks())
                break;
            const uint32_t peer = ring_next(team, i);
            const uint64_t at = (uint64_t)other_place(team.rank, peer) * vectors + first;
            s.to[i] = team.scratch[peer] + data + at * VEC;
            s.to_word[i] = team.scratch[peer] + words + at * 4;
        }
        return s;
    }

    /* With two ranks, too few registers are left for the rarely used addresses of escape words. */
    LANE_FN uint64_t held()
    {
        if (N == 2)
            return (uintptr_t)from | (uintptr_t)to[1];
        uint64_t all = 0;
        each([&all](uint8_t *&p) { all |= (uintptr_t)p; });
        return all;
    }

    /* Warp-wide, after move(). Polls then compute no address. */
    LANE_FN void keep()
    {
        lane_keep(from);
    }

    LANE_FN void move(uint64_t bytes)
    {
        each([bytes](uint8_t *&p) { p += bytes; });
    }

    template <class F> LANE_FN void each(F change)
    {
        change(from);
        if (MARK == MARK_ESCAPE)
            change(from_word);
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i >= ranks())
                break;
            change(to[i]);
            if (MARK == MARK_ESCAPE)
                change(to_word[i]);
        }
    }

    /* Puts x to the i-th rank after this one. input.h has cleaned x, unless MARK_ESCAPE. */
    LANE_FN void put(uint32_t i, uint32_t k, vec16_t x) const
    {
        const uint32_t escape = MARK == MARK_ESCAPE ? mark_clean<MARK>(x) : 0;
        put_clean(i, k, x, escape);
    }

    LANE_FN void put_all(uint32_t k, vec16_t x) const
    {
        const uint32_t escape = MARK == MARK_ESCAPE ? mark_clean<MARK>(x) : 0;
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i < ranks())
                put_clean(i, k, x, escape);
        }
    }

    LANE_FN void put_clean(uint32_t i, uint32_t k, const vec16_t &x, uint32_t escape) const
    {
        lane_put(to[i] + (uint64_t)k * VEC, x);
        if (escape != 0)
            lane_put_word(to_word[i] + (uint64_t)k * 4, escape);
    }

    LANE_FN uint32_t all() const
    {
        return (1u << (ranks() - 1)) - 1;
    }

    /* Waits for the slots in `wanted` (bits), polled together so that loads overlap. */
    LANE_FN bool take(lane_t &lane, const alg_team_t &team, uint32_t wanted, uint32_t k, vec16_t x[N - 1]) const
    {
        vec16_t(&row)[1][N - 1] = *reinterpret_cast<vec16_t(*)[1][N - 1]>(x);
        return take_rows(lane, team, {wanted}, k, 0, row);
    }

    template <uint32_t ROWS, int WIDTH>
    LANE_FN bool take_rows(lane_t &lane, const alg_team_t &team, const uint32_t (&wanted)[ROWS], uint32_t k,
                           uint32_t stride, vec16_t (&x)[ROWS][WIDTH]) const
    {
        lane_wait_begins(lane);
        for (;;) {
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++) {
                LANE_UNROLL
                for (uint32_t j = 0; j < N - 1; j++) {
                    if (wanted[b] >> j & 1)
                        x[b][j] = lane_poll(data_at(j, k + b * stride));
                }
            }
            bool arrived = true;
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++) {
                LANE_UNROLL
                for (uint32_t j = 0; j < N - 1; j++) {
                    if (wanted[b] >> j & 1)
                        arrived = arrived && mark_arrived<MARK>(x[b][j]);
                }
            }
            if (arrived)
                break;
            if (lane_stop(lane, team))
                return false;
        }
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS && MARK == MARK_ESCAPE; b++) {
            LANE_UNROLL
            for (uint32_t j = 0; j < N - 1; j++) {
                if (!(wanted[b] >> j & 1))
                    continue;
                if (mark_escaped(x[b][j]) && !take_escape(lane, team, word_at(j, k + b * stride), x[b][j]))
                    return false;
                mark_whiten(x[b][j]);
            }
        }
        return true;
    }

    LANE_FN bool take_one(lane_t &lane, const alg_team_t &team, uint32_t j, uint32_t k, vec16_t &x) const
    {
        lane_wait_begins(lane);
        while (!mark_arrived<MARK>(x = lane_poll(data_at(j, k)))) {
            if (lane_stop(lane, team))
                return false;
        }
        if (MARK != MARK_ESCAPE)
            return true;
        if (mark_escaped(x) && !take_escape(lane, team, word_at(j, k), x))
            return false;
        mark_whiten(x);
        return true;
    }

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

    /* Re-arms data of slots in `wanted`; `take` has re-armed their escape words. Called last: no rank waits for it. */
    LANE_FN void rearm(uint32_t wanted, uint32_t k) const
    {
        LANE_UNROLL
        for (uint32_t j = 0; j < N - 1; j++) {
            if (wanted >> j & 1)
                lane_rearm(data_at(j, k));
        }
    }

    LANE_FN uint8_t *data_at(uint32_t j, uint32_t k) const
    {
        return from + ((uint64_t)j * vectors + k) * VEC;
    }

    LANE_FN uint8_t *word_at(uint32_t j, uint32_t k) const
    {
        return from_word + ((uint64_t)j * vectors + k) * 4;
    }
};

#endif
