/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_launched.c - `shunt bench --launched`: what strangers send to rank 0 before the ranks connect, and what a rank
 * receives, as a welcome or at a barrier, from a process that poses as rank 0.
 *
 * Input: a byte for the number of ranks (its top bit: they have a secret), then callers: a byte for the caller's user
 * and behaviour (caller_bits), a length, and that many bytes to send. Then every rank connects. Each rank must end with
 * one socket, of a caller that proved to be a rank; others may receive nothing. Finally a rank receives all bytes as
 * rank 0's welcome, and as a barrier.
 */
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* Callers of another user are really this user's, so the meeting asks the harness for their user. The ranks connect
 * after the strangers were heard. */
static int meet_peer(int connection, struct sockaddr *address, socklen_t *size);
static uid_t meet_user(void);
static int meet_poll(struct pollfd *ready, nfds_t count, int limit_ms);
#define getpeername(connection, address, size) meet_peer(connection, address, size)
#define geteuid() meet_user()
#define poll(ready, count, limit_ms) meet_poll(ready, count, limit_ms)
#include "tools/bench/bench_meet.c"
#undef getpeername
#undef geteuid
#undef poll
#include "tools/bench/bench_launch.c"

enum { STRANGERS = 40, QUIET = MOST_CALLERS - BENCH_MAX_RANKS, SAY_BYTES = 128, RANKS_LOOK = 3 };

typedef enum caller_bits {
    OTHER_USER = 1,
    ENDS = 2, /* says no more */
    GOES = 4  /* has closed its socket before anybody hears it */
} caller_bits_t;

typedef struct stranger {
    int socket;
    in_port_t port;
    uint8_t bits;
    size_t size;
    hello_t said;
    bool taken;
} stranger_t;

static bench_shared_t g_shared;
static bench_options_t g_options;
static struct sockaddr_in g_address;
static stranger_t g_caller[STRANGERS + BENCH_MAX_RANKS];
static int g_callers, g_looks;
static uint32_t g_nranks;
static bool g_other_user;

static void expect(bool so)
{
    if (!so) {
        abort();
    }
}

bool bench_fail(bench_rank_t *rank, const char *format, ...)
{
    (void)rank, (void)format;
    return false;
}

/* Stubs of the command's functions, which no input may reach. */
int tool_usage(const char *command, const char *format, ...)
{
    (void)command, (void)format;
    abort();
}

bool tool_number(const char *text, uint64_t low, uint64_t high, uint64_t *value)
{
    (void)text, (void)low, (void)high, (void)value;
    abort();
}

/* ---- Callers ---- */

static stranger_t *caller_at(in_port_t port)
{
    int i = 0;
    while (i < g_callers && g_caller[i].port != port) {
        i++;
    }
    expect(i < g_callers);
    return &g_caller[i];
}

static int meet_peer(int connection, struct sockaddr *address, socklen_t *size)
{
    const int error = getpeername(connection, address, size);
    g_other_user = error == 0 && (caller_at(((struct sockaddr_in *)address)->sin_port)->bits & OTHER_USER) != 0;
    return error;
}

static uid_t meet_user(void)
{
    return geteuid() + (g_other_user ? 1 : 0);
}

/* Close by a reset, so that no port stays in TIME_WAIT. */
static void close_at_once(int socket)
{
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(socket);
}

