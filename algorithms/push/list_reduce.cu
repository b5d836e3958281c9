/* SPDX-License-Identifier: Apache-2.0 */
/* list_reduce.cu - lists of short all-reduces or reduce-scatters, in one step (list.h).
 *
 * Data path: input (reduce-scatter: block o) -> this rank's slot at rank o -> added there in rank order -> output. In
 * place is safe: a lane sends its vectors of all calls before it stores any, and no other lane loads them. */
#include "algorithms/device/input.h"
#include "algorithms/device/list.h"

struct list_add {
    enum { MOST_THREADS = 1024 };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const list_t &list)
    {
        typedef one<reduction<TYPE, OPS, N, WHOLE>, N> one_t;
        constexpr uint32_t WIDTH = element<TYPE>::BYTES;
        lane_begin((uintptr_t)team.own, list.call.early);
        reduction<TYPE, OPS, N, WHOLE> common = reduction<TYPE, OPS, N, WHOLE>::make(team, list.call);
        common.begin(list.call);
        const uint64_t epoch = epoch_read(team);
        if (epoch_stopped(epoch))
            return;
        const uint64_t number = list_number(list, epoch);
        for (list_walk_t w = list_walk_t::make(lane); w.stays(list, WIDTH); w.next())
            one_t::make(lane, team, list, common, number, w).put(team);
        list_leave(lane, team, list);
        for (list_walk_t w = list_walk_t::make(lane); w.stays(list, WIDTH); w.next()) {
            if (!one_t::make(lane, team, list, common, number, w).take(lane, team))
                return;
        }
    }

    template <class R, int N> struct one {
        R r;
        slots<R::MARK, N> s;
        uint32_t vector, vectors;
        uint64_t step; /* between the input's blocks, in bytes */

        LANE_FN static one make(const lane_t &lane, const alg_team_t &team, const list_t &list, const R &common,
                                uint64_t number, const list_walk_t &w)
        {
            const kernel_call_t call = list_call(list, w, R::E::BYTES);
            one x;
            x.r = R::make(team, call);
            x.r.scalar = common.scalar;
            x.vectors = x.r.vectors();
            x.vector = w.vector(lane);
            x.step = route_input_has_blocks(call.collective) ? call.stride : 0;
            x.s = slots<R::MARK, N>::make(team, 1, x.vectors, x.vector);
            x.s.move(turns_at(call.turns, number + w.part * EPOCH_UNIT));
            return x;
        }

        LANE_FN vec16_t load(uint32_t rank) const
        {
            return r.load_from(buffer_make(r.input.base + rank * step, r.input.bytes), vector);
        }

        LANE_FN void put(const alg_team_t &team) const
        {
            if (vector >= vectors)
                return;
            LANE_UNROLL
            for (uint32_t i = 1; i < N; i++) {
                if (i < s.ranks())
                    s.put(i, 0, load(ring_next(team, i)));
            }
        }

        LANE_FN bool take(lane_t &lane, const alg_team_t &team) const
        {
            if (vector >= vectors)
                return true;
            vec16_t others[N - 1];
            const vec16_t own = load(team.rank);
            if (!s.take(lane, team, s.all(), 0, others))
                return false;
            r.store(vector, r.combine(others, team.rank, own));
            s.rearm(s.all(), 0);
            return true;
        }
    };
};

ALG_ENTRIES(alg_list_reduce, list_reducer<list_add>)
