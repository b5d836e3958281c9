/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - what a set-up does on GPUs: it follows the real NCCL's init, and tries kinds of memory in turn. */
#include <errno.h>
#include <string.h>

#include "shim/account/track.h"
#include "shim/base/log.h"
#include "shim/base/pins.h"
#include "shim/base/settings.h"
#include "shim/comm/share.h"
#include "shim/comm/stop.h"
#include "shim/real/real.h"
#include "shim/setup/setup.h"

/* 1 allows several ranks on one GPU (scripts/gpu-test one-gpu). */
#ifndef SHUNT_SHARED_GPU
#define SHUNT_SHARED_GPU 0
#endif

enum { OLDEST_ARCH = 80 };      /* the oldest that kernels are built for */
enum { NODES_LIMIT_MS = 3000 }; /* wait for other nodes, which may not run Shunt */

static void ignore(shim_setup_t *setup)
{
    (void)setup;
}

static bool lingers(const shim_setup_t *setup, bool in_progress)
{
    (void)setup;
    return in_progress;
}

static bool query_real(shim_setup_t *setup)
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

static void meet(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    if (!query_real(setup)) {
        shim_setup_decline(setup, SHIM_WHY(NO_RANK));
        return;
    }
    shim_identity_tell_plugins();
    uint32_t here = setup->rendezvous ? net_count(setup->rendezvous) : 0;
    /* The built-in rows are for two ranks on two nodes; more ranks meet only if SHUNT_ALGO is set. */
    const bool elsewhere = setup->rendezvous && here < comm->nranks && setup->request.invitation.given &&
                           comm->nranks <= (shim_settings()->algo[0] ? SHIM_NODES_RANKS : 2);
    shim_why_t refusal;
    const bool refused = shim_identity_refuses(&refusal);
    if (comm->nranks < 2 || (comm->nranks > ALG_MAX_RANKS && !elsewhere)) {
        shim_setup_decline(setup, SHIM_WHY(RANKS), comm->nranks);
    } else if (!setup->rendezvous) {
        shim_setup_decline(setup, SHIM_WHY(NO_SEGMENT), strerror(-setup->join_error));
    } else if (!SHUNT_HAS_CUDA) {
        shim_setup_decline(setup, SHIM_WHY(NO_CUDA));
    } else if (here > comm->nranks) {
        shim_setup_decline(setup, SHIM_WHY(SHARED_ID));
    } else if (here != comm->nranks && !elsewhere) {
        shim_setup_decline(setup, SHIM_WHY(FEW_HERE), here, comm->nranks);
    } else if (refused) {
        shim_setup_decline(setup, refusal.reason, "%s", refusal.text);
    } else if (comm->config.launch_order) {
        shim_setup_decline(setup, SHIM_WHY(LAUNCH_ORDER));
    } else if (comm->config.cta_policy) {
        shim_setup_decline(setup, SHIM_WHY(CTA_POLICY));
    } else if (elsewhere && shim_nodes_refuses(&refusal)) {
        shim_setup_decline(setup, refusal.reason, "%s", refusal.text);
    } else {
        shim_setup_enter(setup, elsewhere ? STATE_MEET : STATE_IDENTITY);
    }
}

/* Only for the thread that began the set-up: the poll has side effects, and another thread may be polling. False if the
 * real init has failed. */
static bool poll_real(shim_setup_t *setup)
{
    ncclResult_t state = ncclInProgress;
    ncclComm_t asked = setup->request.parent ? setup->request.parent : atomic_load(&setup->comm->handle);
    if (!asked)
        return true;
    if (shim_real()->ncclCommGetAsyncError(asked, &state) != ncclSuccess ||
        (state != ncclSuccess && state != ncclInProgress))
        return false;
    atomic_store(&setup->ready, state == ncclSuccess);
    return true;
}

static bool begin(shim_setup_t *setup, bool own)
{
    if (!atomic_load(&setup->ready) && own && setup->finisher >= FINISHER_POLLS && !poll_real(setup)) {
        shim_setup_decline(setup, SHIM_WHY(INIT_FAILED));
        return true;
    }
    if (!atomic_load(&setup->ready))
        return false;
    shim_setup_store_handle(setup);
    ncclComm_t handle = atomic_load(&setup->comm->handle);
    if (!handle || shim_comm_find(handle) != setup->comm) {
        shim_setup_decline(setup, SHIM_WHY(NO_HANDLE));
        return true;
    }
    setup->since_ns = net_now_ns();
    meet(setup);
    return true;
}

