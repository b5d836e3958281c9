/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk.h - the vocabulary of bulk copies: an engine of the multiprocessor moves whole chunks through the block's shared
 * memory while the lanes do other work.
 *
 * A block has rings of stages. One role fills a ring's stages in order, another empties them. A role is a struct with
 *   WARPS          its warps
 *   LANES          the lanes of each warp that work: 1 or BULK_ALL
 *   step_t step()  a piece of work, or none; never waits for another role or rank
 *   void end()     waits, even after a failed call, until none of the role's copies is under way
 * bulk_roles runs all roles until they are done or the wait is broken: side by side, on the host device in turn.
 *
 *   bulk_make           a block's words and two rings. The second has as many stages as memory allows, at most `depth`;
 *                       the first `parts` times as many, of a `parts`-th of the size. Then bulk_init and lane_sync
 *   bulk_ring_t, bulk_at_t, bulk_next    a ring, and a place in it
 *   bulk_free, bulk_filled    the stage may be filled again; its data has arrived
 *   bulk_load           fill a stage, or a part from `offset` on, from global memory; addresses and bytes are multiples
 *                       of 16; a load of 0 bytes counts
 *   bulk_store          copy a stage to global memory, likewise; a group is the caller's stores up to bulk_commit
 *   bulk_read<N>        wait until all but the last N groups have read their stages
 *   bulk_done<N>        wait until their data is written, too; a later lane_fence covers it
 *   bulk_release        the stage is free: by each warp that empties it
 *   bulk_stage_store    a lane's store of 16 bytes into a stage
 *   bulk_stored         after it and lane_warp_sync, copies by the warp's lanes read such stores
 *   bulk_change, bulk_changed    by each warp after its stores into a filled stage; whether all warps did
 *   bulk_vector, bulk_byte    16 bytes of a stage from a multiple of 16 on; one byte
 *   bulk_vector_from<W> 16 bytes from any byte of word W of a multiple of 16 on
 *   bulk_settle         wait until all loads before that place have arrived; waits for no rank
 *   bulk_word           word `index` of those behind `first`
 *   bulk_tell, bulk_told     release and acquire a word for other roles of the block
 *   bulk_seen           between a lane_flag and copies of the data that it guards
 */
#ifndef SHUNT_BULK_H
#define SHUNT_BULK_H

#include "algorithms/device/buffers.h"

typedef enum bulk_step { BULK_IDLE, BULK_MOVED, BULK_ENDED } bulk_step_t;
/* BULK_WORDS: words of a block, 0 at its start. BULK_MOST_PARTS: limit of `parts`. */
enum { BULK_ALL = 32, BULK_WORDS = 72, BULK_MOST_PARTS = 4 };

#ifdef __CUDACC__
#include "algorithms/device/bulk_cuda.cuh"
#else
#include "algorithms/device/bulk_host.h"
#endif

#endif
