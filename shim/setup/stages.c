/*
 * stages.c - what the ranks of a communicator tell each other, step by step.
 *
 * A step does what it can without waiting for another rank and comes back, so
 * that one thread can set up several ranks and a poll of the application never
 * blocks. In every stage a rank posts a record; when all have, each acts and
 * posts the next. Whatever fails is posted as an error number, and all ranks see
 * the same numbers and take the same turn; the verdict settles the rest.
 *
 *   IDENTITY  who I am, what I want            -> compare (identity.c), take rank 0's settings
 *   AGREE     link to the peers, idle scratch  -> plan; take or make the scratch
 *   OFFER     offer of the scratch, or errno   -> map the peers', store tokens
 *   OPENED    errno                            -> check own mailboxes
 *   PROOF     errno                            -> attached
 *
 * Where IPC is refused by one rank (OFFER or OPENED), all drop their scratch and
 * go through OFFER2 .. PROOF2 with VMM memory, and SENT2 for the descriptors.
 * Host mode has a stage before all this for a split (REGROUP, in a segment of
 * the parent's ranks), and there a failure is the application's error.
 *
 * How long: see out_of_time. Whether a rank lives is asked of the system, so one
 * that lives may take its time; a rank that is not seen has the limit.
 *
 * Who owns what: the set-up owns scratch and plan until the verdict, then the
 * communicator's state. After a decline the scratch is given back; a peer may be
 * writing into it at that moment, so its memory stays as long as a peer has it
 * mapped (transport sees to that).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim/base/log.h"
#include "shim/base/settings.h"
#include "shim/comm/room.h"
#include "shim/host/host.h"
#include "shim/real/real.h"
#include "shim/setup/setup.h"

enum {
    STAGE_IDENTITY,
    STAGE_AGREE,
    STAGE_OFFER,
    STAGE_OPENED,
    STAGE_PROOF,
    STAGE_OFFER2,
    STAGE_SENT2,
    STAGE_OPENED2,
    STAGE_PROOF2,
    STAGE_COUNT,
    STAGE_REGROUP = 0 /* in a segment of its own */
};

typedef struct agree {
    uint64_t pooled; /* id of the idle scratch, 0: none */
    uint32_t link;   /* sel_reach_t, to every peer */
    uint32_t lanes;
} agree_t;

typedef struct offer {
    int32_t error;
    uint8_t bytes[NET_OFFER_BYTES];
} offer_t;

typedef struct regroup {
    int32_t color, order;
} regroup_t;

_Static_assert((int)STAGE_COUNT <= (int)NET_STAGES, "transport has too few stages");
_Static_assert(sizeof(offer_t) <= NET_RECORD_BYTES, "an offer does not fit into a record");
_Static_assert((int)ALG_MAX_RANKS <= (int)NET_MAX_SLOTS, "more ranks than slots");

uint64_t shim_setup_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* ---- The end ------------------------------------------------------------------- */

static int read_record(shim_setup_t *setup, uint32_t stage, uint32_t rank, void *record, size_t size)
{
    size_t got = 0;
    int error = net_read(setup->rendezvous, stage, rank, record, size, &got);
    return error ? error : got == size ? 0 : -EPROTO;
}

/* One line a process: the lowest of its ranks speaks. */
static bool speaks(const shim_setup_t *setup)
{
    const shim_comm_t *comm = setup->comm;
    for (uint32_t r = 0; setup->identity && r < comm->rank; r++) {
        if (!memcmp(&setup->identity[r].process, &setup->identity[comm->rank].process, sizeof(net_process_t)))
            return false;
    }
    return true;
}

/* Host mode: the caller gets an error, or, if it does not wait, the communicator that it polls does. */
static void conclude_broken(shim_setup_t *setup, const char *reason)
{
    char text[192];
    setup->result = ncclSystemError;
    snprintf(text, sizeof(text), "communicator was not set up: %s", reason);
    shim_comm_t *polled = setup->comm;
    if (setup->request.parent)
        polled = shim_comm_acquire(setup->request.parent);
    else
        shim_comm_retain(polled);
    if (setup->lingering && !setup->quiet && polled)
        shim_host_fail(polled, ncclSystemError, text);
    atomic_store(&setup->comm->phase, SHIM_COMM_DEAD);
    if (!setup->quiet)
        shim_set_last_error("%s", text);
    shim_comm_release(polled);
}

/* Another may have the idle scratch that was offered to this one. */
static void leave_idle(shim_setup_t *setup)
{
    if (setup->offered)
        alg_scratch_leave_idle(setup->offered, setup->comm->rank);
    setup->offered = 0;
}

