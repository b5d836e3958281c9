/* SPDX-License-Identifier: Apache-2.0 */
/* lane_cpu.h - lane.h on the CPU device.
 *
 * Puts and re-arming are release stores, polls acquire. So the thread sanitizer sees the order that kernel boundaries
 * give on CUDA (algorithm.h). Accesses of 4 or 8 bytes are atomic. */
#ifndef SHUNT_LANE_CPU_H
#define SHUNT_LANE_CPU_H

#include <sched.h>
#include <string.h>
#include <time.h>

#define LANE_FN inline
#define LANE_COLD_FN static inline
#define LANE_HOST_FN inline
#define LANE_UNROLL
#define LANE_ROLL

/* Order matters: the sum of two NaN is the first one, the maximum of two zeros the second. */
#define LANE_ANY_ORDER false

/* Ranks may outnumber cores: sending vectors one at a time would cost two thread switches each. */
static const uint32_t LANE_AHEAD = 1024;
static const uint32_t LANE_ROWS = 32;

static const uint32_t LANE_MOST_BLOCKS = 16, LANE_MOST_THREADS = 1;

#include "algorithms/device/lane_limit.h"

typedef struct lane {
    uint32_t block, blocks, thread, threads;
    uint32_t polls;
    uint64_t deadline; /* ns of CLOCK_MONOTONIC; 0: not set */
    uint32_t awaited;
    uint32_t lost; /* ranks (bits) gone or stopped at the last check */
    bool counted;  /* the call is a collective */
    uint64_t call; /* collectives before this one */
    uint32_t grid_block, grid_blocks;
} lane_t;

LANE_FN void lane_part(lane_t &lane, uint32_t part, uint32_t from, uint32_t to)
{
    lane.block -= from;
    lane.blocks = to - from;
    lane.call += part;
}

LANE_FN void lane_begin(uint64_t, uint32_t)
{
}

LANE_FN void lane_keep(uint8_t *&)
{
}

LANE_FN void lane_keep_same(uint32_t &)
{
}

LANE_FN uint32_t lane_warp_size()
{
    return 1;
}

LANE_FN vec16_t lane_load(const void *p)
{
    vec16_t v;
    memcpy(v.w, p, VEC);
    return v;
}

LANE_FN vec16_t lane_load_if(bool wanted, const void *p, const void *)
{
    return wanted ? lane_load(p) : vec16_t{{0, 0, 0, 0}};
}

LANE_FN void lane_store(void *p, const vec16_t &v)
{
    memcpy(p, v.w, VEC);
}

LANE_FN uint32_t lane_load_word(const void *p)
{
    return __atomic_load_n((const uint32_t *)p, __ATOMIC_RELAXED);
}

template <class T> LANE_FN void lane_store_part(void *p, T x)
{
    __atomic_store_n((T *)p, x, __ATOMIC_RELAXED);
}

LANE_FN void lane_put_now(void *p, const vec16_t &v)
{
    uint64_t *q = (uint64_t *)p;
    __atomic_store_n(q, (uint64_t)v.w[1] << 32 | v.w[0], __ATOMIC_RELEASE);
    __atomic_store_n(q + 1, (uint64_t)v.w[3] << 32 | v.w[2], __ATOMIC_RELEASE);
}

#ifdef LANE_LATE_POSTS
#include "algorithms/device/lane_late.h"
#else
LANE_FN void lane_land_one()
{
}

LANE_FN void lane_land_at(const void *)
{
}

LANE_FN void lane_put(void *p, const vec16_t &v)
{
    lane_put_now(p, v);
}

LANE_FN void lane_fence()
{
}
#endif

LANE_FN void lane_put_word(void *p, uint32_t w)
{
    __atomic_store_n((uint32_t *)p, w, __ATOMIC_RELEASE);
}

LANE_FN vec16_t lane_poll(const void *p)
{
    lane_land_at(p);
    const uint64_t *q = (const uint64_t *)p;
    const uint64_t lo = __atomic_load_n(q, __ATOMIC_ACQUIRE), hi = __atomic_load_n(q + 1, __ATOMIC_ACQUIRE);
    return vec16_t{{(uint32_t)lo, (uint32_t)(lo >> 32), (uint32_t)hi, (uint32_t)(hi >> 32)}};
}

LANE_FN uint32_t lane_poll_word(const void *p)
{
    return __atomic_load_n((const uint32_t *)p, __ATOMIC_ACQUIRE);
}

LANE_FN void lane_rearm(void *p)
{
    const vec16_t armed = {{SENTINEL, SENTINEL, SENTINEL, SENTINEL}};
    lane_put(p, armed);
}

LANE_FN void lane_rearm_word(void *p)
{
    lane_put_word(p, SENTINEL);
}

LANE_FN void lane_copy_out(void *p, const vec16_t &v)
{
    memcpy(p, v.w, VEC);
}

LANE_FN vec16_t lane_copy_in(const void *p)
{
    return lane_load(p);
}

/* The upper half has the mark: it is stored last and loaded first. */
LANE_FN void lane_post(void *p, const vec16_t &v)
{
    lane_put(p, v);
}

LANE_FN vec16_t lane_fetch(const void *p)
{
    const uint64_t *q = (const uint64_t *)p;
    const uint64_t hi = __atomic_load_n(q + 1, __ATOMIC_ACQUIRE), lo = __atomic_load_n(q, __ATOMIC_ACQUIRE);
    return vec16_t{{(uint32_t)lo, (uint32_t)(lo >> 32), (uint32_t)hi, (uint32_t)(hi >> 32)}};
}

LANE_FN void lane_raise(void *p, uint64_t value)
{
    __atomic_store_n((uint64_t *)p, value, __ATOMIC_RELEASE);
}

