/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_test.c - memory shared with peers, and that damaged or hostile offers do no harm.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

#include "children.h"
#include "tests/support/skips.h"
#include "transport/memory.h"
#include "transport/numa.h"
#include "transport/reserve.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum { ANOTHER_USER = 54321, BYTES = 1 << 20, PATTERN = 0x5c };

typedef uint8_t offer_t[NET_OFFER_BYTES];

/* ---- Processes ---------------------------------------------------------------------- */

static void test_processes(void **state)
{
    (void)state;
    net_process_t self = net_process_self();
    assert_int_equal(self.pid, getpid());
    assert_true(net_process_alive(&self));
    net_process_t other = self;
    other.start_ticks++; /* the pid was reused */
    assert_false(net_process_alive(&other));
    other.pid = 0;
    assert_false(net_process_alive(&other));
    other.pid = INT64_C(1) << 40;
    assert_false(net_process_alive(&other));
    other.pid_namespace++;
    assert_true(net_process_alive(&other));
}

/* Before Linux 6.11 a signal undoes an allocation of shared memory: under a profiler's timer it would never end. */
static sigset_t g_allocating;

int posix_fallocate(int fd, off_t from, off_t bytes)
{
    pthread_sigmask(SIG_SETMASK, NULL, &g_allocating);
    return fallocate(fd, 0, from, bytes) == 0 ? 0 : errno;
}

static void test_signals_wait_for_an_allocation(void **state)
{
    (void)state;
    sigset_t now;
    const int fd = memfd_create("reserve", MFD_CLOEXEC);
    assert_int_equal(net_reserve(fd, BYTES), 0);
    assert_true(sigismember(&g_allocating, SIGPROF) && sigismember(&g_allocating, SIGALRM));
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    assert_false(sigismember(&now, SIGPROF) || sigismember(&now, SIGALRM));
    close(fd);
}

static void put_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, text, strlen(text)) > 0)
        close(fd);
}

/* In a separate time namespace: publish this process's identity, and check that its parent is seen as living. */
static int tell_self(uint32_t rank, uint32_t nranks, void *argument)
{
    const int *ends = argument;
    const net_process_t self = net_process_self();
    net_process_t parent;
    (void)rank, (void)nranks;
    CHECK(read(ends[0], &parent, sizeof parent) == sizeof parent);
    CHECK(net_process_alive(&self));
    CHECK(net_process_alive(&parent));
    CHECK(write(ends[1], &self, sizeof self) == sizeof self);
    pause();
    return 0;
}

/* Processes in separate time namespaces, as CRIU restores them, see each other as living, although each other's start
 * time is on a different clock. */
static int apart_in_time(uint32_t rank, uint32_t nranks, void *argument)
{
    int down[2], up[2];
    net_process_t self = net_process_self(), child;
    (void)rank, (void)nranks, (void)argument;
    CHECK(unshare(CLONE_NEWTIME) == 0);
    put_text("/proc/self/timens_offsets", "boottime 1000 0\n");
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    CHECK(write(down[1], &self, sizeof self) == sizeof self);
    pid_t pid = start_child(tell_self, 0, 1, (int[]){down[0], up[1]});
    close(up[1]);
    const bool told = read(up[0], &child, sizeof child) == sizeof child;
    CHECK(told && child.pid == pid);
    CHECK(net_process_alive(&child));
    kill(pid, SIGKILL);
    wait_child(pid);
    CHECK(!net_process_alive(&child));
    return 0;
}

static int can_part(uint32_t rank, uint32_t nranks, void *argument)
{
    (void)rank, (void)nranks, (void)argument;
    return unshare(CLONE_NEWTIME) != 0;
}

static void test_time_namespaces(void **state)
{
    (void)state;
    if (run_processes(1, can_part, NULL) != 0) {
        skip_because("no time namespaces here");
    }
    assert_int_equal(run_processes(1, apart_in_time, NULL), 0);
}

/* ---- Shared memory ---------------------------------------------------------------------- */

