/* SPDX-License-Identifier: Apache-2.0 */
/* collective.c - see collective.h. The caller owns all memory. */
#include "collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool coll_reduces(const coll_t *k)
{
    return k->collective == ALG_ALL_REDUCE || k->collective == ALG_REDUCE_SCATTER || k->collective == ALG_REDUCE;
}

bool coll_rooted(const coll_t *k)
{
    return k->collective == ALG_REDUCE || k->collective == ALG_BROADCAST || k->collective == ALG_GATHER ||
           k->collective == ALG_SCATTER;
}

bool coll_alike(const coll_t *k)
{
    return k->collective == ALG_ALL_REDUCE || k->collective == ALG_ALL_GATHER || k->collective == ALG_BROADCAST;
}

static bool input_blocks(const coll_t *k)
{
    return k->collective == ALG_REDUCE_SCATTER || k->collective == ALG_ALL_TO_ALL || k->collective == ALG_SCATTER;
}

static bool output_blocks(const coll_t *k)
{
    return k->collective == ALG_ALL_GATHER || k->collective == ALG_ALL_TO_ALL || k->collective == ALG_GATHER;
}

size_t coll_input_count(const coll_t *k, uint32_t rank)
{
    const bool sends_alone = k->collective == ALG_BROADCAST || k->collective == ALG_SCATTER;
    if (sends_alone && rank != k->root)
        return 0;
    return k->c.count * (input_blocks(k) ? (size_t)k->c.nranks : 1);
}

size_t coll_output_count(const coll_t *k, uint32_t rank)
{
    const bool takes_alone = k->collective == ALG_REDUCE || k->collective == ALG_GATHER;
    if (takes_alone && rank != k->root)
        return 0;
    return k->c.count * (output_blocks(k) ? (size_t)k->c.nranks : 1);
}

ptrdiff_t coll_in_place_at(const coll_t *k, uint32_t rank)
{
    const ptrdiff_t block = (ptrdiff_t)(rank * k->c.count);
    if (k->collective == ALG_ALL_TO_ALL)
        return 0;
    return output_blocks(k) ? block : input_blocks(k) ? -block : 0;
}

/* The case of a rank's whole input. */
static data_case_t whole(const coll_t *k)
{
    data_case_t c = k->c;
    c.count *= input_blocks(k) ? (size_t)c.nranks : 1;
    return c;
}

void coll_fill(const coll_t *k, uint32_t rank, void *input)
{
    const data_case_t c = whole(k);
    data_fill(&c, (int)rank, input);
}

/* Check `count` elements that `sender` had from element `first` on. */
static bool same_bits(const coll_t *k, uint32_t sender, size_t first, const uint8_t *output, char *fault,
                      size_t fault_bytes)
{
    const data_case_t c = whole(k);
    const size_t width = ref_bytes(c.type), bytes = k->c.count * width;
    uint8_t *sent = malloc(bytes);
    if (!sent) {
        snprintf(fault, fault_bytes, "no memory");
        return false;
    }
    data_fill_part(&c, (int)sender, first, k->c.count, sent);
    size_t i = 0;
    while (i < bytes && sent[i] == output[i])
        i++;
    if (i < bytes)
        snprintf(fault, fault_bytes, "byte %zu of %zu from rank %u is %02x, not %02x", i, bytes, sender, output[i],
                 sent[i]);
    free(sent);
    return i == bytes;
}

bool coll_right(const coll_t *k, uint32_t rank, const void *output, char *fault, size_t fault_bytes)
{
    const size_t width = ref_bytes(k->c.type);
    const uint32_t n = (uint32_t)k->c.nranks;
    if (coll_output_count(k, rank) == 0)
        return true;
    if (coll_reduces(k)) {
        data_case_t c = k->c;
        const size_t first = k->collective == ALG_REDUCE_SCATTER ? rank * c.count : 0;
        c.count += first;
        return data_right(&c, REF_STRICT, (const uint8_t *)output - first * width, first, 1, fault, fault_bytes);
    }
    if (!output_blocks(k))
        return same_bits(k, k->root, input_blocks(k) ? rank * k->c.count : 0, output, fault, fault_bytes);
    for (uint32_t s = 0; s < n; s++) {
        if (!same_bits(k, s, input_blocks(k) ? rank * k->c.count : 0, (const uint8_t *)output + s * k->c.count * width,
                       fault, fault_bytes))
            return false;
    }
    return true;
}
