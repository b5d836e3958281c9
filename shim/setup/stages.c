/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stages.c - the stages of a set-up: the records that ranks exchange.
 *
 * A step never waits for another rank, so one thread can set up several ranks and a poll never blocks. In every stage
 * each rank posts a record; when all have, each acts and posts the next. A failure is posted as an error number, so all
 * ranks take the same branch; the verdict settles the rest.
 *
 *   IDENTITY  identity and settings        -> compare (identity.c), take rank 0's settings
 *   AGREE     link to peers, idle scratch  -> plan; take or make the scratch
 *   OFFER     errno, offer of the scratch  -> send descriptors (kinds that send)
 *   SENT      errno (those kinds only)     -> map the peers' memory, store tokens
 *   OPENED    errno                        -> check this rank's mailboxes
 *   PROOF     errno                        -> attached
 *
 * The last four belong to one kind of memory (`kinds`). If it fails on a rank before the proof, all ranks drop their
 * scratch and repeat them with the next. A split in host mode has one stage before (begin.c).
 *
 * The set-up owns scratch and plan until the verdict (verdict.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/clock.h"
#include "shim/comm/grow.h"
#include "shim/comm/reap.h"
#include "shim/setup/setup.h"
#include "shim/setup/table_load.h"

typedef struct agree {
    uint64_t pooled; /* id of the idle scratch, 0: none */
    uint32_t link;   /* this and the next two: sel_reach_t, to every peer */
    uint32_t lanes;
    uint32_t far;
    uint32_t peers; /* CUDA denies access to no peer */
} agree_t;

typedef struct offer {
    int32_t error;
    uint8_t bytes[NET_OFFER_BYTES];
    net_bell_t bell; /* of a scratch that comes in pieces */
} offer_t;

/* Kinds on GPUs, in the order of the tries; the host's memory comes first if it is faster. */
typedef struct kind {
    net_memory_kind_t kind;
    alg_memory_t memory;
    const char *told;
} kind_t;
static const kind_t kinds[] = {{NET_MEMORY_CUDA_VMM, ALG_MEMORY_PEER, ""},
                               {NET_MEMORY_CUDA_IPC, ALG_MEMORY_PEER, ", by CUDA IPC"},
                               {NET_MEMORY_PINNED, ALG_MEMORY_SHM, ", through the host's memory"},
                               {NET_MEMORY_PINNED_SENT, ALG_MEMORY_SHM, ", through the host's memory"}};
static const kind_t host_kinds[] = {{NET_MEMORY_HOST, ALG_MEMORY_PEER, ""},
                                    {NET_MEMORY_HOST_SENT, ALG_MEMORY_PEER, ""}};
enum { ALONE_BYTES = 1 << 20 };
enum { OLDEST_ARCH = 80 }; /* kernels are built from it on */
enum { TRIES = sizeof(kinds) / sizeof(kinds[0]), PEER_TRIES = 2 };
enum { HOST_TRIES = sizeof(host_kinds) / sizeof(host_kinds[0]) };

_Static_assert(STAGE_FIRST_TRY + (int)TRIES * TRY_STAGES <= (int)NET_STAGES, "transport has too few stages");
_Static_assert(sizeof(offer_t) <= NET_LATER_BYTES && sizeof(agree_t) <= NET_LATER_BYTES, "a record has no room for it");
_Static_assert((int)ALG_MAX_RANKS <= (int)NET_MAX_SLOTS, "more ranks than slots");

/* The last kind of memory has failed on `rank`. */
static void decline_memory(shim_setup_t *setup, uint32_t rank, const char *what, int error)
{
    if (error != -ENOSYS)
        shim_setup_decline(setup, SHIM_WHY(NOT_SHARED), rank, what, strerror(-error));
    else if (setup->request.host)
        shim_setup_decline(setup, SHIM_WHY(SYSTEM_REFUSES), rank, what);
    else
        shim_setup_decline(setup, SHIM_WHY(CUDA_REFUSES), rank, what);
}

uint32_t shim_setup_try_stage(const shim_setup_t *setup, uint32_t stage)
{
    return STAGE_FIRST_TRY + setup->attempt * TRY_STAGES + stage;
}

static const kind_t *kind_of(const shim_setup_t *setup, uint32_t attempt)
{
    if (setup->request.host)
        return &host_kinds[attempt];
    return &kinds[setup->host_first ? (attempt + PEER_TRIES) % TRIES : attempt];
}

static uint32_t host_attempt(const shim_setup_t *setup)
{
    return setup->host_first ? 0 : PEER_TRIES;
}

static uint32_t tries(const shim_setup_t *setup)
{
    return setup->request.host ? HOST_TRIES : TRIES;
}

static bool sends(net_memory_kind_t kind)
{
    return kind == NET_MEMORY_CUDA_VMM || kind == NET_MEMORY_HOST_SENT || kind == NET_MEMORY_PINNED_SENT;
}

const char *shim_setup_memory_text(const shim_setup_t *setup)
{
    return kind_of(setup, setup->attempt)->told;
}

static void post_next(shim_setup_t *setup, uint32_t stage, const void *record, size_t size)
{
    setup->stage = stage;
    int error = net_post(setup->rendezvous, stage, record, size);
    if (error)
        shim_setup_decline(setup, SHIM_WHY(STAGE), stage, strerror(-error));
}

/* Each record begins with an error: 0 if all are 0, else the first and its rank. */
static int first_error(shim_setup_t *setup, uint32_t stage, size_t size, uint32_t *rank)
{
    uint8_t record[NET_RECORD_BYTES];
    for (uint32_t r = 0; r < setup->comm->nranks; r++) {
        int32_t error = shim_setup_read(setup, stage, r, record, size);
        if (!error)
            memcpy(&error, record, sizeof(error));
        if (error) {
            *rank = r;
            return error < 0 ? error : -EPROTO;
        }
    }
    return 0;
}

static int read_identities(shim_setup_t *setup)
{
    uint32_t nranks = setup->comm->nranks;
    setup->identity = calloc(nranks, sizeof(*setup->identity));
    if (!setup->identity)
        return -ENOMEM;
    for (uint32_t r = 0; r < nranks; r++) {
        shim_identity_t *identity = &setup->identity[r];
        int error = shim_setup_read(setup, STAGE_IDENTITY, r, identity, sizeof(*identity));
        if (error)
            return error;
        identity->settings.policy[SEL_POLICY_BYTES - 1] = 0;
        identity->fresh_id |= identity->fresh_id ? 0 : TRIES + 1;
        if (setup->across && nranks == 1) /* a single rank needs a control page only */
            identity->settings.scratch_bytes = ALONE_BYTES;
    }
    return 0;
}

/* Not for ranks of several hosts. */
static bool comes_in_pieces(const shim_setup_t *setup, net_memory_kind_t kind)
{
    return !setup->across && (kind == NET_MEMORY_CUDA_VMM || kind == NET_MEMORY_HOST || kind == NET_MEMORY_HOST_SENT);
}

static bool make_plan(shim_setup_t *setup)
{
    if (!setup->plan)
        setup->plan = malloc(sizeof(*setup->plan));
    if (!setup->plan)
        return false;
    sel_topology_t topology = shim_identity_topology(setup, setup->reach.link, setup->memory);
    topology.lanes = setup->reach.lanes;
    topology.peers = setup->host_first && setup->memory == ALG_MEMORY_SHM;
    sel_plan_init(setup->plan, &topology, &setup->identity[0].settings);
    return true;
}

static bool all_take_vmm(const shim_setup_t *setup)
{
    bool vmm = true;
    for (uint32_t r = 0; r < setup->comm->nranks; r++)
        vmm = vmm && setup->identity[r].vmm;
    return vmm;
}

static uint64_t find_idle_of(shim_setup_t *setup, net_memory_kind_t kind, alg_map_t map)
{
    if (comes_in_pieces(setup, kind))
        alg_map_cut(&map, setup->comm->nranks, setup->request.host);
    setup->pooled_kind = kind;
    return alg_scratch_idle(&setup->set, setup->comm->rank, &map);
}

/* An idle scratch of this team: in the plan's memory, or in host memory if these GPUs were found not to reach each
 * other. */
static uint64_t find_idle(shim_setup_t *setup)
{
    const alg_map_t *map = &setup->plan->map;
    alg_map_t pinned;
    uint64_t id = 0;
    if (setup->request.host)
        return find_idle_of(setup, NET_MEMORY_HOST, *map);
    if (setup->memory == ALG_MEMORY_SHM)
        return find_idle_of(setup, NET_MEMORY_PINNED, *map);
    if (all_take_vmm(setup))
        id = find_idle_of(setup, NET_MEMORY_CUDA_VMM, *map);
    if (!id)
        id = find_idle_of(setup, NET_MEMORY_CUDA_IPC, *map);
    if (!id && alg_map_init_shm(&pinned, setup->identity[0].settings.scratch_bytes))
        id = find_idle_of(setup, NET_MEMORY_PINNED, pinned);
    return id;
}

static void identities_done(shim_setup_t *setup)
{
    bool host = setup->request.host;
    net_unlink(setup->rendezvous);
    net_leave(setup->parents);
    setup->parents = NULL;
    int error = read_identities(setup);
    if (error) {
        shim_setup_decline(setup, SHIM_WHY(IDENTITIES), strerror(-error));
        return;
    }
    shim_why_t why;
    if (shim_identity_mismatches(setup, &why)) {
        shim_setup_decline(setup, why.reason, "%s", why.text);
        return;
    }
    const bool peers = host || shim_identity_peers(setup, SEL_LINK_NVSWITCH);
    if (!peers && !shim_identity_shared_memory(setup)) {
        shim_setup_decline(setup, SHIM_WHY(NO_PATH));
        return;
    }
    setup->memory = peers ? ALG_MEMORY_PEER : ALG_MEMORY_SHM;
    setup->reach.link = host ? SEL_LINK_HOST : SEL_LINK_PCIE; /* until the reach is known */
    uint64_t bytes = setup->identity[0].settings.scratch_bytes;
    if (!alg_map_init(&setup->map, bytes) || !make_plan(setup)) {
        shim_setup_decline(setup, SHIM_WHY(SCRATCH), (unsigned long long)bytes);
        return;
    }
    shim_identity_log_differences(setup);
    setup->set = shim_identity_set(setup);
    const sel_reach_t reach = shim_identity_reach(setup);
    agree_t record = {.pooled = find_idle(setup),
                      .link = reach.link,
                      .lanes = reach.lanes,
                      .far = reach.far,
                      .peers = shim_identity_sees_peers(setup)};
    setup->pooled = setup->offered = record.pooled;
    post_next(setup, STAGE_AGREE, &record, sizeof(record));
}

#if SHUNT_HAS_CUDA
enum { LOADED_DEVICES = 64 };

static struct {
    uint64_t life;
    uint32_t ranks[ALG_MEMORY_NETWORK + 1]; /* bits: numbers of ranks, by memory */
} g_loaded[LOADED_DEVICES];
static net_lock_t g_loaded_lock = NET_LOCK_INITIALIZER;

/* Whether the kernels are loaded into the device's context; with `loaded`, record it. False if the device's life is
 * unknown. */
static bool is_loaded(int device, alg_memory_t memory, uint32_t nranks, bool loaded)
{
    const uint64_t life = net_device_life(device);
    if (device < 0 || device >= LOADED_DEVICES || life == 0)
        return false;
    net_lock_take(&g_loaded_lock);
    if (g_loaded[device].life != life)
        memset(&g_loaded[device], 0, sizeof(g_loaded[device]));
    g_loaded[device].life = life;
    if (loaded)
        g_loaded[device].ranks[memory] |= 1u << nranks;
    const bool known = g_loaded[device].ranks[memory] >> nranks & 1;
    net_lock_give(&g_loaded_lock);
    return known;
}
#endif

/* Once for each context and number of ranks. */
static int preload(int device, alg_memory_t memory, uint32_t nranks)
{
#if SHUNT_HAS_CUDA
    if (is_loaded(device, memory, nranks, false))
        return 0;
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        const bool wanted = alg_registry[i]->memory == memory && alg_registry[i]->preload_cuda;
        int error = wanted ? alg_registry[i]->preload_cuda(nranks) : 0;
        if (error)
            return net_cuda_errno(error);
    }
    (void)is_loaded(device, memory, nranks, true);
#else
    (void)device, (void)memory, (void)nranks;
#endif
    return 0;
}