static void conclude_forward(shim_setup_t *setup, const char *reason)
{
    if (!setup->request.host)
        shim_room_settle(setup->comm, false);
    shim_comm_t *comm = setup->comm;
    char class[SEL_CLASS_BYTES] = "unknown";
    if (setup->classed)
        sel_topology_class(&setup->plan->topology, class);
    leave_idle(setup);
    alg_scratch_release(setup->scratch, false);
    setup->scratch = NULL;
    free(setup->plan);
    setup->plan = NULL;
    setup->done = true;

    if (setup->request.host) {
        conclude_broken(setup, reason);
        return;
    }
    int joining = SHIM_COMM_JOINING; /* an abort may have made it DEAD already */
    atomic_compare_exchange_strong(&comm->phase, &joining, SHIM_COMM_FORWARD);
    if (setup->quiet)
        return;
    shim_log_level_t level = setup->fault ? SHIM_LOG_WARN : SHIM_LOG_INFO;
    if (setup->fault || speaks(setup))
        shim_log(level, "Shunt forwards communicator %p (rank %u of %u, class %s) to NCCL: %s",
                 (void *)atomic_load(&comm->handle), comm->rank, comm->nranks, class, reason);
}

/* Host mode's split: now the application may see the handle. */
static void show_split(shim_setup_t *setup)
{
    if (shim_comm_insert(setup->comm))
        __atomic_store_n(setup->request.newcomm, (ncclComm_t)setup->comm, __ATOMIC_RELEASE);
    else
        setup->result = ncclSystemError;
}

/* Who has made the rules of a plan, each once: "policy, tuned table, ..." */
static void name_sources(const sel_plan_t *plan, char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < plan->rules && used < capacity; i++) {
        const char *source = plan->rule[i].source;
        if (source && !strstr(text, source))
            used += (size_t)snprintf(text + used, capacity - used, "%s%s", used ? ", " : "", source);
    }
}

static void tell_attached(const shim_setup_t *setup)
{
    const shim_comm_t *comm = setup->comm;
    char class[SEL_CLASS_BYTES], sources[200];
    sel_topology_class(&comm->plan->topology, class);
    name_sources(comm->plan, sources, sizeof(sources));
    shim_info("Shunt attached communicator %p: rank %u of %u, class %s, machine %016llx%s, rules: %s, %zu KiB of "
              "scratch%s",
              (void *)atomic_load(&comm->handle), comm->rank, comm->nranks, class,
              (unsigned long long)comm->plan->topology.fingerprint, setup->second ? ", by VMM" : "", sources,
              comm->plan->map.total_bytes / 1024, setup->pooled ? ", reused" : "");
}

static void conclude_attached(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    bool host = setup->request.host;
    alg_scratch_team(setup->scratch)->timeout_ns = shim_setting_timeout_ns(host);
    if (!shim_settings()->priority)
        alg_scratch_team(setup->scratch)->priority = 0;
    comm->scratch = setup->scratch;
    comm->plan = setup->plan;
    setup->scratch = NULL;
    setup->plan = NULL;
    comm->blocking = true;
    bool leads = !host;
    for (uint32_t r = 0; r < comm->nranks; r++) {
        comm->blocking = comm->blocking && setup->identity[r].blocking;
        leads = leads && setup->identity[r].leads;
    }
    shim_room_settle(comm, leads);
    if (host) {
        comm->rendezvous = setup->rendezvous;
        setup->rendezvous = NULL;
        shim_host_watch();
    }
    setup->done = true;
    int joining = SHIM_COMM_JOINING;
    atomic_compare_exchange_strong(&comm->phase, &joining, SHIM_COMM_ATTACHED);
    if (setup->request.regroup)
        show_split(setup);
    if (speaks(setup))
        tell_attached(setup);
}

/* Only a rank that is broken moves the verdict before this one has posted its proof. */
static bool has_proven(const shim_setup_t *setup)
{
    return setup->scratch && !setup->regrouping &&
           setup->stage == (uint32_t)(setup->second ? STAGE_PROOF2 : STAGE_PROOF);
}

/* Obey the verdict, if there is one. */
static bool obey(shim_setup_t *setup)
{
    switch (net_verdict(setup->rendezvous)) {
    case NET_ATTACHED:
        if (has_proven(setup))
            conclude_attached(setup);
        else
            conclude_forward(setup, "a rank called it attached before all had proven it");
        break;
    case NET_DECLINED:
        setup->fault = setup->fault && net_decided(setup->rendezvous);
        conclude_forward(setup, net_reason(setup->rendezvous));
        break;
    default:
        return false;
    }
    net_leave(setup->rendezvous);
    setup->rendezvous = NULL;
    return true;
}

