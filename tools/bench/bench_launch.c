/* SPDX-License-Identifier: Apache-2.0 */
/* bench_launch.c - ranks of `shunt bench` that a launcher started, on one node or several. Each process has one rank.
 * Forked ranks share bench_shared_t in memory; launched ranks exchange it at every barrier: each sends its part to rank
 * 0, which sends all parts to every rank. Rank 0 listens at MASTER_ADDR, at the port after MASTER_PORT, which torchrun
 * itself uses (bench_meet.c). */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench/bench.h"

enum { MEET_SECONDS = 60, TRY_AGAIN_MS = 100, BACKLOG = 64 };

typedef struct own_part {
    double seconds;
    uint64_t wrong;
} own_part_t;

typedef struct all_parts {
    double seconds[BENCH_MAX_RANKS];
    uint64_t wrong[BENCH_MAX_RANKS];
    ncclUniqueId id[2];
    uint64_t window_bytes; /* size of the window, which follows */
} all_parts_t;

static bool number_of(const char *name, uint32_t most, uint32_t *value)
{
    const char *text = secure_getenv(name);
    uint64_t number = 0;
    if (text == NULL || !tool_number(text, 0, most, &number)) {
        return false;
    }
    *value = (uint32_t)number;
    return true;
}

int bench_launch_find(bench_launch_t *launch)
{
    static const char *const names[][3] = {
        {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
        {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
        {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
    };
    const char *address = secure_getenv("MASTER_ADDR");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!number_of(names[i][0], UINT16_MAX, &launch->rank) || !number_of(names[i][1], UINT16_MAX, &launch->ranks) ||
            !number_of(names[i][2], UINT16_MAX, &launch->local)) {
            continue;
        }
        if (launch->ranks > BENCH_MAX_RANKS || launch->rank >= launch->ranks) {
            return tool_usage("bench", "--launched: rank %u of %u: at most %d ranks", launch->rank, launch->ranks,
                              BENCH_MAX_RANKS);
        }
        if (address == NULL || !number_of("MASTER_PORT", UINT16_MAX - 1, &launch->port)) {
            return tool_usage("bench", "--launched: set MASTER_ADDR to rank 0's node, and MASTER_PORT");
        }
        launch->port++;
        snprintf(launch->address, sizeof launch->address, "%s", address);
        return TOOL_OK;
    }
    return tool_usage("bench", "--launched: no variables of torchrun, mpirun or srun say which rank this is");
}

static bool move_all(int socket, void *bytes, size_t size, bool out)
{
    for (size_t done = 0; done < size;) {
        char *at = (char *)bytes + done;
        ssize_t some = out ? send(socket, at, size - done, MSG_NOSIGNAL) : recv(socket, at, size - done, 0);
        if (some < 0 && errno == EINTR) {
            continue;
        }
        if (some <= 0) {
            return false;
        }
        done += (size_t)some;
    }
    return true;
}

void bench_launch_set_up(int socket)
{
    const int on = 1;
    const struct timeval limit = {.tv_sec = MEET_SECONDS};
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

/* A connected or listening socket; -1 with errno. */
static int try_address(const struct addrinfo *address, bool listens)
{
    const int on = 1;
    int made = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | (listens ? SOCK_NONBLOCK : 0), 0);
    if (made < 0) {
        return -1;
    }
    if (listens) {
        setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    }
    if (listens ? bind(made, address->ai_addr, address->ai_addrlen) == 0 && listen(made, BACKLOG) == 0
                : connect(made, address->ai_addr, address->ai_addrlen) == 0) {
        return made;
    }
    const int error = errno;
    close(made);
    errno = error;
    return -1;
}

static int open_socket(bench_rank_t *rank, bool listens)
{
    const bench_launch_t *launch = &rank->options->launch;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = listens ? AI_PASSIVE : 0};
    struct addrinfo *all = NULL;
    char port[8];
    snprintf(port, sizeof port, "%u", launch->port);
    const int fault = getaddrinfo(launch->address, port, &hints, &all);
    if (fault != 0) {
        bench_fail(rank, "%s: %s", launch->address, gai_strerror(fault));
        return -1;
    }
    int made = -1;
    for (const struct addrinfo *one = all; one != NULL && made < 0; one = one->ai_next) {
        made = try_address(one, listens);
    }
    freeaddrinfo(all);
    return made;
}

static bool call_first(bench_rank_t *rank)
{
    const struct timespec nap = {0, TRY_AGAIN_MS * 1000000L};
    int made = -1;
    for (int tries = 0; made < 0 && tries < MEET_SECONDS * 1000 / TRY_AGAIN_MS; tries++) {
        made = open_socket(rank, false);
        if (made < 0) {
            nanosleep(&nap, NULL);
        }
    }
    if (made < 0) {
        return bench_fail(rank, "rank 0 cannot be reached at %s:%u: %s", rank->options->launch.address,
                          rank->options->launch.port, strerror(errno));
    }
    bench_launch_set_up(made);
    rank->peer[0] = made;
    return bench_meet_first(rank, made);
}

bool bench_launch_open(bench_rank_t *rank)
{
    if (rank->rank > 0) {
        return call_first(rank);
    }
    int listener = open_socket(rank, true);
    if (listener < 0) {
        return bench_fail(rank, "%s:%u: %s (MASTER_ADDR, and the port behind MASTER_PORT)",
                          rank->options->launch.address, rank->options->launch.port, strerror(errno));
    }
    bool done = bench_meet_ranks(rank, listener);
    close(listener);
    return done;
}

static bool tell_first(bench_rank_t *rank)
{
    bench_shared_t *shared = rank->shared;
    own_part_t own = {shared->seconds[rank->rank], shared->wrong[rank->rank]};
    all_parts_t all;
    if (!move_all(rank->peer[0], &own, sizeof own, true) || !move_all(rank->peer[0], &all, sizeof all, false) ||
        all.window_bytes > sizeof shared->window || !move_all(rank->peer[0], shared->window, all.window_bytes, false)) {
        return false;
    }
    memcpy(shared->seconds, all.seconds, sizeof all.seconds);
    memcpy(shared->wrong, all.wrong, sizeof all.wrong);
    memcpy(shared->id, all.id, sizeof all.id);
    return true;
}

static bool tell_all(bench_rank_t *rank)
{
    bench_shared_t *shared = rank->shared;
    bool done = true;
    for (uint32_t r = 1; r < rank->nranks && done; r++) {
        own_part_t part = {0};
        done = move_all(rank->peer[r], &part, sizeof part, false);
        shared->seconds[r] = part.seconds;
        shared->wrong[r] = part.wrong;
    }
    all_parts_t all = {.window_bytes = shared->window_bytes};
    memcpy(all.seconds, shared->seconds, sizeof all.seconds);
    memcpy(all.wrong, shared->wrong, sizeof all.wrong);
    memcpy(all.id, shared->id, sizeof all.id);
    for (uint32_t r = 1; r < rank->nranks && done; r++) {
        done = move_all(rank->peer[r], &all, sizeof all, true) &&
               move_all(rank->peer[r], shared->window, all.window_bytes, true);
    }
    return done;
}

void bench_launch_barrier(bench_rank_t *rank)
{
    if (rank->rank > 0 ? tell_first(rank) : tell_all(rank)) {
        return;
    }
    bench_fail(rank, "another rank has ended, or was silent for %d s", MEET_SECONDS);
    _exit(TOOL_FAILED);
}