static int obtain_scratch(shim_setup_t *setup, uint8_t offer[NET_OFFER_BYTES])
{
    const shim_comm_t *comm = setup->comm;
    const net_memory_kind_t kind = kind_of(setup, setup->attempt)->kind;
    if (setup->pooled) {
        setup->offered = 0;
        return alg_scratch_take(setup->pooled, comm->rank, &setup->scratch);
    }
    shim_setup_leave_idle(setup);
    uint64_t id = setup->identity[0].fresh_id + setup->attempt;
    alg_device_t device = setup->request.host ? ALG_DEVICE_HOST : ALG_DEVICE_CUDA;
    int error = -ENOMEM;
    for (int attempt = 0; attempt < 2 && error == -ENOMEM; attempt++) {
        error = alg_scratch_create(device, comm->device, kind, &setup->set, id, comm->rank, comm->nranks,
                                   &setup->plan->map, &setup->scratch, offer);
        if (error == -ENOMEM && setup->patient) /* memory may be waiting to be freed: reap and retry */
            shim_comm_reap_idle();
        else if (error == -ENOMEM)
            shim_comm_reap();
    }
    return error;
}

static void post_offer(shim_setup_t *setup)
{
    offer_t record;
    memset(&record, 0, sizeof(record));
    net_scope_t scope = {0};
    bool host = setup->request.host;
    record.error = host ? 0 : net_scope_enter(&scope, setup->comm->device);
    if (!record.error && setup->plan->map.pieces > 1)
        record.error = shim_grow_start(&record.bell);
    if (!record.error && !host &&
        (!setup->pooled || setup->across)) /* the kernels were loaded when the pooled scratch was made */
        record.error =
            preload(setup->comm->device, setup->across ? ALG_MEMORY_NETWORK : setup->memory, setup->comm->nranks);
    if (!record.error)
        record.error = obtain_scratch(setup, record.bytes);
    if (!host)
        net_scope_leave(&scope);
    post_next(setup, shim_setup_try_stage(setup, TRY_OFFER), &record, sizeof(record));
}

