/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_test.c - set-up and life of communicators on fake GPUs: which attach,
 * which decline and why, and that all ranks of a communicator agree.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake.h"
#include "shim/base/last_error.h"
#include "shim/comm/reap.h"

enum { N = 4 };

static ncclUniqueId fresh_id(void)
{
    static int number;
    ncclUniqueId id;
    memset(&id, 0, sizeof(id));
    snprintf(id.internal, sizeof(id.internal), "attach test %d %d", (int)getpid(), number++);
    return id;
}

static int phase_of(ncclComm_t comm)
{
    shim_comm_t *state = shim_comm_find(comm);
    return state ? atomic_load(&state->phase) : -1;
}

static void init_group(ncclComm_t *comms, int nranks, ncclUniqueId id)
{
    fake_depth = 1;
    for (int r = 0; r < nranks; r++)
        assert_int_equal(ncclCommInitRank(&comms[r], nranks, id, r), ncclSuccess);
    fake_depth = 0;
    assert_int_equal(shim_attach_after_group(ncclSuccess), ncclSuccess);
}

/* With a configuration. */
static void init_configured(ncclComm_t *comms, ncclConfig_t *config)
{
    ncclUniqueId id = fresh_id();
    fake_depth = 1;
    for (int r = 0; r < N; r++)
        assert_int_equal(ncclCommInitRankConfig(&comms[r], N, id, r, config), ncclSuccess);
    fake_depth = 0;
    assert_int_equal(shim_attach_after_group(ncclSuccess), ncclSuccess);
}

/* Without blocking, so they are not ready yet. */
static void begin_non_blocking(ncclComm_t *comms)
{
    ncclUniqueId id = fresh_id();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    for (int r = 0; r < N; r++) {
        assert_int_equal(ncclCommInitRankConfig(&comms[r], N, id, r, &config), ncclInProgress);
        assert_int_equal(phase_of(comms[r]), SHIM_COMM_JOINING);
    }
}

static void expect_phase(ncclComm_t *comms, int nranks, shim_comm_phase_t phase)
{
    for (int r = 0; r < nranks; r++)
        assert_int_equal(phase_of(comms[r]), phase);
}

static void destroy_all(ncclComm_t *comms, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        assert_int_equal(ncclCommDestroy(comms[r]), ncclSuccess);
        assert_int_equal(phase_of(comms[r]), -1);
        assert_int_equal(comms[r]->destroys, 1);
    }
}

/* Init N ranks in a group with the fake's current faults, check the phase, and destroy. */
static void try_group(shim_comm_phase_t phase)
{
    ncclComm_t comms[N];
    init_group(comms, N, fresh_id());
    expect_phase(comms, N, phase);
    destroy_all(comms, N);
    assert_int_equal(fake.created + fake.taken, fake.freed + fake.pooled);
    fake_reset();
}

static void group_attaches(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    init_group(comms, N, fresh_id());
    expect_phase(comms, N, SHIM_COMM_ATTACHED);
    for (int r = 0; r < N; r++) {
        const shim_comm_t *comm = shim_comm_find(comms[r]);
        assert_int_equal(comm->rank, r);
        assert_int_equal(comm->nranks, N);
        assert_true(comm->all_block);
        assert_int_equal(comm->plan->topology.link, SEL_LINK_NVSWITCH);
        assert_int_equal(comm->plan->topology.arch, 90);
    }
    assert_int_equal(shim_comm_attached(), N);
    destroy_all(comms, N);
    assert_int_equal(fake.pooled, N);
    assert_int_equal(shim_comm_attached(), 0);
}

static ncclUniqueId threads_id;

static void *init_one(void *argument)
{
    ncclComm_t *comm = argument; /* holds the rank, in place of a handle */
    return (void *)(intptr_t)ncclCommInitRank(comm, N, threads_id, (int)(intptr_t)*comm);
}

static void threads_attach(void **state)
{
    (void)state;
    pthread_t threads[N];
    void *result;
    ncclComm_t comms[N];
    fake_reset();
    threads_id = fresh_id();
    for (int r = 0; r < N; r++) {
        comms[r] = (ncclComm_t)(intptr_t)r;
        pthread_create(&threads[r], NULL, init_one, &comms[r]);
    }
    for (int r = 0; r < N; r++)
        assert_int_equal(pthread_join(threads[r], &result) + (int)(intptr_t)result, 0);
    expect_phase(comms, N, SHIM_COMM_ATTACHED);
    destroy_all(comms, N);
}

/* The ranks' views are combined: one that differs changes the class on all of them. */
static void expect_link(int rank, sel_reach_t reach, sel_link_t link)
{
    ncclComm_t comms[N];
    fake.reach[rank] = reach;
    init_group(comms, N, fresh_id());
    for (int r = 0; r < N; r++)
        assert_int_equal(shim_comm_find(comms[r])->plan->topology.link, link);
    destroy_all(comms, N);
}