static void decline(shim_setup_t *setup, const char *format, va_list arguments)
{
    char reason[160];
    vsnprintf(reason, sizeof(reason), format, arguments);
    if (!setup->rendezvous) {
        conclude_forward(setup, reason);
        return;
    }
    net_decide(setup->rendezvous, NET_DECLINED, reason);
    obey(setup);
}

void shim_setup_decline(shim_setup_t *setup, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    decline(setup, format, arguments);
    va_end(arguments);
}

/* Declined for what should not be. All ranks may find it; the one whose word holds warns of it. */
static void fail(shim_setup_t *setup, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void fail(shim_setup_t *setup, const char *format, ...)
{
    va_list arguments;
    setup->fault = true;
    va_start(arguments, format);
    decline(setup, format, arguments);
    va_end(arguments);
}

static const char *why(int error)
{
    return error == -ENOSYS ? "CUDA refuses it (`shunt info` shows which GPUs reach each other)" : strerror(-error);
}

/* ---- The beginning ------------------------------------------------------------- */

void shim_setup_adopt(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    ncclComm_t handle = __atomic_load_n(setup->request.newcomm, __ATOMIC_ACQUIRE);
    if (!handle || atomic_load(&comm->handle))
        return;
    atomic_store(&comm->handle, handle);
    shim_comm_insert(comm);
}

/* The real communicator is ready: who are we in it? False if it will not say. */
static bool ask_real(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    const shim_real_t *real = shim_real();
    ncclComm_t handle = atomic_load(&comm->handle);
    int rank, nranks, device;
    if (real->ncclCommCount(handle, &nranks) != ncclSuccess || real->ncclCommUserRank(handle, &rank) != ncclSuccess ||
        real->ncclCommCuDevice(handle, &device) != ncclSuccess)
        return false;
    comm->rank = (uint32_t)rank;
    comm->nranks = (uint32_t)nranks;
    comm->device = device;
    return true;
}

/* Every stage has its own limit. The user's is for ranks that do not come; once all are here, one that
 * is slow (arming memory takes its time) is still alive, and a dead one is noticed at once. */
static void start_clock(shim_setup_t *setup, bool all_here)
{
    uint64_t limit = setup->request.host ? shim_setting_timeout_ns(true) / 1000000 : 0;
    if (!limit || (all_here && limit < SHIM_SETUP_LIMIT_MS))
        limit = SHIM_SETUP_LIMIT_MS;
    setup->limit_ms = (uint32_t)limit;
    setup->since_ns = shim_setup_now_ns();
    setup->deadline_ns = setup->since_ns + limit * UINT64_C(1000000);
}

static int post_identity(shim_setup_t *setup)
{
    shim_identity_t identity;
    int error = shim_identity_fill(setup, &identity);
    setup->stage = STAGE_IDENTITY;
    return error ? error : net_post(setup->rendezvous, STAGE_IDENTITY, &identity, sizeof(identity));
}

/* From the rank being known to its identity being posted. */
static void enter_rendezvous(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    int error = net_set_rank(setup->rendezvous, comm->rank, comm->nranks);
    if (error == -EEXIST) {
        shim_setup_decline(setup, "rank %u was taken already", comm->rank);
        return;
    }
    if (!error)
        error = post_identity(setup);
    if (error) {
        fail(setup, "set-up could not begin: %s", strerror(-error));
    }
}

static void begin_cuda(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    if (!ask_real(setup)) {
        shim_setup_decline(setup, "NCCL does not say which rank this is");
        return;
    }
    setup->quiet = comm->nranks < 2 || comm->nranks > ALG_MAX_RANKS;
    uint32_t here = setup->rendezvous ? net_count(setup->rendezvous) : 0;
    char text[80];
    const char *refused = shim_identity_refusal(text, sizeof(text));
    if (setup->quiet) {
        shim_setup_decline(setup, "%u ranks", comm->nranks);
    } else if (!setup->rendezvous) {
        fail(setup, "no shared memory to meet the other ranks in: %s", strerror(-setup->join_error));
    } else if (!SHUNT_HAS_CUDA) {
        shim_setup_decline(setup, "built without CUDA");
    } else if (here > comm->nranks) {
        shim_setup_decline(setup, "other ranks are in its place (is NCCL_COMM_ID shared?)");
    } else if (here != comm->nranks) {
        shim_setup_decline(setup, "%u of its %u ranks are on this host and run Shunt", here, comm->nranks);
    } else if (refused) {
        shim_setup_decline(setup, "%s", refused);
    } else if (comm->launch_order) {
        shim_setup_decline(setup, "explicit launchOrderImplicit: forwarding");
    } else {
        enter_rendezvous(setup);
    }
}

/* ---- Host mode: ranks of other hosts --------------------------------------------- */

static void begin_hosts(shim_setup_t *setup)
{
    const shim_setup_request_t *request = &setup->request;
    const shim_hosts_request_t meeting = {.invitation = request->invitation,
                                          .key = request->key,
                                          .rank = (uint32_t)request->rank,
                                          .nranks = (uint32_t)request->nranks,
                                          .deadline_ns = setup->deadline_ns,
                                          .limit_ms = setup->limit_ms,
                                          .blocking = request->blocking,
                                          .regroup = request->regroup,
                                          .color = request->color,
                                          .order = request->order};
    setup->hosts = shim_hosts_begin(&meeting);
    if (!setup->hosts)
        shim_setup_decline(setup, "no thread to meet ranks of other hosts");
}

static void conclude_hosts(shim_setup_t *setup, const shim_hosts_outcome_t *outcome)
{
    shim_comm_t *comm = setup->comm;
    const sel_topology_t topology = {.link = SEL_LINK_NETWORK, .nranks = comm->nranks};
    const sel_settings_t settings = {.scratch_bytes = shim_settings()->scratch_bytes};
    comm->plan = malloc(sizeof(*comm->plan));
    if (!comm->plan) {
        alg_hosts_destroy(outcome->team);
        shim_setup_decline(setup, "out of memory");
        return;
    }
    sel_plan_init(comm->plan, &topology, &settings);
    comm->hosts = outcome->team;
    comm->invitation = setup->request.invitation;
    comm->blocking = outcome->blocking;
    alg_hosts_team(comm->hosts)->timeout_ns = shim_setting_timeout_ns(true);
    setup->done = true;
    int joining = SHIM_COMM_JOINING;
    atomic_compare_exchange_strong(&comm->phase, &joining, SHIM_COMM_ATTACHED);
    if (setup->request.regroup)
        show_split(setup);
    shim_info("Shunt attached communicator %p: rank %u of %u, on several hosts, by sockets",
              (void *)atomic_load(&comm->handle), comm->rank, comm->nranks);
}

static void rejoin(shim_setup_t *setup);

/* All ranks know of each other now. */
static void hosts_met(shim_setup_t *setup, const shim_hosts_outcome_t *outcome)
{
    net_leave(setup->rendezvous); /* of those on this host */
    setup->rendezvous = NULL;
    if (outcome->nranks == 0) {
        setup->done = true;
        return;
    }
    setup->comm->key = outcome->key;
    setup->comm->rank = outcome->rank;
    setup->comm->nranks = outcome->nranks;
    setup->comm->device = (int)outcome->rank;
    if (outcome->team)
        conclude_hosts(setup, outcome);
    else
        rejoin(setup);
}

/* The ranks on this host have had their time, and are not all. */
static bool hosts_due(const shim_setup_t *setup)
{
    return setup->request.host && !setup->request.regroup && !setup->hosts && setup->rendezvous &&
           setup->stage == STAGE_IDENTITY && net_invitation_valid(&setup->request.invitation) &&
           net_count(setup->rendezvous) < setup->comm->nranks &&
           shim_setup_now_ns() > setup->since_ns + SHIM_HOSTS_MS * UINT64_C(1000000);
}

/* True if there is nothing else to step; *moved: something was done. */
static bool step_hosts(shim_setup_t *setup, bool *moved)
{
    shim_hosts_outcome_t outcome;
    if (hosts_due(setup))
        begin_hosts(setup);
    if (!setup->hosts)
        return false;
    if (setup->rendezvous && net_count(setup->rendezvous) >= setup->comm->nranks) {
        shim_hosts_end(setup->hosts); /* the last of them was late, and is here */
        setup->hosts = NULL;
        return false;
    }
    if (!shim_hosts_poll(setup->hosts, &outcome))
        return setup->rendezvous == NULL;
    *moved = true;
    if (outcome.failure)
        shim_setup_decline(setup, "%s", outcome.failure);
    else
        hosts_met(setup, &outcome);
    shim_hosts_end(setup->hosts);
    setup->hosts = NULL;
    return true;
}

/* ---- Beginning, on the host device ------------------------------------------------ */

static void begin_host(shim_setup_t *setup)
{
    if (setup->request.regroup && !setup->request.publish) {
        begin_hosts(setup);
        return;
    }
    if (!setup->rendezvous) {
        shim_setup_decline(setup, "no shared memory to meet the other ranks in: %s", strerror(-setup->join_error));
        return;
    }
    if (!setup->request.regroup) {
        enter_rendezvous(setup);
        return;
    }
    setup->regrouping = true;
    setup->stage = STAGE_REGROUP;
    regroup_t record = {setup->request.color, setup->request.order};
    int error = net_set_rank(setup->rendezvous, (uint32_t)setup->request.rank, (uint32_t)setup->request.nranks);
    if (!error)
        error = net_post(setup->rendezvous, STAGE_REGROUP, &record, sizeof(record));
    if (error)
        shim_setup_decline(setup, "split could not begin: %s", strerror(-error));
}

/* False while the real call has not succeeded yet. */
static bool begin(shim_setup_t *setup)
{
    ncclComm_t asked = setup->request.parent ? setup->request.parent : atomic_load(&setup->comm->handle);
    if (!atomic_load(&setup->ready) && setup->poll_real && asked) {
        ncclResult_t state = ncclInProgress;
        if (shim_real()->ncclCommGetAsyncError(asked, &state) != ncclSuccess ||
            (state != ncclSuccess && state != ncclInProgress)) {
            shim_setup_decline(setup, "NCCL's init failed");
            return true;
        }
        atomic_store(&setup->ready, state == ncclSuccess);
    }
    if (!atomic_load(&setup->ready))
        return false;
    if (!setup->request.host) {
        shim_setup_adopt(setup);
        ncclComm_t handle = atomic_load(&setup->comm->handle);
        if (!handle || shim_comm_find(handle) != setup->comm) {
            setup->quiet = true;
            shim_setup_decline(setup, "there is no communicator, or no memory for it");
            return true;
        }
    }
    setup->begun = true;
    start_clock(setup, false);
    if (setup->request.host)
        begin_host(setup);
    else
        begin_cuda(setup);
    return true;
}

/* ---- The stages ---------------------------------------------------------------- */

static void post_next(shim_setup_t *setup, uint32_t stage, const void *record, size_t size)
{
    setup->stage = stage;
    int error = net_post(setup->rendezvous, stage, record, size);
    if (error)
        fail(setup, "stage %u: %s", stage, strerror(-error));
}

/* Errors that ranks posted first in their record: 0, or the first of them with its rank. */
static int first_error(shim_setup_t *setup, uint32_t stage, size_t size, uint32_t *rank)
{
    uint8_t record[NET_RECORD_BYTES];
    for (uint32_t r = 0; r < setup->comm->nranks; r++) {
        int32_t error = read_record(setup, stage, r, record, size);
        if (!error)
            memcpy(&error, record, sizeof(error));
        if (error) {
            *rank = r;
            return error < 0 ? error : -EPROTO;
        }
    }
    return 0;
}

net_key_t shim_setup_key_of_color(const net_key_t *parent, int color)
{
    const struct {
        net_key_t parent;
        int64_t color;
    } child = {*parent, color};
    return net_key_hash(&child, sizeof(child));
}

/* The communicator has another rank and key now; its ranks are on this host. */
static void rejoin(shim_setup_t *setup)
{
    const net_key_t local = shim_hosts_local_key(&setup->comm->key);
    int error = net_join(&local, &setup->rendezvous);
    if (error) {
        shim_setup_decline(setup, "no shared memory for the split: %s", strerror(-error));
        return;
    }
    start_clock(setup, false);
    enter_rendezvous(setup);
}

/* Colours are in: which of the parent's ranks are with us, and in which order? */
static void regroup_done(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    uint32_t nranks = 0, rank = 0;
    for (uint32_t r = 0; r < (uint32_t)setup->request.nranks; r++) {
        regroup_t other;
        if (read_record(setup, STAGE_REGROUP, r, &other, sizeof(other))) {
            shim_setup_decline(setup, "rank %u's colour is malformed", r);
            return;
        }
        if (other.color != setup->request.color)
            continue;
        nranks++;
        rank += other.order < setup->request.order ||
                (other.order == setup->request.order && r < (uint32_t)setup->request.rank);
    }
    net_unlink(setup->rendezvous);
    setup->parents = setup->rendezvous;
    setup->rendezvous = NULL;
    setup->regrouping = false;
    if (setup->request.color == NCCL_SPLIT_NOCOLOR) {
        setup->result = ncclSuccess;
        setup->done = true;
        return;
    }
    comm->rank = rank;
    comm->nranks = nranks;
    comm->device = (int)rank;
    comm->key = shim_setup_key_of_color(&setup->request.key, setup->request.color);
    rejoin(setup);
}

static int read_identities(shim_setup_t *setup)
{
    uint32_t nranks = setup->comm->nranks;
    setup->identity = calloc(nranks, sizeof(*setup->identity));
    if (!setup->identity)
        return -ENOMEM;
    for (uint32_t r = 0; r < nranks; r++) {
        shim_identity_t *identity = &setup->identity[r];
        int error = read_record(setup, STAGE_IDENTITY, r, identity, sizeof(*identity));
        if (error)
            return error;
        identity->settings.policy[SEL_POLICY_BYTES - 1] = 0;
        identity->fresh_id |= identity->fresh_id ? 0 : 2;
    }
    return 0;
}

static bool make_plan(shim_setup_t *setup, sel_link_t link)
{
    if (!setup->plan)
        setup->plan = malloc(sizeof(*setup->plan));
    if (!setup->plan)
        return false;
    sel_topology_t topology = shim_identity_topology(setup, link);
    sel_plan_init(setup->plan, &topology, &setup->identity[0].settings);
    return true;
}

static void identities_done(shim_setup_t *setup)
{
    const shim_comm_t *comm = setup->comm;
    bool host = setup->request.host;
    net_unlink(setup->rendezvous);
    net_leave(setup->parents);
    setup->parents = NULL;
    int error = read_identities(setup);
    if (error) {
        fail(setup, "identities: %s", strerror(-error));
        return;
    }
    char text[80];
    if (shim_identity_mismatch(setup, text, sizeof(text))) {
        shim_setup_decline(setup, "%s", text);
        return;
    }
    uint64_t bytes = setup->identity[0].settings.scratch_bytes;
    if (!alg_map_init(&setup->map, bytes) || !make_plan(setup, host ? SEL_LINK_HOST : SEL_LINK_PCIE)) {
        shim_setup_decline(setup, "no plan for a scratch of %llu bytes", (unsigned long long)bytes);
        return;
    }
    shim_identity_tell_differences(setup);
    setup->set = shim_identity_set(setup);
    const sel_reach_t reach = shim_identity_reach(setup);
    agree_t record = {.pooled = alg_scratch_idle(&setup->set, comm->rank, &setup->plan->map),
                      .link = reach.link,
                      .lanes = reach.lanes};
    setup->pooled = setup->offered = record.pooled;
    post_next(setup, STAGE_AGREE, &record, sizeof(record));
}

static int preload(void)
{
#if SHUNT_HAS_CUDA
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        int error = alg_registry[i]->preload_cuda ? alg_registry[i]->preload_cuda() : 0;
        if (error)
            return net_cuda_errno(error);
    }
#endif
    return 0;
}

