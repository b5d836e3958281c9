/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/call/group_state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim/base/last_error.h"

_Thread_local shim_group_t shim_group;
static pthread_key_t exit_key;
static bool exit_key_made;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

static void free_use(shim_stream_use_t *use)
{
    for (int i = 0; i < SHIM_USES; i++)
        free(use->track[i].branch.nodes.node);
    shim_comm_release(use->comm);
}

void shim_group_drop(shim_group_t *g)
{
    for (uint32_t i = 0; i < g->use_count; i++)
        free_use(&g->uses[i]);
    for (uint32_t i = 0; i < g->call_count; i++)
        shim_comm_release(g->calls[i].comm);
    for (uint32_t i = 0; i < g->finalized_count; i++)
        shim_comm_release(g->finalized[i]);
    for (uint32_t i = 0; i < g->unattached_count; i++)
        shim_comm_release(g->unattached[i]);
    g->unattached_count = 0;
    g->use_count = g->call_count = g->finalized_count = g->part_count = 0;
    g->error = ncclSuccess;
}

static void thread_ends(void *state)
{
    shim_group_t *g = state;
    shim_group_drop(g);
    free(g->uses);
    free(g->calls);
    free(g->messages);
    free(g->parts);
    free(g->finalized);
    free(g->unattached);
    memset(g, 0, sizeof(*g));
}

static void make_exit_key(void)
{
    exit_key_made = pthread_key_create(&exit_key, thread_ends) == 0;
}

bool shim_group_grow(void **buffer, uint32_t count, uint32_t *room, size_t size)
{
    if (count < *room)
        return true;
    pthread_once(&exit_once, make_exit_key);
    if (exit_key_made)
        pthread_setspecific(exit_key, &shim_group);
    uint32_t more = *room > 0 ? 2 * *room : 16;
    void *grown = realloc(*buffer, more * size);
    if (grown == NULL)
        return false;
    *buffer = grown;
    *room = more;
    return true;
}

void shim_group_end_comm(shim_comm_t *comm, ncclResult_t result)
{
    int none = ncclSuccess;
    if (atomic_load(&comm->phase) == SHIM_COMM_ATTACHED)
        atomic_compare_exchange_strong(&comm->async_error, &none, result);
}

void shim_group_end_comms(const shim_group_t *g, uint32_t first, ncclResult_t result)
{
    for (uint32_t i = first; i < g->call_count; i++)
        shim_group_end_comm(g->calls[i].comm, result);
}

ncclResult_t shim_group_out_of_memory(shim_comm_t *comm)
{
    shim_group_end_comm(comm, ncclSystemError);
    shim_set_last_error("out of memory for the calls of a group");
    return ncclSystemError;
}

shim_stream_use_t *shim_group_lead(const shim_group_t *g, const shim_comm_t *comm)
{
    for (uint32_t i = 0; i < g->use_count; i++)
        if (g->uses[i].comm == comm)
            return &g->uses[i];
    return NULL;
}

void shim_group_nap(unsigned round)
{
    struct timespec time = {.tv_nsec = round < 100 ? 10000 : 200000};
    nanosleep(&time, NULL);
}
