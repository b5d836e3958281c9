/* SPDX-License-Identifier: Apache-2.0 */
/* agree.c - the ranks of a group agree by one verdict whether it is served.
 * As in a communicator's set-up (setup/stages.c), each rank posts a record in every stage, a failure as an error
 * number, so all take the same branch. Creating a group blocks on every rank, so each steps its own meeting, under a
 * key of the communicator and the number of its groups so far:
 *   IDENTITY  shape, refusal  -> compare; free ended groups' scratches; make and arm the scratch
 *   OFFER     errno, offer    -> send descriptors
 *   SENT      errno           -> map the peers' memory, store tokens
 *   OPENED    errno           -> check this rank's mailboxes
 *   PROOF     errno           -> the verdict
 *
 * A rank that comes after the others gave up finds a decided meeting, begins a new one, and gives up too. The memory is
 * of the communicator's kind: its ranks have proven that it works. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "shim/base/key.h"
#include "shim/comm/reap.h"
#include "shim/comm/stop.h"
#include "shim/experts/group.h"

enum { IDENTITY, OFFER, SENT, OPENED, PROOF, STAGES };
/* A rank may come late, since it loads its weights first. */
enum { COME_MS = 60000, LIMIT_MS = 10000, LOOK_MS = 50, WHY_BYTES = 160 };

typedef struct identity {
    alg_experts_shape_t shape;
    net_process_t process;
    shim_record_offer_t record;
    uint64_t id; /* random; rank 0's identifies the scratch */
    char refusal[WHY_BYTES];
} identity_t;

typedef struct offer {
    int32_t error; /* every record after IDENTITY begins with it */
    uint8_t bytes[NET_OFFER_BYTES];
} offer_t;

_Static_assert(sizeof(identity_t) <= NET_RECORD_BYTES && sizeof(offer_t) <= NET_LATER_BYTES, "a record has no room");

typedef struct meeting {
    shim_comm_t *comm;
    const alg_experts_shape_t *shape;
    shim_record_t *record;
    net_rendezvous_t *rendezvous;
    alg_scratch_t *scratch;
    uint64_t id;
    uint32_t stage; /* the last stage that this rank posted */
    uint64_t limit_ns, deadline_ns, look_ns;
    char why[WHY_BYTES]; /* this rank's finding, equal on all ranks; empty: the verdict has the reason */
} meeting_t;

static void decline(const meeting_t *meeting, const char *why)
{
    (void)net_decide(meeting->rendezvous, NET_DECLINED, why);
}

static void post(meeting_t *meeting, uint32_t stage, const void *record, size_t size)
{
    meeting->stage = stage;
    const uint64_t least_ns = LIMIT_MS * UINT64_C(1000000); /* least limit once all ranks have come */
    const bool all_here = stage != IDENTITY && meeting->limit_ns < least_ns;
    meeting->deadline_ns = net_now_ns() + (all_here ? least_ns : meeting->limit_ns);
    if (net_post(meeting->rendezvous, stage, record, size) != 0)
        decline(meeting, "the ranks' shared memory is damaged");
}

static int read_record(const meeting_t *meeting, uint32_t stage, uint32_t rank, void *record, size_t size)
{
    size_t got = 0;
    const int error = net_read(meeting->rendezvous, stage, rank, record, size, &got);
    return error ? error : got == size ? 0 : -EPROTO;
}

/* The first error in rank order, and its rank; 0: none. */
static int first_error(const meeting_t *meeting, uint32_t *rank)
{
    const size_t size = meeting->stage == OFFER ? sizeof(offer_t) : sizeof(int32_t);
    for (uint32_t r = 0; r < meeting->comm->nranks; r++) {
        offer_t record;
        const int error = read_record(meeting, meeting->stage, r, &record, size);
        if (error || record.error) {
            *rank = r;
            return error ? error : record.error;
        }
    }
    return 0;
}

/* Before memory is made, frees what destroyed groups left, unless another group lives or calls run: the driver's free
 * waits for all kernels of the device, and here the ranks wait for each other. A peer may close its mapping only in
 * this stage, so at most two such memories remain beside a living group's (docs/lab/experts.md, "Ends"). */
static void free_ended(const shim_comm_t *comm)
{
    shim_extra_forget(comm);
    shim_comm_reap_idle();
}

