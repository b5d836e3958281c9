/* SPDX-License-Identifier: Apache-2.0 */
/* setup.c - what a set-up does on the CPU device: the handle is the state's address, a split first finds its colour's
 * ranks, and a failure is an error of the program's call. */
#include <stdio.h>
#include <string.h>

#include "shim/base/last_error.h"
#include "shim/base/settings.h"
#include "shim/comm/failure.h"
#include "shim/cpu/cpu.h"
#include "shim/cpu/watch.h"
#include "shim/setup/setup.h"

enum { TIMEOUT_MS = 10000, NODES_MS = 100 };

const shim_device_ops_t shim_device_cpu = {.device = ALG_DEVICE_CPU,
                                           .timeout_ms = TIMEOUT_MS,
                                           .meeting_ns = shim_setting_timeout_ns,
                                           .without_memory = "takes no"};

static void store(const shim_setup_t *setup, ncclComm_t handle)
{
    __atomic_store_n(setup->request.newcomm, handle, __ATOMIC_RELEASE);
}

/* Comes last: another thread may then abort the handle, and must find the set-up. */
shim_setup_t *shim_cpu_publish(const shim_setup_request_t *request)
{
    shim_setup_t *setup = shim_attach_publish(request);
    if (!setup)
        return NULL;
    atomic_store(&setup->comm->handle, (ncclComm_t)setup->comm);
    if (!request->regroup && shim_comm_insert(setup->comm))
        store(setup, (ncclComm_t)setup->comm);
    else if (!request->regroup)
        atomic_store(&setup->cancel, true);
    return setup;
}

static void show(shim_setup_t *setup)
{
    if (!setup->request.regroup)
        return;
    if (shim_comm_insert(setup->comm))
        store(setup, (ncclComm_t)setup->comm);
    else
        setup->result = ncclSystemError;
}

static void hide(shim_setup_t *setup)
{
    store(setup, NULL);
}

static bool lingers(const shim_setup_t *setup, bool in_progress)
{
    (void)in_progress;
    return !setup->request.wait;
}

static bool begin(shim_setup_t *setup, bool own)
{
    (void)own;
    setup->since_ns = net_now_ns();
    if (setup->request.regroup && !setup->request.publish)
        shim_setup_enter(setup, STATE_MEET);
    else if (!setup->rendezvous)
        shim_setup_decline(setup, SHIM_WHY(NO_SEGMENT), strerror(-setup->join_error));
    else
        shim_setup_enter(setup, setup->request.regroup ? STATE_REGROUP : STATE_IDENTITY);
    return true;
}

typedef struct regroup {
    int32_t color, order;
} regroup_t;

static void post_color(shim_setup_t *setup)
{
    regroup_t record = {setup->request.color, setup->request.order};
    int error = net_set_rank(setup->rendezvous, (uint32_t)setup->request.rank, (uint32_t)setup->request.nranks);
    if (!error)
        error = net_post(setup->rendezvous, STAGE_REGROUP, &record, sizeof(record));
    if (error)
        shim_setup_decline(setup, SHIM_WHY(SPLIT), strerror(-error));
}

