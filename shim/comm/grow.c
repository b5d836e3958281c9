/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grow.c - further pieces of a communicator's scratch.
 *
 * A call that needs a missing piece (alg_piece_of, equal on all ranks) asks for it and waits. A thread of each process
 * does the rest, and never waits for a kernel. One communicator's piece never waits for another's.
 *
 * The ranks meet as in a set-up, under a key of communicator and piece. When all ranks have posted a record, each acts:
 *
 *   JOINED  nothing       -> make and arm this rank's memory
 *   MADE    errno, offer  -> send descriptors (kinds that send)
 *   SENT    errno         -> map the peers' memory
 *   OPENED  errno         -> the verdict; or MADE for the next piece
 *
 * No rank uses a piece before the verdict: by then every rank has armed its memory and mapped all others'. A rank that
 * has declined a piece declines again whenever a peer asks.
 *
 * A rank that asks joins, then rings the bells of all ranks' processes (transport/bell.c). Their threads look for
 * meetings under their communicators' keys; also after each attach, since a peer may ask before this rank knows its
 * own verdict, and once a second, for peers that cannot ring.
 *
 * In a suspend each rank gives back its memory without the others: a peer's late stores go to memory that the peer
 * still maps. In a resume a rank joins only after its own program has resumed.
 */
#define _GNU_SOURCE
#include "shim/comm/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim/base/key.h"
#include "shim/base/log.h"
#include "shim/comm/drain.h"
#include "shim/comm/stop.h"

enum { STAGE_JOINED, STAGE_MADE, STAGE_SENT, STAGE_OPENED, PIECE_STAGES = 3 };
enum { ALL = ALG_PIECES }; /* instead of a piece: all pieces that a suspended scratch had */
_Static_assert(1 + ALG_PIECES * PIECE_STAGES <= (int)NET_STAGES, "transport has too few stages");
enum {
    JOB_LIMIT_MS = SHIM_GROW_LIMIT_MS - 2000, /* before the calls give up */
    LOOK_MS = 1000,
    WATCH_MS = 100, /* between checks that the peers live */
    SUSPEND_LIMIT_MS = 10000,
    LEAVERS = 64
};

typedef struct job {
    struct job *next;
    shim_comm_t *comm; /* a reference, which keeps the scratch */
    uint32_t what;     /* a piece, or ALL */
    uint32_t pieces;   /* bits of pieces not begun yet */
    uint32_t piece;
    uint32_t round; /* number of pieces made before `piece` */
    net_rendezvous_t *rendezvous;
    uint32_t stage; /* the last one of `piece` that this rank has posted */
    bool making;    /* the thread is arming memory and has not posted MADE yet */
    uint8_t offer[NET_OFFER_BYTES];
    uint64_t deadline_ns, watch_ns;
} job_t;

typedef struct made {
    int32_t error;
    uint8_t offer[NET_OFFER_BYTES];
} made_t;

_Static_assert(sizeof(made_t) <= NET_LATER_BYTES, "a record has no room for an offer");

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t g_changed; /* a job has ended */
static bool g_running;
static job_t *g_jobs; /* only the thread changes it, under the lock */

/* A rank's state, copied under the lock. Sets of pieces are bit masks. */
typedef struct member {
    shim_comm_t *comm; /* NULL: the rank has left */
    ncclComm_t handle;
    net_key_t key;
    uint32_t rank, nranks;
    uint32_t asked, declined;
    uint32_t begun; /* pieces that exist or are being made */
    bool empty;
} member_t;

static shim_comm_t *g_members;      /* linked by grows_next; a state leaves before it is freed. Under the lock */
static member_t g_leavers[LEAVERS]; /* the last ranks that left. Under the lock */
static uint32_t g_left;

static void forget_in_child(void)
{
    pthread_mutex_init(&g_lock, NULL);
    net_condition_make(&g_changed);
    g_running = false;
    g_jobs = NULL;
    g_members = NULL;
    g_left = 0;
}

NET_AT_LOAD static void prepare(void)
{
    net_condition_make(&g_changed);
    pthread_atfork(NULL, NULL, forget_in_child);
}