static net_memory_t *make_memory(offer_t offer)
{
    net_memory_t *memory = NULL;
    if (net_memory_create(NET_MEMORY_SHARED, 0, BYTES, &memory, offer) != 0)
        abort();
    memset(net_memory_pointer(memory), PATTERN, BYTES);
    return memory;
}

/* ---- NUMA nodes ------------------------------------------------------------------------ */

static void make_file(const char *root, const char *bus, const char *text)
{
    static const char *const folders[] = {"bus", "pci", "devices"};
    char path[300];
    size_t used = (size_t)snprintf(path, sizeof path, "%s", root);
    for (size_t i = 0; i < 4; i++) {
        used += (size_t)snprintf(path + used, sizeof path - used, "/%s", i < 3 ? folders[i] : bus);
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    }
    snprintf(path + used, sizeof path - used, "/numa_node");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_node_of_a_device(void **state)
{
    (void)state;
    char root[] = "/tmp/shunt-numa-XXXXXX", command[64];
    assert_non_null(mkdtemp(root));
    make_file(root, "0000:17:00.0", "1\n");
    make_file(root, "0000:c7:00.0", "0\n");
    make_file(root, "0001:c7:00.0", "-1\n");
    make_file(root, "0002:c7:00.0", "");
    make_file(root, "0003:c7:00.0", "4096\n");
    assert_int_equal(net_numa_of_device(root, "0000:17:00.0"), 1);
    assert_int_equal(net_numa_of_device(root, "0000:C7:00.0"), 0);
    assert_int_equal(net_numa_of_device(root, "0001:c7:00.0"), NET_ANY_NODE);
    assert_int_equal(net_numa_of_device(root, "0002:c7:00.0"), NET_ANY_NODE);
    assert_int_equal(net_numa_of_device(root, "0003:c7:00.0"), NET_ANY_NODE);
    assert_int_equal(net_numa_of_device(root, "0000:18:00.0"), NET_ANY_NODE);
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

/* Pages are allocated on an existing NUMA node; a missing or unknown one does no harm. */
static void test_node_of_pages(void **state)
{
    (void)state;
    static const int nodes[] = {0, NET_MOST_NODES - 1, NET_MOST_NODES, NET_ANY_NODE};
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        uint8_t *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(at != MAP_FAILED);
        net_numa_prefer(at, BYTES, nodes[i]);
        memset(at, PATTERN, BYTES);
        int node = 0;
        if (nodes[i] == 0 && syscall(SYS_get_mempolicy, &node, NULL, 0, at, MPOL_F_NODE | MPOL_F_ADDR) == 0)
            assert_int_equal(node, 0);
        munmap(at, BYTES);
    }
}

static void test_siblings_share(void **state)
{
    (void)state;
    offer_t offer_a, offer_b;
    net_memory_t *a = make_memory(offer_a);
    net_memory_t *b = make_memory(offer_b);
    net_mapping_t *mapping, *again;
    assert_int_equal(net_memory_open(b, 0, offer_a, &mapping), 0);
    assert_int_equal(net_memory_send(b, offer_a), 0);
    assert_ptr_equal(net_mapping_pointer(mapping), net_memory_pointer(a));
    assert_int_equal(net_mapping_bytes(mapping), BYTES);
    assert_true(net_mapping_alive(mapping));
    /* The owner ends first: the memory stays for the other rank of the process, and takes no new ones. */
    net_memory_destroy(a);
    assert_int_equal(net_memory_open(b, 0, offer_a, &again), -ESRCH);
    uint8_t *at = net_mapping_pointer(mapping);
    at[BYTES - 1] = 1;
    assert_int_equal(at[0], PATTERN);
    net_mapping_close(mapping);
    net_memory_destroy(b);
    net_mapping_close(NULL);
    net_memory_destroy(NULL);
}

static int write_to_peer(uint32_t rank, uint32_t nranks, void *argument)
{
    offer_t own_offer;
    net_mapping_t *mapping;
    (void)nranks;
    net_memory_t *own = make_memory(own_offer);
    CHECK(net_memory_open(own, 0, argument, &mapping) == 0);
    uint8_t *at = net_mapping_pointer(mapping);
    CHECK(at[rank] == PATTERN && at[BYTES - 1] == PATTERN);
    at[rank] = (uint8_t)rank;
    net_mapping_close(mapping);
    net_memory_destroy(own);
    return 0;
}

static void test_processes_share(void **state)
{
    (void)state;
    offer_t offer;
    net_memory_t *memory = make_memory(offer);
    assert_int_equal(run_processes(7, write_to_peer, offer), 0);
    for (uint8_t rank = 0; rank < 7; rank++)
        assert_int_equal(((uint8_t *)net_memory_pointer(memory))[rank], rank);
    net_memory_destroy(memory);
}

static void test_sizes_are_checked(void **state)
{
    (void)state;
    offer_t offer;
    net_memory_t *memory = NULL;
    assert_int_equal(net_memory_create(NET_MEMORY_SHARED, 0, 0, &memory, offer), -EINVAL);
    assert_int_equal(net_memory_create(NET_MEMORY_SHARED, 0, SIZE_MAX, &memory, offer), -EINVAL);
    assert_int_equal(net_memory_create(NET_MEMORY_SHARED, 0, (size_t)1 << 50, &memory, offer), -ENOMEM);
    assert_int_equal(net_memory_create((net_memory_kind_t)77, 0, BYTES, &memory, offer), -ENOSYS);
    assert_null(memory);
}

static void test_no_cuda_no_memory(void **state)
{
    (void)state;
    offer_t offer;
    net_memory_t *memory = NULL;
    if (access("/dev/nvidiactl", F_OK) == 0)
        skip_because("there is a GPU");
    for (net_memory_kind_t kind = NET_CPU_KINDS; kind < NET_MEMORY_KINDS; kind++)
        assert_int_equal(net_memory_create(kind, 0, BYTES, &memory, offer), -ENOSYS);
}

/* ---- Damaged offers ---------------------------------------------------------------------- */

/* Try any offer: it is refused, or gives the memory that it names. */
static int try_offer(net_memory_t *own, const offer_t offer)
{
    net_mapping_t *mapping = NULL;
    int error = net_memory_open(own, 0, offer, &mapping);
    CHECK(error <= 0);
    if (error == 0) {
        const uint8_t *at = net_mapping_pointer(mapping);
        CHECK(net_mapping_bytes(mapping) == BYTES && at[0] == PATTERN && at[BYTES - 1] == PATTERN);
        net_mapping_close(mapping);
    }
    return 0;
}

static int damage_offers(uint32_t rank, uint32_t nranks, void *argument)
{
    static const uint8_t flips[] = {0x01, 0x10, 0x80, 0xff};
    offer_t own_offer, offer;
    (void)nranks;
    net_memory_t *own = make_memory(own_offer);
    const uint8_t *good = rank == 0 ? argument : own_offer; /* of another process, or of this one */
    for (size_t i = 0; i < NET_OFFER_BYTES; i++) {
        for (size_t flip = 0; flip < sizeof flips; flip++) {
            memcpy(offer, good, sizeof offer);
            offer[i] ^= flips[flip];
            CHECK(try_offer(own, offer) == 0);
            (void)net_memory_send(own, offer);
        }
    }
    srand(rank + 1);
    for (int round = 0; round < 2000; round++) {
        memcpy(offer, good, sizeof offer);
        for (size_t i = round % 2 ? 8 : 0; i < NET_OFFER_BYTES; i++)
            if (rand() % 4 == 0)
                offer[i] = (uint8_t)rand();
        CHECK(try_offer(own, offer) == 0);
    }
    net_memory_destroy(own);
    return 0;
}

static void test_damaged_offers(void **state)
{
    (void)state;
    offer_t offer;
    net_memory_t *memory = make_memory(offer);
    assert_int_equal(run_processes(2, damage_offers, offer), 0);
    net_memory_destroy(memory);
}

static int make_and_die(uint32_t rank, uint32_t nranks, void *argument)
{
    offer_t offer;
    (void)rank, (void)nranks;
    (void)make_memory(offer);
    memcpy(argument, offer, sizeof offer);
    return 0;
}

static void test_dead_owner(void **state)
{
    (void)state;
    offer_t own_offer;
    net_mapping_t *mapping;
    uint8_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    net_memory_t *own = make_memory(own_offer);
    assert_int_equal(run_processes(1, make_and_die, shared), 0);
    assert_int_equal(net_memory_open(own, 0, shared, &mapping), -ESRCH);
    net_memory_destroy(own);
    munmap(shared, 4096);
}

/* Memory that the peer could shorten, and offers of anything but memory, are refused. */
static int refuse_impostors(uint32_t rank, uint32_t nranks, void *argument)
{
    const int *descriptors = argument;
    offer_t own_offer, bytes;
    struct stat info;
    net_mapping_t *mapping;
    (void)rank, (void)nranks;
    net_memory_t *own = make_memory(own_offer);
    for (int i = 0; descriptors[i] >= 0; i++) {
        net_offer_t offer = {.magic = NET_OFFER_MAGIC, .kind = NET_MEMORY_SHARED, .owner = net_process_self()};
        CHECK(fstat(descriptors[i], &info) == 0);
        offer.owner.pid = getppid();
        offer.owner.start_ticks = 0;
        offer.bytes = BYTES;
        offer.as.shared.device = info.st_dev;
        offer.as.shared.inode = info.st_ino;
        offer.as.shared.descriptor = descriptors[i];
        memcpy(bytes, &offer, sizeof bytes);
        CHECK(net_memory_open(own, 0, bytes, &mapping) == -EPROTO);
    }
    net_memory_destroy(own);
    return 0;
}

static void test_impostors(void **state)
{
    (void)state;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    int unsealed = memfd_create("shunt", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int short_one = memfd_create("shunt", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(unsealed >= 0 && short_one >= 0);
    assert_int_equal(ftruncate(unsealed, BYTES), 0);
    assert_int_equal(ftruncate(short_one, BYTES / 2), 0);
    assert_int_equal(fcntl(short_one, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    int device = open("/dev/zero", O_RDWR | O_CLOEXEC);
    assert_true(device >= 0);
    int descriptors[] = {unsealed, short_one, pipes[0], device, -1};
    assert_int_equal(run_processes(1, refuse_impostors, descriptors), 0);
    close(unsealed);
    close(short_one);
    close(device);
    close(pipes[0]);
    close(pipes[1]);
}

/* Make memory of a kind that sends its descriptor, as another process would. */
static void make_sent(net_memory_t *memory, net_offer_t *offer, uint64_t token)
{
    *memory = (net_memory_t){.kind = NET_MEMORY_SHARED_SENT, .bytes = BYTES, .token = {{token, token}}};
    *offer = (net_offer_t){.bytes = BYTES, .token = memory->token};
    assert_int_equal(net_memory_shared.create(memory, offer), 0);
}

static void test_sent(void **state)
{
    (void)state;
    net_memory_t a, b;
    net_offer_t offer_a, offer_b;
    net_mapping_t mapping = {.kind = NET_MEMORY_SHARED_SENT, .bytes = BYTES};
    const int before = open_descriptors();
    make_sent(&a, &offer_a, 1);
    make_sent(&b, &offer_b, 2);
    assert_int_equal(net_memory_shared.open(&b, &offer_a, &mapping), -ENOENT);
    assert_int_equal(net_memory_shared.send(&a, &offer_b), 0);
    assert_int_equal(net_memory_shared.open(&b, &offer_a, &mapping), 0);
    ((uint8_t *)mapping.pointer)[BYTES - 1] = PATTERN;
    assert_int_equal(((uint8_t *)a.pointer)[BYTES - 1], PATTERN);
    net_memory_shared.close(&mapping);
    assert_int_equal(net_memory_shared.send(&a, &offer_b), -ENOENT); /* the first take removed the name */
    net_memory_shared.destroy(&a);
    net_memory_shared.destroy(&b);
    assert_int_equal(open_descriptors(), before);
}

/* A descriptor that is not the offer's memory is refused. */
static void refuse_sent(int descriptor)
{
    net_memory_t a, b;
    net_offer_t offer_a, offer_b;
    net_mapping_t mapping = {.kind = NET_MEMORY_SHARED_SENT, .bytes = BYTES};
    make_sent(&a, &offer_a, 1);
    make_sent(&b, &offer_b, 2);
    assert_int_equal(net_box_send(&a.box, offer_b.as.sent.box, offer_b.token.word, descriptor), 0);
    assert_int_equal(net_memory_shared.open(&b, &offer_a, &mapping), -EPROTO);
    net_memory_shared.destroy(&a);
    net_memory_shared.destroy(&b);
}

static void test_sent_impostors(void **state)
{
    (void)state;
    offer_t offer;
    int pipes[2];
    net_memory_t *other = make_memory(offer);
    int unsealed = memfd_create("shunt", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(pipe(pipes) == 0 && unsealed >= 0 && ftruncate(unsealed, BYTES) == 0);
    refuse_sent(other->descriptor);
    refuse_sent(unsealed);
    refuse_sent(pipes[0]);
    net_memory_destroy(other);
    close(unsealed);
    close(pipes[0]);
    close(pipes[1]);
}

static int open_as_stranger(uint32_t rank, uint32_t nranks, void *argument)
{
    offer_t own_offer;
    net_mapping_t *mapping;
    (void)rank, (void)nranks;
    CHECK(setuid(ANOTHER_USER) == 0);
    net_memory_t *own = make_memory(own_offer);
    CHECK(net_memory_open(own, 0, argument, &mapping) < 0);
    net_memory_destroy(own);
    return 0;
}

static void test_other_user(void **state)
{
    (void)state;
    offer_t offer;
    if (geteuid() != 0)
        skip_because("being another user needs root");
    net_memory_t *memory = make_memory(offer);
    assert_int_equal(run_processes(1, open_as_stranger, offer), 0);
    net_memory_destroy(memory);
}

/* No process can shorten sealed memory. */
static void test_sealed(void **state)
{
    (void)state;
    offer_t offer;
    net_memory_t *memory = make_memory(offer);
    assert_int_equal(ftruncate(memory->descriptor, 0), -1);
    assert_int_equal(errno, EPERM);
    net_memory_destroy(memory);
}

/* ---- Leaks -------------------------------------------------------------------------------------- */

static int cycles(uint32_t rank, uint32_t nranks, void *argument)
{
    int descriptors = 0, mappings = 0;
    (void)rank, (void)nranks;
    for (int cycle = 0; cycle < 200; cycle++) {
        offer_t own_offer;
        net_mapping_t *peer, *sibling;
        net_memory_t *own = make_memory(own_offer);
        CHECK(net_memory_open(own, 0, argument, &peer) == 0);
        CHECK(net_memory_open(own, 0, own_offer, &sibling) == 0);
        net_mapping_close(peer);
        net_memory_destroy(own);
        net_mapping_close(sibling);
        if (cycle == 10) {
            descriptors = open_descriptors();
            mappings = mappings_of("memfd:shunt");
        }
    }
    CHECK(open_descriptors() == descriptors);
    CHECK(mappings_of("memfd:shunt") == mappings);
    return 0;
}

static void test_no_leak(void **state)
{
    (void)state;
    offer_t offer;
    net_memory_t *memory = make_memory(offer);
    assert_int_equal(run_processes(1, cycles, offer), 0);
    net_memory_destroy(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_signals_wait_for_an_allocation),
        cmocka_unit_test(test_time_namespaces),
        cmocka_unit_test(test_node_of_a_device),
        cmocka_unit_test(test_node_of_pages),
        cmocka_unit_test(test_siblings_share),
        cmocka_unit_test(test_processes_share),
        cmocka_unit_test(test_sizes_are_checked),
        cmocka_unit_test(test_no_cuda_no_memory),
        cmocka_unit_test(test_damaged_offers),
        cmocka_unit_test(test_dead_owner),
        cmocka_unit_test(test_impostors),
        cmocka_unit_test(test_other_user),
        cmocka_unit_test(test_sealed),
        cmocka_unit_test(test_sent),
        cmocka_unit_test(test_sent_impostors),
        cmocka_unit_test(test_no_leak),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
