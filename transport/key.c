/* SPDX-License-Identifier: Apache-2.0 */
/* key.c - 128-bit keys of communicators, and names of their segments. Keys must spread well. They need not resist an
 * attacker, who sees only names: a keyed one-way function (SipHash-2-4, Aumasson and Bernstein 2012) of the key. */
#include <string.h>

#include "transport/transport.h"

/* Finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection in which each bit affects every bit. */
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

static uint64_t turned(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_rounds(uint64_t v[4], int rounds)
{
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = turned(v[1], 13) ^ v[0];
        v[3] = turned(v[3], 16) ^ v[2];
        v[0] = turned(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = turned(v[1], 17) ^ v[2];
        v[3] = turned(v[3], 21) ^ v[0];
        v[2] = turned(v[2], 32);
    }
}

/* SipHash-2-4 with a 128-bit result, of the empty message: its only block, the length, is zero. */
net_key_t net_key_name(const net_key_t *key)
{
    net_key_t name;
    uint64_t v[4] = {key->word[0] ^ UINT64_C(0x736f6d6570736575), key->word[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
                     key->word[0] ^ UINT64_C(0x6c7967656e657261), key->word[1] ^ UINT64_C(0x7465646279746573)};
    sip_rounds(v, 2);
    v[2] ^= 0xee;
    sip_rounds(v, 4);
    name.word[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    sip_rounds(v, 4);
    name.word[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
    return name;
}
