/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parked_test.c - device memory that peers have mapped by IPC is not freed before
 * they release it or die, only a reap frees or unmaps, and nothing is freed that a
 * reset of the device has taken. The fake CUDA is made of memory that the
 * processes of this test share, and detects a free that comes too early, or of
 * what is not there.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "algorithms/scratch_device.h"
#include "team.h"
#include "transport/cuda_driver.h"
#include "transport/memory.h"

enum { BLOCKS = 64, BLOCK_BYTES = 2 << 20, SCRATCH_BYTES = 1 << 20 };

/* Shared by all processes of the test. */
typedef struct gpu {
    atomic_int next, frees, unmaps, torn; /* torn: freed while a living process had it mapped, or not there */
    atomic_int owner[BLOCKS];             /* pid of the process that allocated it; 0: freed */
    unsigned long long number[BLOCKS];    /* of the allocation, in that process */
    atomic_int mapped[BLOCKS];            /* pid of the process that mapped it */
    atomic_bool alive[BLOCKS];
    atomic_int go; /* children wait for it */
} gpu_t;

static gpu_t *gpu;
static uint8_t *memory; /* BLOCKS of them */
static bool refuses;    /* the driver does not allow frees now */
static bool refuses_ipc;
static void *controls[BLOCKS]; /* a reset frees them, so that a use after it is found */

static size_t block_of(const void *pointer)
{
    return (size_t)((const uint8_t *)pointer - memory) / BLOCK_BYTES;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    int block = atomic_fetch_add(&gpu->next, 1);
    if (block >= BLOCKS || bytes > BLOCK_BYTES)
        return cudaErrorMemoryAllocation;
    static unsigned long long allocations;
    gpu->number[block] = ++allocations;
    atomic_store(&gpu->owner[block], getpid());
    atomic_store(&gpu->alive[block], true);
    *pointer = memory + (size_t)block * BLOCK_BYTES;
    return cudaSuccess;
}

cudaError_t cudaFree(void *pointer)
{
    if (refuses)
        return cudaErrorNotPermitted;
    size_t block = block_of(pointer);
    pid_t guest = atomic_load(&gpu->mapped[block]);
    atomic_fetch_add(&gpu->torn, (guest != 0 && kill(guest, 0) == 0) || !atomic_load(&gpu->alive[block]));
    atomic_store(&gpu->owner[block], 0);
    atomic_store(&gpu->alive[block], false);
    atomic_fetch_add(&gpu->frees, 1);
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *pointer)
{
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &pointer, sizeof pointer);
    return refuses_ipc ? cudaErrorNotPermitted : cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **pointer, cudaIpcMemHandle_t handle, unsigned flags)
{
    (void)flags;
    memcpy(pointer, &handle, sizeof *pointer);
    atomic_fetch_add(&gpu->torn, !atomic_load(&gpu->alive[block_of(*pointer)]));
    atomic_store(&gpu->mapped[block_of(*pointer)], getpid());
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *pointer)
{
    const pid_t guest = atomic_exchange(&gpu->mapped[block_of(pointer)], 0);
    atomic_fetch_add(&gpu->torn, guest != getpid());
    atomic_fetch_add(&gpu->unmaps, 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int device, unsigned flags)
{
    (void)device, (void)flags;
    return cudaSuccess;
}

static int pins; /* pinned memory that is registered */

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    (void)pointer, (void)bytes, (void)flags;
    pins++;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer)
{
    (void)pointer;
    pins--;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)attribute, (void)device;
    *value = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *bus, int size, int device)
{
    (void)bus, (void)size, (void)device;
    return cudaErrorInvalidValue;
}

/* Free and unmap all device memory of this process. */
static void reset_device(void)
{
    for (int block = 0; block < BLOCKS; block++) {
        pid_t self = getpid();
        atomic_compare_exchange_strong(&gpu->mapped[block], &self, 0);
        self = getpid();
        if (atomic_compare_exchange_strong(&gpu->owner[block], &self, 0))
            atomic_store(&gpu->alive[block], false);
        free(controls[block]);
        controls[block] = NULL;
    }
}

static CUresult pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr at)
{
    const size_t block = block_of((const void *)(uintptr_t)at);
    if (attribute != CU_POINTER_ATTRIBUTE_BUFFER_ID || atomic_load(&gpu->owner[block]) != getpid())
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(data, &gpu->number[block], sizeof gpu->number[block]);
    return CUDA_SUCCESS;
}

static bool no_context; /* the device was reset, and not used since */

static CUresult primary_state(CUdevice device, unsigned *flags, int *active)
{
    (void)device, (void)flags;
    *active = !no_context;
    return CUDA_SUCCESS;
}

