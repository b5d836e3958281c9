/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane.h - the vocabulary of kernels. A lane is a thread of a kernel. A protocol is written once, for lane_cuda.cuh and
 * for lane_cpu.h, where a block is a host thread with one lane and device memory is the host's shared memory.
 * tests/emulator/ also runs the CUDA code.
 *
 * A lane's state is in structs (reduction, slots, outbox): `make` needs only the kernel's arguments and precedes
 * lane_begin(held); `begin` or `move` follows, when the epoch is known.
 *
 *   lane_part           restrict the lane to the kernel's call number `part`, of blocks from..to-1 (parts.h)
 *   lane_begin          wait for all earlier work of the stream; only the kernel's arguments may be used before.
 *                       `held`: values computed from them, or'ed, to keep that arithmetic before the wait.
 *                       `early`: the stream's next kernel may be placed now, if it begins with the same wait
 *   lane_keep           hold an address in registers over a wait; by all lanes of a warp, before any returns
 *   lane_keep_same      the same for a value that is equal in all lanes
 *   lane_load, lane_store    16 bytes of the caller's buffers, unordered
 *   lane_load_if        without a branch, beside earlier loads; from `dummy` unless `wanted`
 *   lane_load_word      4 aligned bytes, of which others may be storing those that the caller ignores
 *   lane_store_part     an aligned element or 4 bytes; others may be loading the bytes beside it
 *   lane_put, lane_put_word    16 or 4 bytes into a peer's scratch; aligned 8 bytes stay whole; unordered
 *   lane_poll, lane_poll_word    own scratch, where peers put
 *   lane_rearm*         own scratch to the sentinel, after its value was read
 *   lane_copy_out, lane_copy_in    16 bytes of staging, ordered by flags alone
 *   lane_fence          before lane_raise: who sees the flag sees this lane's stores, and those of lanes that it met in
 *                       lane_sync or lane_warp_sync after them
 *   lane_raise          a flag into a peer's scratch; its data needs lane_fence, unless an earlier kernel stored it in
 *                       this device's memory
 *   lane_flag           read a flag; its data is visible afterwards
 *   lane_post           16 bytes into own scratch in pinned memory: whole; before flags raised after a lane_fence,
 *                       else unordered
 *   lane_fetch          16 bytes of a peer's scratch there
 *   lane_*sync, lane_*any    barrier of the block or warp; whether x is true in any of its lanes
 *   lane_shared         CUDA: the block's shared memory, sized by the launch, aligned to 16 bytes
 *   lane_*_own          a word of this rank's control page or counts, unordered; take: add, return the old value
 *   lane_read_both      two neighbouring ones
 *   lane_wait_begins    the time limit starts
 *   lane_awaits         ranks (bits) that the next lane_stop waits for; default: all
 *   lane_stop           after each poll of all awaited data; true: leave (abort, time limit, a peer gave up; on the
 *                       CPU device: an awaited rank is gone)
 *   lane_lose           awaited data will never come: leave as at a time limit
 *   LANE_FN, LANE_HOST_FN, LANE_COLD_FN    functions of kernels; of launches, too; rarely called
 *   LANE_AHEAD          vectors that a lane puts ahead of those that it takes
 *   LANE_ROWS           a lane's vectors between two flags of pinned memory (pinned/chunks.h)
 *   LANE_MOST_BLOCKS, LANE_MOST_THREADS    limits of a grid and of a block
 *   LANE_ANY_ORDER      two floats' sum, product and maximum have the same bits in either order
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
#include "algorithms/device/lane_cpu.h"
#endif

#endif
