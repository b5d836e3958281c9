/* SPDX-License-Identifier: Apache-2.0 */
/* group.c - the end of a group: a thread for each communicator's collectives and one for its messages, since a call's
 * peers may be ranks of the calling thread. */
#include <stdlib.h>

#include "shim/base/last_error.h"
#include "shim/call/group_state.h"
#include "shim/cpu/cpu.h"
#include "shim/setup/attach.h"

enum { SIMULATE_MAGIC = 0x74685283 }; /* NCCL_SIM_INFO_INITIALIZER's */

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

static ncclResult_t run(const shim_group_t *g)
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

ncclResult_t shim_cpu_group_end(ncclSimInfo_t *info)
{
    if (shim_group.depth == 0) {
        shim_set_last_error("ncclGroupEnd: no group has been started");
        return ncclInvalidUsage;
    }
    if (--shim_group.depth > 0)
        return ncclSuccess;
    if (shim_group.error == ncclSuccess && info != NULL && info->magic != SIMULATE_MAGIC) {
        shim_set_last_error("ncclGroupSimulateEnd: simInfo was not made with NCCL_SIM_INFO_INITIALIZER");
        shim_group.error = ncclInvalidArgument;
    }
    if (shim_group.error == ncclSuccess && info == NULL)
        shim_group.error = shim_group_join(&shim_group);
    ncclResult_t result = shim_attach_after_group(shim_group.error);
    if (result == ncclSuccess && info == NULL)
        result = run(&shim_group);
    if (info != NULL || shim_is_error(result))
        shim_group_note_failure(&shim_group);
    shim_group_drop(&shim_group);
    return result;
}
