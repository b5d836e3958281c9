/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comms.c - see comms.h.
 */
#include "comms.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

ncclUniqueId comms_id(void)
{
    static int number;
    ncclUniqueId id;
    memset(&id, 0, sizeof(id));
    snprintf(id.internal, sizeof(id.internal), "attach test %d %d", (int)getpid(), number++);
    return id;
}

int comms_phase(ncclComm_t comm)
{
    shim_comm_t *state = shim_comm_find(comm);
    return state ? atomic_load(&state->phase) : -1;
}

void comms_init(ncclComm_t *comms, int nranks, ncclUniqueId id)
{
    fake_depth = 1;
    for (int r = 0; r < nranks; r++)
        assert_int_equal(ncclCommInitRank(&comms[r], nranks, id, r), ncclSuccess);
    fake_depth = 0;
    assert_int_equal(shim_attach_after_group(ncclSuccess), ncclSuccess);
}

void comms_init_configured(ncclComm_t *comms, ncclConfig_t *config)
{
    ncclUniqueId id = comms_id();
    fake_depth = 1;
    for (int r = 0; r < N; r++)
        assert_int_equal(ncclCommInitRankConfig(&comms[r], N, id, r, config), ncclSuccess);
    fake_depth = 0;
    assert_int_equal(shim_attach_after_group(ncclSuccess), ncclSuccess);
}

typedef struct one {
    ncclComm_t *comm;
    ncclUniqueId id;
    int rank;
    unsigned pids;
} one_t;

static void *init_one(void *argument)
{
    const one_t *one = argument;
    fake_pids = one->pids;
    return ncclCommInitRank(one->comm, N, one->id, one->rank) == ncclSuccess ? NULL : argument;
}

void comms_init_threads(ncclComm_t *comms, unsigned apart)
{
    pthread_t threads[N];
    one_t ranks[N];
    const ncclUniqueId id = comms_id();
    atomic_store(&fake_stopped, true); /* a rank that is not seen has a limit */
    for (unsigned r = 0; r < N; r++) {
        ranks[r] = (one_t){&comms[r], id, (int)r, r < apart ? r + 1 : 0};
        assert_int_equal(pthread_create(&threads[r], NULL, init_one, &ranks[r]), 0);
    }
    for (int r = 0; r < N; r++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[r], &failed), 0);
        assert_null(failed);
    }
    atomic_store(&fake_stopped, false);
}

void comms_begin(ncclComm_t *comms)
{
    ncclUniqueId id = comms_id();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    for (int r = 0; r < N; r++) {
        assert_int_equal(ncclCommInitRankConfig(&comms[r], N, id, r, &config), ncclInProgress);
        assert_int_equal(comms_phase(comms[r]), SHIM_COMM_JOINING);
    }
}

void comms_expect(ncclComm_t *comms, int nranks, shim_comm_phase_t phase)
{
    for (int r = 0; r < nranks; r++)
        assert_int_equal(comms_phase(comms[r]), phase);
}

void comms_destroy(ncclComm_t *comms, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        assert_int_equal(ncclCommDestroy(comms[r]), ncclSuccess);
        assert_int_equal(comms_phase(comms[r]), -1);
        assert_int_equal(comms[r]->destroys, 1);
    }
}

void comms_try(shim_comm_phase_t phase)
{
    ncclComm_t comms[N];
    comms_init(comms, N, comms_id());
    comms_expect(comms, N, phase);
    comms_destroy(comms, N);
    assert_int_equal(fake.created + fake.taken, fake.freed + fake.pooled);
    fake_reset();
}

ncclResult_t comms_poll(ncclComm_t comm)
{
    ncclResult_t error = ncclInternalError;
    return ncclCommGetAsyncError(comm, &error) == ncclSuccess ? error : ncclInternalError;
}

ncclResult_t comms_poll_once(ncclComm_t comm)
{
    ncclResult_t error = comms_poll(comm);
    assert_int_not_equal(error, ncclInternalError);
    return error;
}

void comms_poll_until_ready(ncclComm_t *comms, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        int polls = 0;
        while (comms_poll_once(comms[r]) == ncclInProgress && ++polls < 10000)
            usleep(10);
        assert_int_equal(comms_poll_once(comms[r]), ncclSuccess);
    }
}

void comms_settle(ncclComm_t handle)
{
    shim_comm_t *comm = shim_comm_acquire(handle);
    shim_attach_settle(comm);
    shim_comm_release(comm);
}
