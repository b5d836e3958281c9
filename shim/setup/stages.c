/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stages.c - the states of a set-up, and the records that ranks exchange.
 *
 * On entry to a state a rank acts and posts a record. When all ranks have posted, each takes all records and enters the
 * next state. A failure is posted as an error number, so all ranks take the same branch.
 *
 *   state     posts on entry                             then
 *   REAL      -, while the real init runs                REGROUP, MEET or IDENTITY (begin.c)
 *   REGROUP   colour, to the parent's ranks (CPU mode)   IDENTITY, in a new segment
 *   MEET      -, ranks of several nodes meet (across.c)  IDENTITY, of this node's ranks
 *   EITHER    -, the same, or a late rank (CPU mode)     IDENTITY
 *   IDENTITY  identity, settings (identity.c)            AGREE, with rank 0's settings
 *   AGREE     link to peers, idle scratch                OFFER, with the plan of all
 *   OFFER     errno, offer of the scratch                SENT
 *   SENT      errno (kinds that send)                    OPENED
 *   OPENED    errno of mapping, storing tokens           PROOF
 *   PROOF     errno of this rank's mailboxes             NODES, or on one node DONE: attached
 *   NODES     the plan's hash, to all nodes (verdict.c)  DONE: attached
 *
 * If a kind of memory (`kinds`) fails on a rank before the proof, all ranks drop their scratch and return to OFFER with
 * the next kind. A decline leads from every state to DONE; from MEET to PROOF one rank's decline ends all ranks' set-up
 * (verdict.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shim/account/track.h"
#include "shim/base/clock.h"
#include "shim/base/settings.h"
#include "shim/comm/grow.h"
#include "shim/comm/reap.h"
#include "shim/setup/setup.h"
#include "shim/setup/table_load.h"

typedef struct agree {
    uint64_t pooled; /* id of the idle scratch; 0: none */
    uint32_t link;   /* link, lanes and far: the worst sel_reach_t to a peer */
    uint32_t lanes;
    uint32_t far;
    uint32_t peers; /* CUDA denies access to no peer */
} agree_t;

typedef struct offer {
    int32_t error;
    uint8_t bytes[NET_OFFER_BYTES];
    net_bell_t bell; /* of this process, for a scratch that comes in pieces */
} offer_t;

/* In the order of the tries, unless pinned_first is set. */
typedef struct kind {
    net_memory_kind_t kind;
    alg_memory_t memory;
    const char *told;
} kind_t;
static const kind_t kinds[] = {{NET_MEMORY_CUDA_VMM, ALG_MEMORY_PEER, ""},
                               {NET_MEMORY_CUDA_IPC, ALG_MEMORY_PEER, ", by CUDA IPC"},
                               {NET_MEMORY_PINNED, ALG_MEMORY_PINNED, ", through pinned memory"},
                               {NET_MEMORY_PINNED_SENT, ALG_MEMORY_PINNED, ", through pinned memory"}};
static const kind_t cpu_kinds[] = {{NET_MEMORY_SHARED, ALG_MEMORY_PEER, ""},
                                   {NET_MEMORY_SHARED_SENT, ALG_MEMORY_PEER, ""}};
enum { ALONE_BYTES = 1 << 20 };
enum { OLDEST_ARCH = 80 }; /* the oldest that kernels are built for */
enum { TRIES = sizeof(kinds) / sizeof(kinds[0]), PEER_TRIES = 2 };
enum { CPU_TRIES = sizeof(cpu_kinds) / sizeof(cpu_kinds[0]) };

_Static_assert(STAGE_FIRST_TRY + (int)TRIES * TRY_STAGES <= (int)NET_STAGES, "transport has too few stages");
_Static_assert(sizeof(offer_t) <= NET_LATER_BYTES && sizeof(agree_t) <= NET_LATER_BYTES, "a record has no room for it");
_Static_assert((int)STATE_PROOF - (int)STATE_OFFER == (int)TRY_PROOF, "states and stages of a try differ");
_Static_assert((int)ALG_MAX_RANKS <= (int)NET_MAX_SLOTS, "more ranks than slots");

/* The last kind of memory has failed on `rank`. */
static void decline_memory(shim_setup_t *setup, uint32_t rank, const char *what, int error)
{
    if (error != -ENOSYS)
        shim_setup_decline(setup, SHIM_WHY(NOT_SHARED), rank, what, strerror(-error));
    else if (setup->request.cpu)
        shim_setup_decline(setup, SHIM_WHY(SYSTEM_REFUSES), rank, what);
    else
        shim_setup_decline(setup, SHIM_WHY(CUDA_REFUSES), rank, what);
}

static uint32_t stage_of(const shim_setup_t *setup, shim_state_t state)
{
    const uint32_t first = STAGE_FIRST_TRY + setup->attempt * TRY_STAGES;
    return state >= STATE_OFFER ? first + (state - STATE_OFFER) : state == STATE_AGREE ? STAGE_AGREE : STAGE_IDENTITY;
}

static const kind_t *kind_of(const shim_setup_t *setup, uint32_t attempt)
{
    if (setup->request.cpu)
        return &cpu_kinds[attempt];
    return &kinds[setup->pinned_first ? (attempt + PEER_TRIES) % TRIES : attempt];
}

static uint32_t pinned_attempt(const shim_setup_t *setup)
{
    return setup->pinned_first ? 0 : PEER_TRIES;
}

static uint32_t tries(const shim_setup_t *setup)
{
    return setup->request.cpu ? CPU_TRIES : TRIES;
}

static bool sends(net_memory_kind_t kind)
{
    return kind == NET_MEMORY_CUDA_VMM || kind == NET_MEMORY_SHARED_SENT || kind == NET_MEMORY_PINNED_SENT;
}

const char *shim_setup_memory_text(const shim_setup_t *setup)
{
    return kind_of(setup, setup->attempt)->told;
}

static void post(shim_setup_t *setup, const void *record, size_t size)
{
    const uint32_t stage = stage_of(setup, setup->state);
    int error = net_post(setup->rendezvous, stage, record, size);
    if (error)
        shim_setup_decline(setup, SHIM_WHY(STAGE), stage, strerror(-error));
}

/* Each record from OFFER on begins with an error number. Returns the first that is not 0, and its rank. */
static int first_error(shim_setup_t *setup, uint32_t *rank)
{
    const uint32_t stage = stage_of(setup, setup->state);
    const size_t size = setup->state == STATE_OFFER ? sizeof(offer_t) : sizeof(int32_t);
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
        if (setup->across && nranks == 1) /* a rank alone on its node needs only a control page */
            identity->settings.scratch_bytes = ALONE_BYTES;
    }
    return 0;
}

