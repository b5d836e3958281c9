/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/comm/failure.h"

#include <stdio.h>

#include "shim/base/last_error.h"
#include "shim/base/log.h"
#include "shim/comm/extra.h"

void shim_comm_fail(shim_comm_t *comm, ncclResult_t result, const char *text)
{
    int fine = ncclSuccess;
    if (!atomic_compare_exchange_strong(&comm->async_error, &fine, result))
        return;
    atomic_store(&comm->phase, SHIM_COMM_DEAD);
    atomic_store(&comm->reusable, false);
    shim_set_last_error("rank %u of %u: %s", comm->rank, comm->nranks, text);
    shim_warn("communicator %p has failed: rank %u of %u: %s; its calls fail from now on; abort it (ncclCommAbort)",
              (void *)atomic_load(&comm->handle), comm->rank, comm->nranks, text);
}

static void fail_mismatched(shim_comm_t *comm, void *unused)
{
    (void)unused;
    if (atomic_load(&comm->phase) != SHIM_COMM_ATTACHED ||
        !(shim_record_mismatched(comm->record) || shim_extra_mismatched(comm)))
        return;
    shim_comm_fail(comm, ncclInvalidUsage, "its ranks made different calls (SHUNT_MISMATCH_ERROR=1)");
    __atomic_store_n(&alg_scratch_control(comm->scratch)->abort, 1, __ATOMIC_RELEASE);
    shim_extra_stop(comm);
}

void shim_comm_fail_mismatched(void)
{
    shim_comm_each(fail_mismatched, NULL);
}

static const char *text_of(uint32_t status)
{
    switch (status) {
    case ALG_STATUS_TIMEOUT:
        return "a call waited longer than SHUNT_TIMEOUT_MS for its peers (see which rank is late or has ended)";
    case ALG_STATUS_PEER_LEFT:
        return "a peer left a call before its end";
    default:
        return "a peer that the call needs has left, or its process is gone";
    }
}

void shim_comm_fail_call(shim_comm_t *comm, uint32_t status)
{
    char text[300];
    const char *fault = shim_nodes_fault(comm->nodes);
    snprintf(text, sizeof text, "%s%s%s", text_of(status), fault ? ": " : "", fault ? fault : "");
    shim_comm_fail(comm, ncclRemoteError, text);
}
