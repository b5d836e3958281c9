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
/* Memory of its block, and the bytes of that in the launch. */
void *emulator_shared(void);
uint32_t emulator_shared_bytes(void);
extern "C" uint64_t emulator_now_ns(void); /* cuda_runtime.h, for tests */

/* A barrier of the lanes that have not ended; the result of all their x. */
enum { EMULATOR_WARP, EMULATOR_BLOCK };
enum { EMULATOR_ANY, EMULATOR_LEAST };
uint32_t emulator_meet(int of, int result, uint32_t x);

/* griddepcontrol.wait and .launch_dependents. */
void emulator_wait_for_predecessor(void);
void emulator_let_successor_in(void);

/* 1 to 16 aligned bytes. */
void emulator_store(void *to, const void *from, size_t bytes);
/* The same into the block's memory: half of them are visible at emulator_stored alone. */
void emulator_store_shared(void *to, const void *from, size_t bytes);
/* The same; now and then it is visible much later. */
void emulator_store_late(void *to, const void *from, size_t bytes);
void emulator_add(uint64_t *to, uint64_t x);
/* At once, for all. The value before. */
uint64_t emulator_take(uint64_t *to, uint64_t n);
void emulator_or(uint64_t *to, uint64_t x);
/* The lane's own stores count. */
void emulator_load(const void *from, void *to, size_t bytes);
/* What the lane stored, and what others stored before a barrier that it has left, comes before what it stores now. */
void emulator_fence(void);

/*
 * Bulk copies. Each aligned 16 bytes are read some time after the copy was asked for, and
 * written some time later, in any order. A load's barrier hears of it when all is written.
 * A store is complete to its lane behind emulator_wait_groups, and to others when it is
 * visible: some time later, or at a fence of its lane, or of one that was told (a word of
 * roles stands for what its lane knew to be complete). What a lane stores into its block's
 * memory is there for copies at emulator_stored, or now and then before; barriers do not
 * count, as they do on CUDA for other lanes.
 * A block must not end while copies use its memory. Places are in that memory.
 */
void emulator_barrier_make(uint32_t at, uint32_t arrivals);
void emulator_arrive(uint32_t barrier, uint32_t bytes_to_come);
bool emulator_phase_over(uint32_t barrier, uint32_t parity);
void emulator_copy_in(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier);
void emulator_copy_out(void *to, uint32_t from, uint32_t bytes);
void emulator_group(void);
/* Of the lane's groups all but the last `left` have read their sources; done: and are complete. */
void emulator_wait_groups(uint32_t left, bool done);
void emulator_stored(void);
void emulator_tell(uint32_t at, uint32_t value);
uint32_t emulator_told(uint32_t at);

/* Load a kernel, whose blocks may have so much memory, or the default. A launch of another kernel, or with more memory,
 * ends the program with status 1: on CUDA it waits for running kernels, or fails. */
void emulator_load(const void *kernel, size_t shared_bytes);
/* `run` calls `kernel` with its arguments. */
void emulator_launch(struct CUstream_st *stream, const void *kernel, uint32_t blocks, uint32_t threads,
                     size_t shared_bytes, bool early, const std::function<void()> &run);

#endif
