/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay.h - pinned (CPU device: shared) memory through which a rank's kernels and its process's proxy exchange data
 * with other nodes.
 *
 * A call goes in steps; step c of call e uses slot c % RELAY_SLOTS of half e & 1, at every node. A kernel's blocks post
 * a step into its slot of the outbox; each then writes its word of that slot: the step's tag and bytes, and the
 * number of blocks. When all words are there, the proxy puts
 * the step into the same slot of this node's inbox at each other node, with the tag as the flag. The kernel waits for
 * all nodes' flags.
 *
 * Tags grow with every step, so nothing is cleared; the proxy knows the next tag, so a replayed graph needs no call on
 * the host.
 *
 * A kernel posts step c + RELAY_AHEAD after it has taken step c of every node, so a slot that it uses again is free
 * (docs/lab/proofs.md). Halves: algorithm.h.
 */
#ifndef SHUNT_RELAY_H
#define SHUNT_RELAY_H

#include "algorithms/algorithm.h"

enum {
    RELAY_AHEAD = 4,
    RELAY_SLOTS = 2 * RELAY_AHEAD, /* of a half */
    RELAY_STEP_BYTES = 64 << 10,
    RELAY_STEPS = 256, /* of a kernel, at most */
    RELAY_BLOCKS = 64,
    RELAY_WORD_BYTES = 16,
    RELAY_WINDOW_BYTES = 2 * RELAY_SLOTS * RELAY_STEP_BYTES, /* of the outbox, and of each node's inbox */
    RELAY_WORDS = 0,                                         /* offset; per slot a word of each block */
    RELAY_FLAGS = RELAY_WORDS + 2 * RELAY_SLOTS * RELAY_BLOCKS * RELAY_WORD_BYTES, /* 8 bytes per node */
    RELAY_OUTBOX = RELAY_FLAGS + 4096,
    RELAY_INBOX = RELAY_OUTBOX + RELAY_WINDOW_BYTES
};

/* A step's slot, and its tag, never 0; a call's steps count from 0. */
#define RELAY_SLOT(call, step) ((uint32_t)((call)&1) * RELAY_SLOTS + (uint32_t)(step) % RELAY_SLOTS)
#define RELAY_TAG(call, step) (((uint64_t)(call) + 1) * RELAY_STEPS + (step))

/* The flag of a lost node. */
#define RELAY_LOST UINT64_MAX

/* A block's word: 32 bits of bytes; 32 bits, RELAY_LAST and the number of blocks; 64 bits of tag. */
#define RELAY_LAST UINT32_C(0x10000) /* the kernel's last step */

static inline size_t relay_bytes(uint32_t nodes)
{
    return RELAY_INBOX + (size_t)nodes * RELAY_WINDOW_BYTES;
}

#endif
