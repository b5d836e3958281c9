/* SPDX-License-Identifier: Apache-2.0 */
/* listener.c - where ranks meet: a thread in the process that makes unique ids. A connection (a guest) must send its
 * hello in time. Guests with one key form a group; when all its ranks have posted a record, each gets all records. A
 * guest that leaves before the first round is over may return; later, the others get an error. A guest without the
 * secret (a stranger) gets no answer; a guest with it may be broken, so messages are checked. The listener uses at most
 * a quarter of the process's descriptors (most_guests), and closes strangers to make room. If all guests wait for other
 * ranks, callers wait in the kernel's queue. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "transport/network/meeting.h"

#define INVITATION_MAGIC UINT64_C(0x3165746976746e53)
enum { MOST_GUESTS = 256, MOST_ROUNDS = 8, CALLERS_A_LOOK = 32, DEAF_MS = 100 };

typedef struct guest {
    int connection;
    uint64_t since_ns;
    bool known; /* has sent a hello with the secret */
    wire_hello_t hello;
    uint32_t round; /* number of complete rounds */
    bool posted;    /* its record of the next round is complete */
    meeting_head_t head;
    uint8_t record[NET_ROUND_BYTES];
    size_t got; /* bytes of the hello; then of the head and the record */
} guest_t;

/* One per process; the thread owns the guests. */
typedef struct listener {
    int socket;
    uint64_t secret[2];
    guest_t guest[MOST_GUESTS];
    uint32_t guests;
    uint64_t deaf_until_ns; /* accepts nobody until then: no descriptor was left */
} listener_t;

static net_lock_t g_lock = NET_LOCK_INITIALIZER;
static listener_t *g_listener;
static net_invitation_t g_invitation; /* every id contains it */

static void remove_guest(listener_t *listener, uint32_t index)
{
    wire_close(listener->guest[index].connection);
    listener->guest[index] = listener->guest[--listener->guests];
}

/* An answer is short, and nothing is queued before it: a guest that cannot take it at once gets nothing. */
static bool answer(const guest_t *guest, uint32_t error, const void *records, size_t bytes)
{
    const meeting_head_t head = {.error = error, .bytes = error ? 0 : guest->head.bytes};
    if (wire_write_some(guest->connection, &head, sizeof(head)) != (ssize_t)sizeof(head))
        return false;
    return bytes == 0 || wire_write_some(guest->connection, records, bytes) == (ssize_t)bytes;
}

static bool same_group(const guest_t *a, const guest_t *b)
{
    return a->known && b->known && memcmp(&a->hello.group, &b->hello.group, sizeof(a->hello.group)) == 0;
}

static void end_group(listener_t *listener, const net_key_t *group, uint32_t error)
{
    for (uint32_t i = listener->guests; i-- > 0;) {
        guest_t *guest = &listener->guest[i];
        if (!guest->known || memcmp(&guest->hello.group, group, sizeof(*group)) != 0)
            continue;
        answer(guest, error, NULL, 0);
        remove_guest(listener, i);
    }
}

static void guest_left(listener_t *listener, uint32_t index)
{
    const guest_t left = listener->guest[index];
    remove_guest(listener, index);
    if (left.known && left.round > 0)
        end_group(listener, &left.hello.group, ESRCH);
}

/* Compares a hello with those of its group. Returns an errno; 0: no fault. */
static uint32_t check_hello(listener_t *listener, const guest_t *guest)
{
    const wire_hello_t *hello = &guest->hello;
    if (hello->nranks > NET_NETWORK_RANKS || hello->rank >= hello->nranks || hello->rounds == 0 ||
        hello->rounds > MOST_ROUNDS)
        return EPROTO;
    for (uint32_t i = 0; i < listener->guests; i++) {
        guest_t *other = &listener->guest[i];
        if (other == guest || !same_group(other, guest))
            continue;
        if (other->hello.nranks != hello->nranks || other->hello.rounds != hello->rounds)
            return EPROTO;
        if (other->hello.rank != hello->rank)
            continue;
        if (other->round > 0 || !wire_ended(other->connection))
            return EEXIST;
        other->known = false; /* the rank called again before this connection's end was noticed */
        other->got = 0;
    }
    return 0;
}