static void links_are_joined(void **state)
{
    (void)state;
    fake_reset();
    expect_link(2, (sel_reach_t){.link = SEL_LINK_NVSWITCH, .lanes = 18}, SEL_LINK_NVSWITCH);
    expect_link(2, (sel_reach_t){.link = SEL_LINK_NVSWITCH, .lanes = 17}, SEL_LINK_BRIDGES);
    expect_link(2, (sel_reach_t){.link = SEL_LINK_PHB}, SEL_LINK_BRIDGES);
    expect_link(2, (sel_reach_t){.link = SEL_LINK_HOST},
                SEL_LINK_BRIDGES); /* a value that no rank with a GPU reports */
    for (int r = 0; r < N; r++)
        fake.reach[r] = (sel_reach_t){.link = SEL_LINK_PHB};
    expect_link(0, (sel_reach_t){.link = SEL_LINK_PCIE}, SEL_LINK_PHB);
    expect_link(1, (sel_reach_t){.link = SEL_LINK_SYS}, SEL_LINK_SYS);
}

static void machines_are_told_apart(void **state)
{
    (void)state;
    uint64_t machine[3];
    for (int i = 0; i < 3; i++) {
        ncclComm_t comms[N];
        fake_reset();
        fake.kind[i] = i ? 8 : 7; /* one kind; then two, in any order */
        init_group(comms, N, fresh_id());
        machine[i] = shim_comm_find(comms[0])->plan->topology.fingerprint;
        for (int r = 1; r < N; r++)
            assert_true(shim_comm_find(comms[r])->plan->topology.fingerprint == machine[i]);
        destroy_all(comms, N);
    }
    assert_true(machine[0] != 0 && machine[0] != machine[1] && machine[1] == machine[2]);
}

static void ipc_refused(void **state)
{
    (void)state;
    fake_reset();
    fake.ipc_error[1] = -38;
    try_group(SHIM_COMM_ATTACHED);
    fake.open_error[3] = -38;
    try_group(SHIM_COMM_ATTACHED);
    fake.open_error[3] = fake.vmm_error[0] = -38;
    try_group(SHIM_COMM_FORWARD);
    fake.ipc_error[1] = -12; /* no memory: VMM memory would fail too */
    try_group(SHIM_COMM_FORWARD);
}

static void all_linked_by(sel_link_t link)
{
    fake_reset();
    for (int r = 0; r < N; r++)
        fake.reach[r] = (sel_reach_t){.link = link};
}

static void try_memory(alg_memory_t memory)
{
    ncclComm_t comms[N];
    init_group(comms, N, fresh_id());
    for (int r = 0; r < N; r++) {
        const shim_comm_t *comm = shim_comm_find(comms[r]);
        assert_int_equal(atomic_load(&comm->phase), SHIM_COMM_ATTACHED);
        assert_int_equal(comm->plan->topology.memory, memory);
        assert_int_equal(comm->plan->map.memory, memory);
    }
    destroy_all(comms, N);
}

/* Without peer access, the host's memory; over NVLink the real NCCL may have better. */
static void no_peer_access(void **state)
{
    (void)state;
    all_linked_by(SEL_LINK_SYS);
    try_memory(ALG_MEMORY_PEER);
    fake.unreached[1] = true;
    try_memory(ALG_MEMORY_HOST);
    fake.pinned_error[3] = -38;
    try_group(SHIM_COMM_FORWARD);
    all_linked_by(SEL_LINK_PCIE);
    fake.open_error[2] = fake.vmm_error[0] = -38;
    try_memory(ALG_MEMORY_HOST);
    all_linked_by(SEL_LINK_NVSWITCH);
    fake.open_error[2] = fake.vmm_error[0] = -38;
    try_group(SHIM_COMM_FORWARD);
}

/* Bridges between pairs, or two sockets: some GPUs reach each other, and all go through the host's memory. */
static void some_peer_access(void **state)
{
    (void)state;
    static const sel_link_t links[] = {SEL_LINK_BRIDGES, SEL_LINK_PHB, SEL_LINK_SYS};
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        for (int lonely = 0; lonely < N; lonely++) {
            all_linked_by(links[i]);
            fake.unreached[lonely] = true;
            try_memory(ALG_MEMORY_HOST);
        }
    }
    all_linked_by(SEL_LINK_BRIDGES);
    try_memory(ALG_MEMORY_PEER);
    fake.unreached[0] = fake.unreached[1] = true;
    setenv("NCCL_SHM_DISABLE", "1", 1);
    try_group(SHIM_COMM_FORWARD);
    unsetenv("NCCL_SHM_DISABLE");
}

static void expect_peers(alg_memory_t memory, bool peers)
{
    ncclComm_t comms[N];
    init_group(comms, N, fresh_id());
    for (int r = 0; r < N; r++) {
        assert_int_equal(phase_of(comms[r]), SHIM_COMM_ATTACHED);
        assert_int_equal(shim_comm_find(comms[r])->plan->topology.memory, memory);
        assert_int_equal(shim_comm_find(comms[r])->plan->topology.peers, peers);
    }
    destroy_all(comms, N);
}