static bool is_alive(const shim_comm_t *comm)
{
    return atomic_load(&comm->phase) == SHIM_COMM_ATTACHED;
}

static bool has_declined(shim_comm_t *comm, uint32_t piece)
{
    return atomic_load(&comm->declined) >> piece & 1;
}

static net_key_t key_of(const net_key_t *comm, uint32_t piece)
{
    return shim_key_child(comm, 'p', piece);
}

static const char *name_of(uint32_t piece)
{
    static const char *const names[] = {"", "medium-sized calls", "messages", "long calls", "calls"};
    return names[piece];
}

static void decline(job_t *job, const char *reason)
{
    (void)net_decide(job->rendezvous, NET_DECLINED, reason);
}

static uint32_t stage_of(const job_t *job, uint32_t stage)
{
    return stage == STAGE_JOINED ? stage : stage + job->round * PIECE_STAGES;
}

static void post(job_t *job, uint32_t stage, const void *record, size_t size)
{
    job->stage = stage;
    if (net_post(job->rendezvous, stage_of(job, stage), record, size) != 0)
        decline(job, "its shared memory is damaged");
}

static int read_all(const job_t *job, uint32_t stage, size_t size, uint8_t offers[][NET_OFFER_BYTES])
{
    for (uint32_t r = 0; r < job->comm->nranks; r++) {
        made_t record = {0};
        size_t got = 0;
        int error = net_read(job->rendezvous, stage_of(job, stage), r, &record, size, &got);
        if (error || got != size)
            return error ? error : -EPROTO;
        if (record.error)
            return record.error;
        if (offers)
            memcpy(offers[r], record.offer, NET_OFFER_BYTES);
    }
    return 0;
}

static void make(job_t *job)
{
    made_t record = {0};
    if (!job->making)
        record.error = alg_scratch_piece_create(job->comm->scratch, job->piece, job->offer);
    job->making = true;
    const int armed = record.error ? record.error : alg_scratch_piece_armed(job->comm->scratch, job->piece);
    if (armed == 0)
        return;
    job->making = false;
    record.error = armed < 0 ? armed : 0;
    memcpy(record.offer, job->offer, sizeof(record.offer));
    post(job, STAGE_MADE, &record, sizeof(record));
}

static void share(job_t *job)
{
    uint8_t offers[ALG_MAX_RANKS][NET_OFFER_BYTES];
    int32_t error = read_all(job, STAGE_MADE, sizeof(made_t), offers);
    if (!error)
        error = alg_scratch_piece_send(job->comm->scratch, job->piece, offers);
    post(job, STAGE_SENT, &error, sizeof(error));
}

static void open_peers(job_t *job)
{
    uint8_t offers[ALG_MAX_RANKS][NET_OFFER_BYTES];
    int32_t error = read_all(job, STAGE_SENT, sizeof(error), NULL);
    if (!error)
        error = read_all(job, STAGE_MADE, sizeof(made_t), offers);
    if (!error)
        error = alg_scratch_piece_open(job->comm->scratch, job->piece, offers);
    post(job, STAGE_OPENED, &error, sizeof(error));
}

static void make_next(job_t *job)
{
    job->piece = (uint32_t)__builtin_ctz(job->pieces);
    job->pieces &= job->pieces - 1;
    make(job);
}

static void judge(job_t *job)
{
    const int error = read_all(job, STAGE_OPENED, sizeof(int32_t), NULL);
    if (error) {
        decline(job, strerror(-error));
    } else if (job->pieces) {
        job->round++;
        make_next(job);
    } else {
        (void)net_decide(job->rendezvous, NET_ATTACHED, "");
    }
}

static void act(job_t *job)
{
    if (job->stage == STAGE_JOINED) {
        net_unlink(job->rendezvous);
        make_next(job);
    } else if (job->stage == STAGE_MADE) {
        share(job);
    } else if (job->stage == STAGE_SENT) {
        open_peers(job);
    } else {
        judge(job);
    }
}

