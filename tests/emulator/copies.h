/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.h - a block's shared memory, its mbarriers, and the engine that copies to and from that memory (see
 * emulator.h). Lanes are identified by their number.
 */
#ifndef SHUNT_EMULATOR_COPIES_H
#define SHUNT_EMULATOR_COPIES_H

#include <memory>
#include <stdint.h>
#include <vector>

typedef struct copy {
    bool in; /* to the block's memory */
    uint32_t lane, group, barrier, bytes;
    uint8_t *to;
    const uint8_t *from;
    uint32_t lateness, seen;    /* it goes on, and becomes visible, once in so many times; 0: not drawn yet */
    uint32_t unread, unwritten; /* pieces */
    bool complete;              /* to its lane; it may still not be visible to others */
    uint32_t tell;              /* when its lane has told so; 0: not yet */
    std::vector<uint8_t> piece, data;
} copy_t;

typedef struct copies {
    std::vector<uint8_t> memory;
    std::vector<std::unique_ptr<copy_t>> under_way;
    std::vector<uint32_t> group; /* each lane's open one */
    std::vector<uint32_t> told;  /* the last of `tells` that each lane has seen */
    uint32_t tells;
} copies_t;

/* NULL, or what is wrong. */
const char *copies_barrier_make(copies_t *c, uint32_t barrier, uint32_t arrivals);
const char *copies_arrive(copies_t *c, uint32_t barrier, uint32_t bytes);
const char *copies_over(const copies_t *c, uint32_t barrier, uint32_t parity, bool *over);

void copies_in(copies_t *c, uint32_t to, const void *from, uint32_t bytes, uint32_t barrier);
void copies_out(copies_t *c, uint32_t lane, void *to, uint32_t from, uint32_t bytes);
void copies_wait(copies_t *c, uint32_t lane, uint32_t groups_left, bool done);
void copies_tell(copies_t *c, uint32_t lane);
/* Make the copies that the lane knows to be complete visible. */
void copies_fence(copies_t *c, uint32_t lane);

/* Advance a part of a random copy; `below` returns a random number under n. */
void copies_pass_time(copies_t *c, uint32_t (*below)(uint32_t n));
/* Whether a copy still uses the block's memory. */
bool copies_use_memory(const copies_t *c);

#endif
