/* SPDX-License-Identifier: Apache-2.0 */
/* meeting.h - what a rank and the listener send each other after the hello. */
#ifndef SHUNT_NETWORK_MEETING_H
#define SHUNT_NETWORK_MEETING_H

#include "transport/network/wire.h"

/* A rank's record, or everyone's, follows. */
typedef struct meeting_head {
    uint32_t error; /* an errno of the listener; nothing follows */
    uint32_t bytes; /* of one record */
} meeting_head_t;

#endif
