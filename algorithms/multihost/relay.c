/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay.c - relays, and the proxy that serves them (relay.h, multihost.h).
 *
 * The list of relays and what is in them is the proxy's, under one lock that it holds
 * while it looks at all of them once. It gives the lock away between two looks, and a
 * look waits for nothing. The landing and the outbox are also the kernels'; words and
 * flags order them.
 *
 * Memory: a relay owns its memory and its network. The network goes first: nothing
 * lands in memory that is gone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "algorithms/multihost/multihost.h"
#include "algorithms/multihost/relay.h"

#define MS UINT64_C(1000000)

enum {
    QUEUE = 2 * RELAY_SLOTS, /* steps laid out and not sent: RELAY_SLOTS at most (relay.h) */
    POLL_MS = 2,             /* after the last step; then it naps while a graph, or a late launch, may begin a call */
    NAP_NS = 50000,
    LONG_NAP_NS = 500000, /* after IDLE_MS */
    IDLE_MS = 100,
    SEND_LIMIT_MS = 5000 /* for what peers are owed at the end */
};

typedef struct step {
    uint64_t tag;
    uint32_t slot, bytes;
} step_t;

struct alg_relay {
    alg_relay_t *next;
    alg_device_t device;
    uint32_t host, hosts;
    net_memory_t *memory;
    uint8_t *at;
    net_network_t *network; /* NULL: ended */
    alg_control_t *control; /* NULL until it is served */
    step_t queue[QUEUE];
    uint64_t laid;                /* steps that were found */
    uint64_t put[ALG_MAX_RANKS];  /* of them, given to the network for that host */
    uint64_t call;                /* the next step is of this one ... */
    uint32_t step;                /* ... and has this number */
    uint64_t last_tag;            /* of the last step that was found; 0: none */
    uint64_t kernels_begun;       /* that have ended laying out */
    _Atomic uint64_t kernels_due; /* that were launched */
    atomic_bool captured;
};

static struct proxy {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    alg_relay_t *relays;
    bool running;
    atomic_bool sleeps;
    atomic_uint wanted; /* by those who wait for the lock */
} g_proxy = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};
static pthread_once_t g_fork_once = PTHREAD_ONCE_INIT;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
}

/* The child has neither the proxy nor the communicators. */
static void forget_in_child(void)
{
    pthread_mutex_init(&g_proxy.lock, NULL);
    pthread_cond_init(&g_proxy.wake, NULL);
    g_proxy.relays = NULL;
    g_proxy.running = false;
    atomic_store(&g_proxy.sleeps, false);
    atomic_store(&g_proxy.wanted, 0);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_in_child);
}

static void take_lock(void)
{
    atomic_fetch_add(&g_proxy.wanted, 1);
    pthread_mutex_lock(&g_proxy.lock);
    atomic_fetch_sub(&g_proxy.wanted, 1);
}

static void give_lock(void)
{
    pthread_mutex_unlock(&g_proxy.lock);
}

/* ---- One look at one relay ------------------------------------------------------------- */

static uint64_t *flag_of(const alg_relay_t *relay, uint32_t host)
{
    return (uint64_t *)(relay->at + RELAY_FLAGS) + host;
}

/* All blocks have laid out the step that comes next. */
static bool find_step(alg_relay_t *relay)
{
    const uint64_t tag = RELAY_TAG(relay->call, relay->step);
    const uint32_t slot = RELAY_SLOT(relay->call, relay->step);
    const uint64_t *word = (const uint64_t *)(relay->at + RELAY_WORDS + (size_t)slot * RELAY_BLOCKS * RELAY_WORD_BYTES);
    if (__atomic_load_n(word + 1, __ATOMIC_ACQUIRE) != tag)
        return false;
    const uint64_t first = __atomic_load_n(word, __ATOMIC_RELAXED);
    const uint32_t bytes = (uint32_t)first, blocks = (uint32_t)(first >> 32) & (RELAY_LAST - 1);
    for (uint32_t b = 1; b < blocks; b++) {
        if (__atomic_load_n(word + 2 * b + 1, __ATOMIC_ACQUIRE) != tag)
            return false;
    }
    relay->queue[relay->laid++ % QUEUE] = (step_t){tag, slot, bytes};
    relay->last_tag = tag;
    relay->step++;
    if (first >> 32 & RELAY_LAST) {
        relay->call++;
        relay->step = 0;
        relay->kernels_begun++;
    }
    return true;
}

