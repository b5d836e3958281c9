/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane.h - the vocabulary that kernels are written in.
 *
 * A lane is one thread of a kernel. The words below have two implementations:
 * lane_cuda.cuh, and lane_host.h, where a block is a thread with a single lane
 * and device memory is shared memory of the host. A protocol (who writes what,
 * where, when) is written once, in these words, and compiled twice.
 *
 *   lane_t              block, blocks, thread, threads: where this lane stands; grid_block, grid_blocks: in the kernel
 *   lane_part           the kernel's calls have some of its blocks each: those from..to are for number `part`
 *   lane_begin          until all that came before in the stream is complete. Before it a kernel may touch
 *                       nothing but its arguments; what it makes of them (`held`) costs no time there.
 *                       Then a kernel that waits for this one in the same way may be placed
 *   lane_load, lane_store      16 bytes of the caller's buffers: plain; what is stored is the first to leave the cache
 *   lane_load_if        branch-free lane_load: loads the dummy address `any` if not wanted; beside earlier loads
 *   lane_load_word      4 aligned bytes of them; other lanes may be storing those bytes that the caller does not use
 *   lane_store_part     an element of them, or 4 bytes, aligned to that; other lanes may load so beside it
 *   lane_put            16 bytes into a peer's scratch. Each aligned 8 bytes arrive whole;
 *                       nothing orders two puts. The value itself tells that it arrived
 *   lane_poll           16 bytes of own scratch that a peer puts
 *   lane_put_word, lane_poll_word     the same with 4 bytes
 *   lane_rearm*         own scratch back to the sentinel, after its value was read
 *   lane_copy_out, lane_copy_in       16 bytes of staging, ordered by flags alone
 *   lane_raise          a flag in a peer's scratch: every lane_copy_out of this lane's warp
 *                       before lane_warp_sync is visible to who sees the flag
 *   lane_flag           read a flag; what it guards is visible afterwards
 *   lane_post           16 bytes into own scratch in the host's memory; they arrive whole, some time before what
 *                       this lane raises behind a lane_fence; nothing else orders two posts
 *   lane_fetch          16 bytes of a peer's scratch there
 *   lane_fence          what this block posted before lane_sync arrives before what this lane raises
 *   lane_sync           all lanes of the block
 *   lane_sync_any       the same; true on all of them if it is on any
 *   lane_warp_sync      all lanes of the warp
 *   lane_wait_begins    the time limit counts from here
 *   lane_awaits         which ranks (bits) the next lane_stops wait for; without it all
 *   lane_stop           called while waiting, after a look at all that is waited for: true when the wait must end
 *                       (abort, time limit; on the host device: an awaited rank is gone)
 *   lane_lose           what is waited for will never come: leave the call, as lane_stop does at a time limit
 *   LANE_AHEAD          by how many of its vectors a lane puts ahead of what it takes
 *   LANE_ROWS           vectors of a lane between two flags of the host's memory (hostmem/chunks.h)
 *   LANE_ANY_ORDER      two floats have one sum, product and maximum, to the bit, in either order
 */
#ifndef SHUNT_LANE_H
#define SHUNT_LANE_H

#include "algorithms/algorithm.h"

/* 16 bytes, the unit of all data movement. */
typedef struct alignas(16) vec16 {
    uint32_t w[4];
} vec16_t;

enum { VEC = 16 };
static const uint32_t SENTINEL = 0xffffffffu;

#ifdef __CUDACC__
#include "algorithms/device/lane_cuda.cuh"
#else
#include "algorithms/device/lane_host.h"
#endif

#endif