/* Whether NCCL's variables allow peer access between all pairs. */
static bool allowed_peers(const shim_setup_t *setup)
{
    const sel_reach_t *reach = &setup->reach;
    return shim_identity_peers(setup, reach->far > reach->link ? reach->far : reach->link);
}

/* Ranks of different pid namespaces cannot inform each other when they unmap IPC memory. */
static bool one_pid_namespace(const shim_setup_t *setup)
{
    bool one = true;
    for (uint32_t r = 1; r < setup->comm->nranks; r++)
        one = one && setup->identity[r].process.pid_namespace == setup->identity[0].process.pid_namespace;
    return one;
}

/* Over NVLink, host memory is not tried where peer access is allowed but fails: the real NCCL may have the access that
 * Shunt is refused. */
static bool usable(const shim_setup_t *setup, uint32_t attempt)
{
    const bool allowed = allowed_peers(setup);
    switch (kind_of(setup, attempt)->kind) {
    case NET_MEMORY_HOST:
    case NET_MEMORY_HOST_SENT:
        return true;
    case NET_MEMORY_PINNED:
    case NET_MEMORY_PINNED_SENT:
        return !setup->across && shim_identity_shared_memory(setup) &&
               (!allowed || !setup->sees_peers || setup->reach.link >= SEL_LINK_PCIE);
    case NET_MEMORY_CUDA_VMM:
        return allowed && setup->sees_peers && all_take_vmm(setup);
    default:
        return allowed && setup->sees_peers && one_pid_namespace(setup);
    }
}

