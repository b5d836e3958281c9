/* SPDX-License-Identifier: Apache-2.0 */
/* bench_meet.c - rank 0 of `shunt bench --launched` meets the ranks that a launcher started.
 * Any process can connect, and an accepted one receives the unique id with NCCL's secret. So a caller must send the
 * secret of --secret, or the kernel's table of connections must show it as a process of this user on this node. Silent
 * callers delay nobody. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench/bench.h"

enum { MEET_MS = 60000, HELLO_MS = 2000, LOOK_MS = 100, MOST_CALLERS = 32 };
#define MAGIC UINT64_C(0x68636e65622d7374)

typedef struct hello {
    uint64_t magic;
    uint32_t rank, ranks;
    uint8_t secret[BENCH_SECRET_BYTES];
} hello_t;

typedef struct caller {
    int connection;
    int64_t until_ms;
    size_t got;
    hello_t hello;
} caller_t;

typedef struct meeting {
    bench_rank_t *rank;
    uint32_t missing;
    bool refused; /* a caller that claimed to be a rank was refused */
    caller_t caller[MOST_CALLERS];
    uint32_t callers;
} meeting_t;

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int bench_secret_read(const char *path, uint8_t secret[BENCH_SECRET_BYTES])
{
    struct stat info;
    uint8_t bytes[BENCH_SECRET_BYTES] = {0};
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 || fstat(file, &info) != 0) {
        return tool_usage("bench", "--secret %s: %s", path, strerror(errno));
    }
    const bool own = S_ISREG(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0;
    const ssize_t got = own ? read(file, bytes, sizeof bytes) : 0;
    close(file);
    if (!own) {
        return tool_usage("bench", "--secret %s: not a file that you alone may read (chmod 600)", path);
    }
    if (got < BENCH_LEAST_SECRET) {
        return tool_usage("bench", "--secret %s: shorter than %d bytes", path, BENCH_LEAST_SECRET);
    }
    memcpy(secret, bytes, sizeof bytes);
    return TOOL_OK;
}

/* Compare in constant time, which tells nothing about a guess. */
static bool is_secret(const uint8_t *secret, const uint8_t *shown)
{
    uint8_t differs = 0;
    for (size_t i = 0; i < BENCH_SECRET_BYTES; i++) {
        differs |= secret[i] ^ shown[i];
    }
    return differs == 0;
}

/* Format an address as in /proc/net/tcp and tcp6. False: neither IPv4 nor IPv6. */
static bool write_address(const struct sockaddr_storage *address, char text[64], bool *six)
{
    uint32_t word[4];
    const struct sockaddr_in *four = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *other = (const struct sockaddr_in6 *)address;
    *six = address->ss_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&other->sin6_addr);
    memcpy(word, &other->sin6_addr, sizeof word);
    if (*six) {
        snprintf(text, 64, "%08X%08X%08X%08X:%04X", word[0], word[1], word[2], word[3], ntohs(other->sin6_port));
    } else if (address->ss_family == AF_INET6) {
        snprintf(text, 64, "%08X:%04X", word[3], ntohs(other->sin6_port));
    } else {
        snprintf(text, 64, "%08X:%04X", four->sin_addr.s_addr, ntohs(four->sin_port));
    }
    return address->ss_family == AF_INET || address->ss_family == AF_INET6;
}

/* Whether the connection's other end is a socket of this user on this node. */
static bool is_own(int connection)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t size = sizeof here, other = sizeof there;
    char from[64], to[64], line[512], local[64], remote[64];
    bool six, found = false;
    unsigned long uid = 0;
    if (getsockname(connection, (struct sockaddr *)&here, &size) != 0 ||
        getpeername(connection, (struct sockaddr *)&there, &other) != 0 || !write_address(&here, to, &six) ||
        !write_address(&there, from, &six)) {
        return false;
    }
    FILE *table = fopen(six ? "/proc/net/tcp6" : "/proc/net/tcp", "re");
    while (table != NULL && !found && fgets(line, sizeof line, table) != NULL) {
        found = sscanf(line, " %*[0-9]: %63s %63s %*s %*s %*s %*s %lu", local, remote, &uid) == 3 &&
                strcmp(local, from) == 0 && strcmp(remote, to) == 0;
    }
    if (table != NULL) {
        fclose(table);
    }
    return found && uid == geteuid();
}