/* Over PCIe the host's memory may be the better way; peer access is what is left if it fails. */
static void host_memory_first(void **state)
{
    (void)state;
    all_linked_by(SEL_LINK_SYS);
    fake.prefers_host = true;
    expect_peers(ALG_MEMORY_HOST, true);
    assert_int_equal(fake.created, N); /* nothing else was tried */
    fake.pinned_error[3] = -38;
    expect_peers(ALG_MEMORY_PEER, false);
    fake.ipc_error[1] = -38;
    expect_peers(ALG_MEMORY_PEER, false);
    fake.vmm_error[1] = -38;
    try_group(SHIM_COMM_FORWARD);

    all_linked_by(SEL_LINK_SYS);
    fake.prefers_host = true;
    setenv("NCCL_SHM_DISABLE", "1", 1);
    expect_peers(ALG_MEMORY_PEER, false);
    unsetenv("NCCL_SHM_DISABLE");
    fake.unreached[2] = true; /* then the real NCCL has no peer access either */
    expect_peers(ALG_MEMORY_HOST, false);
    all_linked_by(SEL_LINK_NVSWITCH);
    fake.prefers_host = true;
    expect_peers(ALG_MEMORY_PEER, false);
}

/* The next communicator of a team that goes through the host's memory takes its idle scratch. */
static void host_memory_from_the_pool(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        all_linked_by(SEL_LINK_SYS);
        fake.prefers_host = first == 1;
        fake.unreached[0] = first == 0;
        fake.idle_in = ALG_MEMORY_HOST;
        for (int r = 0; r < N; r++)
            fake.idle[r] = 77;
        expect_peers(ALG_MEMORY_HOST, first == 1);
        assert_int_equal(fake.taken, N);
        assert_int_equal(fake.created, 0);
    }
}

/* NCCL_P2P_LEVEL is about distance. */
static void peer_level(void **state)
{
    (void)state;
    setenv("NCCL_P2P_LEVEL", "PHB", 1);
    all_linked_by(SEL_LINK_PHB);
    try_memory(ALG_MEMORY_PEER);
    all_linked_by(SEL_LINK_SYS);
    try_memory(ALG_MEMORY_HOST);
    setenv("NCCL_SHM_DISABLE", "1", 1);
    try_group(SHIM_COMM_FORWARD);
    unsetenv("NCCL_P2P_LEVEL");
    unsetenv("NCCL_SHM_DISABLE");
}

/* Of GPUs of which some pairs have bridges, too: the distance between the others counts. */
static void peer_level_with_bridges(void **state)
{
    (void)state;
    static const struct {
        const char *level;
        sel_link_t far;
        alg_memory_t memory;
    } cases[] = {{"NVL", SEL_LINK_PCIE, ALG_MEMORY_HOST}, {"NVL", SEL_LINK_HOST, ALG_MEMORY_PEER},
                 {"PHB", SEL_LINK_PHB, ALG_MEMORY_PEER},  {"PHB", SEL_LINK_SYS, ALG_MEMORY_HOST},
                 {"SYS", SEL_LINK_SYS, ALG_MEMORY_PEER},  {"LOC", SEL_LINK_HOST, ALG_MEMORY_HOST}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        all_linked_by(SEL_LINK_MESH);
        fake.reach[1] = (sel_reach_t){SEL_LINK_BRIDGES, 0, cases[i].far}; /* one rank sees it */
        setenv("NCCL_P2P_LEVEL", cases[i].level, 1);
        try_memory(cases[i].memory);
    }
    unsetenv("NCCL_P2P_LEVEL");
}

static void vmm_is_sent(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    fake.open_error[0] = -38;
    init_group(comms, N, fresh_id());
    assert_int_equal(fake.sent, N);
    assert_int_equal(fake.freed, N);
    destroy_all(comms, N);
}

static void proof_fails(void **state)
{
    (void)state;
    fake_reset();
    fake.proof_error[2] = -5;
    try_group(SHIM_COMM_FORWARD);
}

static void same_gpu(void **state)
{
    (void)state;
    fake_reset();
    fake.same_gpu = true;
    try_group(SHIM_COMM_FORWARD);
}

static void pool_is_used(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    for (int r = 0; r < N; r++)
        fake.idle[r] = 77;
    init_group(comms, N, fresh_id());
    assert_int_equal(fake.taken, N);
    assert_int_equal(fake.created, 0);
    destroy_all(comms, N);
    fake_reset();
    fake.idle[0] = fake.idle[1] = 77; /* the others have none: all create */
    init_group(comms, N, fresh_id());
    assert_int_equal(fake.taken, 0);
    assert_int_equal(fake.left_idle, 2);
    assert_int_equal(fake.created, N);
    destroy_all(comms, N);
}

