/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.h - several short all-reduces in one kernel of one block: the parts of the
 * call (alg_call_t.parts), which a program has put into a group.
 *
 * Another rank may make them one by one, so each has a number of its own and goes over
 * the link as it would alone. What the list saves is launches, and trips over the link:
 * the block sends the calls of a round, and then takes what the peers sent in them.
 *
 * So the calls of a round need different slots. A call of up to LIST_BYTES, in a list or
 * alone, uses one of LIST_PLACES places of its half, in turn by its number (list_place). A
 * longer call uses the whole half.
 *
 * Why a rank never stores over what a peer has yet to read:
 *   - Short calls. A rank sends call i when it has taken all calls before i's round. The
 *     last of these was sent by a peer that had, by the same rule, taken all calls before
 *     the round of that one. So the peer has taken call i - 2 LIST_ROUND, and call i's
 *     place was last used by call i - 2 LIST_PLACES.
 *   - A longer call before the list. It is a kernel of its own on every rank. The first
 *     call of a list is a round of its own, so a rank that sends the second round has
 *     heard that all peers have ended that kernel.
 *   - A longer call behind the list. The last call of a list is a round of its own, too,
 *     so a rank that has ended the list has heard that all peers have taken the other
 *     calls; the last one lies in the other half.
 * The fence between two rounds puts the re-arming before the next round's data, as the
 * end of a kernel does between two kernels.
 *
 * An ALG_ENTRIES of a list_reducer needs one of reducer<A> in the same file (parts.h).
 */
#ifndef SHUNT_LIST_H
#define SHUNT_LIST_H

#include "algorithms/device/launch.h"
#include "algorithms/device/parts.h"
#include "algorithms/device/slots.h"

enum { LIST_BYTES = 16 << 10, LIST_PLACES = 16, LIST_ROUND = 16 };
static_assert(LIST_ROUND <= LIST_PLACES, "a place is used again before all have read it");

/* Captured lists of fewer calls are launched call by call: a launch in a graph costs little, and a list has at least
 * three rounds, each with a fence. An estimate, not measured between GPUs. */
enum { LIST_LEAST_CAPTURED = 6 };

/* A kernel's argument. */
typedef struct list {
    kernel_call_t call; /* what they have in common */
    uint32_t count;
    alg_part_t part[ALG_MOST_PARTS];
} list_t;

static_assert(sizeof(list_t) + sizeof(alg_team_t) <= 4096, "a kernel's arguments");

LANE_FN const list_t &kernel_call_of(const list_t &list, lane_t &)
{
    return list;
}

/* From one place to the next: the slots of the longest short call. 0: the scratch has no room for them. */
LANE_HOST_FN uint64_t list_place_bytes(const alg_team_t &team)
{
    const uint64_t bytes = slots_bytes(MARK_ESCAPE, team.nranks - 1, LIST_BYTES / VEC);
    return LIST_PLACES * bytes <= team.half_bytes ? bytes : 0;
}

/* Where the slots of call number `epoch` begin in its half. place_bytes: list_place_bytes, or 0 for a longer call. */
LANE_FN uint64_t list_place(uint64_t epoch, uint64_t place_bytes)
{
    return epoch / (2 * EPOCH_UNIT) % LIST_PLACES * place_bytes;
}

/* The end of the round that begins with call `at`. */
LANE_FN uint32_t list_round_end(uint32_t at, uint32_t count)
{
    if (at == 0 || at + 1 == count)
        return at + 1;
    return at + LIST_ROUND < count ? at + LIST_ROUND : count - 1;
}

/* Once a lane, after its epoch_read, as epoch_leave. */
LANE_FN void list_leave(const lane_t &lane, const alg_team_t &team, uint32_t calls)
{
    lane_sync();
    if (lane.thread == 0)
        lane_add_own((uint64_t *)(team.own + ALG_EPOCH_OFFSET), calls * EPOCH_UNIT);
}

/* Behind a round: what it re-armed stands before the next one is sent. True if the wait of any lane was broken. */
LANE_FN bool list_round_ends(bool broken)
{
    lane_fence();
    return lane_sync_any(broken);
}

/* A warp's way through a round. A row is a vector for each lane of a warp; the warps take the rows of all calls of the
 * round in turn. */
typedef struct list_walk {
    uint32_t part, row, warps;

    LANE_FN static list_walk make(const lane_t &lane, uint32_t at)
    {
        return {at, lane.thread / lane_warp_size(), lane.threads / lane_warp_size()};
    }

    /* Whether it has another row before part `end`; width: of an element. */
    LANE_FN bool stays(const list_t &list, uint32_t end, uint32_t width)
    {
        for (; part < end; part++) {
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
} list_walk_t;

/* Two variants for the number of ranks are enough. */
template <class A> inline constexpr int REDUCE_EXACT_RANKS<A, list_t> = 2;

namespace
{

/* Calls alone by A, and lists by L, which is as A but for its kernel. */
template <class A, class L> struct list_reducer {
    typedef L algorithm;
    typedef list_t argument;

    static uint64_t most_bytes(const alg_team_t *team, const alg_call_t *)
    {
        return list_place_bytes(*team) > 0 ? LIST_BYTES : 0;
    }
    static constexpr part_bytes_t PART_BYTES = most_bytes;

    static list_t make(const alg_team_t *team, const alg_call_t *call)
    {
        list_t list = {kernel_call_make(*call), call->part_count, {}};
        const uint32_t most_warps = grid_most_threads<L>(reduce_kernel_ranks<L, list_t>(team->nranks)) / 32;
        uint64_t warps = 0;
        for (uint32_t i = 0; i < list.count; i++) {
            list.part[i] = call->parts[i];
            warps += buffer_vectors(list.part[i].count * alg_type_bytes(call->type)) / 32 + 1;
        }
        list.call.stride = 0;
        list.call.grid_blocks = 1;
        list.call.threads = 32 * (uint32_t)(warps < most_warps ? warps : most_warps);
        return list;
    }

    /* Each call by itself. */
    static int launch_apart(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        return parts_launch_apart(
            call, [team, stream](const alg_call_t *one) { return reducer<A>::launch(team, one, stream); });
    }

#ifdef __CUDACC__
    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
        if (call->part_count > 0 && call->part_count < LIST_LEAST_CAPTURED)
            (void)cudaStreamIsCapturing((cudaStream_t)stream, &capture);
        if (call->part_count == 0 || capture != cudaStreamCaptureStatusNone)
            return launch_apart(team, call, stream);
        const list_t list = make(team, call);
        const bool whole = parts_are_whole(list.call, list.part, list.count);
        const kernel_t<list_t> kernel =
            reduce_kernel_of<L, list_t>(list.call.type, ops_kind(list.call.op), team->nranks, whole);
        alg_team_t patient = *team; /* as in parts_launch: another rank may make the calls one by one */
        patient.limit = lane_limit_times(patient.limit, list.count);
        return launch_collective(kernel, &patient, list, list.call, list.count, stream);
    }

    static int preload(uint32_t nranks)
    {
        const int error = reducer<A>::preload(nranks);
        return error != 0 ? error : reduce_kernels_each<L, list_t>(nranks, launch_preload<list_t>);
    }
#else
    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        return launch_apart(team, call, stream); /* a launch costs nothing here */
    }
#endif
};

} // namespace

#endif
