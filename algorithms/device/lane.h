/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane.h - the vocabulary of kernels. A lane is a thread of a kernel.
 *
 * The words have two implementations, so that a protocol is written once: lane_cuda.cuh, and lane_host.h, where a block
 * is a host thread with one lane and device memory is shared memory of the host. tests/emulator/ also runs the CUDA
 * code.
 *
 * A lane's state is in structs (reduction, slots, outbox, ...): `make` needs only the kernel's arguments and comes
 * before lane_begin, whose argument is `held`; `begin` or `move` follows, when the epoch is known.
 *
 *   lane_t              block, blocks, thread, threads: this lane's position; grid_block, grid_blocks: in the grid
 *   lane_part           restrict the lane to the kernel's call number `part`, of blocks from..to-1 (parts.h)
 *   lane_begin          wait until all earlier work of the stream is complete; before it only the kernel's arguments
 *                       may be used. `held`: the values computed from them, or'ed, which keeps that arithmetic before
 *                       the wait. `early`: the stream's next kernel may be placed now, if it begins with the same wait
 *   lane_keep           keep an address in registers, not computed after a wait; by all lanes of a warp; none
 *                       may have returned
 *   lane_keep_same      the same for a value that is equal in all lanes
 *   lane_load, lane_store      16 bytes of the caller's buffers, unordered; stored lines leave the cache first
 *   lane_load_if        without a branch, in flight beside earlier loads; from `dummy` unless `wanted`
 *   lane_load_word      4 aligned bytes of them; other lanes may be storing bytes that the caller ignores
 *   lane_store_part     an aligned element or 4 bytes of them; other lanes may load the bytes beside it
 *   lane_put            16 bytes into a peer's scratch; each aligned 8 bytes arrive whole; puts are not ordered
 *   lane_poll           16 bytes of own scratch that a peer puts
 *   lane_put_word, lane_poll_word     the same with 4 bytes
 *   lane_rearm*         set own scratch to the sentinel, after its value was read
 *   lane_copy_out, lane_copy_in       16 bytes of staging, ordered by flags alone
 *   lane_fence          before lane_raise: a rank that sees the flag sees the stores of this lane, and of lanes that it
 *                       met in lane_sync or lane_warp_sync after their stores
 *   lane_raise          store a flag in a peer's scratch. Data that it announces needs lane_fence, unless an earlier
 *                       kernel stored it in this device's memory
 *   lane_flag           read a flag; the data that it guards is visible afterwards
 *   lane_post           16 bytes into own scratch in the host's memory; they arrive whole, and before flags raised
 *                       after a lane_fence; posts are not ordered
 *   lane_fetch          16 bytes of a peer's scratch in the host's memory
 *   lane_sync, lane_sync_any          barrier of the block; and whether x is true in any lane
 *   lane_warp_sync, lane_warp_any     the same for the lane_warp_size lanes of a warp
 *   lane_warp_least, lane_warp_sum     the least x of the warp; the sum
 *   lane_shared         CUDA: the block's shared memory, as many bytes as its launch says; aligned to 16
 *   lane_read_own, lane_read_both     a word, or two neighbours, of this rank's control page or counts
 *   lane_write_own, lane_add_own, lane_or_own     change such a word; not ordered with other stores
 *   lane_take_own       add `n` to such a word; returns the old value
 *   lane_wait_begins    the time limit starts
 *   lane_awaits         ranks (bits) that the next lane_stop waits for; default: all
 *   lane_stop           after each poll of all awaited data: true when the wait must end (abort, time limit, a peer
 *                       that gave up; on the host device: an awaited rank is gone)
 *   lane_lose           awaited data will never come: leave the call as at a time limit
 *   LANE_FN, LANE_HOST_FN, LANE_COLD_FN   a function of kernels; also of launches; a rarely called one
 *   LANE_AHEAD          number of vectors that a lane puts ahead of those that it takes
 *   LANE_ROWS           vectors of a lane between two flags of the host's memory (hostmem/chunks.h)
 *   LANE_MOST_BLOCKS, LANE_MOST_THREADS   limits of a grid and of a block
 *   LANE_ANY_ORDER      two floats have the same sum, product and maximum, to the bit, in either order
 */
#ifndef SHUNT_LANE_H
#define SHUNT_LANE_H

#include "algorithms/algorithm.h"

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
