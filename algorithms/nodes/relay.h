/* SPDX-License-Identifier: Apache-2.0 */
/* relay.h - pinned (CPU device: shared) memory through which a rank's kernels and the proxy exchange data with other
 * nodes.
 *
 * A call goes in steps; step c of call e uses slot c % RELAY_SLOTS of half e&1, on every node. Earlier steps have left
 * the slot by then (docs/lab/proofs.md). A kernel's blocks post a step into that slot of the outbox, then each writes
 * its word of the slot. When all words are there, the proxy puts the step into the slot of this node's inbox on each
 * other node, with the tag as flag. The kernel waits for all nodes' flags.
 *
 * Tags grow, so nothing is cleared. The proxy knows the next tag, so a replay needs no call on the host. */
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
    RELAY_WINDOW_BYTES = 2 * RELAY_SLOTS * RELAY_STEP_BYTES, /* of the outbox; of each node's inbox */
    RELAY_WORDS = 0,                                         /* per slot a word of each block */
    RELAY_FLAGS = RELAY_WORDS + 2 * RELAY_SLOTS * RELAY_BLOCKS * RELAY_WORD_BYTES, /* 8 bytes per node */
    RELAY_OUTBOX = RELAY_FLAGS + 4096,
    RELAY_INBOX = RELAY_OUTBOX + RELAY_WINDOW_BYTES
};

/* A step's slot; its tag, never 0. A call's steps count from 0. */
#define RELAY_SLOT(call, step) ((uint32_t)((call)&1) * RELAY_SLOTS + (uint32_t)(step) % RELAY_SLOTS)
#define RELAY_TAG(call, step) (((uint64_t)(call) + 1) * RELAY_STEPS + (step))

/* The flag of a lost node. */
#define RELAY_LOST UINT64_MAX

/* A block's word has the bytes (32 bits), the number of blocks and RELAY_LAST (32), and the tag (64). */
#define RELAY_LAST UINT32_C(0x10000) /* a kernel's last step */

static inline size_t relay_bytes(uint32_t nodes)
{
    return RELAY_INBOX + (size_t)nodes * RELAY_WINDOW_BYTES;
}

#endif
