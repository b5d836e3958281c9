/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_offer.c - offers of memory: any bytes are refused, or give memory of which every offered byte can be read.
 *
 * The owner's process is always this one, as the harness must not open other processes' files.
 *
 * Input: a byte whose lowest bit makes the owner appear to be another process, then pairs of a place in the offer and
 * the bits to turn there.
 */
#include <stdlib.h>
#include <string.h>

#include "transport/memory.h"

static void expect(int so)
{
    if (!so)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { BYTES = 16384 };
    static net_memory_t *own;
    static uint8_t offer[NET_OFFER_BYTES];
    net_mapping_t *mapping = NULL;
    net_offer_t changed;
    if (!own)
        expect(net_memory_create(NET_MEMORY_SHARED, 0, BYTES, &own, offer) == 0);
    const bool foreign = size > 0 && (data[0] & 1);
    if (size > 0)
        data++, size--;
    uint8_t bytes[NET_OFFER_BYTES];
    memcpy(bytes, offer, sizeof(bytes));
    for (; size >= 2; data += 2, size -= 2)
        bytes[data[0]] ^= data[1];
    memcpy(&changed, bytes, sizeof(changed));
    changed.owner.pid = ((const net_offer_t *)(const void *)offer)->owner.pid;
    if (foreign)
        changed.owner.start_ticks = 0;
    memcpy(bytes, &changed, sizeof(changed));
    if (net_memory_open(own, 0, bytes, &mapping) != 0)
        return 0;
    const volatile uint8_t *memory = net_mapping_pointer(mapping);
    const size_t usable = net_mapping_bytes(mapping);
    expect(memory && usable > 0);
    for (size_t i = 0; i < usable; i += 512)
        (void)memory[i];
    (void)memory[usable - 1];
    (void)net_mapping_alive(mapping);
    net_mapping_close(mapping);
    return 0;
}