/* Own scratch: out of the pool, or new. */
static int obtain_scratch(shim_setup_t *setup, net_memory_kind_t kind, uint8_t offer[NET_OFFER_BYTES])
{
    const shim_comm_t *comm = setup->comm;
    if (setup->pooled) {
        setup->offered = 0;
        return alg_scratch_take(setup->pooled, comm->rank, &setup->scratch);
    }
    leave_idle(setup);
    uint64_t id = setup->identity[0].fresh_id + (setup->second ? 1 : 0);
    alg_device_t device = setup->request.host ? ALG_DEVICE_HOST : ALG_DEVICE_CUDA;
    int error = -ENOMEM;
    for (int attempt = 0; attempt < 2 && error == -ENOMEM; attempt++) {
        error = alg_scratch_create(device, comm->device, kind, &setup->set, id, comm->rank, comm->nranks,
                                   &setup->plan->map, &setup->scratch, offer);
        if (error == -ENOMEM)
            shim_comm_reap(); /* it may be there, only not freed yet */
    }
    return error;
}

static void post_offer(shim_setup_t *setup, uint32_t stage, net_memory_kind_t kind)
{
    offer_t record;
    memset(&record, 0, sizeof(record));
    net_scope_t scope = {0};
    bool host = setup->request.host;
    record.error = host ? 0 : net_scope_enter(&scope, setup->comm->device);
    if (!record.error && !host && !setup->pooled) /* a scratch of the pool was made here, after this */
        record.error = preload();
    if (!record.error)
        record.error = obtain_scratch(setup, kind, record.bytes);
    if (!host)
        net_scope_leave(&scope);
    post_next(setup, stage, &record, sizeof(record));
}