static bool is_rank(meeting_t *meeting, const caller_t *caller)
{
    const bench_rank_t *rank = meeting->rank;
    const bench_launch_t *launch = &rank->options->launch;
    const hello_t *hello = &caller->hello;
    if (hello->magic != MAGIC || hello->ranks != rank->nranks || hello->rank == 0 || hello->rank >= rank->nranks ||
        rank->peer[hello->rank] != 0) {
        return false;
    }
    const bool trusted = launch->has_secret ? is_secret(launch->secret, hello->secret) : is_own(caller->connection);
    meeting->refused = meeting->refused || !trusted;
    return trusted;
}

/* True while the hello is incomplete and its time limit has not passed. */
static bool hear(meeting_t *meeting, caller_t *caller)
{
    const uint64_t welcome = MAGIC;
    const ssize_t got = recv(caller->connection, (char *)&caller->hello + caller->got,
                             sizeof caller->hello - caller->got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return now_ms() < caller->until_ms;
    }
    caller->got += got > 0 ? (size_t)got : 0;
    if (got > 0 && caller->got < sizeof caller->hello) {
        return now_ms() < caller->until_ms;
    }
    if (got > 0 && is_rank(meeting, caller) &&
        send(caller->connection, &welcome, sizeof welcome, MSG_NOSIGNAL) == (ssize_t)sizeof welcome) {
        meeting->rank->peer[caller->hello.rank] = caller->connection;
        meeting->missing--;
        caller->connection = -1;
    }
    return false;
}

static void hear_all(meeting_t *meeting)
{
    for (uint32_t i = meeting->callers; i-- > 0;) {
        caller_t *caller = &meeting->caller[i];
        if (hear(meeting, caller)) {
            continue;
        }
        if (caller->connection >= 0) {
            close(caller->connection);
        }
        *caller = meeting->caller[--meeting->callers];
    }
}

/* Accept callers while there is room; the others wait in the kernel's queue. */
static void let_in(meeting_t *meeting, int listener)
{
    while (meeting->callers < MOST_CALLERS) {
        const int made = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (made < 0) {
            return;
        }
        bench_launch_set_up(made);
        meeting->caller[meeting->callers++] = (caller_t){.connection = made, .until_ms = now_ms() + HELLO_MS};
    }
}

static void look(meeting_t *meeting, int listener)
{
    struct pollfd ready[1 + MOST_CALLERS];
    ready[0] = (struct pollfd){.fd = meeting->callers < MOST_CALLERS ? listener : -1, .events = POLLIN};
    for (uint32_t i = 0; i < meeting->callers; i++) {
        ready[1 + i] = (struct pollfd){.fd = meeting->caller[i].connection, .events = POLLIN};
    }
    poll(ready, 1 + meeting->callers, LOOK_MS);
    hear_all(meeting);
    let_in(meeting, listener);
}

bool bench_meet_ranks(bench_rank_t *rank, int listener)
{
    meeting_t meeting = {.rank = rank, .missing = rank->nranks - 1};
    const int64_t end = now_ms() + MEET_MS;
    while (meeting.missing > 0 && now_ms() < end) {
        look(&meeting, listener);
    }
    for (uint32_t i = 0; i < meeting.callers; i++) {
        close(meeting.caller[i].connection);
    }
    return meeting.missing == 0 ||
           bench_fail(rank, "%u of %u ranks have not come within %d s%s", meeting.missing, rank->nranks, MEET_MS / 1000,
                      meeting.refused ? "; a rank of another node or user needs the same --secret FILE" : "");
}

bool bench_meet_first(bench_rank_t *rank, int connection)
{
    uint64_t welcome = 0;
    hello_t hello = {.magic = MAGIC, .rank = rank->rank, .ranks = rank->nranks};
    memcpy(hello.secret, rank->options->launch.secret, sizeof hello.secret);
    if (send(connection, &hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello &&
        recv(connection, &welcome, sizeof welcome, MSG_WAITALL) == (ssize_t)sizeof welcome && welcome == MAGIC) {
        return true;
    }
    return bench_fail(rank,
                      "rank 0 at %s:%u does not take this rank; ranks of several nodes or users need the same "
                      "--secret FILE",
                      rank->options->launch.address, rank->options->launch.port);
}
