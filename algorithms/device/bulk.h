/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk.h - the vocabulary for bulk copies: whole chunks through memory of the block, by an engine of its
 * multiprocessor, while its lanes do something else.
 *
 * A block has rings of stages. One role of the block fills a ring's stages in order, another one empties them. A role
 * is a struct with
 *   WARPS          that it takes
 *   LANES          of each that work: 1, or BULK_ALL
 *   step_t step()  a piece of its work, or none: no step waits for another role or rank
 *   void end()     whatever became of the call: until nothing of this role is under way
 * bulk_roles runs all roles of a block side by side, until they are done or the wait is broken. On the host device,
 * where a block has one lane, they take turns.
 *
 *   bulk_make           a block's two rings and its words. The second ring has as many stages as the block has memory
 *                       for, at most `depth`; the first `parts` times as many, each a part of the size. bulk_init
 *                       before lane_sync
 *   bulk_ring_t, bulk_at_t, bulk_next    a ring, and a place in it
 *   bulk_free, bulk_filled    the stage may be filled again; what it was filled with is there
 *   bulk_load           fill a stage, or a part of it from `offset` on, from global memory, in multiples of 16 bytes
 *                       (length and alignment); 0 bytes count as a filling, too
 *   bulk_store          a stage to global memory, likewise; the caller's stores up to bulk_commit are a group
 *   bulk_read<N>        until all but the last N groups have read their stages
 *   bulk_done<N>        until they are complete where they go; a lane_fence behind it counts them as stored
 *   bulk_release        the stage is free, by each warp that emptied it
 *   bulk_stage_store    16 bytes into a stage, by a lane
 *   bulk_stored         behind this and lane_warp_sync such stores are there for the warp's lanes
 *   bulk_change, bulk_changed    by each warp that is done with a filled stage, after its stores there; all have
 *   bulk_vector, bulk_byte    16 bytes of a stage, from a multiple of 16 on; one byte
 *   bulk_vector_from<W> 16 bytes from any byte of word W of a multiple of 16 on
 *   bulk_settle         until what was loaded before that place is there; waits for no rank
 *   bulk_word           word `index` of those behind `first`
 *   bulk_tell, bulk_told     a word for other roles of the block; what was done before is visible behind it
 *   bulk_seen           between a lane_flag and the copies of what it guards
 */
#ifndef SHUNT_BULK_H
#define SHUNT_BULK_H

#include "algorithms/device/buffers.h"

typedef enum bulk_step { BULK_IDLE, BULK_MOVED, BULK_ENDED } bulk_step_t;
/* BULK_WORDS: of a block, all 0 at its start. BULK_MOST_PARTS: of bulk_make. */
enum { BULK_ALL = 32, BULK_WORDS = 72, BULK_MOST_PARTS = 4 };

#ifdef __CUDACC__
#include "algorithms/device/bulk_cuda.cuh"
#else
#include "algorithms/device/bulk_host.h"
#endif

#endif