static const char *obstacle(job_t *job)
{
    const uint64_t now = net_now_ns();
    if (!is_alive(job->comm) || shim_comm_exiting())
        return "the communicator ends";
    if (has_declined(job->comm, job->what))
        return "a call has waited too long";
    if (now > job->deadline_ns)
        return "a rank's process did not answer";
    if (now < job->watch_ns)
        return NULL;
    job->watch_ns = now + WATCH_MS * UINT64_C(1000000);
    return job->what == ALL || alg_scratch_peers_alive(job->comm->scratch) ? NULL : "a rank's process is gone";
}

static bool step(job_t *job)
{
    if (net_verdict(job->rendezvous) != NET_PENDING)
        return false;
    const char *why = obstacle(job);
    if (why) {
        decline(job, why);
        return true;
    }
    if (job->making) {
        make(job);
        return !job->making;
    }
    switch (net_poll(job->rendezvous, stage_of(job, job->stage))) {
    case 1:
        act(job);
        return true;
    case 0:
    case -ECANCELED:
        return false;
    default:
        decline(job, "a rank died or gave up");
        return true;
    }
}

static void tell(const job_t *job, bool grown)
{
    const shim_comm_t *comm = job->comm;
    void *handle = (void *)atomic_load(&comm->handle);
    if (grown)
        shim_info("communicator %p (rank %u of %u) has made memory for %s: its scratch is now %zu KiB", handle,
                  comm->rank, comm->nranks, name_of(job->what), alg_scratch_bytes(comm->scratch) / 1024);
    else if (is_alive(comm) && net_decided(job->rendezvous))
        shim_warn(
            "Shunt %s %s of communicator %p (rank %u of %u) from now on, since their memory could not be made: %s",
            comm->ops->without_memory, name_of(job->what), handle, comm->rank, comm->nranks,
            net_reason(job->rendezvous));
}

/* Under the lock. */
static void resumed(shim_comm_t *comm)
{
    alg_scratch_resumed(comm->scratch);
    atomic_fetch_and(&comm->asked, ~(1u << ALL));
    atomic_store(&comm->empty, false);
    atomic_store(&comm->suspended, false);
}

/* The program must not launch graphs with the communicator's calls any more. Under the lock. */
static void unresumed(shim_comm_t *comm)
{
    int attached = SHIM_COMM_ATTACHED;
    atomic_compare_exchange_strong(&comm->phase, &attached, SHIM_COMM_FORWARD);
    atomic_store(&comm->suspended, false);
}

/* If not, an attached verdict comes from a broken peer. */
static bool has_opened(const job_t *job)
{
    return job->stage == STAGE_OPENED && job->pieces == 0;
}

static void end(job_t *job)
{
    shim_comm_t *comm = job->comm;
    const bool grown = net_verdict(job->rendezvous) == NET_ATTACHED && has_opened(job);
    const uint32_t pieces = alg_scratch_pieces(comm->scratch) | 1u << job->what;
    tell(job, grown);
    pthread_mutex_lock(&g_lock);
    for (job_t **at = &g_jobs; *at; at = &(*at)->next) {
        if (*at == job) {
            *at = job->next;
            break;
        }
    }
    for (uint32_t piece = 0; piece < ALG_PIECES; piece++)
        if (piece == job->what || job->what == ALL)
            alg_scratch_piece_end(comm->scratch, piece, grown && pieces >> piece & 1);
    if (!grown)
        atomic_fetch_or(&comm->declined, 1u << job->what);
    if (job->what == ALL)
        (grown ? resumed : unresumed)(comm);
    pthread_cond_broadcast(&g_changed);
    pthread_mutex_unlock(&g_lock);
    net_leave(job->rendezvous);
    free(job);
    shim_comm_release(comm);
}

static bool has_job(const shim_comm_t *comm, uint32_t what)
{
    for (const job_t *job = g_jobs; job; job = job->next)
        if (job->comm == comm && job->what == what)
            return true;
    return false;
}

static bool has_any_job(const shim_comm_t *comm)
{
    bool any = false;
    for (uint32_t what = 0; what <= ALL; what++)
        any = any || has_job(comm, what);
    return any;
}

static void ring_peers(const shim_comm_t *comm)
{
    for (uint32_t r = 0; r < comm->nranks; r++)
        if (r != comm->rank)
            (void)net_bell_ring(&comm->bell[r]);
}

