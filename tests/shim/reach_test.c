/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reach_test.c - set-ups with different links between GPUs: links and machines are combined over the ranks, and all
 * ranks use one kind of memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comms.h"

static void expect_link(int rank, sel_reach_t reach, sel_link_t link)
{
    ncclComm_t comms[N];
    fake.reach[rank] = reach;
    comms_init(comms, N, comms_id());
    for (int r = 0; r < N; r++)
        assert_int_equal(shim_comm_find(comms[r])->plan->topology.link, link);
    comms_destroy(comms, N);
}

static void links_are_joined(void **state)
{
    (void)state;
    fake_reset();
    expect_link(2, (sel_reach_t){.link = SEL_LINK_NVSWITCH, .lanes = 18}, SEL_LINK_NVSWITCH);
    expect_link(2, (sel_reach_t){.link = SEL_LINK_NVSWITCH, .lanes = 17}, SEL_LINK_BRIDGES);
    expect_link(2, (sel_reach_t){.link = SEL_LINK_PHB}, SEL_LINK_BRIDGES);
    expect_link(2, (sel_reach_t){.link = SEL_LINK_CPU}, SEL_LINK_BRIDGES); /* a value that no rank with a GPU reports */
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
        comms_init(comms, N, comms_id());
        machine[i] = shim_comm_find(comms[0])->plan->topology.fingerprint;
        for (int r = 1; r < N; r++)
            assert_true(shim_comm_find(comms[r])->plan->topology.fingerprint == machine[i]);
        comms_destroy(comms, N);
    }
    assert_true(machine[0] != 0 && machine[0] != machine[1] && machine[1] == machine[2]);
}

static void vmm_refused(void **state)
{
    (void)state;
    fake_reset();
    fake.vmm_error[1] = -38;
    comms_try(SHIM_COMM_ATTACHED);
    fake.open_error[3] = -38;
    comms_try(SHIM_COMM_ATTACHED);
    fake.open_error[3] = fake.ipc_error[0] = -38;
    comms_try(SHIM_COMM_FORWARD);
    fake.vmm_error[1] = -12; /* no memory: IPC memory would fail too */
    comms_try(SHIM_COMM_FORWARD);
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
    comms_init(comms, N, comms_id());
    for (int r = 0; r < N; r++) {
        const shim_comm_t *comm = shim_comm_find(comms[r]);
        assert_int_equal(atomic_load(&comm->phase), SHIM_COMM_ATTACHED);
        assert_int_equal(comm->plan->topology.memory, memory);
        assert_int_equal(comm->plan->map.memory, memory);
    }
    comms_destroy(comms, N);
}

/* Without peer access pinned memory is used, but not with NVLink, over which the real NCCL may be faster. */
static void no_peer_access(void **state)
{
    (void)state;
    all_linked_by(SEL_LINK_SYS);
    try_memory(ALG_MEMORY_PEER);
    fake.unreached[1] = true;
    try_memory(ALG_MEMORY_PINNED);
    fake.pinned_error[3] = -38;
    comms_try(SHIM_COMM_FORWARD);
    all_linked_by(SEL_LINK_PCIE);
    fake.open_error[2] = fake.ipc_error[0] = -38;
    try_memory(ALG_MEMORY_PINNED);
    all_linked_by(SEL_LINK_NVSWITCH);
    fake.open_error[2] = fake.ipc_error[0] = -38;
    comms_try(SHIM_COMM_FORWARD);
}

/* If only some GPUs reach each other, by bridges or on one socket, all use pinned memory. */
static void some_peer_access(void **state)
{
    (void)state;
    static const sel_link_t links[] = {SEL_LINK_BRIDGES, SEL_LINK_PHB, SEL_LINK_SYS};
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        for (int lonely = 0; lonely < N; lonely++) {
            all_linked_by(links[i]);
            fake.unreached[lonely] = true;
            try_memory(ALG_MEMORY_PINNED);
        }
    }
    all_linked_by(SEL_LINK_BRIDGES);
    try_memory(ALG_MEMORY_PEER);
    fake.unreached[0] = fake.unreached[1] = true;
    setenv("NCCL_SHM_DISABLE", "1", 1);
    comms_try(SHIM_COMM_FORWARD);
    unsetenv("NCCL_SHM_DISABLE");
}