static int look(const shim_comm_t *comm, shim_identity_t *identity)
{
    sel_gpu_kind_t kind;
    identity->farthest = shim_identity_farthest();
    return shim_link_gpu(comm->device, &identity->gpu, &kind);
}

static bool all_take_vmm(const shim_setup_t *setup)
{
    bool vmm = true;
    for (uint32_t r = 0; r < setup->comm->nranks; r++)
        vmm = vmm && setup->identity[r].vmm;
    return vmm;
}

/* Ranks of several pid namespaces cannot tell each other when they unmap IPC memory. */
static bool one_pid_namespace(const shim_setup_t *setup)
{
    bool one = true;
    for (uint32_t r = 1; r < setup->comm->nranks; r++)
        one = one && setup->identity[r].process.pid_namespace == setup->identity[0].process.pid_namespace;
    return one;
}

static bool conditions_hold(const shim_setup_t *setup, const net_memory_facts_t *facts)
{
    return (!facts->cumem || all_take_vmm(setup)) && (!facts->one_pid_namespace || one_pid_namespace(setup));
}

/* Not over NVLink if peer access is allowed but failed, since NCCL's peer access may work. */
static bool pinned_usable(const shim_setup_t *setup)
{
    return !setup->across && shim_identity_shared_memory(setup) &&
           (!shim_setup_has_peers(setup) || setup->reach.link >= SEL_LINK_PCIE);
}

static bool usable(const shim_setup_t *setup, net_memory_kind_t kind)
{
    const net_memory_facts_t *facts = &net_memory_facts[kind];
    return conditions_hold(setup, facts) && (facts->pinned ? pinned_usable(setup) : shim_setup_has_peers(setup));
}

/* Whether an idle scratch may have it: the plan's memory, or pinned memory if earlier set-ups found no peer access. */
static bool may_be_idle(const shim_setup_t *setup, const net_memory_facts_t *facts)
{
    return conditions_hold(setup, facts) && (facts->pinned || setup->memory == ALG_MEMORY_PEER);
}

static uint64_t find_idle(shim_setup_t *setup)
{
    alg_map_t pinned;
    uint64_t id = 0;
    if (!alg_map_init_shm(&pinned, setup->identity[0].settings.scratch_bytes))
        return 0;
    for (net_memory_kind_t kind = NET_CPU_KINDS; kind < NET_MEMORY_KINDS && !id; kind++) {
        const net_memory_facts_t *facts = &net_memory_facts[kind];
        if (may_be_idle(setup, facts))
            id = shim_setup_find_idle(setup, kind, facts->pinned ? pinned : setup->plan->map);
    }
    return id;
}

/* Number of the first kind that is pinned. */
static uint32_t first_pinned(void)
{
    uint32_t number = 0;
    while (number < NET_CUDA_KINDS - 1 && !net_memory_facts[NET_CPU_KINDS + number].pinned)
        number++;
    return number;
}

static bool prefers_pinned(shim_setup_t *setup)
{
    if (!pinned_usable(setup) || !shim_setup_has_peers(setup))
        return false;
    setup->memory = ALG_MEMORY_PEER;
    return shim_setup_make_plan(setup) && sel_plan_prefers_pinned(setup->plan);
}

/* The idle scratch's kind, since the earlier kinds failed when that scratch was made; without one, the first kind. */
static uint32_t first_attempt(const shim_setup_t *setup)
{
    for (uint32_t attempt = 0; setup->pooled && attempt < NET_CUDA_KINDS; attempt++) {
        const net_memory_kind_t kind = shim_setup_kind(setup, attempt);
        if (shim_setup_takes_idle(setup, kind) && usable(setup, kind))
            return attempt;
    }
    return 0;
}

static void offer_first(shim_setup_t *setup)
{
    setup->first_kind = prefers_pinned(setup) ? first_pinned() : 0;
    if (setup->plan->topology.arch < OLDEST_ARCH) {
        shim_setup_make_plan(setup);
        shim_setup_decline(setup, SHIM_WHY(OLD_GPUS), OLDEST_ARCH);
    } else if (!shim_setup_try_from(setup, first_attempt(setup))) {
        shim_setup_make_plan(setup);
        if (shim_setup_has_peers(setup))
            shim_setup_decline(setup, SHIM_WHY(PID_NAMESPACES));
        else
            shim_setup_decline(setup, SHIM_WHY(NO_SHM));
    }
}

