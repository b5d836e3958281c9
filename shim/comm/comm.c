/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.c - the table from handles to states, and references.
 *
 * The table is an open-addressed array of pointers, changed under one mutex. Look-ups take no lock. This is safe
 * because states are never unmapped but recycled, the oldest first: every pointer leads to a state, whose handle shows
 * whether it is the right one. Outgrown arrays are kept, because readers may still use them; together they are smaller
 * than the current one.
 */
#include "shim/comm/comm.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 256 };

typedef struct table {
    size_t mask;
    size_t used; /* slots that are not NULL; only writers use it */
    struct table *older;
    _Atomic(shim_comm_t *) slot[];
} table_t;

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(table_t *) g_table;
static shim_comm_t g_tombstone;           /* a removed state's slot: probing continues */
static _Atomic(shim_comm_t *) g_released; /* stack of states without references */
static shim_comm_t *g_free_first, *g_free_last;
static _Atomic(shim_comm_t *) g_made;

static size_t slot_of(const table_t *table, ncclComm_t handle)
{
    return (size_t)(((uintptr_t)handle >> 4) * 0x9E3779B97F4A7C15u >> 20) & table->mask;
}

static shim_comm_t *table_find(const table_t *table, ncclComm_t handle, size_t *where)
{
    for (size_t i = slot_of(table, handle);; i = (i + 1) & table->mask) {
        shim_comm_t *comm = atomic_load_explicit(&table->slot[i], memory_order_acquire);
        if (!comm)
            return NULL;
        if (comm != &g_tombstone && atomic_load_explicit(&comm->handle, memory_order_acquire) == handle) {
            if (where)
                *where = i;
            return comm;
        }
    }
}

shim_comm_t *shim_comm_find(ncclComm_t handle)
{
    const table_t *table = atomic_load_explicit(&g_table, memory_order_acquire);
    return table && handle ? table_find(table, handle, NULL) : NULL;
}