LANE_FN uint64_t lane_flag(const void *p)
{
    return __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE);
}

LANE_FN void lane_sync()
{
}

LANE_FN bool lane_sync_any(bool x)
{
    return x;
}

LANE_FN void lane_warp_sync()
{
}

LANE_FN bool lane_warp_any(bool x)
{
    return x;
}

LANE_FN uint32_t lane_warp_least(uint32_t x)
{
    return x;
}

LANE_FN uint32_t lane_warp_sum(uint32_t x)
{
    return x;
}

LANE_FN void lane_write_own(uint64_t *p, uint64_t w)
{
    __atomic_store_n(p, w, __ATOMIC_RELEASE);
}

LANE_FN uint64_t lane_read_own(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

LANE_FN void lane_read_both(const uint64_t *p, uint64_t &first, uint64_t &second)
{
    first = lane_read_own(p);
    second = lane_read_own(p + 1);
}

LANE_FN void lane_add_own(uint64_t *p, uint64_t x)
{
    __atomic_fetch_add(p, x, __ATOMIC_ACQ_REL);
}

LANE_FN uint64_t lane_take_own(uint64_t *p, uint64_t n)
{
    return __atomic_fetch_add(p, n, __ATOMIC_ACQ_REL);
}

LANE_FN void lane_or_own(uint64_t *p, uint64_t x)
{
    __atomic_fetch_or(p, x, __ATOMIC_ACQ_REL);
}

LANE_FN uint64_t lane_now()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

LANE_FN void lane_wait_begins(lane_t &lane)
{
    lane.deadline = 0;
}

LANE_FN void lane_awaits(lane_t &lane, uint32_t ranks)
{
    lane.awaited = ranks;
}

LANE_FN void lane_leave(const alg_team_t &team, bool tell)
{
    lane_or_own((uint64_t *)(team.own + ALG_EPOCH_OFFSET), ALG_EPOCH_STOPPED);
    for (uint32_t r = 0; tell && r < ALG_MAX_RANKS; r++) {
        if (team.control->stop_at[r])
            lane_raise((void *)(uintptr_t)team.control->stop_at[r], 1);
    }
}

LANE_FN void lane_give_up(const alg_team_t &team, uint32_t status)
{
    __atomic_store_n(&team.control->status, status, __ATOMIC_RELEASE);
    __atomic_store_n(&team.control->abort, 1u, __ATOMIC_RELEASE);
    lane_leave(team, true);
}

LANE_FN void lane_lose(const alg_team_t &team)
{
    lane_give_up(team, ALG_STATUS_PEER_LEFT);
}

LANE_FN uint32_t lane_stopped(const alg_team_t &team)
{
    uint32_t ranks = 0;
    for (uint32_t r = 0; team.control->stop_here && r < team.nranks; r++)
        ranks |= lane_flag((const void *)(uintptr_t)(team.control->stop_here + 8 * r)) ? 1u << r : 0;
    return ranks;
}

/* Returns awaited ranks that were already lost at the previous check: all that they sent has been polled since. A rank
 * that has ended this collective is not missed, since it has stored all of its part. */
LANE_FN uint32_t lane_missed(const lane_t &lane, const alg_team_t &team)
{
    uint32_t missed = lane.lost & lane.awaited;
    for (uint32_t r = 0; lane.counted && r < team.nranks; r++) {
        if (missed >> r & 1 && (int64_t)(lane_flag(team.scratch[r] + ALG_ENDED_OFFSET) - lane.call) > 0)
            missed &= ~(1u << r);
    }
    return missed;
}

LANE_FN uint32_t lane_look(lane_t &lane, const alg_team_t &team)
{
    const uint32_t missed = lane_missed(lane, team);
    const uint32_t gone = __atomic_load_n(&team.control->gone, __ATOMIC_ACQUIRE);
    lane.lost = gone | lane_stopped(team);
    return !missed ? ALG_STATUS_OK : missed & gone ? ALG_STATUS_PEER_DEAD : ALG_STATUS_PEER_LEFT;
}

/* Several lanes may write at once: each value is valid. */
LANE_FN void lane_tell(const alg_team_t &team)
{
    alg_control_t *control = team.control;
    __atomic_store_n(&control->wait_id, lane_limit_id(team.limit), __ATOMIC_RELAXED);
    __atomic_store_n(&control->wait_epoch, lane_read_own((const uint64_t *)(team.own + ALG_EPOCH_OFFSET)),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&control->wait_beat, __atomic_load_n(&control->wait_beat, __ATOMIC_RELAXED) + 1, __ATOMIC_RELEASE);
}

/* A thread yields every 64 polls, and sleeps every 1024. */
LANE_FN void lane_rest(const lane_t &lane)
{
    const struct timespec nap = {0, 20000};
    if (lane.polls % 1024 == 0)
        nanosleep(&nap, NULL);
    else
        sched_yield();
}

LANE_FN bool lane_stop(lane_t &lane, const alg_team_t &team)
{
    lane_land_one();
    if (++lane.polls % 64 != 0)
        return false;
    if (__atomic_load_n(&team.control->abort, __ATOMIC_ACQUIRE)) {
        lane_leave(team, false);
        return true;
    }
    lane_tell(team);
    uint32_t status = lane_look(lane, team);
    if (status == ALG_STATUS_OK) {
        lane_rest(lane);
        const uint64_t timeout_ns = lane_limit_ns(team.limit);
        if (timeout_ns == 0)
            return false;
        const uint64_t now = lane_now();
        if (lane.deadline == 0)
            lane.deadline = now + timeout_ns;
        if (now < lane.deadline)
            return false;
        status = ALG_STATUS_TIMEOUT;
    }
    lane_give_up(team, status);
    return true;
}

#endif