/* Answers the group once all have posted. */
static void finish_round(listener_t *listener, const guest_t *last)
{
    static const guest_t nobody;
    const guest_t *of_rank[NET_NETWORK_RANKS];
    uint8_t records[NET_NETWORK_RANKS * NET_ROUND_BYTES];
    const wire_hello_t hello = last->hello;
    const uint32_t bytes = last->head.bytes, nranks = hello.nranks;
    for (uint32_t r = 0; r < nranks; r++)
        of_rank[r] = &nobody;
    for (uint32_t i = 0; i < listener->guests; i++) {
        if (same_group(&listener->guest[i], last))
            of_rank[listener->guest[i].hello.rank] = &listener->guest[i];
    }
    for (uint32_t r = 0; r < nranks; r++) {
        if (!of_rank[r]->posted)
            return;
        if (of_rank[r]->head.bytes != bytes) {
            end_group(listener, &hello.group, EPROTO);
            return;
        }
        memcpy(records + (size_t)r * bytes, of_rank[r]->record, bytes);
    }
    const bool over = last->round + 1 == hello.rounds;
    for (uint32_t i = listener->guests; i-- > 0;) {
        guest_t *guest = &listener->guest[i];
        if (!guest->known || memcmp(&guest->hello.group, &hello.group, sizeof(hello.group)) != 0)
            continue;
        /* A guest that does not take its answer has left; the next round notices. */
        answer(guest, 0, records, (size_t)nranks * bytes);
        guest->round++;
        guest->posted = false;
        guest->got = 0;
        if (over)
            remove_guest(listener, i);
    }
}

/* Continues to read a part: `size` bytes at byte `from` of the expected data. 1: complete; 0: not yet; else -errno. */
static int read_part(guest_t *guest, void *part, size_t from, size_t size)
{
    if (guest->got >= from + size)
        return 1;
    const size_t done = guest->got - from;
    ssize_t got = wire_read_some(guest->connection, (uint8_t *)part + done, size - done);
    if (got < 0)
        return (int)got;
    guest->got += (size_t)got;
    return guest->got == from + size;
}

static bool read_hello(listener_t *listener, guest_t *guest)
{
    const int whole = read_part(guest, &guest->hello, 0, sizeof(guest->hello));
    if (whole <= 0)
        return whole == 0;
    if (guest->hello.magic != WIRE_MAGIC || !wire_secret_equal(guest->hello.secret, listener->secret))
        return false;
    guest->known = true;
    guest->got = 0;
    const uint32_t wrong = check_hello(listener, guest);
    if (wrong)
        answer(guest, wrong, NULL, 0);
    return !wrong;
}

static bool read_record(guest_t *guest)
{
    if (guest->posted) { /* the guest waits: a further byte is a fault */
        uint8_t byte;
        return wire_read_some(guest->connection, &byte, 1) == 0;
    }
    int whole = read_part(guest, &guest->head, 0, sizeof(guest->head));
    if (whole > 0 && guest->head.bytes > sizeof(guest->record))
        return false;
    if (whole > 0)
        whole = guest->head.bytes ? read_part(guest, guest->record, sizeof(guest->head), guest->head.bytes) : 1;
    guest->posted = whole > 0;
    return whole >= 0;
}

/* May remove this guest and others. */
static void hear_guest(listener_t *listener, uint32_t index)
{
    guest_t *guest = &listener->guest[index];
    if (!guest->known) {
        if (!read_hello(listener, guest)) {
            guest->known = false;
            guest_left(listener, index);
        }
        return;
    }
    const bool had_posted = guest->posted;
    if (!read_record(guest))
        guest_left(listener, index);
    else if (guest->posted && !had_posted)
        finish_round(listener, guest);
}

/* At least the ranks of one network have room. */
static uint32_t most_guests(void)
{
    struct rlimit files;
    const uint64_t quarter = getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur / 4 : MOST_GUESTS;
    if (quarter > MOST_GUESTS)
        return MOST_GUESTS;
    return quarter > NET_NETWORK_RANKS ? (uint32_t)quarter : (uint32_t)NET_NETWORK_RANKS;
}

/* Index of the oldest stranger; `guests`: there is none. */
static uint32_t oldest_stranger(const listener_t *listener)
{
    uint32_t oldest = listener->guests;
    for (uint32_t i = 0; i < listener->guests; i++) {
        const guest_t *guest = &listener->guest[i];
        if (!guest->known && (oldest == listener->guests || guest->since_ns < listener->guest[oldest].since_ns))
            oldest = i;
    }
    return oldest;
}

static bool has_room(const listener_t *listener)
{
    return listener->guests < most_guests() || oldest_stranger(listener) < listener->guests;
}

/* Makes room for one guest. The oldest stranger stays if its hello has arrived meanwhile. */
static bool make_room(listener_t *listener)
{
    while (listener->guests >= most_guests()) {
        const uint32_t oldest = oldest_stranger(listener);
        if (oldest == listener->guests)
            return false;
        const int connection = listener->guest[oldest].connection;
        hear_guest(listener, oldest);
        if (oldest < listener->guests && listener->guest[oldest].connection == connection &&
            !listener->guest[oldest].known)
            remove_guest(listener, oldest);
    }
    return true;
}