static void make(meeting_t *meeting)
{
    const shim_comm_t *comm = meeting->comm;
    const alg_set_t set = {{comm->key.word[0], comm->key.word[1]}}; /* no pooled scratch has this key */
    alg_map_t map;
    offer_t record = {.error = alg_experts_map(meeting->shape, &map) ? 0 : -EINVAL};
    free_ended(comm);
    if (!record.error)
        record.error = shim_experts_ops(comm)->preload(meeting->shape);
    if (!record.error)
        record.error = alg_scratch_create(comm->ops->device, comm->device, alg_scratch_kind(comm->scratch), &set,
                                          meeting->id, comm->rank, comm->nranks, &map, &meeting->scratch, record.bytes);
    post(meeting, OFFER, &record, sizeof(record));
}

_Static_assert(sizeof(alg_experts_shape_t) == 6 * sizeof(uint32_t), "the shape has padding");

static void compare(meeting_t *meeting)
{
    identity_t first, other;
    net_unlink(meeting->rendezvous);
    for (uint32_t r = 0; r < meeting->comm->nranks && !meeting->why[0]; r++) {
        if (read_record(meeting, IDENTITY, r, &other, sizeof(other)) != 0) {
            decline(meeting, "the ranks' shared memory is damaged");
            return;
        }
        if (r == 0)
            first = other;
        other.refusal[WHY_BYTES - 1] = 0;
        if (other.refusal[0])
            snprintf(meeting->why, sizeof(meeting->why), "%s", other.refusal);
        else if (memcmp(&first.shape, &other.shape, sizeof(first.shape)) != 0)
            snprintf(meeting->why, sizeof(meeting->why), "rank %u has another configuration than rank 0", r);
    }
    if (meeting->why[0]) {
        decline(meeting, meeting->why);
        return;
    }
    meeting->id = first.id;
    make(meeting);
}

static int read_offers(const meeting_t *meeting, uint8_t offers[][NET_OFFER_BYTES])
{
    for (uint32_t r = 0; r < meeting->comm->nranks; r++) {
        offer_t record;
        const int error = read_record(meeting, OFFER, r, &record, sizeof(record));
        if (error)
            return error;
        memcpy(offers[r], record.bytes, NET_OFFER_BYTES);
    }
    return 0;
}

static void step_memory(meeting_t *meeting)
{
    uint8_t offers[ALG_MAX_RANKS][NET_OFFER_BYTES];
    int32_t error = read_offers(meeting, offers);
    if (meeting->stage == OFFER) {
        if (!error)
            error = alg_scratch_send(meeting->scratch, offers);
    } else if (meeting->stage == SENT) {
        if (!error)
            error = alg_scratch_open(meeting->scratch, offers);
        if (!error)
            error = alg_scratch_prove_write(meeting->scratch, meeting->id);
    } else {
        error = alg_scratch_prove_read(meeting->scratch, meeting->id);
    }
    post(meeting, meeting->stage + 1, &error, sizeof(error));
}

/* Runs once all ranks have posted the stage. */
static void act(meeting_t *meeting)
{
    static const char *const failed[STAGES] = {
        "", "could not make memory for the group", "could not send its memory's descriptor",
        "could not map the memory of its peers", "did not see the test words that its peers stored"};
    uint32_t rank = 0;
    if (meeting->stage == IDENTITY) {
        compare(meeting);
        return;
    }
    const int error = first_error(meeting, &rank);
    if (error) {
        snprintf(meeting->why, sizeof(meeting->why), "rank %u %s: %s", rank, failed[meeting->stage],
                 strerror(error < 0 ? -error : EPROTO));
        decline(meeting, meeting->why);
    } else if (meeting->stage == PROOF) {
        (void)net_decide(meeting->rendezvous, NET_ATTACHED, "");
    } else {
        step_memory(meeting);
    }
}

static const char *obstacle(meeting_t *meeting)
{
    const uint64_t now = net_now_ns();
    if (now > meeting->deadline_ns)
        return meeting->stage == IDENTITY ? "a rank did not create the group" : "a rank made no progress";
    if (now < meeting->look_ns)
        return NULL;
    meeting->look_ns = now + LOOK_MS * UINT64_C(1000000);
    if (atomic_load(&meeting->comm->phase) != SHIM_COMM_ATTACHED || shim_comm_exiting())
        return "the communicator ends";
    return alg_scratch_peers_alive(meeting->comm->scratch) ? NULL : "a rank's process is gone";
}