static void agreed(shim_setup_t *setup)
{
    const bool host = setup->request.host;
    sel_reach_t reach = {SEL_LINK_HOST, 0};
    for (uint32_t r = 0; r < setup->comm->nranks; r++) {
        agree_t other;
        int error = read_record(setup, STAGE_AGREE, r, &other, sizeof(other));
        if (error) {
            fail(setup, "rank %u's record: %s", r, strerror(-error));
            return;
        }
        const bool sane = other.link < SEL_LINK_COUNT && (other.link == SEL_LINK_HOST) == host;
        const sel_reach_t one = {sane ? (sel_link_t)other.link : SEL_LINK_SYS, other.lanes};
        reach = r == 0 ? one : sel_reach_join(reach, one);
        if (other.pooled != setup->pooled)
            setup->pooled = 0;
    }
    make_plan(setup, reach.link);
    setup->classed = true;
    post_offer(setup, STAGE_OFFER, host ? NET_MEMORY_HOST : NET_MEMORY_CUDA_IPC);
}

/* One rank could not: all go to VMM memory, if that may help and has not been tried. */
static void second_try(shim_setup_t *setup, const char *what, uint32_t rank, int error)
{
    bool possible = !setup->request.host && !setup->second && error != -ENOMEM;
    for (uint32_t r = 0; r < setup->comm->nranks; r++)
        possible = possible && setup->identity[r].vmm;
    if (!possible) {
        fail(setup, "rank %u could not %s: %s", rank, what, why(error));
        return;
    }
    if (setup->scratch)
        alg_scratch_release(setup->scratch, false);
    setup->scratch = NULL;
    setup->pooled = 0;
    setup->second = true;
    post_offer(setup, STAGE_OFFER2, NET_MEMORY_CUDA_VMM);
}