/* A rank without Shunt joins only the real NCCL: no rank waits for it here. */
static void a_rank_without_shunt(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    ncclUniqueId id = fresh_id();
    fake_reset();
    fake_depth = 1;
    for (int r = 1; r < N; r++)
        assert_int_equal(ncclCommInitRank(&comms[r], N, id, r), ncclSuccess);
    fake_depth = 0;
    assert_int_equal(shim_attach_after_group(ncclSuccess), ncclSuccess);
    expect_phase(comms + 1, N - 1, SHIM_COMM_FORWARD);
    destroy_all(comms + 1, N - 1);
}

static void failed_group_leaves_nothing(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    ncclUniqueId id = fresh_id();
    fake_reset();
    fake_depth = 1;
    for (int r = 0; r < N; r++)
        assert_int_equal(ncclCommInitRank(&comms[r], N, id, r), ncclSuccess);
    fake_depth = 0;
    assert_int_equal(shim_attach_after_group(ncclInvalidUsage), ncclInvalidUsage);
    for (int r = 0; r < N; r++)
        assert_int_equal(phase_of(comms[r]), -1);
    assert_int_equal(fake.created, 0);
}

static void one_or_too_many(void **state)
{
    (void)state;
    ncclComm_t comms[12];
    fake_reset();
    assert_int_equal(ncclCommInitRank(&comms[0], 1, fresh_id(), 0), ncclSuccess);
    assert_int_equal(phase_of(comms[0]), -1);
    init_group(comms, 12, fresh_id());
    expect_phase(comms, 12, SHIM_COMM_FORWARD); /* known by its key, so that its children can attach */
    destroy_all(comms, 12);
}

static void all_at_once(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    const int devices[N] = {3, 1, 0, 2};
    fake_reset();
    assert_int_equal(ncclCommInitAll(comms, N, devices), ncclSuccess);
    expect_phase(comms, N, SHIM_COMM_ATTACHED);
    assert_int_equal(shim_comm_find(comms[0])->device, 3);
    destroy_all(comms, N);
}

static ncclResult_t poll_of(ncclComm_t comm)
{
    ncclResult_t error = ncclInternalError;
    return ncclCommGetAsyncError(comm, &error) == ncclSuccess ? error : ncclInternalError;
}

static ncclResult_t poll_once(ncclComm_t comm)
{
    ncclResult_t error = poll_of(comm);
    assert_int_not_equal(error, ncclInternalError);
    return error;
}

static void poll_until_ready(ncclComm_t *comms, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        int polls = 0;
        while (poll_once(comms[r]) == ncclInProgress && ++polls < 10000)
            usleep(10);
        assert_int_equal(poll_once(comms[r]), ncclSuccess);
    }
}

static void non_blocking(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    begin_non_blocking(comms);
    assert_int_equal(poll_once(comms[0]), ncclInProgress); /* the real ones are ready, the verdict is not */
    poll_until_ready(comms, N);
    expect_phase(comms, N, SHIM_COMM_ATTACHED);
    assert_false(shim_comm_find(comms[0])->all_block);
    destroy_all(comms, N);
}

static void *begin_in_thread(void *comms)
{
    begin_non_blocking(comms);
    return NULL;
}

/* The ranks may be first polled at any times: while they live, they meet. (Of the set-ups that this thread has not
 * begun, only polled ones proceed.) */
static void late_polls(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    pthread_t thread;
    fake_reset();
    pthread_create(&thread, NULL, begin_in_thread, comms);
    pthread_join(thread, NULL);
    for (int first = 1; first <= N; first++) {
        for (int r = 0; r < first; r++)
            assert_true(poll_once(comms[r]) == ncclInProgress || first == N);
        atomic_fetch_add(&fake_late_s, 30);
    }
    poll_until_ready(comms, N);
    expect_phase(comms, N, SHIM_COMM_ATTACHED);
    destroy_all(comms, N);
}

static ncclUniqueId grouped_ids[2];

/* Rank 1 makes one communicator after the other, and a call on each at the end. */
static void *init_singly(void *argument)
{
    ncclComm_t *comms = argument;
    for (int i = 0; i < 2; i++)
        if (ncclCommInitRank(&comms[i], 2, grouped_ids[i], 1) != ncclSuccess)
            return argument;
    for (int i = 0; i < 2; i++) {
        if (poll_of(comms[i]) != ncclSuccess) /* a rank told it so */
            return argument;
        shim_comm_t *comm = shim_comm_acquire(comms[i]);
        shim_attach_settle(comm);
        shim_comm_release(comm);
    }
    return NULL;
}

