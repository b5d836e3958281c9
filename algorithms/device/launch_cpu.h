/* SPDX-License-Identifier: Apache-2.0 */
/* launch_cpu.h - a kernel's launch on the CPU device. */
#ifndef SHUNT_LAUNCH_CPU_H
#define SHUNT_LAUNCH_CPU_H

#include <pthread.h>

#include "algorithms/device/dispatch.h"

template <class P> struct launch_block {
    kernel_t<P> kernel;
    const alg_team_t *team;
    const P *what;
    lane_t lane;
    pthread_t thread;
};

template <class P> static void *launch_block_main(void *argument)
{
    const launch_block<P> *b = (const launch_block<P> *)argument;
    b->kernel(b->lane, *b->team, *b->what);
    lane_fence(); /* as at a kernel's end */
    return NULL;
}

/* Runs block 0 in this thread, each other block in its own. Returns an alg_status_t. If a thread does not start, the
 * call is aborted: peers would wait for its block. counted: a collective, after `call` earlier ones. */
template <class P>
static int launch_threads(kernel_t<P> kernel, const alg_team_t *team, const P &what, uint32_t blocks, bool counted,
                          uint64_t call)
{
    launch_block<P> block[LANE_MOST_BLOCKS];
    uint32_t started = 1;
    for (uint32_t i = 0; i < blocks; i++)
        block[i] = {kernel, team, &what, {i, blocks, 0, 1, 0, 0, ~0u, 0, counted, call, i, blocks}, 0};
    for (; started < blocks; started++) {
        if (pthread_create(&block[started].thread, NULL, launch_block_main<P>, &block[started]) != 0) {
            __atomic_store_n(&team->control->abort, 1u, __ATOMIC_RELEASE);
            break;
        }
    }
    launch_block_main<P>(&block[0]);
    for (uint32_t i = 1; i < started; i++)
        pthread_join(block[i].thread, NULL);
    if (!__atomic_load_n(&team->control->abort, __ATOMIC_ACQUIRE))
        return ALG_STATUS_OK;
    const uint32_t status = __atomic_load_n(&team->control->status, __ATOMIC_ACQUIRE);
    return status == ALG_STATUS_OK ? ALG_STATUS_ABORTED : (int)status;
}

/* calls: the kernel's collectives. Peers read how many ended (lane_missed). */
template <class P>
static int launch_collective(kernel_t<P> kernel, const alg_team_t *team, const P &what, const kernel_call_t &grid,
                             uint32_t calls, void *)
{
    uint64_t *const count = (uint64_t *)(team->own + ALG_CALLS_OFFSET);
    const uint64_t before = lane_read_own(count);
    const int status = launch_threads(kernel, team, what, grid.grid_blocks, true, before);
    if (status != ALG_STATUS_OK)
        return status;
    lane_write_own(count, before + calls);
    lane_raise(team->scratch[team->rank] + ALG_ENDED_OFFSET, before + calls);
    return status;
}

template <class P> static int launch_preload(kernel_t<P>)
{
    return 0;
}

#endif