#if SHUNT_HAS_CUDA
enum { LOADED_DEVICES = 64 };

static struct {
    uint64_t life;
    uint32_t ranks[ALG_MEMORY_NETWORK + 1]; /* index: memory; bit n: kernels for n ranks are loaded */
} g_loaded[LOADED_DEVICES];
static net_lock_t g_loaded_lock = NET_LOCK_INITIALIZER;

/* Whether the device's context has the kernels; `loaded`: record that it has. False if net_device_life is unknown. */
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

static int make(shim_setup_t *setup, uint8_t offer[NET_OFFER_BYTES])
{
    const shim_comm_t *comm = setup->comm;
    net_scope_t scope = {0};
    int error = net_scope_enter(&scope, comm->device);
    if (!error && (!setup->pooled || setup->across)) /* a pooled scratch's kernels were loaded when it was made */
        error = preload(comm->device, setup->across ? ALG_MEMORY_NETWORK : setup->memory, comm->nranks);
    if (!error)
        error = shim_setup_make_scratch(setup, offer);
    if (!error && shim_settings()->trace[0])
        shim_track_prepare(comm->device, alg_scratch_life(setup->scratch));
    net_scope_leave(&scope);
    return error;
}

static void lack(shim_setup_t *setup, uint32_t rank, const char *what)
{
    shim_setup_decline(setup, SHIM_WHY(CUDA_REFUSES), rank, what);
}

static void miss(shim_setup_t *setup, uint32_t came, uint32_t nranks, uint32_t limit_ms)
{
    shim_setup_decline(setup, SHIM_WHY(MISSING), came, nranks, limit_ms);
}

static void adopt(shim_setup_t *setup)
{
    shim_share_join(setup->comm);
    shim_comm_stop_at_exit();
}

static void warn_of_bits(const shim_comm_t *comm, const char *reason)
{
    static atomic_bool told;
    if (comm->nranks == 1)
        shim_pins_warn_alone();
    else if (shim_settings()->deterministic && !atomic_exchange(&told, true))
        shim_warn("SHUNT_DETERMINISTIC=1: communicator %p (rank %u of %u) is forwarded to NCCL: %s; NCCL adds in "
                  "its own order: set NCCL_ALGO and NCCL_PROTO for reproducible results",
                  (void *)atomic_load(&comm->handle), comm->rank, comm->nranks, reason);
}

static void declined(shim_setup_t *setup, const shim_declined_t *how)
{
    const shim_comm_t *comm = setup->comm;
    const bool fault = how->tell == SHIM_TELL_FAULT;
    int joining = SHIM_COMM_JOINING; /* an abort may have set DEAD */
    atomic_compare_exchange_strong(&setup->comm->phase, &joining, SHIM_COMM_FORWARD);
    warn_of_bits(comm, how->why);
    if (fault || (how->tell == SHIM_TELL_REASON && how->logs))
        shim_log(fault ? SHIM_LOG_WARN : SHIM_LOG_INFO,
                 "Shunt forwards communicator %p to NCCL: verdict=forwarded rank=%u ranks=%u class=%s reason=%s why=%s",
                 (void *)atomic_load(&comm->handle), comm->rank, comm->nranks, how->class, how->code, how->why);
}

const shim_setup_ops_t shim_setup_cuda = {
    .comm = &shim_device_cuda,
    .forwards = true,
    .kinds = NET_CPU_KINDS,
    .kind_count = NET_CUDA_KINDS,
    .link = SEL_LINK_PCIE,
    .share = SHUNT_SHARED_GPU,
    .meeting_ms = NODES_LIMIT_MS,
    .no_offer = "could not share memory of its GPU",
    .show = ignore,
    .hide = ignore,
    .lingers = lingers,
    .begin = begin,
    .look = look,
    .fingerprint = sel_fingerprint,
    .reach = shim_identity_reach,
    .usable = usable,
    .find_idle = find_idle,
    .serves = sel_plan_serves,
    .offer_first = offer_first,
    .make = make,
    .lack = lack,
    .miss = miss,
    .adopt = adopt,
    .declined = declined,
};