/* Rank 0 makes both in a group, whose end waits for both: rank 1 must come to the second meanwhile. */
static void grouped_against_single(void **state)
{
    (void)state;
    ncclComm_t mine[2], theirs[2];
    pthread_t thread;
    void *failed = NULL;
    fake_reset();
    for (int i = 0; i < 2; i++)
        grouped_ids[i] = fresh_id();
    fake_depth = 1;
    for (int i = 0; i < 2; i++)
        assert_int_equal(ncclCommInitRank(&mine[i], 2, grouped_ids[i], 0), ncclSuccess);
    fake_depth = 0;
    assert_int_equal(pthread_create(&thread, NULL, init_singly, theirs), 0);
    for (int i = 0; i < 2; i++)
        fake_wait_ready(mine[i]);
    assert_int_equal(shim_attach_after_group(ncclSuccess), ncclSuccess);
    for (int i = 0; i < 2; i++) {
        shim_comm_t *comm = shim_comm_acquire(mine[i]);
        shim_attach_settle(comm);
        shim_comm_release(comm);
    }
    pthread_join(thread, &failed);
    assert_null(failed);
    expect_phase(mine, 2, SHIM_COMM_ATTACHED);
    expect_phase(theirs, 2, SHIM_COMM_ATTACHED);
    destroy_all(mine, 2);
    destroy_all(theirs, 2);
}

/* One rank polls, the other's init returns without waiting, and its first call waits instead. */
static void blocking_beside_polled(void **state)
{
    (void)state;
    ncclComm_t comms[2];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id = fresh_id();
    fake_reset();
    config.blocking = 0;
    assert_int_equal(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInProgress);
    assert_int_equal(ncclCommInitRank(&comms[1], 2, id, 1), ncclSuccess);
    assert_int_equal(phase_of(comms[1]), SHIM_COMM_JOINING);
    assert_int_equal(poll_of(comms[1]), ncclSuccess);
    poll_until_ready(comms, 1);
    expect_phase(comms, 2, SHIM_COMM_ATTACHED);
    destroy_all(comms, 2);
}

static void abort_while_pending(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    begin_non_blocking(comms);
    poll_once(comms[0]);
    assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
    assert_int_equal(comms[1]->aborts, 1);
    assert_int_equal(phase_of(comms[1]), -1);
    for (int r = 0; r < N; r++) {
        if (r == 1)
            continue;
        while (poll_once(comms[r]) == ncclInProgress)
            usleep(10);
        assert_int_equal(phase_of(comms[r]), SHIM_COMM_FORWARD);
        ncclCommAbort(comms[r]);
    }
}

static void split_all(ncclComm_t *comms, ncclComm_t *children, const int *colors)
{
    fake_depth = 1;
    for (int r = 0; r < N; r++)
        assert_int_equal(ncclCommSplit(comms[r], colors[r], 0, &children[r], NULL), ncclSuccess);
    fake_depth = 0;
    assert_int_equal(shim_attach_after_group(ncclSuccess), ncclSuccess);
}

/* A split that keeps all ranks. */
static void copy_all(ncclComm_t *comms, ncclComm_t *children)
{
    static const int one[N];
    for (int r = 0; r < N; r++)
        fake.split_rank[r] = r, fake.split_nranks[r] = N;
    split_all(comms, children, one);
}

static void splits(void **state)
{
    (void)state;
    ncclComm_t comms[N], children[N], again[N];
    const int colors[N] = {0, 5, 0, 5}, some[N] = {1, 1, NCCL_SPLIT_NOCOLOR, 1};
    fake_reset();
    init_group(comms, N, fresh_id());
    for (int r = 0; r < N; r++) {
        fake.split_rank[r] = r / 2;
        fake.split_nranks[r] = 2;
    }
    split_all(comms, children, colors);
    expect_phase(children, N, SHIM_COMM_ATTACHED);
    assert_int_equal(shim_comm_find(children[3])->rank, 1);
    assert_int_equal(shim_comm_find(children[3])->nranks, 2);
    for (int r = 0; r < N; r++) {
        fake.split_rank[r] = r < 2 ? r : r - 1;
        fake.split_nranks[r] = 3;
    }
    split_all(comms, again, some);
    assert_null(again[2]);
    assert_int_equal(phase_of(again[0]), SHIM_COMM_ATTACHED);
    assert_int_equal(phase_of(again[3]), SHIM_COMM_ATTACHED);
    assert_int_equal(shim_comm_find(comms[2])->splits, 2); /* no colour counts too */
    destroy_all(children, N);
    destroy_all(comms, N);
    destroy_all(again, 2);
    ncclCommDestroy(again[3]);
}

/* Children that share resources share the abort; others live on. */
static void an_abort_ends_communicators_that_share(void **state)
{
    (void)state;
    for (int share = 0; share < 2; share++) {
        ncclComm_t comms[N], children[N];
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        fake_reset();
        config.splitShare = share;
        init_configured(comms, &config);
        copy_all(comms, children);
        expect_phase(children, N, SHIM_COMM_ATTACHED);
        assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
        const shim_comm_t *child = shim_comm_find(children[1]);
        assert_int_equal(alg_scratch_control(child->scratch)->abort, share);
        assert_int_equal(phase_of(children[1]), share ? SHIM_COMM_DEAD : SHIM_COMM_ATTACHED);
        expect_phase(comms, 1, SHIM_COMM_ATTACHED); /* the other ranks of this process have their own */
        expect_phase(children, 1, SHIM_COMM_ATTACHED);
        comms[1] = comms[0];
        destroy_all(children, N);
        destroy_all(comms + 1, N - 1);
    }
}