static void expect_peers(alg_memory_t memory, bool peers)
{
    ncclComm_t comms[N];
    comms_init(comms, N, comms_id());
    for (int r = 0; r < N; r++) {
        assert_int_equal(comms_phase(comms[r]), SHIM_COMM_ATTACHED);
        assert_int_equal(shim_comm_find(comms[r])->plan->topology.memory, memory);
        assert_int_equal(shim_comm_find(comms[r])->plan->topology.peers, peers);
    }
    comms_destroy(comms, N);
}

/* Over PCIe pinned memory may be the first choice; peer access is used if it fails. */
static void pinned_memory_first(void **state)
{
    (void)state;
    all_linked_by(SEL_LINK_SYS);
    fake.prefers_pinned = true;
    expect_peers(ALG_MEMORY_PINNED, true);
    assert_int_equal(fake.created, N); /* nothing else was tried */
    fake.pinned_error[3] = -38;
    expect_peers(ALG_MEMORY_PEER, false);
    fake.vmm_error[1] = -38;
    expect_peers(ALG_MEMORY_PEER, false);
    fake.ipc_error[1] = -38;
    comms_try(SHIM_COMM_FORWARD);

    all_linked_by(SEL_LINK_SYS);
    fake.prefers_pinned = true;
    setenv("NCCL_SHM_DISABLE", "1", 1);
    expect_peers(ALG_MEMORY_PEER, false);
    unsetenv("NCCL_SHM_DISABLE");
    fake.unreached[2] = true; /* then the real NCCL has no peer access either */
    expect_peers(ALG_MEMORY_PINNED, false);
    all_linked_by(SEL_LINK_PCIE);
    fake.open_error[2] = fake.ipc_error[0] = -38; /* Shunt's peer access fails, the real NCCL's may work */
    expect_peers(ALG_MEMORY_PINNED, true);
    all_linked_by(SEL_LINK_NVSWITCH);
    fake.prefers_pinned = true;
    expect_peers(ALG_MEMORY_PEER, false);
}

/* The next communicator of a team that uses pinned memory takes its idle scratch. */
static void pinned_memory_from_the_pool(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        all_linked_by(SEL_LINK_SYS);
        fake.prefers_pinned = first == 1;
        fake.unreached[0] = first == 0;
        fake.idle_in = ALG_MEMORY_PINNED;
        for (int r = 0; r < N; r++)
            fake.idle[r] = 77;
        expect_peers(ALG_MEMORY_PINNED, first == 1);
        assert_int_equal(fake.taken, N);
        assert_int_equal(fake.created, 0);
    }
}

/* NCCL_P2P_LEVEL limits peer access by distance. */
static void peer_level(void **state)
{
    (void)state;
    setenv("NCCL_P2P_LEVEL", "PHB", 1);
    all_linked_by(SEL_LINK_PHB);
    try_memory(ALG_MEMORY_PEER);
    all_linked_by(SEL_LINK_SYS);
    try_memory(ALG_MEMORY_PINNED);
    setenv("NCCL_SHM_DISABLE", "1", 1);
    comms_try(SHIM_COMM_FORWARD);
    unsetenv("NCCL_P2P_LEVEL");
    unsetenv("NCCL_SHM_DISABLE");
}