static int enter(shim_comm_t *comm, uint32_t piece, bool asked, net_rendezvous_t **rendezvous)
{
    const net_key_t own = shim_comm_own_key(comm), key = key_of(&own, piece);
    int error = net_join(&key, rendezvous);
    if (error)
        return error;
    if (net_count(*rendezvous) == 1 && !asked) /* the rank that asked has left */
        error = -ESRCH;
    else
        error = net_set_rank(*rendezvous, comm->rank, comm->nranks);
    if (error)
        net_leave(*rendezvous);
    else if (net_count(*rendezvous) < comm->nranks)
        ring_peers(comm);
    return error;
}

static void give_up(shim_comm_t *comm, uint32_t piece)
{
    pthread_mutex_lock(&g_lock);
    atomic_fetch_or(&comm->declined, 1u << piece);
    pthread_cond_broadcast(&g_changed);
    pthread_mutex_unlock(&g_lock);
}

static void begin(shim_comm_t *comm, uint32_t piece, bool asked)
{
    job_t *job = calloc(1, sizeof(*job));
    int error = job ? enter(comm, piece, asked, &job->rendezvous) : -ENOMEM;
    if (error) {
        if (asked && !has_declined(comm, piece)) {
            shim_warn("Shunt %s %s of communicator %p (rank %u of %u) from now on: this rank cannot meet the others "
                      "in shared memory: %s; see whether /dev/shm is full",
                      comm->ops->without_memory, name_of(piece), (void *)atomic_load(&comm->handle), comm->rank,
                      comm->nranks, strerror(-error));
            give_up(comm, piece);
        }
        free(job);
        return;
    }
    shim_comm_retain(comm);
    job->comm = comm;
    job->what = piece;
    job->pieces = piece == ALL ? alg_scratch_pieces(comm->scratch) : 1u << piece;
    job->deadline_ns = net_now_ns() + JOB_LIMIT_MS * UINT64_C(1000000);
    post(job, STAGE_JOINED, NULL, 0);
    pthread_mutex_lock(&g_lock);
    job->next = g_jobs;
    g_jobs = job;
    pthread_mutex_unlock(&g_lock);
}

/* Also for a rank that has left, since its peers would wait for it. */
static void decline_for(const member_t *member, uint32_t piece, const char *reason)
{
    const net_key_t key = key_of(&member->key, piece);
    net_rendezvous_t *rendezvous;
    if (!net_is_met(&key) || net_join(&key, &rendezvous) != 0)
        return;
    if (net_count(rendezvous) > 1 && net_set_rank(rendezvous, member->rank, member->nranks) == 0)
        (void)net_decide(rendezvous, NET_DECLINED, reason);
    net_leave(rendezvous);
}

/* By now `held` may be another communicator's state, even under the same handle. */
static bool is_still(const shim_comm_t *held, const member_t *member)
{
    const net_key_t own = shim_comm_own_key(held);
    return held == member->comm && is_alive(held) && memcmp(&own, &member->key, sizeof(own)) == 0;
}

static void begin_for(const member_t *member, uint32_t piece, bool asked)
{
    shim_comm_t *held = shim_comm_acquire(member->handle);
    if (held && is_still(held, member))
        begin(held, piece, asked);
    else
        decline_for(member, piece, "a rank has left");
    shim_comm_release(held);
}

static void look_at(const member_t *member)
{
    for (uint32_t piece = ALG_PIECE_FIRST + 1; piece <= ALL; piece++) {
        const net_key_t key = key_of(&member->key, piece);
        const bool asked = member->asked >> piece & 1;
        if (member->begun >> piece & 1 || !(asked || net_is_met(&key)))
            continue;
        if (!member->comm || (member->empty && piece != ALL))
            decline_for(member, piece, member->comm ? "a rank is suspended" : "a rank has left");
        else if (member->declined >> piece & 1)
            decline_for(member, piece, "it was declined before");
        else
            begin_for(member, piece, asked);
    }
}