static void call_with(uint8_t bits, const void *bytes, size_t size)
{
    struct sockaddr_in own;
    socklen_t own_size = sizeof own;
    stranger_t *caller = &g_caller[g_callers++];
    const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    expect(made >= 0 && connect(made, (struct sockaddr *)&g_address, sizeof g_address) == 0);
    expect(size == 0 || send(made, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
    expect(getsockname(made, (struct sockaddr *)&own, &own_size) == 0);
    *caller = (stranger_t){.socket = made, .port = own.sin_port, .bits = bits, .size = size};
    memcpy(&caller->said, bytes, size < sizeof caller->said ? size : sizeof caller->said);
    if (bits & ENDS) {
        shutdown(made, SHUT_WR);
    }
    if (bits & GOES) {
        close_at_once(made);
    }
}

/* Listen with the same option: rank 0's sockets inherit it, so they are closed by a reset, too. */
static int listen_here(void)
{
    socklen_t size = sizeof g_address;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    g_address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    setsockopt(listener, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    expect(bind(listener, (struct sockaddr *)&g_address, sizeof g_address) == 0 && listen(listener, BACKLOG) == 0 &&
           getsockname(listener, (struct sockaddr *)&g_address, &size) == 0);
    return listener;
}

/* Connect the strangers. Silent ones occupy a place for HELLO_MS, so there are fewer of them than places. */
static void strangers_call(const uint8_t *data, size_t size)
{
    while (size >= 2 && g_callers < STRANGERS) {
        const size_t wish = data[1] % SAY_BYTES, said = wish < size - 2 ? wish : size - 2;
        call_with(g_callers < QUIET ? data[0] : data[0] | ENDS, data + 2, said);
        data += 2 + said;
        size -= 2 + said;
    }
}

static void ranks_call(void)
{
    for (uint32_t r = 1; r < g_nranks; r++) {
        hello_t hello = {.magic = MAGIC, .rank = r, .ranks = g_nranks};
        memcpy(hello.secret, g_options.launch.secret, sizeof hello.secret);
        call_with(0, &hello, sizeof hello);
    }
}

static int meet_poll(struct pollfd *ready, nfds_t count, int limit_ms)
{
    if (++g_looks == RANKS_LOOK) {
        ranks_call();
    }
    return poll(ready, count, g_looks > RANKS_LOOK ? limit_ms : 0);
}

/* ---- Rank 0 ---- */

static bool may_be(const stranger_t *caller, uint32_t rank, uint32_t nranks)
{
    const bench_launch_t *launch = &g_options.launch;
    return caller->size >= sizeof(hello_t) && (caller->bits & GOES) == 0 && caller->said.magic == MAGIC &&
           caller->said.rank == rank && caller->said.ranks == nranks &&
           (launch->has_secret ? memcmp(caller->said.secret, launch->secret, BENCH_SECRET_BYTES) == 0
                               : (caller->bits & OTHER_USER) == 0);
}

static void check_peer(int connection, uint32_t rank, uint32_t nranks)
{
    struct sockaddr_in there;
    socklen_t size = sizeof there;
    expect(getpeername(connection, (struct sockaddr *)&there, &size) == 0);
    stranger_t *caller = caller_at(there.sin_port);
    expect(may_be(caller, rank, nranks) && !caller->taken);
    caller->taken = true;
}

/* Check that an accepted caller receives the welcome, and others receive nothing. */
static void check_told(const stranger_t *caller)
{
    uint64_t welcome[2];
    if ((caller->bits & GOES) == 0) {
        const ssize_t got = recv(caller->socket, welcome, sizeof welcome, MSG_DONTWAIT);
        expect(caller->taken ? got == sizeof welcome[0] && welcome[0] == MAGIC : got <= 0);
        close_at_once(caller->socket);
    }
}

static void meet(uint32_t nranks, const uint8_t *data, size_t size)
{
    bench_rank_t rank = {.options = &g_options, .nranks = nranks};
    const int listener = listen_here();
    g_callers = g_looks = 0;
    g_nranks = nranks;
    strangers_call(data, size);
    expect(bench_meet_ranks(&rank, listener));
    for (uint32_t r = 0; r < BENCH_MAX_RANKS; r++) {
        expect((rank.peer[r] > 0) == (r > 0 && r < nranks));
        if (rank.peer[r] > 0) {
            check_peer(rank.peer[r], r, nranks);
        }
    }
    for (int i = 0; i < g_callers; i++) {
        check_told(&g_caller[i]);
    }
    for (uint32_t r = 1; r < nranks; r++) {
        close(rank.peer[r]);
    }
    close(listener);
}

/* ---- The others ---- */

static void hear_welcome(const uint8_t *data, size_t size)
{
    static const uint64_t magic = MAGIC;
    int ends[2];
    hello_t hello;
    bench_rank_t rank = {.options = &g_options, .rank = 1, .nranks = 2};
    expect(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    expect(size == 0 || send(ends[1], data, size, MSG_NOSIGNAL) == (ssize_t)size);
    shutdown(ends[1], SHUT_WR);
    expect(bench_meet_first(&rank, ends[0]) == (size >= sizeof magic && memcmp(data, &magic, sizeof magic) == 0));
    expect(recv(ends[1], &hello, sizeof hello, MSG_DONTWAIT) == sizeof hello && hello.rank == 1 && hello.ranks == 2);
    close(ends[0]);
    close(ends[1]);
}

static void *send_without_end(void *socket)
{
    static const char zeros[4096];
    while (send(*(const int *)socket, zeros, sizeof zeros, MSG_NOSIGNAL) > 0) {
    }
    return NULL;
}

/* A complete barrier message is accepted unchanged, an incomplete one not at all. A window that is slightly too large
 * gets the bytes that it asks for. */
static void hear_barrier(const uint8_t *data, size_t size)
{
    int ends[2];
    const all_parts_t none = {0};
    all_parts_t said;
    expect(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    expect(size == 0 || send(ends[1], data, size, MSG_NOSIGNAL) == (ssize_t)size);
    bench_rank_t rank = {.shared = &g_shared, .rank = 1, .nranks = 2, .peer = {ends[0]}};
    memset(&g_shared, 0, sizeof g_shared);
    memcpy(&said, size >= sizeof said ? (const void *)data : &none, sizeof said);
    const bool whole =
        size >= sizeof said && said.window_bytes <= sizeof g_shared.window && said.window_bytes <= size - sizeof said;
    const bool large = said.window_bytes - sizeof g_shared.window - 1 < 4096;
    pthread_t sender;
    if (!large) {
        shutdown(ends[1], SHUT_WR);
    }
    expect(!large || pthread_create(&sender, NULL, send_without_end, &ends[1]) == 0);
    expect(tell_first(&rank) == whole);
    expect(memcmp(g_shared.id, whole ? said.id : none.id, sizeof said.id) == 0);
    close(ends[0]);
    if (large) {
        pthread_join(sender, NULL);
    }
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t first = size > 0 ? data[0] : 0;
    g_options.launch.has_secret = first >= 128;
    memset(g_options.launch.secret, g_options.launch.has_secret ? 's' : 0, BENCH_SECRET_BYTES);
    meet(2 + first % 128 % (BENCH_MAX_RANKS - 1), data + (size > 0), size > 0 ? size - 1 : 0);
    hear_welcome(data, size);
    hear_barrier(data, size);
    return 0;
}
