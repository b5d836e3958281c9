/* SPDX-License-Identifier: Apache-2.0 */
/* kinds.c - memory.def as a table, without CUDA. */
#include "transport/transport.h"

#define NET_CPU_MEMORY(kind, name, ...) [NET_MEMORY_##kind] = {__VA_ARGS__},
#define NET_CUDA_MEMORY(kind, name, ...) [NET_MEMORY_##kind] = {.driver = true, __VA_ARGS__},
const net_memory_facts_t net_memory_facts[NET_MEMORY_KINDS] = {
#include "transport/memory.def"
};
