/* SPDX-License-Identifier: Apache-2.0 */
/* proxy.c - the threads that serve all relays of a process (nodes.h); callers own the relays. The proxy polls relays,
 * and sends what kernels post. Sockets copy each byte, so while steps are long a second thread, the reader, receives.
 *
 * The list of relays changes only under both locks, the proxy's taken first. A thread that walks it holds its own. */
#define _GNU_SOURCE
#include "algorithms/nodes/proxy.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#define MS UINT64_C(1000000)

enum {
    POLL_MS = 2, /* how long to poll after the last step; then naps while a call is due */
    NAP_NS = 50000,
    LONG_NAP_NS = 500000,
    IDLE_MS = 100
};

typedef struct server {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool running;
    atomic_bool sleeps; /* true, too, if it does not run */
    atomic_uint wanted; /* threads that want the lock */
} server_t;

#define SERVER                                            \
    {                                                     \
        .lock = PTHREAD_MUTEX_INITIALIZER, .sleeps = true \
    }
static server_t g_proxy = SERVER, g_reader = SERVER;
static alg_relay_t *g_relays;

uint64_t proxy_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
}

static void forget(server_t *server)
{
    pthread_mutex_init(&server->lock, NULL);
    net_condition_make(&server->wake);
    server->running = false;
    atomic_store(&server->sleeps, true);
    atomic_store(&server->wanted, 0);
}

/* A forked child has neither threads nor communicators. */
static void forget_in_child(void)
{
    forget(&g_proxy);
    forget(&g_reader);
    g_relays = NULL;
}

NET_AT_LOAD static void prepare(void)
{
    net_condition_make(&g_proxy.wake);
    net_condition_make(&g_reader.wake);
    pthread_atfork(NULL, NULL, forget_in_child);
}

static void take(server_t *server)
{
    atomic_fetch_add(&server->wanted, 1);
    pthread_mutex_lock(&server->lock);
    atomic_fetch_sub(&server->wanted, 1);
}

static void give(server_t *server)
{
    pthread_mutex_unlock(&server->lock);
}

static void pause_between(server_t *server, long nap_ns)
{
    const struct timespec moment = {0, nap_ns};
    give(server);
    if (nap_ns > 0)
        nanosleep(&moment, NULL);
    else
        sched_yield();
    while (atomic_load(&server->wanted) > 0)
        sched_yield();
    pthread_mutex_lock(&server->lock);
}

/* Needs the server's lock. */
static bool start(server_t *server, void *(*body)(void *))
{
    server->running = server->running || net_thread_start(NULL, body, NULL) == 0;
    return server->running;
}

typedef struct sight {
    bool busy, due;
} sight_t;

static sight_t look_at_all(void)
{
    sight_t sight = {false, false};
    for (alg_relay_t *relay = g_relays; relay; relay = relay->next) {
        sight.busy |= relay_look(relay);
        sight.due |= relay_is_due(relay);
    }
    return sight;
}

/* Needs the lock. Sleeps at most 1 s: a peer whose data nobody reads takes this node for dead (TCP_USER_TIMEOUT). */
static void sleep_until_call(void)
{
    bool due = false;
    atomic_store(&g_proxy.sleeps, true);
    for (alg_relay_t *relay = g_relays; relay; relay = relay->next)
        due |= relay_is_due(relay);
    if (!due)
        net_condition_wait(&g_proxy.wake, &g_proxy.lock, proxy_now_ns() + 1000 * MS);
    atomic_store(&g_proxy.sleeps, false);
}

static void *serve_all(void *unused)
{
    uint64_t busy_ns = proxy_now_ns();
    pthread_mutex_lock(&g_proxy.lock);
    atomic_store(&g_proxy.sleeps, false);
    while (g_relays) {
        const sight_t sight = look_at_all();
        const uint64_t now = proxy_now_ns();
        if (sight.busy)
            busy_ns = now;
        const uint64_t idle_ns = now - busy_ns;
        if (idle_ns > POLL_MS * MS && !sight.due) {
            sleep_until_call();
            busy_ns = proxy_now_ns();
            continue;
        }
        pause_between(&g_proxy, idle_ns < POLL_MS * MS ? 0 : idle_ns < IDLE_MS * MS ? NAP_NS : LONG_NAP_NS);
    }
    g_proxy.running = false;
    atomic_store(&g_proxy.sleeps, true);
    give(&g_proxy);
    return unused;
}

void proxy_take(void)
{
    take(&g_proxy);
}

void proxy_give(void)
{
    give(&g_proxy);
}

void proxy_wake(void)
{
    if (!atomic_load(&g_proxy.sleeps))
        return;
    take(&g_proxy);
    pthread_cond_signal(&g_proxy.wake);
    give(&g_proxy);
}

static void *read_all(void *unused)
{
    uint64_t busy_ns = proxy_now_ns();
    pthread_mutex_lock(&g_reader.lock);
    atomic_store(&g_reader.sleeps, false);
    while (g_relays) {
        bool moved = false;
        for (alg_relay_t *relay = g_relays; relay; relay = relay->next)
            moved |= relay->network && net_network_receive(relay->network);
        const uint64_t now = proxy_now_ns();
        busy_ns = moved ? now : busy_ns;
        if (now - busy_ns < POLL_MS * MS) {
            pause_between(&g_reader, 0);
            continue;
        }
        atomic_store(&g_reader.sleeps, true);
        pthread_cond_wait(&g_reader.wake, &g_reader.lock);
        atomic_store(&g_reader.sleeps, false);
        busy_ns = proxy_now_ns();
    }
    g_reader.running = false;
    atomic_store(&g_reader.sleeps, true);
    give(&g_reader);
    return unused;
}

/* If the reader does not start, the proxy receives alone. */
void proxy_call_reader(void)
{
    if (!atomic_load(&g_reader.sleeps))
        return;
    take(&g_reader);
    (void)start(&g_reader, read_all);
    pthread_cond_signal(&g_reader.wake);
    give(&g_reader);
}

bool proxy_has_reader(void)
{
    return !atomic_load(&g_reader.sleeps);
}

void proxy_hold_reader(void)
{
    take(&g_reader);
}

void proxy_let_reader(void)
{
    give(&g_reader);
}

int proxy_add(alg_relay_t *relay)
{
    take(&g_proxy);
    const bool running = start(&g_proxy, serve_all);
    if (running) {
        take(&g_reader);
        relay->next = g_relays;
        g_relays = relay;
        give(&g_reader);
        pthread_cond_signal(&g_proxy.wake);
    }
    give(&g_proxy);
    return running ? 0 : -EAGAIN;
}

/* A thread that finds the list empty ends. */
void proxy_remove(alg_relay_t *relay)
{
    take(&g_proxy);
    take(&g_reader);
    alg_relay_t **at = &g_relays;
    while (*at && *at != relay)
        at = &(*at)->next;
    if (*at) {
        *at = relay->next;
        pthread_cond_signal(&g_reader.wake);
        pthread_cond_signal(&g_proxy.wake);
    }
    give(&g_reader);
    give(&g_proxy);
}
