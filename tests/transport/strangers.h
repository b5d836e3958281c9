/* SPDX-License-Identifier: Apache-2.0 */
/* strangers.h - callers with plain sockets: who knows what a rank knows, or less. */
#ifndef SHUNT_TESTS_STRANGERS_H
#define SHUNT_TESTS_STRANGERS_H

#include "network_ranks.h"
#include "transport/network/wire.h"

/* Connect; returns a socket, or -1. */
int stranger_call(const net_address_t *address);
/* The number of bytes that arrive until the other side closes; -1: it does not. */
int stranger_bytes(int connection);
/* A rank's hello. */
wire_hello_t stranger_hello(const group_t *group, uint32_t rank, uint32_t nranks);

#endif