static bool comes_in_pieces(const shim_setup_t *setup, net_memory_kind_t kind)
{
    return !setup->across &&
           (kind == NET_MEMORY_CUDA_VMM || kind == NET_MEMORY_SHARED || kind == NET_MEMORY_SHARED_SENT);
}

static bool make_plan(shim_setup_t *setup)
{
    if (!setup->plan)
        setup->plan = malloc(sizeof(*setup->plan));
    if (!setup->plan)
        return false;
    sel_topology_t topology = shim_identity_topology(setup, setup->reach.link, setup->memory);
    topology.lanes = setup->reach.lanes;
    topology.peers = setup->pinned_first && setup->memory == ALG_MEMORY_PINNED;
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
        alg_map_cut(&map, setup->comm->nranks, setup->request.cpu);
    setup->pooled_kind = kind;
    return alg_scratch_idle(&setup->set, setup->comm->rank, &map);
}

/* An idle scratch of this team: in the plan's memory, or in pinned memory if earlier set-ups found no peer access. */
static uint64_t find_idle(shim_setup_t *setup)
{
    const alg_map_t *map = &setup->plan->map;
    alg_map_t pinned;
    uint64_t id = 0;
    if (setup->request.cpu)
        return find_idle_of(setup, NET_MEMORY_SHARED, *map);
    if (setup->memory == ALG_MEMORY_PINNED)
        return find_idle_of(setup, NET_MEMORY_PINNED, *map);
    if (all_take_vmm(setup))
        id = find_idle_of(setup, NET_MEMORY_CUDA_VMM, *map);
    if (!id)
        id = find_idle_of(setup, NET_MEMORY_CUDA_IPC, *map);
    if (!id && alg_map_init_shm(&pinned, setup->identity[0].settings.scratch_bytes))
        id = find_idle_of(setup, NET_MEMORY_PINNED, pinned);
    return id;
}