static net_verdict_t meet(meeting_t *meeting)
{
    const struct timespec nap = {0, 50000};
    while (net_verdict(meeting->rendezvous) == NET_PENDING) {
        const int polled = net_poll(meeting->rendezvous, meeting->stage);
        const char *why = polled == 0 ? obstacle(meeting) : NULL;
        if (polled == 1)
            act(meeting);
        else if (why)
            decline(meeting, why);
        else if (polled == 0)
            nanosleep(&nap, NULL);
        else if (polled != -ECANCELED)
            decline(meeting, "a rank died or gave up");
    }
    return net_verdict(meeting->rendezvous);
}

static int begin(meeting_t *meeting, uint64_t number, const char *refusal)
{
    shim_comm_t *comm = meeting->comm;
    const net_key_t own = shim_comm_own_key(comm), key = shim_key_child(&own, 'e', number);
    identity_t identity;
    memset(&identity, 0, sizeof(identity));
    identity.shape = *meeting->shape;
    identity.process = net_process_self();
    shim_record_offer(meeting->record, &identity.record);
    if (getrandom(&identity.id, sizeof(identity.id), 0) != (ssize_t)sizeof(identity.id))
        identity.id = net_now_ns();
    identity.id |= 1;
    snprintf(identity.refusal, sizeof(identity.refusal), "%s", refusal ? refusal : "");
    int error = net_join(&key, &meeting->rendezvous);
    if (!error)
        error = net_set_rank(meeting->rendezvous, comm->rank, comm->nranks);
    if (!error)
        post(meeting, IDENTITY, &identity, sizeof(identity));
    return error;
}

static void begin_record(const meeting_t *meeting)
{
    const shim_comm_t *comm = meeting->comm;
    identity_t identity;
    for (uint32_t r = 0; r < comm->nranks; r++)
        if (read_record(meeting, IDENTITY, r, &identity, sizeof(identity)) == 0)
            shim_record_meet(meeting->record, r, &identity.process, &identity.record);
    const shim_record_about_t about = {.comm = meeting->id,
                                       .rank = comm->rank,
                                       .nranks = comm->nranks,
                                       .device = comm->device,
                                       .attached = true,
                                       .control = alg_scratch_control(meeting->scratch),
                                       .phase = &comm->phase,
                                       .living = SHIM_COMM_ATTACHED};
    shim_record_begin(meeting->record, &about);
}

/* The verdict's reason without its rank, so equal on all ranks. */
static const char *reason_of(const net_rendezvous_t *rendezvous)
{
    const char *text = net_reason(rendezvous);
    unsigned int rank = 0;
    int used = 0;
    return sscanf(text, "rank %u: %n", &rank, &used) == 1 && used > 0 ? text + used : text;
}

alg_scratch_t *shim_experts_agree(shim_comm_t *comm, const alg_experts_shape_t *shape, const char *refusal,
                                  shim_record_t *record, const char **why)
{
    const uint64_t set_ns = comm->ops->meeting_ns(comm->ops->timeout_ms);
    meeting_t meeting = {
        .comm = comm, .shape = shape, .record = record, .limit_ns = set_ns ? set_ns : COME_MS * UINT64_C(1000000)};
    const uint64_t number = atomic_fetch_add(&comm->extras, 1);
    net_scope_t scope = {0};
    int error = shim_experts_ops(comm)->enter(&scope, comm->device);
    if (!error)
        error = begin(&meeting, number, refusal);
    const bool attached = !error && meet(&meeting) == NET_ATTACHED, agreed = attached && meeting.stage == PROOF;
    if (error)
        snprintf(meeting.why, sizeof(meeting.why), "this rank cannot meet the others in shared memory: %s",
                 strerror(-error));
    if (attached && !agreed)
        snprintf(meeting.why, sizeof(meeting.why), "a rank announced success before all ranks had proven their memory");
    if (agreed) {
        begin_record(&meeting);
        shim_comm_reap(); /* frees what free_ended could not: no rank waits for this one now */
    } else {
        *why = shim_experts_keep(meeting.why[0] ? meeting.why : reason_of(meeting.rendezvous));
        alg_scratch_release(meeting.scratch, false);
        meeting.scratch = NULL;
    }
    net_leave(meeting.rendezvous);
    net_scope_leave(&scope);
    return meeting.scratch;
}