const net_driver_t *net_driver(void)
{
    static const net_driver_t driver = {.pointer_attribute = pointer_attribute, .primary_state = primary_state};
    return &driver;
}

/* ---- The rest of the driver --------------------------------------------------------- */

static int refuse_vmm(net_memory_t *block, net_offer_t *offer)
{
    (void)block, (void)offer;
    return -ENOSYS;
}

const net_memory_ops_t net_memory_vmm = {.create = refuse_vmm};

static int control_create(int ordinal, alg_control_t **host, alg_control_t **device)
{
    (void)ordinal;
    *host = *device = aligned_alloc(64, (sizeof(alg_control_t) + 63) / 64 * 64);
    size_t place = 0;
    while (place < BLOCKS && controls[place])
        place++;
    if (!*host || place == BLOCKS)
        return -ENOMEM;
    controls[place] = *host;
    memset(*host, 0, sizeof **host);
    return 0;
}

static void control_destroy(int ordinal, alg_control_t *host)
{
    (void)ordinal;
    for (size_t place = 0; place < BLOCKS; place++)
        if (controls[place] == host)
            controls[place] = NULL;
    free(host);
}

static int arm(const alg_scratch_t *scratch)
{
    (void)scratch;
    return 0;
}

static int store(const alg_scratch_t *scratch, const alg_probe_t *probe)
{
    for (uint32_t peer = 0; peer < scratch->nranks; peer++)
        if (probe->target[peer])
            __atomic_store_n(probe->target[peer], probe->word[peer], __ATOMIC_RELEASE);
    return 0;
}

static int collect(const alg_scratch_t *scratch, uint64_t words[ALG_MAX_RANKS])
{
    memcpy(words, scratch->team.scratch[scratch->rank] + ALG_MAILBOX_OFFSET, 8 * ALG_MAX_RANKS);
    return 0;
}

const alg_scratch_ops_t alg_scratch_cuda = {.control_create = control_create,
                                            .control_destroy = control_destroy,
                                            .arm = arm,
                                            .store = store,
                                            .collect = collect};

/* ---- Tests -------------------------------------------------------------------------- */

static int reset(void **state)
{
    (void)state;
    memset(gpu, 0, sizeof *gpu);
    refuses = refuses_ipc = false;
    return 0;
}

/* Ranks that cannot open each other's /proc/<pid>/fd send descriptors of pinned memory, too. */
static void pinned_is_sent(void **state)
{
    net_memory_t a = {.kind = NET_MEMORY_PINNED_SENT, .bytes = BLOCK_BYTES, .token = {{1, 1}}}, b = a;
    net_offer_t offer_a = {.bytes = BLOCK_BYTES, .token = {{1, 1}}}, offer_b = offer_a;
    net_mapping_t mapping = {.kind = NET_MEMORY_PINNED_SENT, .bytes = BLOCK_BYTES};
    (void)state;
    b.token.word[0] = offer_b.token.word[0] = 2;
    assert_int_equal(net_memory_pinned.create(&a, &offer_a), 0);
    assert_int_equal(net_memory_pinned.create(&b, &offer_b), 0);
    offer_a.owner.pid = INT32_MAX; /* no such /proc/<pid> */
    assert_int_equal(net_memory_pinned.send(&a, &offer_b), 0);
    assert_int_equal(net_memory_pinned.open(&b, &offer_a, &mapping), 0);
    assert_int_equal(pins, 3);
    strcpy(a.pointer, "seen");
    assert_string_equal(mapping.pointer, "seen");
    net_memory_pinned.close(&mapping);
    assert_int_equal(net_memory_pinned.destroy(&a), 0);
    assert_int_equal(net_memory_pinned.destroy(&b), 0);
    assert_int_equal(pins, 0);
}

static void wait_for(atomic_int *word, int value)
{
    while (atomic_load(word) < value)
        usleep(100);
}

static team_plan_t new_plan(void)
{
    team_plan_t plan = {
        .key = random_key(), .device = ALG_DEVICE_CUDA, .kind = NET_MEMORY_CUDA_IPC, .devices = ALG_MAX_RANKS};
    if (!alg_map_init(&plan.map, SCRATCH_BYTES))
        abort();
    plan.id = plan.key.word[0] | 1;
    return plan;
}

/* To ask whether a device was reset does not bring back its context. */
static void a_reset_device_is_left_alone(void **state)
{
    (void)state;
    const uint64_t life = net_device_life(0);
    assert_true(life != 0);
    assert_false(net_device_lost(0, life));
    reset_device();
    no_context = true;
    const int allocations = atomic_load(&gpu->next);
    assert_true(net_device_lost(0, life));
    assert_int_equal(atomic_load(&gpu->next), allocations);
    no_context = false;
    assert_true(net_device_lost(0, life));
    assert_false(net_device_lost(0, net_device_life(0)));
}