/* A revoked communicator shares its resources with none: its replacement lives on. */
static void a_revoked_communicator_shares_nothing(void **state)
{
    (void)state;
    ncclComm_t comms[N], children[N];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    fake_reset();
    config.splitShare = 1;
    init_configured(comms, &config);
    for (int i = 0; i < N; i++)
        assert_int_equal(ncclCommRevoke(comms[i], 0), ncclSuccess);
    copy_all(comms, children);
    expect_phase(children, N, SHIM_COMM_ATTACHED);
    for (int i = 0; i < N; i++)
        assert_int_equal(ncclCommAbort(comms[i]), ncclSuccess);
    expect_phase(children, N, SHIM_COMM_ATTACHED);
    destroy_all(children, N);
}

static void refused_split_counts_not(void **state)
{
    (void)state;
    ncclComm_t comms[N], child;
    fake_reset();
    init_group(comms, N, fresh_id());
    fake.split_result = ncclInvalidArgument;
    assert_int_equal(ncclCommSplit(comms[0], 0, 0, &child, NULL), ncclInvalidArgument);
    assert_int_equal(shim_comm_find(comms[0])->splits, 0);
    destroy_all(comms, N);
}

static void split_of_unknown(void **state)
{
    (void)state;
    struct ncclComm stranger = {.rank = 0, .nranks = 2};
    ncclComm_t child;
    fake_reset();
    fake.split_nranks[0] = 2;
    assert_int_equal(ncclCommSplit(&stranger, 0, 0, &child, NULL), ncclSuccess);
    assert_non_null(child);
    assert_int_equal(phase_of(child), -1);
    assert_int_equal(ncclCommDestroy(child), ncclSuccess);
}

/* The child of a non-blocking parent appears later, when the parent is polled. */
static void late_split(void **state)
{
    (void)state;
    ncclComm_t comms[1], child = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    fake_reset();
    config.blocking = 0;
    ncclUniqueId id = fresh_id();
    ncclComm_t other;
    assert_int_equal(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInProgress);
    assert_int_equal(ncclCommInitRankConfig(&other, 2, id, 1, &config), ncclInProgress);
    poll_until_ready(comms, 1);
    poll_until_ready(&other, 1);
    fake.split_late = true;
    fake.split_nranks[0] = 1;
    assert_int_equal(ncclCommSplit(comms[0], 0, 0, &child, NULL), ncclInProgress);
    assert_null(child);
    poll_until_ready(comms, 1);
    assert_non_null(child);
    assert_int_equal(phase_of(child), SHIM_COMM_FORWARD); /* one rank: known, and NCCL's */
    ncclCommDestroy(child);
    ncclCommDestroy(comms[0]);
    ncclCommDestroy(other);
}

static void refused_destroy_keeps_state(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    init_group(comms, N, fresh_id());
    fake.destroy_result = ncclInvalidArgument;
    assert_int_equal(ncclCommDestroy(comms[0]), ncclInvalidArgument);
    assert_int_equal(phase_of(comms[0]), SHIM_COMM_ATTACHED);
    fake.destroy_result = ncclSuccess;
    comms[0]->destroys = 0;
    destroy_all(comms, N);
    assert_int_equal(ncclCommDestroy(NULL), ncclSuccess);
    assert_int_equal(ncclCommAbort(NULL), ncclSuccess);
}

static void abort_stops_kernels(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    init_group(comms, N, fresh_id());
    shim_comm_t *comm = shim_comm_acquire(comms[0]);
    assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
    assert_int_equal(alg_scratch_control(comm->scratch)->abort, 1);
    assert_int_equal(fake.freed, 0); /* a call in flight still holds it */
    shim_comm_release(comm);
    shim_comm_reap();
    assert_int_equal(fake.freed, 1);
    comm = shim_comm_acquire(comms[1]);
    const int drains = fake.drains;
    assert_int_equal(ncclCommRevoke(comms[1], 0), ncclSuccess);
    assert_int_equal(fake.drains, drains + 1); /* the program may free its buffers now */
    assert_int_equal(alg_scratch_control(comm->scratch)->abort, 1);
    assert_int_equal(phase_of(comms[1]), SHIM_COMM_DEAD);
    shim_comm_release(comm);
    destroy_all(comms + 1, N - 1);
    assert_int_equal(fake.freed, 2);
    assert_int_equal(fake.pooled, 2);
}

/* An abort from another thread that ends the wait of a destroy or a finalize frees the handle: no thread may use it
 * then. */
