/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h - the vocabulary of kernels, so that a protocol is written once. A lane is a thread of a kernel.
 *
 * Structs hold a lane's state (reduction, slots, outbox): `make` needs only the kernel's arguments and precedes
 * lane_begin; `begin` or `move` follows, when the epoch is known. Functions that wait return false if lane_stop ended
 * the wait.
 *
 *   lane_part           restrict the lane to call `part` of the kernel, which blocks from..to-1 serve (parts.h)
 *   lane_begin          wait for all earlier work of the stream; before it only the kernel's arguments may be used.
 *                       `held`: values computed from them, or'ed, to keep that arithmetic before the wait.
 *                       `early`: the stream's next kernel may be placed now, if it begins with the same wait
 *   lane_keep           hold an address in registers over a wait; by all lanes of a warp, before any returns.
 *                       lane_keep_same: a value equal in all lanes
 *   lane_load, lane_store    16 bytes of the caller's buffers, unordered
 *   lane_load_if        load without a branch; from `dummy` unless `wanted`
 *   lane_load_word      4 aligned bytes; others may be storing those that the caller ignores
 *   lane_store_part     an aligned element or 4 bytes; others may be loading bytes beside it
 *   lane_put, lane_put_word    16 or 4 bytes into a peer's scratch, unordered; aligned 8 bytes stay whole
 *   lane_poll, lane_poll_word    read own scratch, where peers put
 *   lane_rearm*         set own scratch to all-ones, after its value was read
 *   lane_copy_out, lane_copy_in    16 bytes of staging, ordered by flags alone
 *   lane_fence          before lane_raise: a rank that sees the flag sees earlier stores of this lane, and of lanes
 *                       that met it in lane_sync or lane_warp_sync after their stores
 *   lane_raise          a flag into a peer's scratch; its data needs lane_fence, unless an earlier kernel stored it in
 *                       this device's memory
 *   lane_flag           read a flag; this lane then sees its data, and so does the warp after lane_warp_sync
 *   lane_post, lane_fetch    store to own, load from a peer's pinned scratch: 16 bytes at once; lane_fence orders posts
 *   lane_*sync, lane_*any    barrier of the block or warp; whether x is true in any of its lanes
 *   lane_*_own          a word of this rank's control page or counts, unordered; take: add, return the old value
 *   lane_wait_begins    the time limit starts
 *   lane_awaits         tell lane_stop which ranks (bits) the lane waits for; default: all
 *   lane_stop           call after each poll of all awaited data; true: leave (abort, time limit, a peer gave up;
 *                       on the CPU device: an awaited rank is gone)
 *   lane_lose           give up the call: awaited data will never come
 *   LANE_AHEAD          vectors that a lane puts ahead of those that it takes
 *   LANE_ROWS           a lane's vectors between two flags of pinned memory (pinned/chunks.h)
 *   LANE_ANY_ORDER      two floats' sum, product and maximum do not depend on their order */
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
