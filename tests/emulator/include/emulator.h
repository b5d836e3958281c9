/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emulator.h - GPUs made of fibers, on which the kernels' CUDA code runs in one thread.
 *
 * Each lane of each block of each kernel is a fiber. They run in an order drawn from EMULATOR_SEED, with ranks and
 * blocks that are temporarily slow. A store becomes visible to others some time later, in any order with the lane's
 * other stores, except for stores to the same address and for fences. So a kernel that relies on more than CUDA's
 * memory model guarantees can fail here. Loads take effect in program order: early loads of a GPU are not emulated. A
 * barrier does not make stores to global memory visible, whereas CUDA's makes them visible to the block; no kernel
 * relies on that.
 *
 * A kernel that is launched with the attribute for dependent launch begins when all blocks of its predecessor have
 * triggered it or ended; any other kernel begins when the predecessor's stores are visible. Any number of blocks fits
 * at once. The clock counts steps.
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
enum { EMULATOR_ANY, EMULATOR_LEAST, EMULATOR_SUM };
uint32_t emulator_meet(int of, int result, uint32_t x);

/* griddepcontrol.wait and .launch_dependents. */
void emulator_wait_for_predecessor(void);
void emulator_let_successor_in(void);

/* Store 1 to 16 aligned bytes. */
void emulator_store(void *to, const void *from, size_t bytes);
/* Store into the block's memory: half of these stores become visible only at emulator_stored. */
void emulator_store_shared(void *to, const void *from, size_t bytes);
/* Store; sometimes the store becomes visible much later. */
void emulator_store_late(void *to, const void *from, size_t bytes);
void emulator_add(uint64_t *to, uint64_t x);
/* At once, for all. The value before. */
uint64_t emulator_take(uint64_t *to, uint64_t n);
void emulator_or(uint64_t *to, uint64_t x);
/* Load; the lane's own pending stores are visible to it. */
void emulator_load(const void *from, void *to, size_t bytes);
/* Order the lane's stores, and others' stores before a barrier that it has left, before its later stores. */
void emulator_fence(void);

/*
 * Bulk copies. Each aligned 16 bytes are read some time after the copy was requested, and
 * written some time later, in any order. A load's barrier is completed when all bytes are
 * written. A store is complete for its lane after emulator_wait_groups. For other lanes
 * it is complete when it is visible: some time later, at a fence of its lane, or at a
 * fence of a lane that was told (a word of roles stands for what its lane knew to be
 * complete). A lane's stores into its block's memory are visible to copies at
 * emulator_stored, sometimes earlier; barriers have no effect on that, although in CUDA
 * they have for other lanes. A block must not end while copies use its memory. Addresses
 * are offsets in that memory.
 */
void emulator_barrier_make(uint32_t at, uint32_t arrivals);
void emulator_arrive(uint32_t barrier, uint32_t bytes_to_come);
bool emulator_phase_over(uint32_t barrier, uint32_t parity);
void emulator_copy_in(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier);
void emulator_copy_out(void *to, uint32_t from, uint32_t bytes);
void emulator_group(void);
/* Wait until all of the lane's groups except the last `left` have read their sources and, if `done`, are complete. */
void emulator_wait_groups(uint32_t left, bool done);
void emulator_stored(void);
void emulator_tell(uint32_t at, uint32_t value);
uint32_t emulator_told(uint32_t at);

/* Load a kernel whose blocks may have this much memory, or the default. A launch of a kernel that is not loaded, or
 * with more memory, ends the program with status 1: in CUDA it waits for running kernels, or fails. */
void emulator_load(const void *kernel, size_t shared_bytes);
/* `run` calls `kernel` with its arguments. */
void emulator_launch(struct CUstream_st *stream, const void *kernel, uint32_t blocks, uint32_t threads,
                     size_t shared_bytes, bool early, const std::function<void()> &run);

#endif