static int read_offers(shim_setup_t *setup, uint32_t stage, uint8_t offers[][NET_OFFER_BYTES])
{
    for (uint32_t r = 0; r < setup->comm->nranks; r++) {
        offer_t record;
        int error = read_record(setup, stage, r, &record, sizeof(record));
        if (error)
            return error;
        memcpy(offers[r], record.bytes, NET_OFFER_BYTES);
    }
    return 0;
}

static void open_and_write(shim_setup_t *setup, uint32_t offers_stage, uint32_t next)
{
    uint8_t offers[ALG_MAX_RANKS][NET_OFFER_BYTES];
    int32_t error = 0;
    if (!setup->pooled) {
        error = read_offers(setup, offers_stage, offers);
        if (!error)
            error = alg_scratch_open(setup->scratch, offers);
    }
    if (!error)
        error = alg_scratch_prove_write(setup->scratch, setup->identity[0].fresh_id);
    post_next(setup, next, &error, sizeof(error));
}

static void offered(shim_setup_t *setup)
{
    uint32_t stage = setup->stage, rank = 0;
    int error = first_error(setup, stage, sizeof(offer_t), &rank);
    if (error) {
        second_try(setup, "share memory of its GPU", rank, error);
        return;
    }
    if (stage == STAGE_OFFER) {
        open_and_write(setup, stage, STAGE_OPENED);
        return;
    }
    uint8_t offers[ALG_MAX_RANKS][NET_OFFER_BYTES];
    int32_t sent = read_offers(setup, stage, offers);
    if (!sent)
        sent = alg_scratch_send(setup->scratch, offers);
    post_next(setup, STAGE_SENT2, &sent, sizeof(sent));
}