/* The peer's part: build, wait for the word, release, wait, reap. */
static int peer(uint32_t rank, uint32_t nranks, void *argument)
{
    alg_scratch_t *scratch;
    bool reused;
    CHECK(team_build(argument, rank, nranks, &scratch, &reused) == 0);
    wait_for(&gpu->go, 1);
    alg_scratch_release(scratch, false);
    alg_scratch_reap();
    atomic_store(&gpu->go, 2);
    wait_for(&gpu->go, 3);
    alg_scratch_reap();
    return 0;
}

static int peer_that_dies(uint32_t rank, uint32_t nranks, void *argument)
{
    alg_scratch_t *scratch;
    bool reused;
    CHECK(team_build(argument, rank, nranks, &scratch, &reused) == 0);
    wait_for(&gpu->go, 1);
    return 0;
}

static void freed_when_the_peer_releases(void **state)
{
    (void)state;
    team_plan_t plan = new_plan();
    alg_scratch_t *scratch;
    bool reused;
    int descriptors = open_descriptors();
    pid_t child = start_child(peer, 1, 2, &plan);
    assert_int_equal(team_build(&plan, 0, 2, &scratch, &reused), 0);
    alg_scratch_release(scratch, false);
    assert_int_equal(alg_scratch_retired(), 1);
    assert_int_equal(gpu->unmaps, 0); /* unmapping may wait for kernels, like freeing */
    alg_scratch_reap();
    assert_int_equal(alg_scratch_retired(), 0);
    assert_int_equal(gpu->unmaps, 1);
    assert_int_equal(gpu->frees, 0);
    atomic_store(&gpu->go, 1);
    wait_for(&gpu->go, 2);
    assert_int_equal(gpu->frees, 1); /* the peer's own, which this rank had released */
    alg_scratch_reap();
    assert_int_equal(gpu->frees, 2);
    atomic_store(&gpu->go, 3);
    assert_true(wait_child(child));
    assert_int_equal(gpu->torn, 0);
    assert_int_equal(open_descriptors(), descriptors);
}

static void freed_when_the_peer_is_dead(void **state)
{
    (void)state;
    team_plan_t plan = new_plan();
    alg_scratch_t *scratch;
    bool reused;
    pid_t child = start_child(peer_that_dies, 1, 2, &plan);
    assert_int_equal(team_build(&plan, 0, 2, &scratch, &reused), 0);
    alg_scratch_release(scratch, false);
    alg_scratch_reap();
    assert_int_equal(gpu->frees, 0);
    atomic_store(&gpu->go, 1);
    assert_true(wait_child(child));
    alg_scratch_reap();
    assert_int_equal(gpu->frees, 1);
    assert_int_equal(gpu->torn, 0);
}

static int peer_that_pools(uint32_t rank, uint32_t nranks, void *argument)
{
    alg_scratch_t *scratch;
    bool reused;
    CHECK(team_build(argument, rank, nranks, &scratch, &reused) == 0);
    alg_scratch_release(scratch, true);
    CHECK(alg_scratch_retired() == 0);
    atomic_store(&gpu->go, 1);
    wait_for(&gpu->go, 2);
    alg_pool_sweep();
    CHECK(alg_scratch_retired() == 1);
    alg_scratch_reap();
    return 0;
}

/* A pooled scratch is not usable any more if it ended well on one rank and badly on another. */
static void pooled_by_the_peer(void **state)
{
    (void)state;
    team_plan_t plan = new_plan();
    alg_scratch_t *scratch;
    bool reused;
    pid_t child = start_child(peer_that_pools, 1, 2, &plan);
    assert_int_equal(team_build(&plan, 0, 2, &scratch, &reused), 0);
    wait_for(&gpu->go, 1);
    alg_scratch_release(scratch, false);
    alg_scratch_reap();
    assert_int_equal(gpu->frees, 0);
    atomic_store(&gpu->go, 2);
    assert_true(wait_child(child));
    alg_scratch_reap();
    assert_int_equal(gpu->frees, 2);
    assert_int_equal(gpu->torn, 0);
}

/* After a reset no idle, retired or parked memory is offered, armed, freed or unmapped, since its addresses may be the
 * program's by then. Peers are told, and resources outside CUDA are released. */
