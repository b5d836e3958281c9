/* SPDX-License-Identifier: Apache-2.0 */
/* bulk.h - the vocabulary of bulk copies: an engine of the multiprocessor moves chunks through the block's shared
 * memory while the lanes do other work.
 *
 * One role fills a ring's stages in order, another empties them. A role is a struct:
 *   WARPS, LANES   its warps; how many lanes of each work, 1 or BULK_ALL
 *   step()         does one piece of work or none; never waits for another role or rank
 *   end()          waits, even after a failed call, until none of the role's copies is under way
 * bulk_roles runs a block's roles, on the CPU device in turn, until all have ended or the wait is broken.
 *
 *   bulk_make        make the block's words and two rings. The second has as many stages as fit, at most `depth`;
 *                    the first has `parts` times as many, of 1/`parts` the size. Call bulk_init and lane_sync next
 *   bulk_free, bulk_filled    the stage may be filled; its data has arrived
 *   bulk_load        fill a stage, from `offset` on, with 16 n bytes of global memory (n may be 0)
 *   bulk_store       copy 16 n bytes of a stage to global memory; the caller's stores up to bulk_commit are a group
 *   bulk_read<N>     wait until all but the last N groups have read their stages
 *   bulk_done<N>     wait until their data is written, too; other GPUs see it after a lane_fence
 *   bulk_release     called by each warp that empties the stage, after its last use and lane_warp_sync
 *   bulk_stored      called after bulk_stage_store, before lane_warp_sync: the warp's copies then read what was stored
 *   bulk_change, bulk_changed    called by each warp after its stores into a filled stage; true if all have called it
 *   bulk_vector      16 bytes of a stage, from a multiple of 16 on
 *   bulk_vector_from<W>    16 bytes, from any byte of word W after a multiple of 16
 *   bulk_await_loads wait until all loads into stages before `at` have arrived; waits for no rank
 *   bulk_tell, bulk_told    release, acquire a word, between roles of the block
 *   bulk_seen        called after lane_flag, before bulk copies of the flagged data */
#ifndef SHUNT_BULK_H
#define SHUNT_BULK_H

#include "algorithms/device/buffers.h"

typedef enum bulk_step { BULK_IDLE, BULK_MOVED, BULK_ENDED } bulk_step_t;
/* BULK_WORDS: words of a block, 0 at its start. BULK_MOST_PARTS: greatest `parts`. */
enum { BULK_ALL = 32, BULK_WORDS = 72, BULK_MOST_PARTS = 4 };

#ifdef __CUDACC__
#include "algorithms/device/bulk_cuda.cuh"
#else
#include "algorithms/device/bulk_cpu.h"
#endif

#endif