static bool take_identities(shim_setup_t *setup)
{
    net_unlink(setup->rendezvous);
    net_leave(setup->parents);
    setup->parents = NULL;
    int error = read_identities(setup);
    if (error) {
        shim_setup_decline(setup, SHIM_WHY(IDENTITIES), strerror(-error));
        return false;
    }
    shim_why_t why;
    if (shim_identity_mismatches(setup, &why)) {
        shim_setup_decline(setup, why.reason, "%s", why.text);
        return false;
    }
    const bool peers = setup->request.cpu || shim_identity_peers(setup, SEL_LINK_NVSWITCH);
    setup->memory = peers ? ALG_MEMORY_PEER : ALG_MEMORY_PINNED;
    if (!peers && !shim_identity_shared_memory(setup)) {
        shim_setup_decline(setup, SHIM_WHY(NO_PATH));
        return false;
    }
    return true;
}

static void post_links(shim_setup_t *setup)
{
    alg_map_t map;
    setup->reach.link = setup->request.cpu ? SEL_LINK_CPU : SEL_LINK_PCIE; /* until take_links sets it */
    uint64_t bytes = setup->identity[0].settings.scratch_bytes;
    if (!alg_map_init(&map, bytes) || !make_plan(setup)) {
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
    post(setup, &record, sizeof(record));
}

#if SHUNT_HAS_CUDA
enum { LOADED_DEVICES = 64 };

static struct {
    uint64_t life;
    uint32_t ranks[ALG_MEMORY_NETWORK + 1]; /* index: memory; bit n: kernels for n ranks are loaded */
} g_loaded[LOADED_DEVICES];
static net_lock_t g_loaded_lock = NET_LOCK_INITIALIZER;

/* Whether the kernels are loaded into the device's context; `loaded`: record that they are. False if net_device_life is
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
    alg_device_t device = setup->request.cpu ? ALG_DEVICE_CPU : ALG_DEVICE_CUDA;
    int error = -ENOMEM;
    for (int attempt = 0; attempt < 2 && error == -ENOMEM; attempt++) {
        error = alg_scratch_create(device, comm->device, kind, &setup->set, id, comm->rank, comm->nranks,
                                   &setup->plan->map, &setup->scratch, offer);
        if (error == -ENOMEM && setup->finisher >= FINISHER_POLLS) /* retired memory may be freed now: reap and retry */
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
    bool cpu = setup->request.cpu;
    record.error = cpu ? 0 : net_scope_enter(&scope, setup->comm->device);
    if (!record.error && setup->plan->map.pieces > 1)
        record.error = shim_grow_start(&record.bell);
    if (!record.error && !cpu &&
        (!setup->pooled || setup->across)) /* the kernels were loaded when the pooled scratch was made */
        record.error =
            preload(setup->comm->device, setup->across ? ALG_MEMORY_NETWORK : setup->memory, setup->comm->nranks);
    if (!record.error)
        record.error = obtain_scratch(setup, record.bytes);
    if (!record.error && !cpu && shim_settings()->trace[0])
        shim_track_prepare(setup->comm->device, alg_scratch_life(setup->scratch));
    if (!cpu)
        net_scope_leave(&scope);
    post(setup, &record, sizeof(record));
}

static bool allowed_peers(const shim_setup_t *setup)
{
    const sel_reach_t *reach = &setup->reach;
    return shim_identity_peers(setup, reach->far > reach->link ? reach->far : reach->link);
}

/* Ranks of several pid namespaces cannot tell each other when they unmap IPC memory. */
static bool one_pid_namespace(const shim_setup_t *setup)
{
    bool one = true;
    for (uint32_t r = 1; r < setup->comm->nranks; r++)
        one = one && setup->identity[r].process.pid_namespace == setup->identity[0].process.pid_namespace;
    return one;
}

/* Whether this kind of memory may be tried. Pinned memory is not tried over NVLink if peer access is allowed but
 * failed, since NCCL's may work. */