static void a_reset_takes_everything(void **state)
{
    (void)state;
    team_plan_t plan = new_plan(), alone = new_plan();
    alg_scratch_t *pooled, *retired;
    bool reused;
    const int descriptors = open_descriptors();
    pid_t child = start_child(peer_that_pools, 1, 2, &plan);
    assert_int_equal(team_build(&plan, 0, 2, &pooled, &reused), 0);
    assert_int_equal(team_build(&alone, 0, 1, &retired, &reused), 0);
    wait_for(&gpu->go, 1);
    alg_scratch_release(pooled, true);
    alg_scratch_release(retired, false);
    reset_device();
    assert_int_equal(alg_scratch_idle(&plan.set, 0, &plan.map), 0);
    alg_scratch_reap();
    atomic_store(&gpu->go, 2);
    assert_true(wait_child(child));
    assert_int_equal(gpu->unmaps, 1); /* the child's */
    assert_int_equal(gpu->frees, 1);
    alg_scratch_reap();
    assert_int_equal(gpu->frees, 1);
    assert_int_equal(open_descriptors(), descriptors);
    assert_int_equal(team_build(&alone, 0, 1, &retired, &reused), 0);
    assert_false(reused);
    alg_scratch_release(retired, false);
    alg_scratch_reap();
    assert_int_equal(gpu->frees, 2);
    assert_int_equal(gpu->torn, 0);
}

/* Ranks of one process, as threads or in one thread, each release at a different time. */
static void ranks_of_one_process_release_too(void **state)
{
    (void)state;
    team_plan_t plan = new_plan();
    alg_scratch_t *scratch[2];
    uint8_t offers[ALG_MAX_RANKS][NET_OFFER_BYTES];
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(alg_scratch_create(plan.device, (int)rank, plan.kind, &plan.set, plan.id, rank, 2, &plan.map,
                                            &scratch[rank], offers[rank]),
                         0);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(alg_scratch_open(scratch[rank], offers), 0);
    alg_scratch_release(scratch[0], false);
    alg_scratch_reap();
    assert_int_equal(gpu->frees, 0);
    alg_scratch_release(scratch[1], false);
    assert_int_equal(gpu->frees, 0);
    alg_scratch_reap();
    assert_int_equal(gpu->frees, 2);
}

/* Memory that is not part of a scratch, such as a relay's, waits for a reap, too, though it is released while the
 * communicator's scratch goes to the pool. */
static void memory_that_is_no_scratch(void **state)
{
    (void)state;
    enum { MANY = 6 };
    uint8_t offer[NET_OFFER_BYTES];
    for (uint32_t i = 0; i < MANY; i++) {
        net_memory_t *block;
        assert_int_equal(net_memory_create(NET_MEMORY_CUDA_IPC, 0, 4096, &block, offer), 0);
        net_memory_destroy(block);
        assert_int_equal(alg_scratch_retired(), i + 1);
    }
    alg_scratch_reap();
    assert_int_equal(gpu->frees, MANY);
    assert_int_equal(alg_scratch_retired(), 0);
}

/* A rank of another pid namespace, which could not report its release, is refused, and the memory does not wait for
 * it. */
static void not_shared_with_another_pid_namespace(void **state)
{
    (void)state;
    net_memory_t *own, *other;
    net_mapping_t *mapping;
    uint8_t mine[NET_OFFER_BYTES];
    net_offer_t theirs;
    assert_int_equal(net_memory_create(NET_MEMORY_CUDA_IPC, 0, 4096, &own, mine), 0);
    assert_int_equal(net_memory_create(NET_MEMORY_CUDA_IPC, 0, 4096, &other, (uint8_t *)&theirs), 0);
    theirs.owner.pid_namespace++;
    assert_int_equal(net_memory_open(own, 0, (const uint8_t *)&theirs, &mapping), -ENOSYS);
    net_memory_destroy(own);
    net_memory_destroy(other);
    net_memory_reap();
    assert_int_equal(gpu->frees, 2);
}

/* Memory that cannot be shared waits for a reap, too: a free may wait for a kernel while the peers wait for this
 * rank. */
static void unshared_memory_is_parked(void **state)
{
    (void)state;
    net_memory_t *block;
    uint8_t offer[NET_OFFER_BYTES];
    const int descriptors = open_descriptors();
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    const struct rlimit none = {0, files.rlim_max};
    refuses_ipc = true;
    assert_int_equal(net_memory_create(NET_MEMORY_CUDA_IPC, 0, 4096, &block, offer), -ENOSYS);
    refuses_ipc = false;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(net_memory_create(NET_MEMORY_CUDA_IPC, 0, 4096, &block, offer), -EMFILE);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_int_equal(gpu->frees, 0);
    net_memory_reap();
    assert_int_equal(gpu->frees, 2);
    assert_int_equal(open_descriptors(), descriptors);
}

