/* SPDX-License-Identifier: Apache-2.0 */
/* redop.c - calls with built-in operators take no lock. */
#include "shim/comm/redop.h"

#include <stdlib.h>

typedef struct shim_redop_entry {
    struct shim_redop_entry *next;
    ncclRedOp_t op;
    shim_redop_t redop;
} entry_t;

static net_lock_t g_lock = NET_LOCK_INITIALIZER; /* of all lists */

/* The link to the operator's entry, else the list's end. Under the lock. */
static entry_t **link_of(shim_comm_t *comm, ncclRedOp_t op)
{
    entry_t **link = &comm->redops;
    while (*link != NULL && (*link)->op != op)
        link = &(*link)->next;
    return link;
}

bool shim_redop_remember(shim_comm_t *comm, ncclRedOp_t op, const shim_redop_t *redop)
{
    net_lock_take(&g_lock);
    entry_t **link = link_of(comm, op);
    if (*link == NULL)
        *link = calloc(1, sizeof(**link));
    entry_t *entry = *link;
    if (entry != NULL) {
        entry->op = op;
        entry->redop = *redop;
    }
    net_lock_give(&g_lock);
    return entry != NULL;
}

void shim_redop_drop(shim_comm_t *comm, ncclRedOp_t op)
{
    net_lock_take(&g_lock);
    entry_t **link = link_of(comm, op), *entry = *link;
    if (entry != NULL)
        *link = entry->next;
    net_lock_give(&g_lock);
    free(entry);
}

bool shim_redop_find(shim_comm_t *comm, ncclRedOp_t op, shim_redop_t *redop)
{
    if ((int)op < (int)ncclNumOps)
        return false;
    net_lock_take(&g_lock);
    const entry_t *entry = *link_of(comm, op);
    if (entry != NULL)
        *redop = entry->redop;
    net_lock_give(&g_lock);
    return entry != NULL;
}

void shim_redop_forget(shim_comm_t *comm)
{
    while (comm->redops != NULL)
        shim_redop_drop(comm, comm->redops->op);
}
