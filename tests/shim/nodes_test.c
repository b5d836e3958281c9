/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodes_test.c - set-up of communicators whose ranks, on fake GPUs, are on several nodes: which attach and how, and
 * that all ranks decline if one cannot attach. Each rank is a process, and another one has the listener: the test's
 * process stays without threads, as the thread sanitizer supports none in children of a process with threads.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake.h"
#include "shim/comm/comm.h"
#include "shim/names/names.h"
#include "shim/nodes/nodes.h"
#include "shim/setup/attach.h"
#include "tests/support/fake_relay.h"

typedef struct trial {
    int nranks, per_node;
    void (*fault)(int rank);
    bool attaches;
    uint32_t nodes, team;
    bool missed; /* ranks of other nodes did not come, or could not be connected to */
} trial_t;

enum { REMEMBERS = 2 }; /* exit status of a rank that meets no other node again; 1: a failed check */

/* From a process that lives until it is killed. */
static ncclUniqueId fresh_id(pid_t *maker)
{
    static int number;
    ncclUniqueId id;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    number++;
    *maker = fork();
    if (*maker == 0) {
        setenv("NCCL_NET", "Socket", 1);
        memset(&id, 0, sizeof(id));
        snprintf(id.internal, 32, "nodes %d %d", (int)getppid(), number);
        shim_nodes_invite(&id);
        if (write(ends[1], &id, sizeof(id)) == (ssize_t)sizeof(id))
            pause();
        _exit(1);
    }
    assert_int_equal(read(ends[0], &id, sizeof(id)), sizeof(id));
    close(ends[0]);
    close(ends[1]);
    return id;
}

/* 0, or the line of the failed check. */
#define EXPECT(what)         \
    do {                     \
        if (!(what))         \
            return __LINE__; \
    } while (0)

static bool is_alone(void)
{
    shim_why_t why;
    return shim_nodes_refuses(&why) && why.reason == SEL_FORWARD_NODES_ALONE;
}

static int check(const trial_t *trial, ncclComm_t comm, int rank)
{
    shim_comm_t *state = shim_comm_find(comm);
    EXPECT(state != NULL);
    shim_attach_settle(state); /* as its first call: on a busy machine an init does not wait that long */
    EXPECT(atomic_load(&state->phase) == (trial->attaches ? SHIM_COMM_ATTACHED : SHIM_COMM_FORWARD));
    EXPECT(trial->missed || !is_alone());
    EXPECT(state->rank == (uint32_t)rank && state->nranks == (uint32_t)trial->nranks);
    if (!trial->attaches)
        return 0;
    const sel_topology_t *topology = &state->plan->topology;
    const alg_team_t *team = alg_scratch_team(state->scratch);
    char class[SEL_CLASS_BYTES], expected[SEL_CLASS_BYTES];
    sel_topology_class(topology, class);
    snprintf(expected, sizeof(expected), "network-sm90-%ux%u", trial->nodes, trial->team);
    EXPECT(strcmp(class, expected) == 0);
    EXPECT(topology->nranks == (uint32_t)trial->nranks && state->nodes != NULL);
    EXPECT(team->nodes == trial->nodes && team->node == (uint32_t)rank / trial->team);
    EXPECT(state->all_block);
    return 0;
}

