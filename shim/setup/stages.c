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
 * If a kind of memory (memory.def) fails on a rank before the proof, all ranks drop their scratch and return to OFFER
 * with the next kind. A decline leads from every state to DONE; from MEET to PROOF one rank's decline ends all ranks'
 * set-up (verdict.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

enum { ALONE_BYTES = 1 << 20 };

_Static_assert(STAGE_FIRST_TRY + (int)NET_MOST_KINDS * TRY_STAGES <= (int)NET_STAGES, "transport has too few stages");
_Static_assert(sizeof(offer_t) <= NET_LATER_BYTES && sizeof(agree_t) <= NET_LATER_BYTES, "a record has no room for it");
_Static_assert((int)STATE_PROOF - (int)STATE_OFFER == (int)TRY_PROOF, "states and stages of a try differ");
_Static_assert((int)ALG_MAX_RANKS <= (int)NET_MAX_SLOTS, "more ranks than slots");

static uint32_t stage_of(const shim_setup_t *setup, shim_state_t state)
{
    const uint32_t first = STAGE_FIRST_TRY + setup->attempt * TRY_STAGES;
    return state >= STATE_OFFER ? first + (state - STATE_OFFER) : state == STATE_AGREE ? STAGE_AGREE : STAGE_IDENTITY;
}

net_memory_kind_t shim_setup_kind(const shim_setup_t *setup, uint32_t attempt)
{
    return setup->ops->kinds + (setup->first_kind + attempt) % setup->ops->kind_count;
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
        if (identity->fresh_id == 0)
            identity->fresh_id = NET_MOST_KINDS + 1;
        if (setup->across && nranks == 1) /* a rank alone on its node needs only a control page */
            identity->settings.scratch_bytes = ALONE_BYTES;
    }
    return 0;
}

bool shim_setup_has_peers(const shim_setup_t *setup)
{
    const sel_reach_t *reach = &setup->reach;
    return setup->sees_peers && shim_identity_peers(setup, reach->far > reach->link ? reach->far : reach->link);
}

bool shim_setup_make_plan(shim_setup_t *setup)
{
    if (!setup->plan)
        setup->plan = malloc(sizeof(*setup->plan));
    if (!setup->plan)
        return false;
    sel_topology_t topology = shim_identity_topology(setup, setup->reach.link, setup->memory);
    topology.lanes = setup->reach.lanes;
    topology.peers =
        setup->memory == ALG_MEMORY_PINNED && setup->reach.link >= SEL_LINK_PCIE && shim_setup_has_peers(setup);
    sel_plan_init(setup->plan, &topology, &setup->identity[0].settings);
    return true;
}

static void cut(const shim_setup_t *setup, net_memory_kind_t kind, alg_map_t *map)
{
    if (net_memory_facts[kind].ranges && !setup->across)
        alg_map_cut(map, setup->comm->nranks, setup->ops->rings_first);
}

uint64_t shim_setup_find_idle(shim_setup_t *setup, net_memory_kind_t kind, alg_map_t map)
{
    cut(setup, kind, &map);
    setup->pooled_kind = kind;
    return alg_scratch_idle(&setup->set, setup->comm->rank, &map);
}

bool shim_setup_takes_idle(const shim_setup_t *setup, net_memory_kind_t kind)
{
    const net_memory_facts_t *pooled = &net_memory_facts[setup->pooled_kind], *facts = &net_memory_facts[kind];
    return pooled->pinned == facts->pinned && pooled->ranges == facts->ranges;
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
    const bool peers = shim_identity_peers(setup, SEL_LINK_NVSWITCH);
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
    setup->reach.link = setup->ops->link; /* until take_links sets it */
    uint64_t bytes = setup->identity[0].settings.scratch_bytes;
    if (!alg_map_init(&map, bytes) || !shim_setup_make_plan(setup)) {
        shim_setup_decline(setup, SHIM_WHY(SCRATCH), (unsigned long long)bytes);
        return;
    }
    shim_identity_log_differences(setup);
    setup->set = shim_identity_set(setup);
    agree_t record = {.pooled = setup->ops->find_idle(setup)};
    const sel_reach_t reach = setup->ops->reach(setup, &record.peers);
    record.link = reach.link;
    record.lanes = reach.lanes;
    record.far = reach.far;
    setup->pooled = setup->offered = record.pooled;
    post(setup, &record, sizeof(record));
}

