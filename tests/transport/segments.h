/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segments.h - names of rendezvous segments, and ways to join them (bodies of children.h), for several tests.
 */
#ifndef SHUNT_TESTS_SEGMENTS_H
#define SHUNT_TESTS_SEGMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/segment.h"

enum { ANOTHER_USER = 54321 /* an unused user id */ };

void segment_name(const net_key_t *key, unsigned long uid, char name[SEGMENT_NAME_BYTES]);
/* Whether this user has a segment with that key. */
bool segment_has_name(const net_key_t *key);

/* Join, pass all stages and the verdict, and leave. `argument` is the key. */
int whole_way(uint32_t rank, uint32_t nranks, void *argument);

#endif