static int rank_main(const trial_t *trial, const ncclUniqueId *id, int rank)
{
    ncclComm_t comm;
    char name[16];
    snprintf(name, sizeof(name), "node%d", rank / trial->per_node);
    setenv("NCCL_HOSTID", name, 1);
    setenv("NCCL_NET", "Socket", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("SHUNT_ALGO", "allreduce:exchange",
           1); /* more than two ranks meet if the user wants an algorithm for them */
    fake_reset();
    if (trial->fault)
        trial->fault(rank);
    fake_depth = 1;
    EXPECT(ncclCommInitRank(&comm, trial->nranks, *id, rank) == ncclSuccess);
    fake_depth = 0;
    EXPECT(shim_attach_after_group(ncclSuccess) == ncclSuccess);
    const int line = check(trial, comm, rank);
    EXPECT(ncclCommDestroy(comm) == ncclSuccess);
    return line;
}

static void run(trial_t trial)
{
    pid_t maker, rank[NET_NETWORK_RANKS];
    const ncclUniqueId id = fresh_id(&maker);
    int wrong = 0;
    for (int r = 0; r < trial.nranks; r++) {
        rank[r] = fork();
        if (rank[r] == 0) {
            const int line = rank_main(&trial, &id, r);
            if (line)
                fprintf(stderr, "rank %d: line %d\n", r, line);
            _exit(line ? 1 : is_alone() ? REMEMBERS : 0);
        }
    }
    bool remembered[NET_NETWORK_RANKS] = {false};
    for (int r = 0; r < trial.nranks; r++) {
        int status = 0;
        waitpid(rank[r], &status, 0);
        const bool remembers = WIFEXITED(status) && WEXITSTATUS(status) == REMEMBERS;
        wrong += status != 0 && !remembers;
        remembered[r / trial.per_node] |= remembers;
    }
    /* One rank of each node is enough: it declines at once the next time, and its node's ranks with it. The others may
     * have heard its verdict before their own meeting was over. */
    for (int node = 0; node * trial.per_node < trial.nranks; node++)
        wrong += remembered[node] != trial.missed;
    kill(maker, SIGKILL);
    waitpid(maker, NULL, 0);
    assert_int_equal(wrong, 0);
}

static void nodes_attach(void **state)
{
    (void)state;
    run((trial_t){2, 1, NULL, true, 2, 1, false});
    run((trial_t){4, 2, NULL, true, 2, 2, false});
    run((trial_t){16, 8, NULL, true, 2, 8, false});
    /* Not as many on each: every rank is a node of its own. */
    run((trial_t){3, 2, NULL, true, 3, 1, false});
}

static void proof_fails_on_one(int rank)
{
    fake.proof_error[0] = rank == 2 ? -5 : 0;
}

static void other_settings(int rank)
{
    if (rank >= 2)
        setenv("SHUNT_SCRATCH_BYTES", "4M", 1);
}

static void other_gpus(int rank)
{
    for (int i = 0; i < FAKE_RANKS; i++)
        fake.kind[i] = rank < 2 ? 7 : 8;
}

static void dies(int rank)
{
    if (rank == 3)
        _exit(0);
}

/* A firewall that drops what goes one way (--wrap). */
static bool unheard;

int __real_net_network_connect(net_network_t *network, const net_invitation_t *invitation, const net_key_t *group,
                               uint32_t rank, uint32_t nranks, const net_address_t *addresses,
                               const net_landing_t *landing, const net_limit_t *limit);
int __wrap_net_network_connect(net_network_t *network, const net_invitation_t *invitation, const net_key_t *group,
                               uint32_t rank, uint32_t nranks, const net_address_t *addresses,
                               const net_landing_t *landing, const net_limit_t *limit);

int __wrap_net_network_connect(net_network_t *network, const net_invitation_t *invitation, const net_key_t *group,
                               uint32_t rank, uint32_t nranks, const net_address_t *addresses,
                               const net_landing_t *landing, const net_limit_t *limit)
{
    return unheard ? -ETIMEDOUT
                   : __real_net_network_connect(network, invitation, group, rank, nranks, addresses, landing, limit);
}

static void all_unheard(int rank)
{
    (void)rank;
    unheard = true;
}

static void one_unheard(int rank)
{
    unheard = rank == 1;
}

static void no_proxy(int rank)
{
    fake_relay_error = rank == 1 ? -EAGAIN : 0;
}

static void no_algorithm(int rank)
{
    (void)rank;
    unsetenv("SHUNT_ALGO");
}

static void some_decline(void **state)
{
    (void)state;
    run((trial_t){4, 2, proof_fails_on_one, false, 0, 0, false});
    run((trial_t){4, 2, other_settings, false, 0, 0, false});
    run((trial_t){4, 2, other_gpus, false, 0, 0, false});
    run((trial_t){4, 2, no_proxy, false, 0, 0, false});
    run((trial_t){4, 2, no_algorithm, false, 0, 0, false});
    run((trial_t){2, 1, no_algorithm, true, 2, 1, false});
    /* Or does not run Shunt: the meeting has its limit, and the process waits for no other one. */
    run((trial_t){.nranks = 4, .per_node = 2, .fault = dies, .missed = true});
    run((trial_t){.nranks = 4, .per_node = 2, .fault = all_unheard, .missed = true});
    run((trial_t){.nranks = 2, .per_node = 1, .fault = one_unheard, .missed = true});
}

/* ---- What NCCL reaches the others by ------------------------------------------------ */

static void by_rdma(int rank)
{
    no_algorithm(rank);
    setenv("NCCL_NET", "IB", 1);
}

static void by_rdma_as_asked(int rank)
{
    (void)rank;
    setenv("NCCL_NET", "IB", 1);
}

static void by_rdma_without_exchange(int rank)
{
    (void)rank;
    setenv("NCCL_NET", "IB", 1);
    setenv("SHUNT_ALGO", "^exchange", 1);
}

static void by_a_plugin(int rank)
{
    no_algorithm(rank);
    unsetenv("NCCL_NET");
    setenv("NCCL_IB_DISABLE", "1", 1);
    setenv("NCCL_NET_PLUGIN", "other", 1);
}

static void without_rdma(int rank)
{
    (void)rank;
    unsetenv("NCCL_NET");
    setenv("NCCL_IB_DISABLE", "1", 1);
}

/* Make the program require encrypted connections, so that all ranks decline. */
static void encrypted(int rank)
{
    static const char config[64];
    without_rdma(rank);
    assert_int_equal(ncclSetEncryption((const void *)config), ncclSuccess);
}

/* NCCL refuses, so nothing changes. */
static void not_encrypted(int rank)
{
    without_rdma(rank);
    assert_int_equal(ncclSetEncryption(NULL), ncclInvalidArgument);
}

static void networks(void **state)
{
    (void)state;
    run((trial_t){2, 1, by_rdma, false, 0, 0, false});
    run((trial_t){2, 1, by_rdma_as_asked, true, 2, 1, false});
    run((trial_t){2, 1, by_rdma_without_exchange, false, 0, 0, false});
    run((trial_t){2, 1, by_a_plugin, false, 0, 0, false});
    run((trial_t){2, 1, without_rdma, true, 2, 1, false});
    run((trial_t){2, 1, not_encrypted, true, 2, 1, false});
    run((trial_t){2, 1, encrypted, false, 0, 0, false});
}

/* An id contains an invitation if ranks may meet, but not an id that every rank makes itself, which must be equal. */
static void comm_id(void **state)
{
    (void)state;
    ncclUniqueId id;
    fake_reset();
    setenv("NCCL_NET", "IB", 1);
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    assert_false(shim_nodes_invitation(&id, 1).given);
    setenv("NCCL_NET", "Socket", 1);
    setenv("NCCL_COMM_ID", "192.0.2.1:4000", 1);
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    assert_false(shim_nodes_invitation(&id, 1).given);
    unsetenv("NCCL_COMM_ID");
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    assert_true(shim_nodes_invitation(&id, 1).given);
    for (int i = 0; i < 48; i++)
        assert_int_equal(id.internal[i], 0x5a);
}

int main(void)
{
    setenv("SHUNT_DEBUG", "none", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_attach),
        cmocka_unit_test(some_decline),
        cmocka_unit_test(networks),
        cmocka_unit_test(comm_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