static bool suits_pooled(const shim_setup_t *setup, uint32_t attempt)
{
    const kind_t *kind = kind_of(setup, attempt);
    if (setup->request.host || kind->memory == ALG_MEMORY_SHM)
        return setup->request.host || setup->pooled_kind == NET_MEMORY_PINNED;
    return kind->kind == setup->pooled_kind;
}

/* Try the first usable kind from `attempt` on; false if there is none. Declines if no call would use the scratch. (With
 * several hosts, the plan is made when they agree.) */
static bool try_from(shim_setup_t *setup, uint32_t attempt)
{
    while (attempt < tries(setup) && !usable(setup, attempt))
        attempt++;
    if (attempt == tries(setup))
        return false;
    setup->attempt = attempt;
    setup->memory = kind_of(setup, attempt)->memory;
    if (!suits_pooled(setup, attempt))
        setup->pooled = 0;
    make_plan(setup);
    if (comes_in_pieces(setup, kind_of(setup, attempt)->kind))
        alg_map_cut(&setup->plan->map, setup->comm->nranks, setup->request.host);
    if (setup->comm->rank == 0 && !setup->across && !setup->quiet)
        shim_table_note(setup->plan);
    if (setup->request.host || setup->across || sel_plan_serves(setup->plan))
        post_offer(setup);
    else
        shim_setup_decline(setup, SHIM_WHY(NOT_FASTER));
    return true;
}

