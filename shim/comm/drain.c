/* SPDX-License-Identifier: Apache-2.0 */
/* drain.c - polls the communicator's event, so the wait has a limit and another thread's abort can end it. It does not
 * poll after a device reset, which ends all kernels: the driver would crash. */
#define _GNU_SOURCE
#include "shim/comm/drain.h"

#include <time.h>

#include "shim/comm/order.h"

enum { NAP_US = 50 };

static bool nap(uint64_t *naps, uint32_t limit_ms)
{
    const struct timespec time = {0, NAP_US * 1000};
    if (limit_ms && *naps >= limit_ms * UINT64_C(1000) / NAP_US)
        return false;
    nanosleep(&time, NULL);
    ++*naps;
    return true;
}

/* Waits with a limit: a launch may hold the lock while it waits for a kernel that this thread aborts next. */
static bool lock_within(shim_comm_t *comm, uint64_t *naps, uint32_t limit_ms)
{
    if (!limit_ms)
        return pthread_mutex_lock(&comm->lock) == 0;
    while (pthread_mutex_trylock(&comm->lock) != 0) {
        if (!nap(naps, limit_ms))
            return false;
    }
    return true;
}

bool shim_drain(shim_comm_t *comm, uint32_t limit_ms)
{
    uint64_t naps = 0;
    if (!comm->ops->asynchronous)
        return true;
    if (!lock_within(comm, &naps, limit_ms))
        return false;
    shim_order_t order = comm->order;
    pthread_mutex_unlock(&comm->lock);
    if ((!order.recorded && !order.mixed && !order.lost) || shim_comm_lost(comm))
        return true;
    net_scope_t scope;
    if (order.lost || net_scope_enter(&scope, comm->device) != 0)
        return false;
    int error = net_event_query(order.event);
    while (error == NET_NOT_READY && nap(&naps, limit_ms))
        error = net_event_query(order.event);
    net_scope_leave(&scope);
    return error == 0;
}

static bool have_ended(const shim_comm_t *comm, const shim_order_t *order)
{
    net_scope_t scope;
    if ((!order->recorded && !order->mixed) || shim_comm_lost(comm) || net_scope_enter(&scope, comm->device) != 0)
        return true;
    const int error = net_event_query(order->event);
    net_scope_leave(&scope);
    return error != NET_NOT_READY;
}

bool shim_drained(shim_comm_t *comm)
{
    if (pthread_mutex_trylock(&comm->lock) != 0)
        return false;
    shim_order_t order = comm->order;
    pthread_mutex_unlock(&comm->lock);
    return have_ended(comm, &order);
}

bool shim_drained_held(const shim_comm_t *comm)
{
    return have_ended(comm, &comm->order);
}

void shim_drain_forget(shim_comm_t *comm)
{
    net_scope_t scope;
    bool any = comm->order.event || comm->order.side[0] || comm->order.side[1] || comm->order.captured;
    if (!any || net_scope_enter(&scope, comm->device) != 0)
        return;
    shim_order_forget(comm, shim_comm_lost(comm));
    net_scope_leave(&scope);
}