static void sent(shim_setup_t *setup)
{
    uint32_t rank = 0;
    int error = first_error(setup, STAGE_SENT2, sizeof(int32_t), &rank);
    if (error)
        second_try(setup, "send its memory's descriptor", rank, error);
    else
        open_and_write(setup, STAGE_OFFER2, STAGE_OPENED2);
}

static void opened(shim_setup_t *setup)
{
    uint32_t stage = setup->stage, rank = 0;
    int error = first_error(setup, stage, sizeof(int32_t), &rank);
    if (error) {
        second_try(setup, "map the memory of its peers", rank, error);
        return;
    }
    int32_t proof = alg_scratch_prove_read(setup->scratch, setup->identity[0].fresh_id);
    post_next(setup, stage == STAGE_OPENED ? STAGE_PROOF : STAGE_PROOF2, &proof, sizeof(proof));
}

static void proven(shim_setup_t *setup)
{
    uint32_t rank = 0;
    int error = first_error(setup, setup->stage, sizeof(int32_t), &rank);
    if (error) {
        fail(setup, "rank %u did not get what its peers stored: %s", rank, why(error));
        return;
    }
    net_decide(setup->rendezvous, NET_ATTACHED, "");
    obey(setup);
}

static void act(shim_setup_t *setup)
{
    static void (*const action[STAGE_COUNT])(shim_setup_t *) = {[STAGE_IDENTITY] = identities_done,
                                                                [STAGE_AGREE] = agreed,
                                                                [STAGE_OFFER] = offered,
                                                                [STAGE_OPENED] = opened,
                                                                [STAGE_PROOF] = proven,
                                                                [STAGE_OFFER2] = offered,
                                                                [STAGE_SENT2] = sent,
                                                                [STAGE_OPENED2] = opened,
                                                                [STAGE_PROOF2] = proven};
    start_clock(setup, true);
    if (setup->regrouping)
        regroup_done(setup);
    else
        action[setup->stage](setup);
}

