/* SPDX-License-Identifier: Apache-2.0 */
/* list.h - several short calls of one collective (alg_call_t.parts) in one kernel (push/list_*.cu). On the link they
 * act like separate calls (places.h). */
#ifndef SHUNT_LIST_H
#define SHUNT_LIST_H

#include "algorithms/device/launch.h"
#include "algorithms/device/parts.h"
#include "algorithms/device/places.h"

typedef struct list {
    kernel_call_t call;
    uint32_t count;
    alg_part_t part[PLACES_LIST];
} list_t;

LANE_FN const list_t &kernel_call_of(const list_t &list, lane_t &)
{
    return list;
}

/* The first call's number. When block 0 leaves, it adds all calls' units, less the other blocks' shares. From then
 * until all have left, the shares' top bit is set, and the number is list.count - 1 too high. */
LANE_FN uint64_t list_number(const list_t &list, uint64_t epoch)
{
    const uint64_t early = epoch % EPOCH_UNIT >= EPOCH_UNIT / 2 ? list.count - 1 : 0;
    return epoch_base(epoch) - early * EPOCH_UNIT;
}

LANE_FN void list_leave(const lane_t &lane, const alg_team_t &team, const list_t &list)
{
    lane_sync();
    if (lane.thread == 0)
        lane_add_own((uint64_t *)(team.own + ALG_EPOCH_OFFSET),
                     lane.grid_block == 0 ? list.count * EPOCH_UNIT - 2 * (lane.grid_blocks - 1) : 2);
}

/* A warp's position; warps serve the rows of all calls in turn. */
typedef struct list_walk {
    uint32_t part, row, warps;

    LANE_FN static list_walk make(const lane_t &lane)
    {
        const uint32_t warps = lane.threads / lane_warp_size();
        return {0, lane.block * warps + lane.thread / lane_warp_size(), lane.blocks * warps};
    }

    LANE_FN bool stays(const list_t &list, uint32_t width)
    {
        for (; part < list.count; part++) {
            const uint32_t vectors = buffer_vectors(list.part[part].count * width);
            const uint32_t rows = (vectors + lane_warp_size() - 1) / lane_warp_size();
            if (row < rows)
                return true;
            row -= rows;
        }
        return false;
    }

    LANE_FN void next()
    {
        row += warps;
    }

    LANE_FN uint32_t vector(const lane_t &lane) const
    {
        return row * lane_warp_size() + lane.thread % lane_warp_size();
    }
} list_walk_t;

LANE_FN kernel_call_t list_call(const list_t &list, const list_walk_t &w, uint32_t width)
{
    kernel_call_t call = parts_one(list.call, list.part[w.part]);
    call.stride = call.count * width;
    return call;
}

template <class A> inline constexpr int REDUCE_EXACT_RANKS<A, list_t> = 2;

extern "C" {
int alg_list_reduce_launch(const alg_team_t *team, const alg_call_t *call, void *stream);
int alg_list_reduce_preload(uint32_t nranks);
int alg_list_move_launch(const alg_team_t *team, const alg_call_t *call, void *stream);
int alg_list_move_preload(uint32_t nranks);
}

static inline list_t list_make(const alg_team_t *team, const alg_call_t *call, const kernel_call_t &common,
                               uint32_t first, uint32_t most_threads)
{
    const uint32_t left = call->part_count - first, count = left < (uint32_t)PLACES_LIST ? left : (uint32_t)PLACES_LIST;
    const uint64_t width = alg_type_bytes(common.type), unit = alg_type_bytes(call->type) / width;
    list_t list = {common, count, {}};
    uint64_t rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        list.part[i] = call->parts[first + i];
        list.part[i].count *= unit;
        rows += (list.part[i].count * width - 1) / ALG_ROW_BYTES + 1;
    }
    list.call.stride = 0;
    list.call.turns = places_turns(team);
    grid_shape(rows * (ALG_ROW_BYTES / VEC), most_threads, &list.call.grid_blocks, &list.call.threads);
    return list;
}

template <class F>
static int list_launch(const alg_team_t *team, const alg_call_t *call, const kernel_call_t &common,
                       uint32_t most_threads, void *stream, F kernel)
{
    int error = 0;
    for (uint32_t first = 0; first < call->part_count && error == 0; first += PLACES_LIST) {
        const list_t list = list_make(team, call, common, first, most_threads);
        alg_team_t patient = *team; /* see parts_launch */
        patient.limit = lane_limit_times(patient.limit, list.count);
        error = launch_collective(kernel(list), &patient, list, list.call, list.count, stream);
    }
    return error;
}

namespace
{

template <class A> struct list_reducer {
    typedef A algorithm;
    typedef list_t argument;

    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        const uint32_t most_threads = grid_most_threads<A>(reduce_kernel_ranks<A, list_t>(team->nranks));
        return list_launch(team, call, kernel_call_make(*call), most_threads, stream, [team](const list_t &list) {
            return reduce_kernel_of<A, list_t>(list.call.type, ops_kind(list.call.op), team->nranks,
                                               parts_are_whole(list.call, list.part, list.count));
        });
    }

    static int preload(uint32_t nranks)
    {
        return reduce_kernels_each<A, list_t>(nranks, launch_preload<list_t>);
    }
};

template <class A> struct list_mover {
    typedef A algorithm;

    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        return list_launch(team, call, kernel_call_make_bytes(*call), grid_most_threads<A>(team->nranks), stream,
                           [team](const list_t &list) {
                               return move_kernel_of<A, list_t, true>(
                                   team->nranks, parts_are_whole(list.call, list.part, list.count));
                           });
    }

    static int preload(uint32_t nranks)
    {
        return move_kernels_each<A, list_t, true>(nranks, launch_preload<list_t>);
    }
};

} // namespace

#endif
