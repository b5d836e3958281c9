/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h - the buffers of one rank in one call of a kernel, with guards around them.
 */
#ifndef TEST_PLACE_H
#define TEST_PLACE_H

#include "tests/support/collective.h"

/* In place: one of them holds the other. */
typedef struct place {
    data_buffer_t input, output;
    const void *from;
    void *to;
} place_t;

/* Up to `most`, which is at least 1; often an awkward one. */
size_t place_draw_count(uint64_t *state, size_t most);
/* Make the buffers and fill in the rank's input. False: out of memory. Alignment is drawn from *local. */
bool place_make(place_t *p, const coll_t *k, uint32_t rank, bool in_place, uint64_t *local);
/* Whether the output is right and nothing around the buffers was written; else `fault` gets one line. */
bool place_right(const place_t *p, const coll_t *k, uint32_t rank, char *fault, size_t fault_bytes);
void place_free(place_t *p);

#endif
