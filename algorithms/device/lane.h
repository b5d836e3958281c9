/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane.h - the vocabulary that kernels are written in.
 *
 * A lane is one thread of a kernel. The words below have two implementations: lane_cuda.cuh, and lane_host.h, where a
 * block is a host thread with a single lane and device memory is shared memory of the host. So a protocol is written
 * once. Tests also run the CUDA code on emulated GPUs (tests/emulator/).
 *
 * What a lane keeps lies in structs (reduction, slots, outbox, ...): `make` uses the kernel's arguments alone, so it
 * comes before lane_begin; `held` is for lane_begin; `begin`, or `move`, comes behind it, when the epoch is known.
 *
 *   lane_t              block, blocks, thread, threads: where this lane stands; grid_block, grid_blocks: in the kernel
 *   lane_part           go on as a lane of the kernel's call number `part` alone, which has blocks from..to-1 (parts.h)
 *   lane_begin          wait until all earlier work of the stream is complete. Before it a kernel may use only its
 *                       arguments. `held`: all values computed from them, or'ed together, which keeps that arithmetic
 *                       before the wait. `early`: from here on the stream's next kernel may be placed, if it begins
 *                       with the same wait
 *   lane_keep           by all lanes of a warp that have not returned: keeps an address, which differs from lane to
 *                       lane, in registers, so that it is not computed behind a wait
 *   lane_keep_same      the same for a value that all lanes have alike
 *   lane_load, lane_store      16 bytes of the caller's buffers: plain; stored lines leave the cache first
 *   lane_load_if        lane_load without a branch, in flight beside earlier loads: if not `wanted`, from `dummy`
 *   lane_load_word      4 aligned bytes of them; other lanes may be storing those bytes that the caller does not use
 *   lane_store_part     an element of them, or 4 bytes, aligned; other lanes may load the bytes beside it
 *   lane_put            16 bytes into a peer's scratch. Each aligned 8 bytes arrive whole; two puts are not ordered
 *   lane_poll           16 bytes of own scratch that a peer puts
 *   lane_put_word, lane_poll_word     the same with 4 bytes
 *   lane_rearm*         own scratch back to the sentinel, after its value was read
 *   lane_copy_out, lane_copy_in       16 bytes of staging, ordered by flags alone
 *   lane_fence          what this lane stored, and what lanes stored that it has met in lane_sync or lane_warp_sync
 *                       since, is visible to a rank that sees a flag which this lane raises later
 *   lane_raise          a flag in a peer's scratch. Data that it announces needs lane_fence before it, unless an
 *                       earlier kernel stored it in this device's memory
 *   lane_flag           read a flag; the data that it guards is visible afterwards
 *   lane_post           16 bytes into own scratch in the host's memory; they arrive whole, and before flags that
 *                       this lane raises after a lane_fence; nothing else orders two posts
 *   lane_fetch          16 bytes of a peer's scratch there
 *   lane_sync           all lanes of the block
 *   lane_sync_any       the same; true on all of them if true on any
 *   lane_warp_sync, lane_warp_any     the same of the warp: lane_warp_size lanes
 *   lane_warp_least     the least x of the warp
 *   lane_read_own, lane_read_both     words of the own rank's control page and counts: one, two neighbours
 *   lane_write_own, lane_add_own, lane_or_own     the same, stored; not ordered with other stores
 *   lane_take_own       adds `n` to such a word; returns what it was
 *   lane_wait_begins    the time limit counts from here
 *   lane_awaits         ranks (bits) that the next lane_stop waits for; default: all
 *   lane_stop           called while waiting, after each poll of all awaited data: true when the wait must end
 *                       (abort, time limit; on the host device: an awaited rank is gone)
 *   lane_lose           awaited data will never come: leave the call, as lane_stop does at a time limit
 *   LANE_FN, LANE_HOST_FN, LANE_COLD_FN   a function of kernels; of launches too; one that is rarely called
 *   LANE_AHEAD          by how many vectors a lane puts ahead of those that it takes
 *   LANE_ROWS           vectors of a lane between two flags of the host's memory (hostmem/chunks.h)
 *   LANE_MOST_BLOCKS, LANE_MOST_THREADS   the most blocks of a grid, and threads of a block
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