static bool give_to_network(alg_relay_t *relay, uint32_t host)
{
    bool any = false;
    while (relay->put[host] < relay->laid && net_network_sent(relay->network, host)) {
        const step_t *step = &relay->queue[relay->put[host] % QUEUE];
        const uint64_t at = (uint64_t)step->slot * RELAY_STEP_BYTES;
        if (net_network_put(relay->network, host, at, relay->at + RELAY_OUTBOX + at, step->bytes, step->tag) != 0)
            break;
        relay->put[host]++;
        any = true;
    }
    return any;
}

/* It has sent all that it will. Kernels that need more are told. */
static void lose(alg_relay_t *relay, uint32_t host)
{
    if (__atomic_load_n(flag_of(relay, host), __ATOMIC_RELAXED) < relay->last_tag)
        __atomic_store_n(flag_of(relay, host), RELAY_LOST, __ATOMIC_RELEASE);
}

static void end_network(alg_relay_t *relay)
{
    net_network_close(relay->network);
    relay->network = NULL;
}

/* Steps are on their way, or a kernel has more of them to come. */
static bool under_way(const alg_relay_t *relay)
{
    bool any = relay->step > 0;
    for (uint32_t h = 0; h < relay->hosts; h++) {
        if (h != relay->host && net_network_alive(relay->network, h))
            any = any || relay->put[h] < relay->laid || !net_network_sent(relay->network, h) ||
                  __atomic_load_n(flag_of(relay, h), __ATOMIC_RELAXED) < relay->last_tag;
    }
    return any;
}

/* True if something was done, or is under way. */
static bool look(alg_relay_t *relay)
{
    if (!relay->network)
        return false;
    if (relay->control && __atomic_load_n(&relay->control->abort, __ATOMIC_ACQUIRE)) {
        end_network(relay); /* that is how the others learn of it */
        return false;
    }
    bool any = false;
    while (relay->laid - relay->put[relay->host] < QUEUE && find_step(relay))
        any = true;
    for (uint32_t h = 0; h < relay->hosts; h++) {
        if (h == relay->host)
            continue;
        any |= give_to_network(relay, h);
        if (!net_network_alive(relay->network, h))
            lose(relay, h);
    }
    any |= net_network_progress(relay->network, 0);
    /* The own entry is the slowest host's: a place in the queue is free when all have it. */
    uint64_t least = relay->laid;
    for (uint32_t h = 0; h < relay->hosts; h++) {
        if (h != relay->host && net_network_alive(relay->network, h))
            least = relay->put[h] < least ? relay->put[h] : least;
    }
    relay->put[relay->host] = least;
    return any || under_way(relay);
}

/* ---- The proxy --------------------------------------------------------------------------- */

typedef struct sight {
    bool busy; /* something was done, or is under way */
    bool due;  /* a call may begin without a word to the host, or was launched and has yet to begin */
} sight_t;

static bool is_due(const alg_relay_t *relay)
{
    return relay->network && (atomic_load(&relay->captured) || relay->kernels_begun < atomic_load(&relay->kernels_due));
}

static sight_t look_at_all(void)
{
    sight_t sight = {false, false};
    for (alg_relay_t *relay = g_proxy.relays; relay; relay = relay->next) {
        sight.busy |= look(relay);
        sight.due |= is_due(relay);
    }
    return sight;
}

/* Until a call is launched, or for a while: what a peer sends meanwhile must be read, or its system takes this one for
 * dead (TCP_USER_TIMEOUT). Under the lock. */
static void sleep_until_call(void)
{
    bool due = false;
    atomic_store(&g_proxy.sleeps, true);
    for (alg_relay_t *relay = g_proxy.relays; relay; relay = relay->next)
        due |= is_due(relay);
    if (!due) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&g_proxy.wake, &g_proxy.lock, &until);
    }
    atomic_store(&g_proxy.sleeps, false);
}

/* Others may need the core that this thread is bound to. */
static void pause_a_moment(long nap_ns)
{
    const struct timespec moment = {0, nap_ns};
    if (nap_ns > 0)
        nanosleep(&moment, NULL);
    else
        sched_yield();
}

