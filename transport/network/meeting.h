/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meeting.h - what a rank and the listener say to each other after the hello.
 * Private to this folder.
 */
#ifndef SHUNT_NETWORK_MEETING_H
#define SHUNT_NETWORK_MEETING_H

#include "transport/network/wire.h"

/* A rank's record, or everyone's, follows. */
typedef struct meeting_head {
    uint32_t error; /* from the listener: an errno, and nothing follows */
    uint32_t bytes; /* of one record */
} meeting_head_t;

#endif