static bool prefers_host(shim_setup_t *setup)
{
    if (!usable(setup, host_attempt(setup)) || !allowed_peers(setup) || !setup->sees_peers)
        return false;
    setup->memory = ALG_MEMORY_PEER;
    return make_plan(setup) && sel_plan_prefers_host(setup->plan);
}

/* The try of the idle scratch, since earlier tries failed when it was made; else the first. */
static uint32_t first_attempt(const shim_setup_t *setup)
{
    for (uint32_t attempt = 0; setup->pooled && attempt < tries(setup); attempt++)
        if (suits_pooled(setup, attempt) && usable(setup, attempt))
            return attempt;
    return 0;
}

static void agreed(shim_setup_t *setup)
{
    const bool host = setup->request.host;
    setup->sees_peers = true;
    for (uint32_t r = 0; r < setup->comm->nranks; r++) {
        agree_t other;
        int error = shim_setup_read(setup, STAGE_AGREE, r, &other, sizeof(other));
        if (error) {
            shim_setup_decline(setup, SHIM_WHY(LINKS), r, strerror(-error));
            return;
        }
        const bool sane =
            other.link < SEL_LINK_COUNT && other.far < SEL_LINK_COUNT && (other.link == SEL_LINK_HOST) == host;
        const sel_reach_t one = sane ? (sel_reach_t){(sel_link_t)other.link, other.lanes, (sel_link_t)other.far}
                                     : (sel_reach_t){SEL_LINK_SYS, 0, SEL_LINK_HOST};
        setup->reach = r == 0 ? one : sel_reach_join(setup->reach, one);
        setup->sees_peers = setup->sees_peers && other.peers;
        if (other.pooled != setup->pooled)
            setup->pooled = 0;
    }
    setup->classed = true;
    setup->host_first = !host && prefers_host(setup);
    if (host) {
        try_from(setup, 0);
    } else if (setup->plan->topology.arch < OLDEST_ARCH) {
        make_plan(setup);
        shim_setup_decline(setup, SHIM_WHY(OLD_GPUS), OLDEST_ARCH);
    } else if (!try_from(setup, first_attempt(setup))) {
        make_plan(setup);
        if (allowed_peers(setup) && setup->sees_peers)
            shim_setup_decline(setup, SHIM_WHY(PID_NAMESPACES));
        else
            shim_setup_decline(setup, SHIM_WHY(NO_SHM));
    }
}

