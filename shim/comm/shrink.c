/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shrink.c - the number of each shrink, for the key of its child.
 *
 * Each rank computes the key alone. Excluded ranks do not call, so ranks may have seen different shrinks of the parent.
 * But all of a child's ranks have seen every shrink with the same excluded ranks. So each set of excluded ranks has its
 * own count.
 *
 * The parent's list only grows. It has no lock, since another thread may hold one while it waits in a call.
 */
#include "shim/comm/shrink.h"

#include <stdlib.h>
#include <string.h>

struct shim_shrink {
    net_key_t excluded;
    atomic_bool counts;
    shim_shrink_t *next;
};

static int ascending(const void *a, const void *b)
{
    int left = *(const int *)a, right = *(const int *)b;
    return (left > right) - (left < right);
}

static bool hash_set(const int *ranks, int count, net_key_t *key)
{
    size_t bytes = (size_t)count * sizeof(*ranks);
    int *sorted = malloc(bytes);
    if (!sorted)
        return false;
    memcpy(sorted, ranks, bytes);
    qsort(sorted, (size_t)count, sizeof(*sorted), ascending);
    *key = net_key_hash(sorted, bytes);
    free(sorted);
    return true;
}

static bool same_set(const shim_shrink_t *a, const shim_shrink_t *b)
{
    return memcmp(&a->excluded, &b->excluded, sizeof(a->excluded)) == 0;
}

static net_key_t key_of(const net_key_t *parent, const shim_shrink_t *shrink)
{
    struct {
        net_key_t parent, excluded;
        int64_t tag, number;
    } whole = {*parent, shrink->excluded, 'k', 0};
    for (const shim_shrink_t *earlier = shrink->next; earlier; earlier = earlier->next)
        whole.number += same_set(earlier, shrink) && atomic_load(&earlier->counts);
    return net_key_hash(&whole, sizeof(whole));
}

shim_shrink_t *shim_shrink_begin(shim_comm_t *parent, const int *excluded, int count, net_key_t *child)
{
    if (!excluded || count <= 0)
        return NULL;
    shim_shrink_t *shrink = calloc(1, sizeof(*shrink));
    if (!shrink || !hash_set(excluded, count, &shrink->excluded)) {
        free(shrink);
        return NULL;
    }
    atomic_store(&shrink->counts, true);
    shrink->next = atomic_load(&parent->shrinks);
    while (!atomic_compare_exchange_weak(&parent->shrinks, &shrink->next, shrink))
        ;
    *child = key_of(&parent->key, shrink);
    return shrink;
}

void shim_shrink_take_back(shim_shrink_t *shrink)
{
    if (shrink)
        atomic_store(&shrink->counts, false);
}

void shim_shrink_forget(shim_comm_t *comm)
{
    shim_shrink_t *shrink = atomic_exchange(&comm->shrinks, NULL);
    while (shrink) {
        shim_shrink_t *next = shrink->next;
        free(shrink);
        shrink = next;
    }
}