typedef struct offered {
    uint8_t offer[NET_OFFER_BYTES];
    int expected;
} offered_t;

static int open_it(uint32_t rank, uint32_t nranks, void *argument)
{
    const offered_t *offered = argument;
    uint8_t offer[NET_OFFER_BYTES];
    net_memory_t *own;
    net_mapping_t *mapping;
    (void)rank, (void)nranks;
    CHECK(net_memory_create(NET_MEMORY_CUDA_IPC, 0, 4096, &own, offer) == 0);
    CHECK(net_memory_open(own, 0, offered->offer, &mapping) == offered->expected);
    if (offered->expected == 0)
        net_mapping_close(mapping);
    net_memory_destroy(own);
    net_memory_reap();
    return 0;
}

/* A guest is refused after the owner has begun to free. */
static void a_late_guest_is_turned_away(void **state)
{
    (void)state;
    net_memory_t *block;
    offered_t offered = {.expected = 0};
    assert_int_equal(net_memory_create(NET_MEMORY_CUDA_IPC, 0, 4096, &block, offered.offer), 0);
    assert_true(wait_child(start_child(open_it, 1, 2, &offered)));
    refuses = true;
    net_memory_destroy(block);
    net_memory_reap();
    assert_int_equal(atomic_load(&gpu->frees), 1); /* the child's */
    offered.expected = -ESRCH;
    refuses = false; /* not yet tried again */
    assert_true(wait_child(start_child(open_it, 1, 2, &offered)));
    net_memory_reap();
    assert_int_equal(gpu->torn, 0);
    assert_int_equal(gpu->frees, 3);
    assert_true(wait_child(start_child(open_it, 1, 2, &offered))); /* the book is gone with the memory */
}

/* Seats are reused: more guests than seats, one after another, some of which die, are accepted. */
static void seats_are_left(void **state)
{
    (void)state;
    net_memory_t *block;
    offered_t offered = {.expected = 0};
    assert_int_equal(net_memory_create(NET_MEMORY_CUDA_IPC, 0, 4096, &block, offered.offer), 0);
    for (int i = 0; i < 20; i++)
        assert_true(wait_child(start_child(open_it, 1, 2, &offered)));
    net_memory_destroy(block);
    net_memory_reap();
    assert_int_equal(gpu->frees, 21);
}

static int forget(uint32_t rank, uint32_t nranks, void *argument)
{
    (void)rank, (void)nranks;
    alg_scratch_release(argument, false);
    alg_scratch_reap();
    CHECK(atomic_load(&gpu->frees) == 0 && atomic_load(&gpu->unmaps) == 0);
    return 0;
}

/* A forked child frees nothing, since the inherited memory belongs to its parent's driver. */
static void a_child_frees_nothing(void **state)
{
    (void)state;
    team_plan_t plan = new_plan();
    alg_scratch_t *scratch[2];
    bool reused;
    for (int i = 0; i < 2; i++) {
        plan.key.word[0]++;
        assert_int_equal(team_build(&plan, 0, 1, &scratch[i], &reused), 0);
    }
    alg_scratch_release(scratch[0], false);
    assert_true(wait_child(start_child(forget, 0, 1, scratch[1])));
    alg_scratch_release(scratch[1], false);
    alg_scratch_reap();
    assert_int_equal(gpu->frees, 2);
}

int main(void)
{
    gpu = mmap(NULL, sizeof *gpu, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memory = mmap(NULL, (size_t)BLOCKS * BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (gpu == MAP_FAILED || memory == MAP_FAILED)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(freed_when_the_peer_releases, reset),
        cmocka_unit_test_setup(freed_when_the_peer_is_dead, reset),
        cmocka_unit_test_setup(pooled_by_the_peer, reset),
        cmocka_unit_test_setup(a_reset_takes_everything, reset),
        cmocka_unit_test_setup(ranks_of_one_process_release_too, reset),
        cmocka_unit_test_setup(memory_that_is_no_scratch, reset),
        cmocka_unit_test_setup(not_shared_with_another_pid_namespace, reset),
        cmocka_unit_test_setup(pinned_is_sent, reset),
        cmocka_unit_test_setup(unshared_memory_is_parked, reset),
        cmocka_unit_test_setup(a_late_guest_is_turned_away, reset),
        cmocka_unit_test_setup(seats_are_left, reset),
        cmocka_unit_test_setup(a_child_frees_nothing, reset),
        cmocka_unit_test_setup(a_reset_device_is_left_alone, reset),
    };
    return cmocka_run_group_tests_name("parked", tests, NULL, NULL);
}