static void next_try(shim_setup_t *setup, const char *what, uint32_t rank, int error)
{
    if (setup->scratch)
        alg_scratch_release(setup->scratch, false);
    setup->scratch = NULL;
    setup->pooled = 0;
    if (error == -ENOMEM || !try_from(setup, setup->attempt + 1))
        decline_memory(setup, rank, what, error);
}

static int read_offers(shim_setup_t *setup, uint32_t stage, uint8_t offers[][NET_OFFER_BYTES])
{
    for (uint32_t r = 0; r < setup->comm->nranks; r++) {
        offer_t record;
        int error = shim_setup_read(setup, stage, r, &record, sizeof(record));
        if (error)
            return error;
        memcpy(offers[r], record.bytes, NET_OFFER_BYTES);
        setup->bell[r] = record.bell;
    }
    return 0;
}

static void open_and_write(shim_setup_t *setup)
{
    uint8_t offers[ALG_MAX_RANKS][NET_OFFER_BYTES];
    int32_t error = read_offers(setup, shim_setup_try_stage(setup, TRY_OFFER), offers);
    if (!error && !setup->pooled)
        error = alg_scratch_open(setup->scratch, offers);
    if (!error)
        error = alg_scratch_prove_write(setup->scratch, setup->identity[0].fresh_id);
    post_next(setup, shim_setup_try_stage(setup, TRY_OPENED), &error, sizeof(error));
}

static void offered(shim_setup_t *setup)
{
    uint32_t rank = 0;
    int error = first_error(setup, setup->stage, sizeof(offer_t), &rank);
    if (error) {
        next_try(setup,
                 setup->request.host ? "could not make memory for its peers" : "could not share memory of its GPU",
                 rank, error);
        return;
    }
    if (setup->pooled || !sends(kind_of(setup, setup->attempt)->kind)) {
        open_and_write(setup);
        return;
    }
    uint8_t offers[ALG_MAX_RANKS][NET_OFFER_BYTES];
    int32_t sent = read_offers(setup, setup->stage, offers);
    if (!sent)
        sent = alg_scratch_send(setup->scratch, offers);
    post_next(setup, shim_setup_try_stage(setup, TRY_SENT), &sent, sizeof(sent));
}

static void sent(shim_setup_t *setup)
{
    uint32_t rank = 0;
    int error = first_error(setup, setup->stage, sizeof(int32_t), &rank);
    if (error)
        next_try(setup, "could not send its memory's descriptor", rank, error);
    else
        open_and_write(setup);
}

static void opened(shim_setup_t *setup)
{
    uint32_t rank = 0;
    int error = first_error(setup, setup->stage, sizeof(int32_t), &rank);
    if (error) {
        next_try(setup, "could not map the memory of its peers", rank, error);
        return;
    }
    int32_t proof = alg_scratch_prove_read(setup->scratch, setup->identity[0].fresh_id);
    post_next(setup, shim_setup_try_stage(setup, TRY_PROOF), &proof, sizeof(proof));
}

static void proven(shim_setup_t *setup)
{
    uint32_t rank = 0;
    int error = first_error(setup, setup->stage, sizeof(int32_t), &rank);
    if (error) {
        decline_memory(setup, rank, "did not get what its peers stored", error);
        return;
    }
    net_decide(setup->rendezvous, NET_ATTACHED, "");
    shim_setup_apply_verdict(setup);
}