static void *serve_all(void *unused)
{
    uint64_t busy_ns = now_ns();
    pthread_mutex_lock(&g_proxy.lock);
    while (g_proxy.relays) {
        const sight_t sight = look_at_all();
        const uint64_t now = now_ns();
        if (sight.busy)
            busy_ns = now;
        const uint64_t idle_ns = now - busy_ns;
        if (idle_ns > POLL_MS * MS && !sight.due) {
            sleep_until_call();
            busy_ns = now_ns();
            continue;
        }
        give_lock();
        pause_a_moment(idle_ns < POLL_MS * MS ? 0 : idle_ns < IDLE_MS * MS ? NAP_NS : LONG_NAP_NS);
        while (atomic_load(&g_proxy.wanted) > 0)
            sched_yield();
        pthread_mutex_lock(&g_proxy.lock);
    }
    g_proxy.running = false;
    give_lock();
    return unused;
}

/* Under the lock. */
static bool start_proxy(void)
{
    g_proxy.running = g_proxy.running || net_thread_start(NULL, serve_all, NULL) == 0;
    return g_proxy.running;
}

static void wake_proxy(void)
{
    take_lock();
    pthread_cond_signal(&g_proxy.wake);
    give_lock();
}

/* ---- A relay's life -------------------------------------------------------------------- */

int alg_relay_create(alg_device_t device, int ordinal, uint32_t host, uint32_t hosts, alg_relay_t **relay)
{
    uint8_t offer[NET_OFFER_BYTES];
    const net_memory_kind_t kind = device == ALG_DEVICE_HOST ? NET_MEMORY_HOST : NET_MEMORY_PINNED;
    if (hosts > ALG_MAX_RANKS || host >= hosts)
        return -EINVAL;
    alg_relay_t *made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    int error = net_memory_create(kind, ordinal, relay_bytes(hosts), &made->memory, offer);
    if (error) {
        free(made);
        return error;
    }
    made->device = device;
    made->host = host;
    made->hosts = hosts;
    made->at = net_memory_pointer(made->memory);
    *relay = made;
    return 0;
}

net_landing_t alg_relay_landing(const alg_relay_t *relay)
{
    return (net_landing_t){.windows = relay->at + RELAY_INBOX,
                           .window_bytes = RELAY_WINDOW_BYTES,
                           .flags = flag_of(relay, 0),
                           .source = relay->at + RELAY_OUTBOX,
                           .source_bytes = RELAY_WINDOW_BYTES};
}

void alg_relay_connected(alg_relay_t *relay, net_network_t *network)
{
    relay->network = network;
}

int alg_relay_serve(alg_relay_t *relay, alg_team_t *team, alg_control_t *control)
{
    pthread_once(&g_fork_once, watch_forks);
    team->host = relay->host;
    team->hosts = relay->hosts;
    team->relay = relay->at;
    relay->control = control;
    take_lock();
    const bool running = start_proxy();
    if (running) {
        relay->next = g_proxy.relays;
        g_proxy.relays = relay;
        pthread_cond_signal(&g_proxy.wake);
    } else {
        relay->control = NULL; /* the control words may be freed before the relay */
    }
    give_lock();
    return running ? 0 : -EAGAIN;
}

void alg_relay_call(alg_relay_t *relay, const alg_team_t *team, const alg_call_t *call, bool captured)
{
    if (captured)
        atomic_store(&relay->captured, true);
    else
        atomic_fetch_add(&relay->kernels_due, alg_exchange_kernels(team, call));
    if (atomic_load(&g_proxy.sleeps))
        wake_proxy();
}

/* The last step may be on its way to a slow host, or not have been found yet. */
static bool owes(alg_relay_t *relay)
{
    bool any = false;
    (void)look(relay);
    for (uint32_t h = 0; relay->network && h < relay->hosts; h++) {
        if (h != relay->host && net_network_alive(relay->network, h))
            any = any || relay->put[h] < relay->laid || !net_network_sent(relay->network, h);
    }
    return any;
}

void alg_relay_flush(alg_relay_t *relay)
{
    const struct timespec moment = {0, NAP_NS};
    const uint64_t limit = now_ns() + SEND_LIMIT_MS * MS;
    take_lock();
    while (owes(relay) && now_ns() < limit) {
        give_lock();
        nanosleep(&moment, NULL);
        take_lock();
    }
    give_lock();
}

void alg_relay_destroy(alg_relay_t *relay)
{
    if (!relay)
        return;
    alg_relay_flush(relay);
    take_lock();
    for (alg_relay_t **at = &g_proxy.relays; *at; at = &(*at)->next) {
        if (*at == relay) {
            *at = relay->next;
            break;
        }
    }
    pthread_cond_signal(&g_proxy.wake);
    give_lock();
    end_network(relay);
    net_memory_destroy(relay->memory);
    free(relay);
}
