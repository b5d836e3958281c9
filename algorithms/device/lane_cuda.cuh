/* SPDX-License-Identifier: Apache-2.0 */
/* lane_cuda.cuh - lane.h on CUDA, except PTX (lane_ptx.cuh). */
#ifndef SHUNT_LANE_CUDA_CUH
#define SHUNT_LANE_CUDA_CUH

#include <cuda_runtime.h>

#define LANE_FN __device__ __forceinline__
#define LANE_HOST_FN __host__ __device__ __forceinline__
#define LANE_UNROLL _Pragma("unroll")
#define LANE_ROLL _Pragma("unroll 1")
#define LANE_COLD_FN static __device__ __noinline__

/* PTX ISA: add, fma, mul, max of f32 give the NaN 0x7fffffff; max of +0 and -0 is +0. */
#define LANE_ANY_ORDER true

/* One vector suffices: many lanes put at once. */
static const uint32_t LANE_AHEAD = 1;

static const uint32_t LANE_MOST_BLOCKS = UINT32_MAX, LANE_MOST_THREADS = 1024;

/* More rows only lengthen the pipeline's fill and drain. */
static const uint32_t LANE_ROWS = 4;

typedef struct lane {
    uint32_t block, blocks, thread, threads;
    uint32_t polls;    /* of all waits: a count per wait would spill */
    uint64_t deadline; /* ns of globaltimer; 0: not set */
    uint32_t grid_block, grid_blocks;
} lane_t;

LANE_FN lane_t lane_here()
{
    return lane_t{blockIdx.x, gridDim.x, threadIdx.x, blockDim.x, 0, 0, blockIdx.x, gridDim.x};
}

LANE_FN void lane_part(lane_t &lane, uint32_t, uint32_t from, uint32_t to)
{
    lane.block -= from;
    lane.blocks = to - from;
}

#include "algorithms/device/lane_limit.h"
#include "algorithms/device/lane_ptx.cuh"

LANE_FN uint32_t lane_warp_size()
{
    return 32;
}

LANE_FN void lane_sync()
{
    __syncthreads();
}

LANE_FN bool lane_sync_any(bool x)
{
    return __syncthreads_or(x);
}

LANE_FN void lane_warp_sync()
{
    __syncwarp();
}

LANE_FN bool lane_warp_any(bool x)
{
    return __any_sync(0xffffffffu, x);
}

LANE_FN uint32_t lane_warp_least(uint32_t x)
{
    return __reduce_min_sync(0xffffffffu, x);
}

LANE_FN uint32_t lane_warp_sum(uint32_t x)
{
    return __reduce_add_sync(0xffffffffu, x);
}

/* Reads of the host's words delay data on the link, so one waiting lane per scratch makes them, every LANE_LOOK_NS. The
 * word at ALG_LOOK_OFFSET has the time of the last such read, or LANE_STOP: kernels leave, and the scratch is not
 * reused (scratch_end.c). A warp reads this word every LANE_POLLS polls of some 0.8 us, so an abort frees it within 0.5
 * ms. */
enum { LANE_POLLS = 256, LANE_LOOK_NS = 100000, LANE_STOP = 1 };

/* tell: stop the peers, too, since this rank's data will not come. After an abort, their programs do that. Needs no
 * fence. */
LANE_FN void lane_leave(volatile alg_control_t *control, uint8_t *own, bool tell)
{
    lane_or_own((uint64_t *)(own + ALG_EPOCH_OFFSET), ALG_EPOCH_STOPPED);
    lane_write_own((uint64_t *)(own + ALG_LOOK_OFFSET), LANE_STOP);
    for (int r = 0; tell && r < ALG_MAX_RANKS; r++) {
        const uint64_t at = control->stop_at[r];
        if (at)
            lane_raise((void *)at, 1);
    }
}

LANE_FN void lane_give_up(volatile alg_control_t *control, uint8_t *own, uint32_t status)
{
    control->status = status;
    __threadfence_system();
    control->abort = 1;
    lane_leave(control, own, true);
}

LANE_COLD_FN void lane_lose_apart(volatile alg_control_t *control, uint8_t *own)
{
    lane_give_up(control, own, ALG_STATUS_PEER_LEFT);
}

LANE_FN void lane_lose(const alg_team_t &team)
{
    lane_lose_apart(team.control, team.own);
}

LANE_FN bool lane_peer_left(volatile const alg_control_t *control)
{
    const uint64_t here = control->stop_here;
    uint64_t any = 0;
    for (int r = 0; here && r < ALG_MAX_RANKS; r++)
        any |= lane_flag((const void *)(here + 8 * r));
    return any;
}

LANE_FN void lane_tell(volatile alg_control_t *control, uint8_t *own, uint64_t call_id, uint64_t now)
{
    control->wait_id = call_id;
    control->wait_epoch = lane_read_own((const uint64_t *)(own + ALG_EPOCH_OFFSET));
    control->wait_beat = now;
}

/* Returns the deadline, 0 (none) or LANE_STOP. */
LANE_FN uint64_t lane_look_alone(volatile alg_control_t *control, uint8_t *own, uint64_t limit, uint64_t deadline)
{
    uint64_t *look = (uint64_t *)(own + ALG_LOOK_OFFSET);
    const uint64_t last = lane_read_own(look);
    if (last == LANE_STOP)
        return LANE_STOP;
    const uint64_t now = lane_now();
    uint32_t status = ALG_STATUS_OK;
    if (now - last > LANE_LOOK_NS && atomicCAS((unsigned long long *)look, last, now) == last) {
        if (control->abort) {
            lane_leave(control, own, false);
            return LANE_STOP;
        }
        lane_tell(control, own, lane_limit_id(limit), now);
        if (lane_peer_left(control))
            status = ALG_STATUS_PEER_LEFT;
    }
    if (status == ALG_STATUS_OK) {
        const uint64_t timeout_ns = lane_limit_ns(limit);
        if (timeout_ns == 0)
            return 0;
        if (deadline == 0)
            return now + timeout_ns;
        if (now < deadline)
            return deadline;
        status = ALG_STATUS_TIMEOUT;
    }
    lane_give_up(control, own, status);
    return LANE_STOP;
}

/* One lane looks for all lanes of its warp that call together. Passing the team's address would slow the caller. */
LANE_COLD_FN uint64_t lane_look(volatile alg_control_t *control, uint8_t *own, uint64_t limit, uint64_t deadline)
{
    const uint32_t here = __activemask(), first = __ffs((int)here) - 1;
    if (threadIdx.x % 32 == first)
        deadline = lane_look_alone(control, own, limit, deadline);
    return __shfl_sync(here, deadline, (int)first);
}

LANE_FN void lane_wait_begins(lane_t &lane)
{
    lane.deadline = 0;
}

LANE_FN void lane_awaits(lane_t &, uint32_t)
{
}

LANE_FN bool lane_stop(lane_t &lane, const alg_team_t &team)
{
    if (++lane.polls % LANE_POLLS != 0)
        return false;
    lane.deadline = lane_look(team.control, team.own, team.limit, lane.deadline);
    return lane.deadline == LANE_STOP;
}

#endif
