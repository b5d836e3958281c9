/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay.h - the memory through which a rank's kernels and its process's proxy pass what goes to other hosts.
 *
 * It is memory of the host, which kernels, proxy and network all reach. A call goes in steps; step c of call e uses
 * slot c % RELAY_SLOTS of half e & 1, at every host.
 * - The kernel's blocks lay a step into the slot of the outbox, and each writes its word of that slot: the step's tag,
 *   its bytes, how many blocks there are.
 * - The proxy waits for the words of all blocks, and puts the step into the same slot of the inbox that each other host
 *   has for this one, with its tag as the flag.
 * - The kernel waits for the hosts' flags.
 *
 * Tags grow with every step, so nothing is ever cleared, and a replayed graph needs no call of the host: the proxy
 * knows which tag comes next.
 *
 * Why a slot is free when it is used again: a kernel lays step c + RELAY_AHEAD after it has taken step c of every host;
 * each of them had taken c - RELAY_AHEAD by then, and so had been sent it. That is RELAY_SLOTS = 2 RELAY_AHEAD steps
 * apart. And when call e + 2 begins, every rank has ended call e (algorithm.h).
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
    RELAY_WINDOW_BYTES = 2 * RELAY_SLOTS * RELAY_STEP_BYTES, /* of the outbox, and of the inbox of each host */
    /* Offsets. */
    RELAY_WORDS = 0, /* of a slot's blocks, one behind the other */
    RELAY_FLAGS = RELAY_WORDS + 2 * RELAY_SLOTS * RELAY_BLOCKS * RELAY_WORD_BYTES, /* 8 bytes a host */
    RELAY_OUTBOX = RELAY_FLAGS + 4096,
    RELAY_INBOX = RELAY_OUTBOX + RELAY_WINDOW_BYTES
};

/* Of a step of a call (from 0): where it lies, and its tag, which is never 0. */
#define RELAY_SLOT(call, step) ((uint32_t)((call)&1) * RELAY_SLOTS + (uint32_t)(step) % RELAY_SLOTS)
#define RELAY_TAG(call, step) (((uint64_t)(call) + 1) * RELAY_STEPS + (step))

/* In place of a flag: nothing more comes from that host. */
#define RELAY_LOST UINT64_MAX

/* A block's word: 32 bits of bytes, 32 of this, 64 of the tag. */
#define RELAY_LAST UINT32_C(0x10000) /* the kernel has no more steps; below it: how many blocks it has */

static inline size_t relay_bytes(uint32_t hosts)
{
    return RELAY_INBOX + (size_t)hosts * RELAY_WINDOW_BYTES;
}

#endif