static bool try_retain(shim_comm_t *comm)
{
    unsigned count = atomic_load_explicit(&comm->references, memory_order_relaxed);
    while (count > 0) {
        if (atomic_compare_exchange_weak_explicit(&comm->references, &count, count + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    }
    return false;
}

shim_comm_t *shim_comm_acquire(ncclComm_t handle)
{
    for (;;) {
        shim_comm_t *comm = shim_comm_find(handle);
        if (!comm)
            return NULL;
        if (!try_retain(comm))
            continue; /* removed meanwhile: look up again */
        /* The state may have been reused before try_retain. */
        if (shim_comm_find(handle) == comm)
            return comm;
        shim_comm_release(comm);
    }
}

void shim_comm_retain(shim_comm_t *comm)
{
    atomic_fetch_add_explicit(&comm->references, 1, memory_order_relaxed);
}

void shim_comm_release(shim_comm_t *comm)
{
    if (!comm || atomic_fetch_sub_explicit(&comm->references, 1, memory_order_acq_rel) != 1)
        return;
    shim_comm_t *first = atomic_load_explicit(&g_released, memory_order_relaxed);
    do
        comm->next = first;
    while (
        !atomic_compare_exchange_weak_explicit(&g_released, &first, comm, memory_order_release, memory_order_relaxed));
}

/* The child lacks the parent's other threads (one may hold the lock), GPUs and peers. */
static void forget_in_child(void)
{
    pthread_mutex_init(&g_lock, NULL);
    atomic_store(&g_table, NULL);
    atomic_store(&g_released, NULL);
    atomic_store(&g_made, NULL);
    g_free_first = g_free_last = NULL;
}

NET_IN_CHILD(forget_in_child);

static uint64_t no_limit(uint32_t timeout_ms)
{
    (void)timeout_ms;
    return 0;
}

const shim_device_ops_t shim_device_cuda = {
    .device = ALG_DEVICE_CUDA, .asynchronous = true, .meeting_ns = no_limit, .without_memory = "forwards all"};

shim_comm_t *shim_comm_new(const shim_device_ops_t *ops)
{
    pthread_mutex_lock(&g_lock);
    shim_comm_t *comm = g_free_first;
    if (comm) {
        g_free_first = comm->next;
        if (!g_free_first)
            g_free_last = NULL;
    }
    pthread_mutex_unlock(&g_lock);
    if (!comm) {
        comm = calloc(1, sizeof(*comm));
        if (!comm)
            return NULL;
        pthread_mutex_init(&comm->lock, NULL);
        pthread_mutex_init(&comm->message_lock, NULL);
        comm->made_before = atomic_load(&g_made);
        while (!atomic_compare_exchange_weak(&g_made, &comm->made_before, comm))
            ;
    }
    comm->ops = ops;
    comm->device = -1;
    comm->next = NULL;
    atomic_store_explicit(&comm->references, 1, memory_order_release);
    return comm;
}

static table_t *table_new(size_t slots)
{
    table_t *table = calloc(1, sizeof(*table) + slots * sizeof(table->slot[0]));
    if (table)
        table->mask = slots - 1;
    return table;
}

static void table_put(table_t *table, shim_comm_t *comm)
{
    size_t i = slot_of(table, atomic_load(&comm->handle));
    for (;; i = (i + 1) & table->mask) {
        shim_comm_t *there = atomic_load_explicit(&table->slot[i], memory_order_relaxed);
        if (there && there != &g_tombstone)
            continue;
        if (!there)
            table->used++;
        atomic_store_explicit(&table->slot[i], comm, memory_order_release);
        return;
    }
}

/* Under the lock. */
static table_t *table_with_room(void)
{
    table_t *table = atomic_load_explicit(&g_table, memory_order_relaxed);
    if (table && (table->used + 1) * 2 <= table->mask + 1)
        return table;
    table_t *larger = table_new(table ? (table->mask + 1) * 2 : FIRST_SLOTS);
    if (!larger)
        return NULL;
    for (size_t i = 0; table && i <= table->mask; i++) {
        shim_comm_t *comm = atomic_load_explicit(&table->slot[i], memory_order_relaxed);
        if (comm && comm != &g_tombstone)
            table_put(larger, comm);
    }
    larger->older = table;
    atomic_store_explicit(&g_table, larger, memory_order_release);
    return larger;
}

/* Empties slot i. If the next slot is empty, slot i and the tombstones before it become NULL, so that these do not pile
 * up. Under the lock. */
static void table_clear(table_t *table, size_t i)
{
    atomic_store_explicit(&table->slot[i], &g_tombstone, memory_order_release);
    if (atomic_load_explicit(&table->slot[(i + 1) & table->mask], memory_order_relaxed))
        return;
    while (atomic_load_explicit(&table->slot[i], memory_order_relaxed) == &g_tombstone) {
        atomic_store_explicit(&table->slot[i], NULL, memory_order_release);
        table->used--;
        i = (i - 1) & table->mask;
    }
}

bool shim_comm_insert(shim_comm_t *comm)
{
    pthread_mutex_lock(&g_lock);
    table_t *table = table_with_room();
    shim_comm_t *older = NULL;
    if (table) {
        size_t where;
        older = table_find(table, atomic_load(&comm->handle), &where);
        if (older != comm) {
            shim_comm_retain(comm);
            if (older)
                atomic_store_explicit(&table->slot[where], comm, memory_order_release);
            else
                table_put(table, comm);
        } else {
            older = NULL;
        }
    }
    pthread_mutex_unlock(&g_lock);
    if (older) {
        atomic_store(&older->phase, SHIM_COMM_DEAD);
        shim_comm_release(older);
    }
    return table != NULL;
}

/* One lock covers check and removal, since handles are reused. */
bool shim_comm_drop(shim_comm_t *comm, ncclComm_t handle)
{
    size_t where = 0;
    pthread_mutex_lock(&g_lock);
    table_t *table = atomic_load_explicit(&g_table, memory_order_relaxed);
    const bool found = table && handle && table_find(table, handle, &where) == comm;
    if (found)
        table_clear(table, where);
    pthread_mutex_unlock(&g_lock);
    if (found)
        shim_comm_release(comm);
    return found;
}

void shim_comm_recycle(shim_comm_t *comm)
{
    /* First: a look-up that still holds the pointer must not match. */
    atomic_store(&comm->handle, NULL);
    atomic_store(&comm->phase, SHIM_COMM_JOINING);
    atomic_store(&comm->async_error, ncclSuccess);
    atomic_store(&comm->finalized, false);
    atomic_store(&comm->revoked, false);
    atomic_store(&comm->aborted, false);
    atomic_store(&comm->suspended, false);
    atomic_store(&comm->splits, 0);
    atomic_store(&comm->extras, 0);
    atomic_store(&comm->extras_begun, 0);
    atomic_store(&comm->asked, 0);
    atomic_store(&comm->declined, 0);
    atomic_store(&comm->empty, false);
    comm->emptied_by = 0;
    atomic_store(&comm->calls_begun, 0);
    atomic_store(&comm->calls_ended, 0);
    comm->life = 0;
    comm->rank = comm->nranks = 0;
    comm->config = (shim_config_t){0};
    comm->all_block = false;
    comm->family = 0;
    comm->key = (net_key_t){{0, 0}};
    comm->nonce = 0;
    comm->rendezvous = NULL;
    comm->scratch = NULL;
    comm->record = NULL;
    comm->nodes = NULL;
    comm->invitation = (shim_invitation_t){0};
    comm->plan = NULL;
    atomic_store(&comm->reusable, false);
    comm->order = (shim_order_t){0};
    comm->next = NULL;

    pthread_mutex_lock(&g_lock);
    if (g_free_last)
        g_free_last->next = comm;
    else
        g_free_first = comm;
    g_free_last = comm;
    pthread_mutex_unlock(&g_lock);
}

shim_comm_t *shim_comm_take_released(void)
{
    return atomic_exchange_explicit(&g_released, NULL, memory_order_acquire);
}

void shim_comm_each(void (*visit)(shim_comm_t *comm, void *context), void *context)
{
    table_t *table = atomic_load_explicit(&g_table, memory_order_acquire);
    for (size_t i = 0; table && i <= table->mask; i++) {
        shim_comm_t *comm = atomic_load_explicit(&table->slot[i], memory_order_acquire);
        if (!comm || comm == &g_tombstone || !try_retain(comm))
            continue;
        if (atomic_load_explicit(&table->slot[i], memory_order_acquire) == comm)
            visit(comm, context);
        shim_comm_release(comm);
    }
}

void shim_comm_each_held(void (*visit)(shim_comm_t *comm, void *context), void *context)
{
    for (shim_comm_t *comm = atomic_load(&g_made); comm; comm = comm->made_before) {
        if (!try_retain(comm))
            continue;
        visit(comm, context);
        shim_comm_release(comm);
    }
}

net_key_t shim_comm_own_key(const shim_comm_t *comm)
{
    const struct {
        net_key_t key;
        uint64_t nonce;
    } whole = {comm->key, comm->nonce};
    return net_key_hash(&whole, sizeof(whole));
}

bool shim_comm_lost(const shim_comm_t *comm)
{
    return net_device_lost(comm->device, comm->life);
}

static void count_attached(shim_comm_t *comm, void *context)
{
    uint32_t *count = context;
    *count += atomic_load(&comm->phase) == SHIM_COMM_ATTACHED;
}

uint32_t shim_comm_attached(void)
{
    uint32_t count = 0;
    shim_comm_each(count_attached, &count);
    return count;
}