static void late(shim_setup_t *setup)
{
    uint32_t nranks = setup->regrouping ? (uint32_t)setup->request.nranks : setup->comm->nranks;
    if (setup->regrouping || setup->stage == STAGE_IDENTITY)
        fail(setup, "%u of %u ranks came within %u ms", net_count(setup->rendezvous), nranks, setup->limit_ms);
    else
        fail(setup, "a rank stayed away for %u ms during set-up", setup->limit_ms);
}

/* Host mode's split: the others of this colour, which have met this rank before, live and have yet to come. */
static bool parents_present(const shim_setup_t *setup)
{
    for (uint32_t r = 0; setup->parents && r < (uint32_t)setup->request.nranks; r++) {
        regroup_t other;
        size_t size;
        if (net_read(setup->parents, STAGE_REGROUP, r, &other, sizeof(other), &size) == 0 &&
            other.color == setup->request.color && !net_present(setup->parents, r))
            return false;
    }
    return setup->parents != NULL;
}

/* Nobody has come to the stage for a while. A rank that lives comes to the meeting, and a rank whose program
 * calls now and then comes to any stage; while no thread waits, there is no hurry. One that waits in an init
 * is let go, if it must wait for the program of another rank: that may wait for this one. */
static bool out_of_time(shim_setup_t *setup)
{
    const uint64_t now = shim_setup_now_ns(), needed = atomic_load(&setup->needed_ns);
    const uint64_t ms = UINT64_C(1000000);
    if (now < setup->since_ns + SHIM_AWAY_MS * ms)
        return false;
    net_missing_t missing = net_missing(setup->rendezvous, setup->stage);
    if (missing == NET_MISSING_AWAY && !setup->patient && !setup->request.host) {
        net_set_away(setup->rendezvous, true);
        setup->postpone = true;
        return false;
    }
    if (now < setup->deadline_ns)
        return false;
    if (missing == NET_MISSING_UNSEEN && !parents_present(setup))
        return true;
    if (needed)
        return now > needed + SHIM_SETTLE_LIMIT_MS * ms;
    bool meeting = setup->regrouping || setup->stage == STAGE_IDENTITY;
    return !meeting && !setup->patient && missing == NET_MISSING_WAITING;
}

bool shim_setup_step(shim_setup_t *setup)
{
    if (setup->done)
        return false;
    if (atomic_load(&setup->cancel)) {
        setup->quiet = true;
        shim_setup_decline(setup, "the communicator was given up");
        return true;
    }
    if (!setup->begun)
        return begin(setup);
    bool moved = false;
    if (setup->rendezvous && !setup->regrouping && obey(setup))
        return true;
    if (step_hosts(setup, &moved) || setup->done)
        return moved;
    net_set_away(setup->rendezvous, setup->patient);
    switch (net_poll(setup->rendezvous, setup->stage)) {
    case 1:
        act(setup);
        return true;
    case 0:
        if (setup->hosts || !out_of_time(setup)) /* a meeting has its own limit */
            return false;
        late(setup);
        return true;
    case -ECANCELED:
        obey(setup);
        return true;
    case -ESRCH:
        shim_setup_decline(setup, "a rank died or gave up during set-up");
        return true;
    default:
        fail(setup, "the set-up's shared memory is damaged");
        return true;
    }
}
