/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - CPU mode: a waiting kernel cannot see that a peer is gone. So a thread checks the peers of each
 * communicator with a call in progress and tells the kernel, which knows whether it needs them (lane_cpu.h). The thread
 * ends with the last communicator, so that the library can be unloaded. */
#define _GNU_SOURCE
#include "shim/cpu/watch.h"

#include <time.h>

#include "shim/base/log.h"
#include "shim/comm/comm.h"
#include "shim/comm/extra.h"

enum { PERIOD_MS = 100 };

static net_lock_t g_lock = NET_LOCK_INITIALIZER;
static bool g_running;

static void forget_in_child(void)
{
    g_running = false;
}

NET_IN_CHILD(forget_in_child);

static uint32_t gone_peers(const shim_comm_t *comm)
{
    const alg_team_t *team = alg_scratch_team(comm->scratch); /* this node's; dead ranks elsewhere close connections */
    uint32_t gone = 0;
    for (uint32_t r = 0; r < team->nranks; r++) {
        if (r != team->rank && net_rank_gone(comm->rendezvous, r))
            gone |= 1u << r;
    }
    return gone;
}

static void look_after(shim_comm_t *comm, void *context)
{
    uint32_t *alive = context;
    (*alive)++;
    if (atomic_load(&comm->phase) != SHIM_COMM_ATTACHED)
        return;
    const bool extra = shim_extra_running(comm);
    if (!extra && atomic_load(&comm->calls_begun) == atomic_load(&comm->calls_ended))
        return;
    const uint32_t gone = gone_peers(comm);
    __atomic_store_n(&alg_scratch_control(comm->scratch)->gone, gone, __ATOMIC_RELEASE);
    if (extra)
        shim_extra_tell(comm, gone);
}

static void *watch(void *unused)
{
    const struct timespec period = {0, PERIOD_MS * 1000000};
    for (;;) {
        nanosleep(&period, NULL);
        uint32_t alive = 0;
        net_lock_take(&g_lock);
        shim_comm_each(look_after, &alive);
        if (alive == 0)
            g_running = false;
        net_lock_give(&g_lock);
        if (alive == 0)
            return unused;
    }
}

void shim_cpu_watch(void)
{
    net_lock_take(&g_lock);
    if (!g_running)
        g_running = net_thread_start(NULL, watch, NULL) == 0;
    bool running = g_running;
    net_lock_give(&g_lock);
    if (!running)
        shim_warn("no thread to watch peers could be started: a call notices a dead peer only at its time limit "
                  "(SHUNT_TIMEOUT_MS); allow this user more threads (ulimit -u)");
}
