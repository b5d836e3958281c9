/* SPDX-License-Identifier: Apache-2.0 */
/* redop.c - calls with built-in operators take no lock. */
#include "shim/comm/redop.h"

#include <stdlib.h>

typedef struct entry {
    ncclRedOp_t op; /* FREE_OP: unused */
    shim_redop_t redop;
} entry_t;

typedef struct table {
    pthread_mutex_t lock;
    uint32_t count;
    entry_t *entries;
} table_t;

#define FREE_OP ((ncclRedOp_t)0)

static table_t *table_of(shim_comm_t *comm)
{
    return atomic_load_explicit(&comm->redops, memory_order_acquire);
}

static table_t *table_make(shim_comm_t *comm)
{
    void *there = table_of(comm);
    if (there != NULL)
        return there;
    table_t *table = calloc(1, sizeof(*table));
    if (table == NULL)
        return NULL;
    pthread_mutex_init(&table->lock, NULL);
    if (atomic_compare_exchange_strong(&comm->redops, &there, table))
        return table;
    pthread_mutex_destroy(&table->lock);
    free(table);
    return there;
}

/* Under the lock. */
static entry_t *entry_of(table_t *table, ncclRedOp_t op)
{
    for (uint32_t i = 0; i < table->count; i++)
        if (table->entries[i].op == op)
            return &table->entries[i];
    return NULL;
}

/* Under the lock. */
static entry_t *entry_free(table_t *table)
{
    entry_t *entry = entry_of(table, FREE_OP);
    if (entry != NULL)
        return entry;
    uint32_t count = table->count > 0 ? 2 * table->count : 4;
    entry_t *entries = realloc(table->entries, count * sizeof(*entries));
    if (entries == NULL)
        return NULL;
    for (uint32_t i = table->count; i < count; i++)
        entries[i].op = FREE_OP;
    entry = &entries[table->count];
    table->entries = entries;
    table->count = count;
    return entry;
}

bool shim_redop_remember(shim_comm_t *comm, ncclRedOp_t op, const shim_redop_t *redop)
{
    table_t *table = table_make(comm);
    if (table == NULL)
        return false;
    pthread_mutex_lock(&table->lock);
    entry_t *entry = entry_of(table, op);
    if (entry == NULL)
        entry = entry_free(table);
    if (entry != NULL)
        *entry = (entry_t){.op = op, .redop = *redop};
    pthread_mutex_unlock(&table->lock);
    return entry != NULL;
}

bool shim_redop_drop(shim_comm_t *comm, ncclRedOp_t op)
{
    table_t *table = table_of(comm);
    if (table == NULL)
        return false;
    pthread_mutex_lock(&table->lock);
    entry_t *entry = entry_of(table, op);
    if (entry != NULL)
        entry->op = FREE_OP;
    pthread_mutex_unlock(&table->lock);
    return entry != NULL;
}

bool shim_redop_find(shim_comm_t *comm, ncclRedOp_t op, shim_redop_t *redop)
{
    table_t *table = table_of(comm);
    if (table == NULL || (int)op < (int)ncclNumOps)
        return false;
    pthread_mutex_lock(&table->lock);
    entry_t *entry = entry_of(table, op);
    if (entry != NULL)
        *redop = entry->redop;
    pthread_mutex_unlock(&table->lock);
    return entry != NULL;
}

void shim_redop_forget(shim_comm_t *comm)
{
    table_t *table = atomic_exchange(&comm->redops, NULL);
    if (table == NULL)
        return;
    pthread_mutex_destroy(&table->lock);
    free(table->entries);
    free(table);
}