/* With bridges between some pairs, NCCL_P2P_LEVEL applies to the distance between the others. */
static void peer_level_with_bridges(void **state)
{
    (void)state;
    static const struct {
        const char *level;
        sel_link_t far;
        alg_memory_t memory;
    } cases[] = {{"NVL", SEL_LINK_PCIE, ALG_MEMORY_PINNED}, {"NVL", SEL_LINK_CPU, ALG_MEMORY_PEER},
                 {"NVB", SEL_LINK_PCIE, ALG_MEMORY_PINNED}, {"PXN", SEL_LINK_PHB, ALG_MEMORY_PINNED},
                 {"PHB", SEL_LINK_PHB, ALG_MEMORY_PEER},    {"PHB", SEL_LINK_SYS, ALG_MEMORY_PINNED},
                 {"SYS", SEL_LINK_SYS, ALG_MEMORY_PEER},    {"LOC", SEL_LINK_CPU, ALG_MEMORY_PINNED}};
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
    comms_init(comms, N, comms_id());
    assert_int_equal(fake.sent, N);
    assert_int_equal(fake.freed, N);
    comms_destroy(comms, N);
}

/* IPC memory is not shared with a rank of another pid namespace, as it could never be freed. */
static void other_pid_namespaces(void **state)
{
    (void)state;
    for (int vmm = 0; vmm < 2; vmm++) {
        ncclComm_t comms[N];
        fake_reset();
        setenv("NCCL_CUMEM_ENABLE", vmm ? "1" : "0", 1);
        comms_init_threads(comms, 1);
        comms_expect(comms, N, vmm ? SHIM_COMM_ATTACHED : SHIM_COMM_FORWARD);
        assert_int_equal(fake.created, vmm ? N : 0);
        assert_int_equal(fake.sent, vmm ? N : 0);
        comms_destroy(comms, N);
    }
    unsetenv("NCCL_CUMEM_ENABLE");
}

/* The idle scratch of such a team, which is VMM memory with descriptors sent when it was made, is reused. */
static void other_pid_namespaces_and_the_pool(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    for (int r = 0; r < N; r++)
        fake.idle[r] = 77;
    comms_init_threads(comms, 2);
    comms_expect(comms, N, SHIM_COMM_ATTACHED);
    assert_int_equal(fake.taken, N);
    assert_int_equal(fake.created + fake.sent, 0);
    comms_destroy(comms, N);
}

/* Scratch that no call would use is not allocated, nor kept when idle. */
static void nothing_to_serve(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    fake.serves_nothing = true;
    for (int r = 0; r < N; r++)
        fake.idle[r] = 77;
    comms_init(comms, N, comms_id());
    comms_expect(comms, N, SHIM_COMM_FORWARD);
    assert_int_equal(fake.created + fake.taken, 0);
    assert_int_equal(fake.left_idle, N);
    comms_destroy(comms, N);
}

/* A communicator with an old GPU, for which no memory has kernels, is declined. */
static void old_gpus(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    fake.arch[2] = 75;
    comms_init(comms, N, comms_id());
    comms_expect(comms, N, SHIM_COMM_FORWARD);
    assert_int_equal(fake.created, 0);
    comms_destroy(comms, N);
    fake.arch[2] = 80;
    comms_try(SHIM_COMM_ATTACHED);
}

static void proof_fails(void **state)
{
    (void)state;
    fake_reset();
    fake.proof_error[2] = -5;
    comms_try(SHIM_COMM_FORWARD);
}

int main(void)
{
    setenv("SHUNT_DEBUG", "none", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_are_joined),
        cmocka_unit_test(machines_are_told_apart),
        cmocka_unit_test(vmm_refused),
        cmocka_unit_test(no_peer_access),
        cmocka_unit_test(some_peer_access),
        cmocka_unit_test(pinned_memory_first),
        cmocka_unit_test(pinned_memory_from_the_pool),
        cmocka_unit_test(peer_level),
        cmocka_unit_test(peer_level_with_bridges),
        cmocka_unit_test(vmm_is_sent),
        cmocka_unit_test(other_pid_namespaces),
        cmocka_unit_test(other_pid_namespaces_and_the_pool),
        cmocka_unit_test(nothing_to_serve),
        cmocka_unit_test(old_gpus),
        cmocka_unit_test(proof_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