static member_t member_of(shim_comm_t *comm)
{
    const bool alive = is_alive(comm);
    member_t member = {.comm = alive ? comm : NULL,
                       .handle = atomic_load(&comm->handle),
                       .key = shim_comm_own_key(comm),
                       .rank = comm->rank,
                       .nranks = comm->nranks,
                       .asked = alive ? atomic_load(&comm->asked) : 0,
                       .declined = atomic_load(&comm->declined),
                       .empty = atomic_load(&comm->empty)};
    for (uint32_t piece = ALG_PIECE_FIRST + 1; piece < ALG_PIECES; piece++)
        if (alg_scratch_has(comm->scratch, piece) || has_job(comm, piece))
            member.begun |= 1u << piece;
    member.asked &= ~member.declined;
    if (alive && (has_job(comm, ALL) || !((member.asked | member.declined) >> ALL & 1)))
        member.begun |= 1u << ALL;
    return member;
}

static void look(void)
{
    uint32_t count = 0;
    pthread_mutex_lock(&g_lock);
    for (shim_comm_t *comm = g_members; comm; comm = comm->grows_next)
        count++;
    const uint32_t left = g_left < LEAVERS ? g_left : LEAVERS;
    member_t *seen = calloc(count + left + 1, sizeof(*seen));
    count = 0;
    for (shim_comm_t *comm = seen ? g_members : NULL; comm; comm = comm->grows_next)
        seen[count++] = member_of(comm);
    for (uint32_t i = 0; seen && i < left; i++)
        seen[count++] = g_leavers[i];
    pthread_mutex_unlock(&g_lock);
    for (uint32_t i = 0; i < count; i++)
        look_at(&seen[i]);
    free(seen);
}

static void wake_thread(void)
{
    net_bell_t own;
    if (net_bell_place(&own) == 0)
        (void)net_bell_ring(&own);
}

void shim_grow_attached(shim_comm_t *comm)
{
    pthread_mutex_lock(&g_lock);
    comm->grows = true;
    comm->grows_next = g_members;
    g_members = comm;
    pthread_mutex_unlock(&g_lock);
    wake_thread();
}

void shim_grow_end(shim_comm_t *comm)
{
    if (!comm->grows)
        return;
    pthread_mutex_lock(&g_lock);
    for (shim_comm_t **at = &g_members; *at; at = &(*at)->grows_next) {
        if (*at == comm) {
            *at = comm->grows_next;
            break;
        }
    }
    comm->grows = false;
    g_leavers[g_left++ % LEAVERS] =
        (member_t){.key = shim_comm_own_key(comm), .rank = comm->rank, .nranks = comm->nranks};
    pthread_mutex_unlock(&g_lock);
}

static bool step_all(void)
{
    bool moved = false;
    job_t *next = NULL;
    for (job_t *job = g_jobs; job; job = next) {
        next = job->next;
        moved = step(job) || moved;
        if (net_verdict(job->rendezvous) != NET_PENDING)
            end(job);
    }
    return moved;
}

static void *serve(void *unused)
{
    uint32_t seen = net_bell_rung() - 1;
    uint64_t look_ns = 0;
    long nap_ns = 20000;
    for (;;) {
        const uint32_t rung = net_bell_rung();
        if (rung != seen || net_now_ns() >= look_ns) {
            seen = rung;
            look_ns = net_now_ns() + LOOK_MS * UINT64_C(1000000);
            look();
        }
        if (!g_jobs) {
            net_bell_wait(seen, LOOK_MS);
        } else if (step_all()) {
            nap_ns = 20000;
        } else {
            nanosleep(&(struct timespec){0, nap_ns}, NULL);
            nap_ns = nap_ns < 500000 ? nap_ns * 2 : 1000000;
        }
    }
    return unused;
}

int shim_grow_start(net_bell_t *place)
{
    int error = net_bell_place(place);
    if (error)
        return error;
    pthread_mutex_lock(&g_lock);
    if (!g_running) {
        error = net_thread_start(NULL, serve, NULL);
        g_running = error == 0;
    }
    pthread_mutex_unlock(&g_lock);
    return error;
}

/* The thread is late, perhaps blocked in the driver. So the waiting call declines, unless the peers have attached the
 * piece already. Under the lock. */