int shim_setup_make_scratch(shim_setup_t *setup, uint8_t offer[NET_OFFER_BYTES])
{
    const shim_comm_t *comm = setup->comm;
    const net_memory_kind_t kind = shim_setup_kind(setup, setup->attempt);
    if (setup->pooled) {
        setup->offered = 0;
        return alg_scratch_take(setup->pooled, comm->rank, &setup->scratch);
    }
    shim_setup_leave_idle(setup);
    uint64_t id = setup->identity[0].fresh_id + setup->attempt;
    int error = -ENOMEM;
    for (int attempt = 0; attempt < 2 && error == -ENOMEM; attempt++) {
        error = alg_scratch_create(comm->ops->device, comm->device, kind, &setup->set, id, comm->rank, comm->nranks,
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
    if (setup->plan->map.pieces > 1)
        record.error = shim_grow_start(&record.bell);
    if (!record.error)
        record.error = setup->ops->make(setup, record.bytes);
    post(setup, &record, sizeof(record));
}

bool shim_setup_try_from(shim_setup_t *setup, uint32_t attempt)
{
    while (attempt < setup->ops->kind_count && !setup->ops->usable(setup, shim_setup_kind(setup, attempt)))
        attempt++;
    if (attempt == setup->ops->kind_count)
        return false;
    const net_memory_kind_t kind = shim_setup_kind(setup, attempt);
    setup->state = STATE_OFFER;
    setup->attempt = attempt;
    setup->memory = net_memory_facts[kind].pinned ? ALG_MEMORY_PINNED : ALG_MEMORY_PEER;
    if (!shim_setup_takes_idle(setup, kind))
        setup->pooled = 0;
    shim_setup_make_plan(setup);
    cut(setup, kind, &setup->plan->map);
    if (setup->comm->rank == 0 && !setup->across)
        shim_table_note(setup->plan);
    if (setup->across || setup->ops->serves(setup->plan))
        post_offer(setup);
    else
        shim_setup_decline(setup, SHIM_WHY(NOT_FASTER));
    return true;
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
                          (other.link == SEL_LINK_CPU) == (setup->ops->link == SEL_LINK_CPU);
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
    setup->ops->offer_first(setup);
}

/* The last kind of memory has failed on `rank`. */
static void decline_memory(shim_setup_t *setup, uint32_t rank, const char *what, int error)
{
    if (error != -ENOSYS)
        shim_setup_decline(setup, SHIM_WHY(NOT_SHARED), rank, what, strerror(-error));
    else
        setup->ops->lack(setup, rank, what);
}

static void next_try(shim_setup_t *setup, const char *what, uint32_t rank, int error)
{
    if (setup->scratch)
        alg_scratch_release(setup->scratch, false);
    setup->scratch = NULL;
    setup->pooled = 0;
    if (error == -ENOMEM || !shim_setup_try_from(setup, setup->attempt + 1))
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
    if (setup->pooled || !net_memory_facts[shim_setup_kind(setup, setup->attempt)].sends) {
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

static void post_color(shim_setup_t *setup)
{
    setup->ops->post_color(setup);
}

static bool take_colors(shim_setup_t *setup)
{
    return setup->ops->take_colors(setup);
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
    const char *failure;          /* what a rank that posts an error could not do; NULL: records have none */
} state_t;

static const state_t states[STATES] = {
    [STATE_REAL] = {.wait = FOR_REAL},
    [STATE_REGROUP] = {FOR_RANKS, LIMIT_JOIN, post_color, take_colors, STATE_IDENTITY, NULL},
    [STATE_MEET] = {.wait = FOR_NODES, .limit = LIMIT_MEETING, .post = shim_setup_begin_nodes},
    [STATE_EITHER] = {.wait = FOR_RANKS_OR_NODES, .limit = LIMIT_MEETING, .post = shim_setup_begin_nodes},
    [STATE_IDENTITY] = {FOR_RANKS, LIMIT_JOIN, shim_setup_post_identity, take_identities, STATE_AGREE, NULL},
    [STATE_AGREE] = {FOR_RANKS, LIMIT_STAGE, post_links, take_links, STATE_OFFER, NULL},
    [STATE_OFFER] = {FOR_RANKS, LIMIT_STAGE, post_first_offer, NULL, STATE_SENT, ""},
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
    const uint64_t set = setup->comm->ops->meeting_ns(setup->comm->ops->timeout_ms) / 1000000;
    const uint64_t usual = limit == LIMIT_MEETING ? setup->ops->meeting_ms : (uint64_t)SHIM_SETUP_LIMIT_MS;
    return set && (limit != LIMIT_STAGE || set > usual) ? set : usual;
}

static void take_error(shim_setup_t *setup, uint32_t rank, int error)
{
    const char *what = setup->state == STATE_OFFER ? setup->ops->no_offer : states[setup->state].failure;
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
    setup->since_ns = net_now_ns();
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
    if (absent)
        setup->ops->miss(setup, came, nranks, limit_ms);
    else if (atomic_load(&setup->needed_ns))
        shim_setup_decline(setup, SHIM_WHY(IDLE_RANK));
    else
        shim_setup_decline(setup, SHIM_WHY(AWAY), limit_ms);
}

bool shim_setup_waits_too_long(const shim_setup_t *setup)
{
    const uint64_t away_ms = setup->finisher >= FINISHER_POLLS ? SHIM_POLLS_MS : SHIM_AWAY_MS;
    return setup->ops->forwards && setup->finisher != FINISHER_LATER &&
           net_now_ns() > setup->since_ns + away_ms * UINT64_C(1000000);
}

/* Whether this state has waited too long for a rank (docs/design.md, "How ranks find each other"). For a rank that is
 * away it sets `postpone` instead, so that no thread waits. */
static bool out_of_time(shim_setup_t *setup)
{
    const uint64_t now = net_now_ns(), needed = atomic_load(&setup->needed_ns);
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
    if (missing & NET_MISSING_UNSEEN && !(setup->parents && setup->ops->parents_present(setup)))
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
        return setup->ops->begin(setup, own);
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