static void abort_in_a_drain(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    init_group(comms, N, fresh_id());
    fake.abort_in_drain = comms[0];
    assert_int_equal(ncclCommDestroy(comms[0]), ncclSuccess);
    fake.abort_in_drain = comms[1];
    assert_int_equal(ncclCommFinalize(comms[1]), ncclSuccess);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(comms[r]->aborts, 1);
        assert_int_equal(comms[r]->destroys + comms[r]->finalizes, 0);
        assert_int_equal(phase_of(comms[r]), -1);
    }
    destroy_all(comms + 2, N - 2);
}

/* Kernels of all of them wait for a dead peer, in one thread: freeing memory of the first would wait for the kernels of
 * the others, which this thread has yet to abort. */
static void aborts_one_after_another(void **state)
{
    (void)state;
    ncclComm_t comms[3][N];
    fake_reset();
    for (int i = 0; i < 3; i++)
        init_group(comms[i], N, fresh_id());
    for (int i = 0; i < 3 * N; i++)
        comms[i / N][i % N]->waits = true;
    for (int i = 0; i < 3 * N; i++) {
        assert_int_equal(fake.freed, 0);
        assert_int_equal(ncclCommAbort(comms[i / N][i % N]), ncclSuccess);
    }
    assert_int_equal(fake.freed, 3 * N);
    assert_int_equal(fake.stuck, 0);
}

/* A graph may run at any time without notice: the memory that it keeps is bounded. */
static void graphs_keep_little(void **state)
{
    (void)state;
    ncclComm_t comms[N], others[N];
    fake_reset();
    init_group(comms, N, fresh_id());
    shim_comm_t *captured = shim_comm_acquire(comms[0]); /* as a graph holds it */
    for (int cycle = 0; cycle < 5; cycle++) {
        init_group(others, N, fresh_id());
        for (int r = 0; r < N; r++) {
            ncclCommAbort(others[r]);
            assert_true(fake.retired <= 4);
            assert_int_equal(fake.freed + fake.retired, cycle * N + r + 1);
        }
        assert_true(cycle > 0 || fake.freed == 0);
    }
    assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
    assert_int_equal(fake.freed, 5 * N); /* a graph of an aborted one waits for no rank */
    shim_comm_release(captured);
    destroy_all(comms + 1, N - 1);
}

static void destroy_in_group(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    init_group(comms, N, fresh_id());
    fake_depth = 1;
    for (int r = 0; r < N; r++) {
        assert_int_equal(ncclCommDestroy(comms[r]), ncclSuccess);
        assert_int_equal(phase_of(comms[r]), -1);
    }
    assert_int_equal(fake.pooled, 0);
    fake_depth = 0;
    shim_attach_after_group(ncclSuccess);
    assert_int_equal(fake.pooled, N);
}

static void kernel_error_is_reported(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    init_group(comms, N, fresh_id());
    alg_scratch_control(shim_comm_find(comms[2])->scratch)->status = ALG_STATUS_TIMEOUT;
    assert_int_equal(poll_once(comms[1]), ncclSuccess);
    assert_int_equal(poll_once(comms[2]), ncclRemoteError);
    assert_int_equal(phase_of(comms[2]), SHIM_COMM_DEAD);
    assert_non_null(strstr(shim_last_error(), "SHUNT_TIMEOUT_MS"));
    atomic_store(&comms[2]->failed, true); /* the real NCCL's own error takes precedence */
    assert_int_equal(poll_once(comms[2]), ncclSystemError);
    destroy_all(comms, N);
    assert_int_equal(fake.freed, 1);
}

static void finalize(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    init_group(comms, N, fresh_id());
    assert_int_equal(ncclCommFinalize(comms[0]), ncclSuccess);
    assert_int_equal(phase_of(comms[0]), SHIM_COMM_DEAD);
    assert_int_equal(ncclCommFinalize(comms[0]), ncclInvalidArgument);
    destroy_all(comms, N);
    assert_int_equal(fake.pooled, N);
}

/* A non-blocking one is finalized when its calls have ended, Shunt's too. */
static void finalize_without_blocking(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    begin_non_blocking(comms);
    poll_until_ready(comms, N);
    fake.running = true;
    assert_int_equal(poll_once(comms[0]), ncclSuccess); /* calls may run while it lives */
    assert_int_equal(ncclCommFinalize(comms[0]), ncclSuccess);
    assert_int_equal(poll_once(comms[0]), ncclInProgress);
    fake.running = false;
    assert_int_equal(poll_once(comms[0]), ncclSuccess);
    destroy_all(comms, N);
}

/* Children without a setting of their own mix graphs and eager work as their parents do. */
static void graph_mixing_is_inherited(void **state)
{
    (void)state;
    for (int wanted = 0; wanted < 2; wanted++) {
        ncclComm_t comms[N], children[N];
        fake_reset();
        setenv("NCCL_GRAPH_MIXING_SUPPORT", wanted ? "1" : "0", 1);
        init_group(comms, N, fresh_id());
        unsetenv("NCCL_GRAPH_MIXING_SUPPORT");
        copy_all(comms, children);
        for (int i = 0; i < N; i++) {
            assert_int_equal(shim_comm_find(comms[i])->config.graph_mixing, wanted);
            assert_int_equal(shim_comm_find(children[i])->config.graph_mixing, wanted);
        }
        destroy_all(children, N);
        destroy_all(comms, N);
    }
}