static bool take_colors(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    uint32_t nranks = 0, rank = 0;
    for (uint32_t r = 0; r < (uint32_t)setup->request.nranks; r++) {
        regroup_t other;
        if (shim_setup_read(setup, STAGE_REGROUP, r, &other, sizeof(other))) {
            shim_setup_decline(setup, SHIM_WHY(COLOUR), r);
            return false;
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
    shim_setup_keep_count(setup);
    if (setup->request.color == NCCL_SPLIT_NOCOLOR) {
        setup->result = ncclSuccess;
        setup->state = STATE_DONE;
        return false;
    }
    comm->rank = rank;
    comm->nranks = nranks;
    comm->key = shim_setup_key_of_color(&setup->request.key, setup->request.color);
    return shim_setup_rejoin(setup, &comm->key);
}

static bool parents_present(const shim_setup_t *setup)
{
    for (uint32_t r = 0; r < (uint32_t)setup->request.nranks; r++) {
        regroup_t other;
        size_t size;
        if (net_read(setup->parents, STAGE_REGROUP, r, &other, sizeof(other), &size) == 0 &&
            other.color == setup->request.color && !net_present(setup->parents, r))
            return false;
    }
    return true;
}

static void miss(shim_setup_t *setup, uint32_t came, uint32_t nranks, uint32_t limit_ms)
{
    if (setup->request.invitation.given)
        shim_setup_decline(setup, SHIM_WHY(MISSING), came, nranks, limit_ms);
    else
        shim_setup_decline(setup, SHIM_WHY(NO_ADDRESS), came, nranks, limit_ms);
}

static int look(const shim_comm_t *comm, shim_identity_t *identity)
{
    (void)comm;
    identity->farthest = SEL_LINK_SYS;
    return 0;
}

static uint64_t fingerprint(const uint64_t *kind, uint32_t count)
{
    (void)kind, (void)count;
    return 0;
}

static sel_reach_t reach(const shim_setup_t *setup, uint32_t *peers)
{
    (void)setup;
    *peers = true;
    return (sel_reach_t){.link = SEL_LINK_CPU};
}

static bool usable(const shim_setup_t *setup, net_memory_kind_t kind)
{
    (void)setup, (void)kind;
    return true;
}

static uint64_t find_idle(shim_setup_t *setup)
{
    return shim_setup_find_idle(setup, shim_setup_kind(setup, 0), setup->plan->map);
}

/* There is no NCCL to forward to. */
static bool serves(const sel_plan_t *plan)
{
    (void)plan;
    return true;
}

static void offer_first(shim_setup_t *setup)
{
    shim_setup_try_from(setup, 0);
}

static void lack(shim_setup_t *setup, uint32_t rank, const char *what)
{
    shim_setup_decline(setup, SHIM_WHY(SYSTEM_REFUSES), rank, what);
}

static void adopt(shim_setup_t *setup)
{
    setup->comm->rendezvous = setup->rendezvous;
    setup->rendezvous = NULL;
    shim_cpu_watch();
}

/* A non-blocking caller gets the error when it polls. */
static void declined(shim_setup_t *setup, const shim_declined_t *how)
{
    char text[192];
    setup->result = ncclSystemError;
    snprintf(text, sizeof(text), "communicator was not set up: %s", how->why);
    shim_comm_t *polled = setup->comm;
    if (setup->request.parent)
        polled = shim_comm_acquire(setup->request.parent);
    else
        shim_comm_retain(polled);
    if (how->tell != SHIM_TELL_NOTHING && setup->finisher >= FINISHER_POLLS && polled)
        shim_comm_fail(polled, ncclSystemError, text);
    atomic_store(&setup->comm->phase, SHIM_COMM_DEAD);
    if (how->tell != SHIM_TELL_NOTHING)
        shim_set_last_error("%s", text);
    shim_comm_release(polled);
}

const shim_setup_ops_t shim_setup_cpu = {
    .comm = &shim_device_cpu,
    .kind_count = NET_CPU_KINDS,
    .rings_first = true,
    .share = true,
    .link = SEL_LINK_CPU,
    .meeting_ms = SHIM_SETUP_LIMIT_MS,
    .nodes_ms = NODES_MS,
    .no_offer = "could not make memory for its peers",
    .show = show,
    .hide = hide,
    .lingers = lingers,
    .begin = begin,
    .post_color = post_color,
    .take_colors = take_colors,
    .parents_present = parents_present,
    .look = look,
    .fingerprint = fingerprint,
    .reach = reach,
    .usable = usable,
    .find_idle = find_idle,
    .serves = serves,
    .offer_first = offer_first,
    .make = shim_setup_make_scratch,
    .lack = lack,
    .miss = miss,
    .adopt = adopt,
    .declined = declined,
};
