/* SPDX-License-Identifier: Apache-2.0 */
/* fake_relay.h - relays that connect and pass nothing on. */
#ifndef SHUNT_TESTS_FAKE_RELAY_H
#define SHUNT_TESTS_FAKE_RELAY_H

#include "algorithms/nodes/nodes.h"

extern int fake_relay_error; /* of alg_relay_connected */

#endif
