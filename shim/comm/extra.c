/* SPDX-License-Identifier: Apache-2.0 */
/* extra.c - one list for all communicators' extra scratches, since few communicators have one. */
#include "shim/comm/extra.h"

#include <stdlib.h>

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static shim_extra_t *g_first;

static void forget_in_child(void)
{
    pthread_mutex_init(&g_lock, NULL);
    g_first = NULL;
}

NET_IN_CHILD(forget_in_child);

shim_extra_t *shim_extra_add(shim_comm_t *comm, alg_scratch_t *scratch, shim_record_t *record)
{
    shim_extra_t *extra = calloc(1, sizeof(*extra));
    if (!extra)
        return NULL;
    shim_comm_retain(comm);
    extra->comm = comm;
    extra->scratch = scratch;
    extra->record = record;
    pthread_mutex_lock(&g_lock);
    extra->next = g_first;
    g_first = extra;
    pthread_mutex_unlock(&g_lock);
    return extra;
}

static shim_extra_t *take_ended(const shim_comm_t *comm)
{
    shim_extra_t *taken = NULL;
    pthread_mutex_lock(&g_lock);
    for (shim_extra_t **at = &g_first; *at;) {
        shim_extra_t *extra = *at;
        if (!extra->ended || extra->comm != comm) {
            at = &extra->next;
            continue;
        }
        *at = extra->next;
        extra->next = taken;
        taken = extra;
    }
    pthread_mutex_unlock(&g_lock);
    return taken;
}

void shim_extra_forget(const shim_comm_t *comm)
{
    shim_extra_t *extra = take_ended(comm);
    while (extra) {
        shim_extra_t *next = extra->next;
        alg_scratch_release(extra->scratch, false);
        free(extra);
        extra = next;
    }
}

void shim_extra_end(shim_extra_t *extra)
{
    shim_comm_t *comm = extra->comm;
    pthread_mutex_lock(&g_lock);
    shim_record_t *record = extra->record;
    extra->record = NULL;
    pthread_mutex_unlock(&g_lock);
    shim_record_end(record); /* first: its watcher reads the scratch's control words */
    pthread_mutex_lock(&g_lock);
    extra->ended = true;
    pthread_mutex_unlock(&g_lock);
    if (!comm->ops->asynchronous)
        shim_extra_forget(comm);
    shim_comm_release(comm);
}

bool shim_extra_any(const shim_comm_t *comm)
{
    bool any = false;
    pthread_mutex_lock(&g_lock);
    for (shim_extra_t *extra = g_first; extra; extra = extra->next)
        any = any || extra->comm == comm;
    pthread_mutex_unlock(&g_lock);
    return any;
}

bool shim_extra_mismatched(const shim_comm_t *comm)
{
    bool mismatched = false;
    pthread_mutex_lock(&g_lock);
    for (const shim_extra_t *extra = g_first; extra; extra = extra->next)
        mismatched = mismatched || (extra->comm == comm && shim_record_mismatched(extra->record));
    pthread_mutex_unlock(&g_lock);
    return mismatched;
}

void shim_extra_stop(const shim_comm_t *comm)
{
    pthread_mutex_lock(&g_lock);
    for (shim_extra_t *extra = g_first; extra; extra = extra->next)
        if (extra->comm == comm)
            __atomic_store_n(&alg_scratch_control(extra->scratch)->abort, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&g_lock);
}

bool shim_extra_running(const shim_comm_t *comm)
{
    bool running = false;
    pthread_mutex_lock(&g_lock);
    for (shim_extra_t *extra = g_first; extra; extra = extra->next)
        running = running || (extra->comm == comm && atomic_load(&extra->running) > 0);
    pthread_mutex_unlock(&g_lock);
    return running;
}

void shim_extra_tell(const shim_comm_t *comm, uint32_t gone)
{
    pthread_mutex_lock(&g_lock);
    for (shim_extra_t *extra = g_first; extra; extra = extra->next)
        if (extra->comm == comm)
            __atomic_store_n(&alg_scratch_control(extra->scratch)->gone, gone, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&g_lock);
}