/* NCCL refuses to revoke during a finalize: Shunt's kernels, which it waits for, must end normally. */
static void a_refused_revoke_stops_nothing(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    begin_non_blocking(comms);
    poll_until_ready(comms, N);
    fake.running = true;
    assert_int_equal(ncclCommFinalize(comms[0]), ncclSuccess);
    assert_int_equal(ncclCommRevoke(comms[0], 0), ncclInvalidArgument);
    assert_int_equal(alg_scratch_control(shim_comm_find(comms[0])->scratch)->abort, 0);
    assert_int_equal(poll_once(comms[0]), ncclInProgress);
    fake.running = false;
    assert_int_equal(poll_once(comms[0]), ncclSuccess);
    assert_int_equal(ncclCommRevoke(comms[1], 1), ncclInvalidArgument);
    assert_int_equal(phase_of(comms[1]), SHIM_COMM_ATTACHED);
    assert_int_equal(ncclCommRevoke(comms[1], 0), ncclSuccess);
    assert_int_equal(phase_of(comms[1]), SHIM_COMM_DEAD);
    assert_int_equal(ncclCommRevoke(comms[1], 0), ncclInvalidArgument);
    destroy_all(comms, N);
    assert_int_equal(fake.freed, 1);
    assert_int_equal(fake.pooled, N - 1);
}

/* NCCL keeps an order among communicators, for children without the setting too. The field is newer than the nccl.h of
 * the build: it comes seven words after nvlsCTAs. */
static void launch_order_is_forwarded(void **state)
{
    (void)state;
    union {
        ncclConfig_t config;
        int word[64];
    } newer;
    const size_t place = offsetof(ncclConfig_t, nvlsCTAs) / sizeof(int) + 7;
    for (size_t i = 0; i < sizeof(newer.word) / sizeof(int); i++)
        newer.word[i] = NCCL_CONFIG_UNDEF_INT;
    newer.config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    newer.config.size = sizeof(newer);
    for (int wanted = 0; wanted < 2; wanted++) {
        ncclComm_t comms[N], children[N];
        fake_reset();
        newer.word[place] = wanted;
        init_configured(comms, &newer.config);
        expect_phase(comms, N, wanted ? SHIM_COMM_FORWARD : SHIM_COMM_ATTACHED);
        copy_all(comms, children);
        expect_phase(children, N, wanted ? SHIM_COMM_FORWARD : SHIM_COMM_ATTACHED);
        destroy_all(children, N);
        destroy_all(comms, N);
    }
}

int main(void)
{
    setenv("SHUNT_DEBUG", "none", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(group_attaches),
        cmocka_unit_test(threads_attach),
        cmocka_unit_test(links_are_joined),
        cmocka_unit_test(machines_are_told_apart),
        cmocka_unit_test(ipc_refused),
        cmocka_unit_test(no_peer_access),
        cmocka_unit_test(some_peer_access),
        cmocka_unit_test(host_memory_first),
        cmocka_unit_test(host_memory_from_the_pool),
        cmocka_unit_test(peer_level),
        cmocka_unit_test(peer_level_with_bridges),
        cmocka_unit_test(vmm_is_sent),
        cmocka_unit_test(proof_fails),
        cmocka_unit_test(same_gpu),
        cmocka_unit_test(pool_is_used),
        cmocka_unit_test(a_rank_without_shunt),
        cmocka_unit_test(failed_group_leaves_nothing),
        cmocka_unit_test(one_or_too_many),
        cmocka_unit_test(all_at_once),
        cmocka_unit_test(non_blocking),
        cmocka_unit_test(late_polls),
        cmocka_unit_test(grouped_against_single),
        cmocka_unit_test(blocking_beside_polled),
        cmocka_unit_test(abort_while_pending),
        cmocka_unit_test(splits),
        cmocka_unit_test(an_abort_ends_communicators_that_share),
        cmocka_unit_test(a_revoked_communicator_shares_nothing),
        cmocka_unit_test(refused_split_counts_not),
        cmocka_unit_test(split_of_unknown),
        cmocka_unit_test(late_split),
        cmocka_unit_test(refused_destroy_keeps_state),
        cmocka_unit_test(abort_stops_kernels),
        cmocka_unit_test(abort_in_a_drain),
        cmocka_unit_test(aborts_one_after_another),
        cmocka_unit_test(graphs_keep_little),
        cmocka_unit_test(destroy_in_group),
        cmocka_unit_test(kernel_error_is_reported),
        cmocka_unit_test(finalize),
        cmocka_unit_test(finalize_without_blocking),
        cmocka_unit_test(graph_mixing_is_inherited),
        cmocka_unit_test(a_refused_revoke_stops_nothing),
        cmocka_unit_test(launch_order_is_forwarded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
