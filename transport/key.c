/* SPDX-License-Identifier: Apache-2.0 */
/*
 * key.c - a 128-bit hash for names of segments.
 *
 * The input is a random unique id, so the hash must spread well but need not
 * resist an attacker: the segment's owner and mode protect it.
 */
#include <string.h>

#include "transport/transport.h"

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection in which every bit moves every bit. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

net_key_t net_key_hash(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    uint64_t low = UINT64_C(0x9e3779b97f4a7c15) ^ size;
    uint64_t high = UINT64_C(0xd1b54a32d192ed03) + size;
    while (size > 0) {
        size_t part = size < sizeof(uint64_t) ? size : sizeof(uint64_t);
        uint64_t word = 0;
        memcpy(&word, at, part);
        low = mix(low ^ word);
        high = mix(high * UINT64_C(0x9e3779b97f4a7c15) + word);
        at += part;
        size -= part;
    }
    return (net_key_t){{mix(low + high), mix(high ^ (low >> 1))}};
}
