/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_cpu.c - the end of a group on the CPU device: a thread for each communicator's collectives and one for its
 * messages, since a call's peers may be ranks of the calling thread.
 */
#include <stdlib.h>

#include "shim/call/group_state.h"
#include "shim/call/launch.h"
#include "transport/transport.h"

typedef struct lane {
    const shim_group_t *group;
    shim_comm_t *comm;
    bool messages;
    ncclResult_t result;
    pthread_t thread;
    bool started;
} lane_t;

static void *run_lane(void *argument)
{
    lane_t *lane = argument;
    const shim_group_t *g = lane->group;
    for (uint32_t i = 0; i < g->call_count && lane->result == ncclSuccess; i++)
        if (g->calls[i].comm == lane->comm && shim_group_is_message(&g->calls[i]) == lane->messages)
            lane->result = shim_cpu_run(&g->calls[i].call);
    return NULL;
}

static uint32_t make_lanes(const shim_group_t *g, lane_t *lanes)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < g->call_count; i++) {
        const shim_queued_t *queued = &g->calls[i];
        uint32_t l = 0;
        while (l < count && (lanes[l].comm != queued->comm || lanes[l].messages != shim_group_is_message(queued)))
            l++;
        if (l == count)
            lanes[count++] = (lane_t){.group = g, .comm = queued->comm, .messages = shim_group_is_message(queued)};
    }
    return count;
}

static void start_lane(lane_t *lane)
{
    lane->started = net_thread_start(&lane->thread, run_lane, lane) == 0;
    if (!lane->started)
        lane->result = shim_group_out_of_memory(lane->comm);
}

ncclResult_t shim_group_run(const shim_group_t *g)
{
    if (g->call_count == 0)
        return ncclSuccess;
    lane_t *lanes = calloc(g->call_count, sizeof(*lanes));
    if (lanes == NULL) {
        shim_group_end_comms(g, 0, ncclSystemError);
        return shim_group_out_of_memory(g->calls[0].comm);
    }
    uint32_t count = make_lanes(g, lanes);
    for (uint32_t l = 0; l + 1 < count; l++)
        start_lane(&lanes[l]);
    run_lane(&lanes[count - 1]);
    ncclResult_t result = ncclSuccess;
    for (uint32_t l = 0; l < count; l++) {
        if (lanes[l].started)
            pthread_join(lanes[l].thread, NULL);
        if (result == ncclSuccess)
            result = lanes[l].result;
    }
    free(lanes);
    return result;
}
