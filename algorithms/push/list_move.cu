/* SPDX-License-Identifier: Apache-2.0 */
/* list_move.cu - lists of short all-gathers or all-to-alls, in one step (list.h).
 *
 * Data path: input (all-to-all: block o) -> this rank's slot at rank o -> output there. */
#include "algorithms/device/buffers.h"
#include "algorithms/device/list.h"

struct list_copy {
    enum { MOST_THREADS = 1024 };

    /* EACH is always true: the collective tells at run time whether the input has blocks. */
    template <int N, bool WHOLE, bool EACH>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const list_t &list)
    {
        lane_begin((uintptr_t)team.own, list.call.early);
        const uint64_t epoch = epoch_read(team);
        if (epoch_stopped(epoch))
            return;
        const uint64_t number = list_number(list, epoch);
        for (list_walk_t w = list_walk_t::make(lane); w.stays(list, 1); w.next())
            one<N, WHOLE>::make(lane, team, list, number, w).put(team);
        list_leave(lane, team, list);
        for (list_walk_t w = list_walk_t::make(lane); w.stays(list, 1); w.next()) {
            if (!one<N, WHOLE>::make(lane, team, list, number, w).take(lane, team))
                return;
        }
    }

    template <int N, bool WHOLE> struct one {
        slots<MARK_ESCAPE, N> s;
        const uint8_t *input;
        uint8_t *output;
        uint64_t bytes, step; /* of a block; between the input's blocks */
        uint32_t vector;

        LANE_FN static one make(const lane_t &lane, const alg_team_t &team, const list_t &list, uint64_t number,
                                const list_walk_t &w)
        {
            const kernel_call_t call = list_call(list, w, 1);
            one x;
            x.input = (const uint8_t *)call.input;
            x.output = (uint8_t *)call.output;
            x.bytes = call.count;
            x.step = route_input_has_blocks(call.collective) ? call.count : 0;
            x.vector = w.vector(lane);
            x.s = slots<MARK_ESCAPE, N>::make(team, 1, buffer_vectors(call.count), x.vector);
            x.s.move(turns_at(call.turns, number + w.part * EPOCH_UNIT));
            return x;
        }

        LANE_FN bool exists() const
        {
            return vector < s.vectors;
        }

        LANE_FN vec16_t load(uint32_t rank) const
        {
            const buffer_t block = buffer_make(input + rank * step, bytes);
            return WHOLE ? buffer_load_whole(block, vector) : buffer_load<uint8_t>(block, vector);
        }

        LANE_FN void store(uint32_t rank, const vec16_t &x) const
        {
            const buffer_t block = buffer_make(output + rank * bytes, bytes);
            if (WHOLE)
                buffer_store_whole(block, vector, x);
            else
                buffer_store<uint8_t>(block, vector, x);
        }

        LANE_FN void put(const alg_team_t &team) const
        {
            if (!exists())
                return;
            LANE_UNROLL
            for (uint32_t i = 1; i < N; i++) {
                if (i < s.ranks())
                    s.put(i, 0, load(ring_next(team, i)));
            }
            if (output + team.rank * bytes != input + team.rank * step)
                store(team.rank, load(team.rank));
        }

        LANE_FN bool take(lane_t &lane, const alg_team_t &team) const
        {
            vec16_t x[N - 1];
            if (!exists())
                return true;
            if (!s.take(lane, team, s.all(), 0, x))
                return false;
            LANE_UNROLL
            for (uint32_t j = 0; j < N - 1; j++) {
                if (j + 1 < s.ranks())
                    store(other_rank(team, j), x[j]);
            }
            s.rearm(s.all(), 0);
            return true;
        }
    };
};

ALG_ENTRIES(alg_list_move, list_mover<list_copy>)
