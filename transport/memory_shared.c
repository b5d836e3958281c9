/* SPDX-License-Identifier: Apache-2.0 */
/* memory_shared.c - memory that processes share, in a memfd: no name that a crash leaves behind, and not in
 * /dev/shm, which is small in containers. Peers open it through /proc/<pid>/fd; where the kernel refuses (other user or
 * pid namespace, a process that is not traceable or has lost its first thread), the descriptor is sent to their box.
 * The owner keeps its descriptor while peers may open it.
 * Seals prevent truncation, so a mapping of a checked size never faults. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/memory.h"
#include "transport/numa.h"
#include "transport/reserve.h"

#define SHARED_NAME "shunt"
#define SHARED_LINK "/memfd:" SHARED_NAME
enum { SHARED_SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

/* A memfd may exceed the machine's memory; the kernel would kill a process that uses it. */
static bool too_large(size_t bytes)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 && bytes / (size_t)page >= (size_t)pages;
}

static int reserve_and_seal(int fd, size_t bytes)
{
    if (too_large(bytes))
        return -ENOMEM;
    int error = net_reserve(fd, bytes);
    if (error)
        return error;
    return fcntl(fd, F_ADD_SEALS, SHARED_SEALS | F_SEAL_SEAL) == 0 ? 0 : -errno;
}

static void *map_file(int fd, size_t bytes, void *place)
{
    return mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (place ? MAP_FIXED : 0), fd, 0);
}

static void *map_nothing(void *place, size_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (place ? MAP_FIXED : 0);
    return mmap(place, bytes, PROT_NONE, flags, -1, 0);
}

static void unmap(void *pointer, size_t bytes, void *place)
{
    if (place)
        (void)map_nothing(place, bytes); /* keeps the range's addresses reserved */
    else
        munmap(pointer, bytes);
}

static int create_file(net_memory_t *memory, net_offer_t *offer)
{
    struct stat info;
    int fd = net_descriptor(memfd_create(SHARED_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0)
        return -errno;
    int error;
    /* mapped before pages exist, since the mapping's policy selects their node */
    void *at = map_file(fd, memory->bytes, memory->at);
    if (at == MAP_FAILED) {
        error = -errno;
        goto close;
    }
    net_numa_prefer(at, memory->bytes, memory->node);
    error = reserve_and_seal(fd, memory->bytes);
    if (!error && fstat(fd, &info) != 0)
        error = -errno;
    if (error)
        goto unmap;
    memory->pointer = at;
    memory->descriptor = fd;
    memory->mark = (net_mark_t){info.st_dev, info.st_ino};
    offer->as.shared.device = info.st_dev;
    offer->as.shared.inode = info.st_ino;
    offer->as.shared.descriptor = fd;
    return 0;
unmap:
    unmap(at, memory->bytes, memory->at);
close:
    close(fd);
    return error;
}

static void destroy_file(net_memory_t *memory)
{
    unmap(memory->pointer, memory->bytes, memory->at);
    net_close(memory->descriptor, &memory->mark);
}

static int shared_create(net_memory_t *memory, net_offer_t *offer)
{
    int error = create_file(memory, offer);
    if (error || !net_memory_facts[memory->kind].sends)
        return error;
    error = net_box_open(&memory->box, memory->token.word, offer->as.sent.box);
    if (error) {
        destroy_file(memory);
        memory->pointer = NULL;
    }
    return error;
}

static int shared_destroy(net_memory_t *memory)
{
    if (net_memory_facts[memory->kind].sends)
        net_box_close(&memory->box);
    destroy_file(memory);
    return 0;
}

static int shared_send(const net_memory_t *memory, const net_offer_t *peer)
{
    return net_box_send(&memory->box, peer->as.sent.box, peer->token.word, memory->descriptor);
}

/* Checks before opening: a wrong number in an offer must not open a device or a pipe. */
static int open_peer(const net_offer_t *peer)
{
    char path[64];
    char link[PATH_MAX];
    if (peer->as.shared.descriptor < 0 || peer->as.shared.descriptor > INT_MAX)
        return -EPROTO;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRId64, peer->owner.pid, peer->as.shared.descriptor);
    ssize_t size = readlink(path, link, sizeof link);
    if (size < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    if ((size_t)size < strlen(SHARED_LINK) || memcmp(link, SHARED_LINK, strlen(SHARED_LINK)) != 0)
        return -EPROTO;
    int fd = net_descriptor(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK));
    return fd >= 0 ? fd : -errno;
}

static int check_peer(int fd, const net_offer_t *peer)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return -errno;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SHARED_SEALS) != SHARED_SEALS)
        return -EPROTO;
    if (info.st_uid != geteuid())
        return -EPERM;
    if (info.st_dev != peer->as.shared.device || info.st_ino != peer->as.shared.inode ||
        (uint64_t)info.st_size != peer->bytes)
        return -EPROTO;
    return 0;
}

/* Closes `fd`, also on failure. */
static int map_peer(int fd, const net_offer_t *peer, net_mapping_t *mapping)
{
    int error = check_peer(fd, peer);
    if (!error) {
        void *at = map_file(fd, mapping->bytes, mapping->at);
        if (at == MAP_FAILED)
            error = -errno;
        else
            mapping->pointer = at;
    }
    close(fd);
    return error;
}

static int take_peer(net_memory_t *own, const net_offer_t *peer)
{
    int fd;
    int error = net_box_take(&own->box, peer->token.word, &fd);
    return error ? error : fd;
}

static int shared_open(net_memory_t *own, const net_offer_t *peer, net_mapping_t *mapping)
{
    int fd = net_memory_facts[mapping->kind].sends ? take_peer(own, peer) : open_peer(peer);
    return fd >= 0 ? map_peer(fd, peer, mapping) : fd;
}

static void shared_close(net_mapping_t *mapping)
{
    unmap(mapping->pointer, mapping->bytes, mapping->at);
}

static int shared_reserve(net_range_t *range)
{
    void *at = map_nothing(NULL, range->bytes);
    if (at == MAP_FAILED)
        return -errno;
    range->pointer = at;
    return 0;
}

static void shared_unreserve(net_range_t *range)
{
    munmap(range->pointer, range->bytes);
}

const net_memory_ops_t net_memory_shared = {.create = shared_create,
                                            .destroy = shared_destroy,
                                            .send = shared_send,
                                            .open = shared_open,
                                            .close = shared_close,
                                            .reserve = shared_reserve,
                                            .unreserve = shared_unreserve};
