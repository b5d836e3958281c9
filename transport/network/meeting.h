/* SPDX-License-Identifier: Apache-2.0 */
/* meeting.h - messages between a rank and the listener after the hello. */
#ifndef SHUNT_NETWORK_MEETING_H
#define SHUNT_NETWORK_MEETING_H

#include "transport/network/wire.h"

/* A record, or all ranks' records, follow. */
typedef struct meeting_head {
    uint32_t error; /* an errno from the listener; then nothing follows */
    uint32_t bytes; /* of one record */
} meeting_head_t;

#endif
