/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emulator.h - GPUs made of fibers, on which the kernels' CUDA code runs in one thread.
 *
 * Each lane of each block of each kernel is a fiber. They run in an order drawn from
 * EMULATOR_SEED, with ranks and blocks that are slow for a while. A store is visible
 * to others some time after it was made, in any order with the lane's other stores, but
 * for stores to the same place, and for fences. So a kernel that relies on more than
 * the CUDA model promises can fail here. Loads take effect in program order: what a GPU
 * may load early is not shown. A barrier makes stores to global memory visible to nobody,
 * where CUDA's makes them visible to the block; no kernel relies on that.
 *
 * A kernel that is launched with the attribute for dependent launch begins when all
 * blocks of its predecessor have let it in or ended; any other one when the
 * predecessor's stores are visible. There is room for any number of blocks at once. The
 * clock counts steps.
 */
#ifndef SHUNT_EMULATOR_H
#define SHUNT_EMULATOR_H

#include <functional>
#include <stddef.h>
#include <stdint.h>

typedef struct emulator_lane {
    uint32_t thread, threads, block, blocks;
} emulator_lane_t;

/* The running one. */
const emulator_lane_t *emulator_lane(void);
/* Memory of its block. */
void *emulator_shared(void);
uint64_t emulator_now_ns(void);

/* A barrier of the lanes that have not ended; the result of all their x. */
enum { EMULATOR_WARP, EMULATOR_BLOCK };
enum { EMULATOR_ANY, EMULATOR_LEAST };
uint32_t emulator_meet(int of, int result, uint32_t x);

/* griddepcontrol.wait and .launch_dependents. */
void emulator_wait_for_predecessor(void);
void emulator_let_successor_in(void);

/* 1 to 16 aligned bytes. */
void emulator_store(void *to, const void *from, size_t bytes);
void emulator_add(uint64_t *to, uint64_t x);
void emulator_or(uint64_t *to, uint64_t x);
/* The lane's own stores count. */
void emulator_load(const void *from, void *to, size_t bytes);
/* What the lane stored, and what others stored before a barrier that it has left, comes before what it stores now. */
void emulator_fence(void);

void emulator_launch(struct CUstream_st *stream, uint32_t blocks, uint32_t threads, size_t shared_bytes, bool early,
                     const std::function<void()> &kernel);

#endif