static void end_wait(shim_comm_t *comm, uint32_t what)
{
    job_t *job = g_jobs;
    while (job && (job->comm != comm || job->what != what))
        job = job->next;
    const bool grown = job && net_decide(job->rendezvous, NET_DECLINED, "a call has waited too long") == NET_ATTACHED;
    if (!grown)
        atomic_fetch_or(&comm->declined, 1u << what);
    if (what == ALL)
        (grown ? resumed : unresumed)(comm);
    else if (grown)
        alg_scratch_piece_end(comm->scratch, what, true);
}

static bool is_there(const shim_comm_t *comm, uint32_t what)
{
    return what == ALL ? !atomic_load(&comm->empty) : alg_scratch_has(comm->scratch, what);
}

bool shim_grow_wait(shim_comm_t *comm, uint32_t what)
{
    const uint64_t limit_ns = net_now_ns() + SHIM_GROW_LIMIT_MS * UINT64_C(1000000);
    if (has_declined(comm, what))
        return false;
    atomic_fetch_or(&comm->asked, 1u << what);
    wake_thread();
    pthread_mutex_lock(&g_lock);
    while (!is_there(comm, what) && !has_declined(comm, what) && is_alive(comm)) {
        (void)net_condition_wait(&g_changed, &g_lock, net_now_ns() + WATCH_MS * UINT64_C(1000000));
        if (net_now_ns() > limit_ns)
            end_wait(comm, what);
    }
    pthread_mutex_unlock(&g_lock);
    return is_there(comm, what);
}

void shim_grow_suspend(shim_comm_t *comm)
{
    if (!is_alive(comm) || atomic_load(&comm->empty))
        return;
    if (!comm->grows) {
        shim_info(
            "communicator %p (rank %u of %u) is suspended but keeps its memory: only a scratch of 32 MB or more in "
            "CUDA VMM memory on one node can be freed (see SHUNT_SCRATCH_BYTES, NCCL_CUMEM_ENABLE)",
            (void *)atomic_load(&comm->handle), comm->rank, comm->nranks);
        return;
    }
    if (!shim_drain(comm, SUSPEND_LIMIT_MS)) {
        shim_warn("communicator %p (rank %u of %u) is suspended and keeps its memory: its calls have not ended within "
                  "%u ms; wait for them first",
                  (void *)atomic_load(&comm->handle), comm->rank, comm->nranks, SUSPEND_LIMIT_MS);
        return;
    }
    /* Wait for jobs in progress: a peer may use a job's piece before the job has seen the verdict. All ranks must know
     * the same pieces, and nothing may be mapped later. */
    pthread_mutex_lock(&g_lock);
    while (has_any_job(comm))
        (void)net_condition_wait(&g_changed, &g_lock, net_now_ns() + WATCH_MS * UINT64_C(1000000));
    atomic_store(&comm->empty, true);
    comm->emptied_by = net_thread_number();
    pthread_mutex_unlock(&g_lock);
    (void)alg_scratch_suspend(comm->scratch);
}

/* Another rank of the communicator that this thread has suspended and not resumed; `asked`: one that waits for memory
 * already. */
static ncclComm_t other_to_resume(const shim_comm_t *comm, bool asked)
{
    pthread_mutex_lock(&g_lock);
    shim_comm_t *at = g_members;
    while (at && (at == comm || at->nonce != comm->nonce || memcmp(&at->key, &comm->key, sizeof(at->key)) ||
                  at->emptied_by != net_thread_number() || !atomic_load(&at->empty) || !is_alive(at) ||
                  has_declined(at, ALL) || (atomic_load(&at->asked) >> ALL & 1) != asked))
        at = at->grows_next;
    const ncclComm_t handle = at ? atomic_load(&at->handle) : NULL;
    pthread_mutex_unlock(&g_lock);
    return handle;
}

bool shim_grow_resume(shim_comm_t *comm)
{
    if (!is_alive(comm) || !atomic_load(&comm->empty)) {
        atomic_store(&comm->suspended, false);
        return true;
    }
    if (other_to_resume(comm, false)) {
        atomic_fetch_or(&comm->asked, 1u << ALL);
        return true;
    }
    bool resumed = shim_grow_wait(comm, ALL);
    for (shim_comm_t *other; (other = shim_comm_acquire(other_to_resume(comm, true))) != NULL; shim_comm_release(other))
        resumed = shim_grow_wait(other, ALL) && resumed;
    return resumed;
}
