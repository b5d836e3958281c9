/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_launched.c - `shunt bench --launched`: what strangers send to rank 0 before the ranks come, and what a rank
 * hears at a barrier from somebody who plays rank 0.
 *
 * The first byte is the number of ranks. Each further one, and as many bytes as it says, are a caller. Then every rank
 * comes. Rank 0 must have a socket of its own for each other rank, and none for itself. Last a rank hears all bytes as
 * a barrier.
 */
#include <pthread.h>
#include <stdint.h>
#include <sys/un.h>

#include "tools/bench/bench_launch.c"

enum { MOST_CALLERS = 40, HELLO_LIMIT = 2 * sizeof(hello_t) };

static bench_shared_t g_shared;
static struct sockaddr_un g_address = {.sun_family = AF_UNIX};
static int g_caller[MOST_CALLERS + BENCH_MAX_RANKS], g_callers;

static void expect(bool so)
{
    if (!so) {
        abort();
    }
}

/* What bench_launch.c needs of the command, and no input may reach. */
bool bench_fail(bench_rank_t *rank, const char *format, ...)
{
    (void)rank, (void)format;
    abort();
}

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

static void call_with(const void *bytes, size_t size)
{
    const int made = socket(AF_UNIX, SOCK_STREAM, 0);
    expect(made >= 0 && connect(made, (struct sockaddr *)&g_address, sizeof(sa_family_t) + 16) == 0);
    expect(size == 0 || send(made, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
    shutdown(made, SHUT_WR);
    g_caller[g_callers++] = made;
}

/* In the abstract namespace, so that nothing stays. */
static int listen_here(void)
{
    snprintf(g_address.sun_path + 1, 15, "%d", (int)getpid());
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    expect(bind(listener, (struct sockaddr *)&g_address, sizeof(sa_family_t) + 16) == 0 &&
           listen(listener, BACKLOG) == 0);
    return listener;
}

static void strangers_call(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at < size && g_callers < MOST_CALLERS; at++) {
        const size_t wish = data[at] % HELLO_LIMIT, left = size - at - 1, bytes = wish < left ? wish : left;
        call_with(data + at + 1, bytes);
        at += bytes;
    }
}

static void hear(uint32_t nranks, const uint8_t *data, size_t size)
{
    bench_rank_t rank = {.nranks = nranks};
    const int listener = listen_here();
    g_callers = 0;
    strangers_call(data, size);
    for (uint32_t r = 1; r < nranks; r++) {
        call_with(&(hello_t){MAGIC, r, nranks}, sizeof(hello_t));
    }
    expect(hear_ranks(&rank, listener));
    for (uint32_t r = 0; r < BENCH_MAX_RANKS; r++) {
        expect((rank.peer[r] > 0) == (r > 0 && r < nranks));
        for (uint32_t other = 1; other < r && r < nranks; other++) {
            expect(rank.peer[other] != rank.peer[r]);
        }
        if (rank.peer[r] > 0) {
            close(rank.peer[r]);
        }
    }
    close(listener);
    while (g_callers > 0) {
        close(g_caller[--g_callers]);
    }
}

static void *send_without_end(void *socket)
{
    static const char zeros[4096];
    while (send(*(const int *)socket, zeros, sizeof zeros, MSG_NOSIGNAL) > 0) {
    }
    return NULL;
}

/* Whole, it is taken as it stands; otherwise nothing is. A window that is too large by little gets what it asks for. */
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
    hear(2 + (size > 0 ? data[0] % (BENCH_MAX_RANKS - 1) : 0), data + (size > 0), size > 0 ? size - 1 : 0);
    hear_barrier(data, size);
    return 0;
}