static void take_step(shim_setup_t *setup)
{
    static void (*const action[TRY_STAGES])(shim_setup_t *) = {
        [TRY_OFFER] = offered, [TRY_SENT] = sent, [TRY_OPENED] = opened, [TRY_PROOF] = proven};
    shim_setup_start_clock(setup, true);
    if (setup->regrouping)
        shim_setup_regroup(setup);
    else if (setup->stage == STAGE_IDENTITY)
        identities_done(setup);
    else if (setup->stage == STAGE_AGREE)
        agreed(setup);
    else
        action[(setup->stage - STAGE_FIRST_TRY) % TRY_STAGES](setup);
}

static void time_out(shim_setup_t *setup)
{
    const uint32_t nranks = setup->regrouping ? (uint32_t)setup->request.nranks : setup->comm->nranks;
    const uint32_t came = net_count(setup->rendezvous);
    const bool absent = came < nranks && (setup->regrouping || setup->stage == STAGE_IDENTITY);
    if (absent && setup->request.host && !net_invitation_valid(&setup->request.invitation))
        shim_setup_decline(setup, SHIM_WHY(NO_ADDRESS), came, nranks, setup->limit_ms);
    else if (absent)
        shim_setup_decline(setup, SHIM_WHY(MISSING), came, nranks, setup->limit_ms);
    else if (atomic_load(&setup->needed_ns))
        shim_setup_decline(setup, SHIM_WHY(IDLE_RANK));
    else
        shim_setup_decline(setup, SHIM_WHY(AWAY), setup->limit_ms);
}

/* Whether to end a stage that a rank has not reached. Past the deadline it ends if a rank was never seen, and so may
 * be dead. Living ranks reach a meeting in the end, and other stages if their programs call; so only a thread that
 * waits here, while nobody is away, gives up. A call that waits for the verdict has its own limit.
 *
 * Before the deadline, a thread in an init, or one that polls until the communicator is ready, is released
 * (`postpone`) if it depends on another rank's program: that program may wait for this rank, or this thread may have
 * to poll that rank next. */
static bool out_of_time(shim_setup_t *setup)
{
    const uint64_t now = shim_now_ns(), needed = atomic_load(&setup->needed_ns);
    const uint64_t ms = UINT64_C(1000000);
    if (now < setup->since_ns + SHIM_AWAY_MS * ms)
        return false;
    const uint32_t missing = net_missing(setup->rendezvous, setup->stage);
    const uint64_t away_ms = setup->patient ? SHIM_POLLS_MS : SHIM_AWAY_MS;
    if (missing & NET_MISSING_AWAY && !setup->told && !setup->request.host && now > setup->since_ns + away_ms * ms) {
        net_set_away(setup->rendezvous, true);
        setup->postpone = true;
        return false;
    }
    if (now < setup->deadline_ns)
        return false;
    if (missing & NET_MISSING_UNSEEN && !shim_setup_parents_present(setup))
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
        shim_setup_decline(setup, SHIM_WHY(GIVEN_UP));
        return true;
    }
    if (!setup->begun)
        return shim_setup_begin(setup);
    bool moved = false;
    if (setup->rendezvous && !setup->regrouping && !setup->agreeing && shim_setup_apply_verdict(setup))
        return true;
    if (shim_setup_step_hosts(setup, &moved))
        return moved;
    net_set_away(setup->rendezvous, setup->patient);
    switch (net_poll(setup->rendezvous, setup->stage)) {
    case 1:
        take_step(setup);
        return true;
    case 0:
        if ((setup->hosts && !setup->across) || !out_of_time(setup)) /* the meeting of hosts has its own limit */
            return false;
        time_out(setup);
        return true;
    case -ECANCELED:
        shim_setup_apply_verdict(setup);
        return true;
    case -ESRCH:
        shim_setup_decline(setup, SHIM_WHY(DIED));
        return true;
    default:
        shim_setup_decline(setup, SHIM_WHY(DAMAGED));
        return true;
    }
}