/* Accepts callers. Makes room only for one that is known to wait, since an accepted guest stays. */
static void welcome(listener_t *listener)
{
    for (int i = 0; i < CALLERS_A_LOOK; i++) {
        int connection;
        if (listener->guests >= most_guests() && (i > 0 || !make_room(listener)))
            return;
        const int error = wire_accept(listener->socket, &connection);
        if (error == -EMFILE)
            listener->deaf_until_ns = wire_now_ns() + DEAF_MS * UINT64_C(1000000);
        if (error)
            return;
        guest_t *guest = &listener->guest[listener->guests++];
        memset(guest, 0, sizeof(*guest));
        guest->connection = connection;
        guest->since_ns = wire_now_ns();
    }
}

/* Closes strangers whose hello is late. True if other strangers are left. */
static bool send_strangers_away(listener_t *listener)
{
    const uint64_t now = wire_now_ns();
    bool any = false;
    for (uint32_t i = listener->guests; i-- > 0;) {
        if (listener->guest[i].known)
            continue;
        if (now > listener->guest[i].since_ns + WIRE_HELLO_MS * UINT64_C(1000000))
            remove_guest(listener, i);
        else
            any = true;
    }
    return any;
}

static void *listen_on(void *argument)
{
    listener_t *listener = argument;
    struct pollfd look[MOST_GUESTS + 1];
    for (;;) {
        const bool strangers = send_strangers_away(listener);
        const uint32_t guests = listener->guests;
        const bool deaf = wire_now_ns() < listener->deaf_until_ns;
        look[0] = (struct pollfd){.fd = deaf || !has_room(listener) ? -1 : listener->socket, .events = POLLIN};
        for (uint32_t i = 0; i < guests; i++)
            look[i + 1] = (struct pollfd){.fd = listener->guest[i].connection, .events = POLLIN};
        if (poll(look, guests + 1, deaf ? DEAF_MS : strangers ? WIRE_HELLO_MS / 4 : -1) <= 0)
            continue;
        /* Guests move in the table when one leaves, so look them up by socket. */
        for (uint32_t l = 1; l <= guests; l++) {
            for (uint32_t i = 0; look[l].revents && i < listener->guests; i++) {
                if (listener->guest[i].connection == look[l].fd) {
                    hear_guest(listener, i);
                    break;
                }
            }
        }
        if (look[0].revents)
            welcome(listener);
    }
    return NULL;
}

static uint64_t checksum_of(const net_invitation_t *invitation)
{
    return net_key_hash(invitation, offsetof(net_invitation_t, checksum)).word[0];
}

bool net_invitation_valid(const net_invitation_t *invitation)
{
    return invitation->magic == INVITATION_MAGIC && invitation->checksum == checksum_of(invitation);
}

/* A child has no listener thread, and its copy of the socket is closed. */
static void forget_in_child(void)
{
    g_listener = NULL;
}

NET_IN_CHILD(forget_in_child);

static int make(const net_interfaces_t *wanted, listener_t **listener, net_invitation_t *invitation)
{
    net_invitation_t made = {.magic = INVITATION_MAGIC};
    int error = net_address_own(wanted, &made.address);
    if (error)
        return error;
    if (getrandom(made.secret, sizeof(made.secret), 0) != (ssize_t)sizeof(made.secret))
        return -errno;
    listener_t *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return -ENOMEM;
    error = wire_listen(&made.address, &fresh->socket);
    if (error) {
        free(fresh);
        return error;
    }
    memcpy(fresh->secret, made.secret, sizeof(made.secret));
    made.checksum = checksum_of(&made);
    *listener = fresh;
    *invitation = made;
    return 0;
}

static bool is_running(net_invitation_t *invitation)
{
    net_lock_take(&g_lock);
    const bool running = g_listener != NULL;
    if (running)
        *invitation = g_invitation;
    net_lock_give(&g_lock);
    return running;
}

int net_invite(const net_interfaces_t *wanted, net_invitation_t *invitation)
{
    if (is_running(invitation))
        return 0;
    listener_t *listener = NULL;
    net_invitation_t made;
    int error = make(wanted, &listener, &made);
    if (error)
        return error;
    net_lock_take(&g_lock);
    const bool first = g_listener == NULL; /* another thread may have been first */
    error = first ? net_thread_start(NULL, listen_on, listener) : 0;
    if (first && !error) {
        g_listener = listener;
        g_invitation = made;
        listener = NULL;
    }
    if (!error)
        *invitation = g_invitation;
    net_lock_give(&g_lock);
    if (listener) {
        wire_close(listener->socket);
        free(listener);
    }
    return error;
}