static bool usable(const shim_setup_t *setup, uint32_t attempt)
{
    const bool allowed = allowed_peers(setup);
    switch (kind_of(setup, attempt)->kind) {
    case NET_MEMORY_SHARED:
    case NET_MEMORY_SHARED_SENT:
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
    if (setup->request.cpu || kind->memory == ALG_MEMORY_PINNED)
        return setup->request.cpu || setup->pooled_kind == NET_MEMORY_PINNED;
    return kind->kind == setup->pooled_kind;
}

/* Enter OFFER with the first usable kind from `attempt` on; false if there is none. Declines if no call would use the
 * scratch. */
static bool try_from(shim_setup_t *setup, uint32_t attempt)
{
    while (attempt < tries(setup) && !usable(setup, attempt))
        attempt++;
    if (attempt == tries(setup))
        return false;
    setup->state = STATE_OFFER;
    setup->attempt = attempt;
    setup->memory = kind_of(setup, attempt)->memory;
    if (!suits_pooled(setup, attempt))
        setup->pooled = 0;
    make_plan(setup);
    if (comes_in_pieces(setup, kind_of(setup, attempt)->kind))
        alg_map_cut(&setup->plan->map, setup->comm->nranks, setup->request.cpu);
    if (setup->comm->rank == 0 && !setup->across)
        shim_table_note(setup->plan);
    if (setup->request.cpu || setup->across || sel_plan_serves(setup->plan))
        post_offer(setup);
    else
        shim_setup_decline(setup, SHIM_WHY(NOT_FASTER));
    return true;
}

static bool prefers_pinned(shim_setup_t *setup)
{
    if (!usable(setup, pinned_attempt(setup)) || !allowed_peers(setup) || !setup->sees_peers)
        return false;
    setup->memory = ALG_MEMORY_PEER;
    return make_plan(setup) && sel_plan_prefers_pinned(setup->plan);
}

/* The idle scratch's kind, since the earlier kinds failed when that scratch was made; without one, the first kind. */
static uint32_t first_attempt(const shim_setup_t *setup)
{
    for (uint32_t attempt = 0; setup->pooled && attempt < tries(setup); attempt++)
        if (suits_pooled(setup, attempt) && usable(setup, attempt))
            return attempt;
    return 0;
}

static bool take_links(shim_setup_t *setup)
{
    setup->sees_peers = true;
    for (uint32_t r = 0; r < setup->comm->nranks; r++) {
        agree_t other;
        int error = shim_setup_read(setup, STAGE_AGREE, r, &other, sizeof(other));
        if (error) {
            shim_setup_decline(setup, SHIM_WHY(LINKS), r, strerror(-error));
            return false;
        }
        const bool sane = other.link < SEL_LINK_COUNT && other.far < SEL_LINK_COUNT &&
                          (other.link == SEL_LINK_CPU) == setup->request.cpu;
        const sel_reach_t one = sane ? (sel_reach_t){(sel_link_t)other.link, other.lanes, (sel_link_t)other.far}
                                     : (sel_reach_t){SEL_LINK_SYS, 0, SEL_LINK_CPU};
        setup->reach = r == 0 ? one : sel_reach_join(setup->reach, one);
        setup->sees_peers = setup->sees_peers && other.peers;
        if (other.pooled != setup->pooled)
            setup->pooled = 0;
    }
    return true;
}

static void post_first_offer(shim_setup_t *setup)
{
    const bool cpu = setup->request.cpu;
    setup->pinned_first = !cpu && prefers_pinned(setup);
    if (cpu) {
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

static int read_offers(shim_setup_t *setup, uint8_t offers[][NET_OFFER_BYTES])
{
    for (uint32_t r = 0; r < setup->comm->nranks; r++) {
        offer_t record;
        int error = shim_setup_read(setup, stage_of(setup, STATE_OFFER), r, &record, sizeof(record));
        if (error)
            return error;
        memcpy(offers[r], record.bytes, NET_OFFER_BYTES);
        setup->bell[r] = record.bell;
    }
    return 0;
}

static void post_opened(shim_setup_t *setup)
{
    uint8_t offers[ALG_MAX_RANKS][NET_OFFER_BYTES];
    int32_t error = read_offers(setup, offers);
    if (!error && !setup->pooled)
        error = alg_scratch_open(setup->scratch, offers);
    if (!error)
        error = alg_scratch_prove_write(setup->scratch, setup->identity[0].fresh_id);
    post(setup, &error, sizeof(error));
}

static void post_sent(shim_setup_t *setup)
{
    if (setup->pooled || !sends(kind_of(setup, setup->attempt)->kind)) {
        shim_setup_enter(setup, STATE_OPENED);
        return;
    }
    uint8_t offers[ALG_MAX_RANKS][NET_OFFER_BYTES];
    int32_t error = read_offers(setup, offers);
    if (!error)
        error = alg_scratch_send(setup->scratch, offers);
    post(setup, &error, sizeof(error));
}

static void post_proof(shim_setup_t *setup)
{
    int32_t error = alg_scratch_prove_read(setup->scratch, setup->identity[0].fresh_id);
    post(setup, &error, sizeof(error));
}

/* Returns false, because the verdict sets the next state. */
static bool take_proofs(shim_setup_t *setup)
{
    net_decide(setup->rendezvous, NET_ATTACHED, "");
    shim_setup_apply_verdict(setup);
    return false;
}

typedef enum wait { FOR_NOTHING, FOR_REAL, FOR_RANKS, FOR_NODES, FOR_RANKS_OR_NODES, FOR_ALL_NODES } wait_t;

typedef enum limit {
    LIMIT_NONE,
    LIMIT_MEETING,
    LIMIT_JOIN, /* ranks may not have joined yet; a user's shorter limit applies */
    LIMIT_STAGE /* a dead rank is noticed at once; a living one may be slow, as in arming memory */
} limit_t;

typedef struct state {
    wait_t wait;
    limit_t limit;
    void (*post)(shim_setup_t *); /* on entry */
    bool (*take)(shim_setup_t *); /* once all ranks have posted: whether to enter `next`; NULL: yes */
    shim_state_t next;            /* used with FOR_RANKS only */
    const char *failure;          /* what a rank that posts an error could not do; NULL: records have no error */
} state_t;

static const state_t states[STATES] = {
    [STATE_REAL] = {.wait = FOR_REAL},
    [STATE_REGROUP] = {FOR_RANKS, LIMIT_JOIN, shim_setup_post_color, shim_setup_take_colors, STATE_IDENTITY, NULL},
    [STATE_MEET] = {.wait = FOR_NODES, .limit = LIMIT_MEETING, .post = shim_setup_begin_nodes},
    [STATE_EITHER] = {.wait = FOR_RANKS_OR_NODES, .limit = LIMIT_MEETING, .post = shim_setup_begin_nodes},
    [STATE_IDENTITY] = {FOR_RANKS, LIMIT_JOIN, shim_setup_post_identity, take_identities, STATE_AGREE, NULL},
    [STATE_AGREE] = {FOR_RANKS, LIMIT_STAGE, post_links, take_links, STATE_OFFER, NULL},
    [STATE_OFFER] = {FOR_RANKS, LIMIT_STAGE, post_first_offer, NULL, STATE_SENT, "could not share memory of its GPU"},
    [STATE_SENT] = {FOR_RANKS, LIMIT_STAGE, post_sent, NULL, STATE_OPENED, "could not send its memory's descriptor"},
    [STATE_OPENED] = {FOR_RANKS, LIMIT_STAGE, post_opened, NULL, STATE_PROOF, "could not map the memory of its peers"},
    [STATE_PROOF] = {FOR_RANKS, LIMIT_STAGE, post_proof, take_proofs, STATE_DONE,
                     "did not see the test words that its peers stored"},
    [STATE_NODES] = {.wait = FOR_ALL_NODES, .post = shim_setup_post_plan},
    [STATE_DONE] = {.wait = FOR_NOTHING},
};

void shim_setup_enter(shim_setup_t *setup, shim_state_t state)
{
    setup->state = state;
    states[state].post(setup);
}

uint64_t shim_setup_limit_ms(const shim_setup_t *setup)
{
    const limit_t limit = states[setup->state].limit;
    const uint64_t set = setup->request.cpu ? shim_setting_timeout_ns(true) / 1000000 : 0;
    if (limit == LIMIT_MEETING && !setup->request.cpu)
        return SHIM_NODES_LIMIT_MS;
    return set && (limit != LIMIT_STAGE || set > SHIM_SETUP_LIMIT_MS) ? set : SHIM_SETUP_LIMIT_MS;
}

static void take_error(shim_setup_t *setup, uint32_t rank, int error)
{
    const char *what = states[setup->state].failure;
    if (setup->state == STATE_OFFER && setup->request.cpu)
        what = "could not make memory for its peers";
    if (setup->state == STATE_PROOF)
        decline_memory(setup, rank, what, error);
    else
        next_try(setup, what, rank, error);
}

static void take_records(shim_setup_t *setup)
{
    const state_t *state = &states[setup->state];
    uint32_t rank = 0;
    const int error = state->failure ? first_error(setup, &rank) : 0;
    setup->since_ns = shim_now_ns();
    if (error)
        take_error(setup, rank, error);
    else if (!state->take || state->take(setup))
        shim_setup_enter(setup, state->next);
}

static void time_out(shim_setup_t *setup)
{
    const uint32_t nranks = setup->state == STATE_REGROUP ? (uint32_t)setup->request.nranks : setup->comm->nranks;
    const uint32_t came = net_count(setup->rendezvous);
    const uint32_t limit_ms = (uint32_t)shim_setup_limit_ms(setup);
    const bool absent = came < nranks && states[setup->state].limit == LIMIT_JOIN;
    if (absent && setup->request.cpu && !setup->request.invitation.given)
        shim_setup_decline(setup, SHIM_WHY(NO_ADDRESS), came, nranks, limit_ms);
    else if (absent)
        shim_setup_decline(setup, SHIM_WHY(MISSING), came, nranks, limit_ms);
    else if (atomic_load(&setup->needed_ns))
        shim_setup_decline(setup, SHIM_WHY(IDLE_RANK));
    else
        shim_setup_decline(setup, SHIM_WHY(AWAY), limit_ms);
}

bool shim_setup_waits_too_long(const shim_setup_t *setup)
{
    const uint64_t away_ms = setup->finisher >= FINISHER_POLLS ? SHIM_POLLS_MS : SHIM_AWAY_MS;
    return !setup->request.cpu && setup->finisher != FINISHER_LATER &&
           shim_now_ns() > setup->since_ns + away_ms * UINT64_C(1000000);
}

/* Whether this state has waited too long for a rank (docs/design.md, "How ranks find each other"). For a rank that is
 * away it sets `postpone` instead, so that no thread waits. */
static bool out_of_time(shim_setup_t *setup)
{
    const uint64_t now = shim_now_ns(), needed = atomic_load(&setup->needed_ns);
    const uint64_t ms = UINT64_C(1000000);
    if (now < setup->since_ns + SHIM_AWAY_MS * ms)
        return false;
    const uint32_t missing = net_missing(setup->rendezvous, stage_of(setup, setup->state));
    if (missing & NET_MISSING_AWAY && shim_setup_waits_too_long(setup)) {
        net_set_away(setup->rendezvous, true);
        setup->postpone = true;
        return false;
    }
    if (now < setup->since_ns + shim_setup_limit_ms(setup) * ms)
        return false;
    if (missing & NET_MISSING_UNSEEN && !shim_setup_parents_present(setup))
        return true;
    if (needed)
        return now > needed + SHIM_SETTLE_LIMIT_MS * ms;
    return states[setup->state].limit != LIMIT_JOIN && setup->finisher < FINISHER_POLLS &&
           missing == NET_MISSING_WAITING;
}

/* In EITHER the meeting has the time limit, and shim_setup_step_meeting goes on when a late rank has come. */
static bool step_ranks(shim_setup_t *setup)
{
    net_set_away(setup->rendezvous, setup->finisher >= FINISHER_POLLS);
    const int polled = net_poll(setup->rendezvous, stage_of(setup, setup->state));
    if (polled == 0 && setup->state != STATE_EITHER && out_of_time(setup))
        time_out(setup);
    else if (polled == 0 || (polled == 1 && setup->state == STATE_EITHER))
        return false;
    else if (polled == 1)
        take_records(setup);
    else if (polled == -ECANCELED)
        shim_setup_apply_verdict(setup);
    else if (polled == -ESRCH)
        shim_setup_decline(setup, SHIM_WHY(DIED));
    else
        shim_setup_decline(setup, SHIM_WHY(DAMAGED));
    return true;
}

/* In these states a verdict of this node's ranks ends the set-up at any time. REGROUP is excluded, because all ranks of
 * the parent share its segment. */
static bool follows_verdict(const shim_setup_t *setup)
{
    return setup->rendezvous && setup->state >= STATE_MEET && setup->state <= STATE_PROOF;
}

bool shim_setup_step(shim_setup_t *setup, bool own)
{
    if (setup->state != STATE_DONE && atomic_load(&setup->cancel)) {
        shim_setup_decline(setup, SHIM_WHY(GIVEN_UP));
        return true;
    }
    if (follows_verdict(setup) && shim_setup_apply_verdict(setup))
        return true;
    if (shim_setup_nodes_due(setup))
        shim_setup_enter(setup, STATE_EITHER);
    switch (states[setup->state].wait) {
    case FOR_REAL:
        return shim_setup_begin(setup, own);
    case FOR_RANKS:
        return step_ranks(setup);
    case FOR_NODES:
        return shim_setup_step_meeting(setup);
    case FOR_RANKS_OR_NODES:
        return shim_setup_step_meeting(setup) || step_ranks(setup);
    case FOR_ALL_NODES:
        return shim_setup_step_agreement(setup);
    default:
        return false;
    }
}
