/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict.c - the end of a set-up: attached, or declined with a reason (CPU mode: an error of the program's call).
 *
 * The set-up owns scratch and plan until the verdict, then the communicator's state does. After a decline transport/
 * keeps the scratch's memory while a peer has it mapped, since the peer may still write there.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/log.h"
#include "shim/base/pins.h"
#include "shim/base/settings.h"
#include "shim/comm/failure.h"
#include "shim/comm/grow.h"
#include "shim/setup/setup.h"

enum { TEXT_BYTES = 192 };

/* In each process only the lowest rank logs. */
static bool logs_for_process(const shim_setup_t *setup)
{
    const shim_comm_t *comm = setup->comm;
    for (uint32_t r = 0; setup->identity && r < comm->rank; r++) {
        if (!memcmp(&setup->identity[r].process, &setup->identity[comm->rank].process, sizeof(net_process_t)))
            return false;
    }
    return true;
}

static shim_tell_t tell_of(const shim_setup_t *setup, sel_reason_t reason)
{
    switch (reason) {
    case SEL_FORWARD_GIVEN_UP:
    case SEL_FORWARD_NO_HANDLE:
        return SHIM_TELL_NOTHING;
    case SEL_FORWARD_RANKS:
        return setup->comm->nranks < 2 ? SHIM_TELL_NOTHING : SHIM_TELL_REASON;
    default:
        return shim_why_is_fault(reason) ? SHIM_TELL_FAULT : SHIM_TELL_REASON;
    }
}

void shim_setup_leave_idle(shim_setup_t *setup)
{
    if (setup->offered)
        alg_scratch_leave_idle(setup->offered, setup->comm->rank);
    setup->offered = 0;
}

/* Maps the peers' records; on several nodes only this rank's own. */
static void meet_records(const shim_setup_t *setup)
{
    const shim_comm_t *comm = setup->comm;
    for (uint32_t r = 0; !setup->across && r < comm->nranks; r++)
        shim_record_meet(comm->record, r, &setup->identity[r].process, &setup->identity[r].record);
    if (setup->across)
        shim_record_meet(comm->record, setup->across->rank, &setup->identity[comm->rank].process,
                         &setup->identity[comm->rank].record);
}

/* Call when `comm` has its rank among all nodes' ranks again. */
static void begin_record(shim_comm_t *comm, bool attached)
{
    if (!comm->record)
        return;
    const net_key_t own = shim_comm_own_key(comm);
    const shim_record_about_t about = {.comm = net_key_name(&own).word[0],
                                       .rank = comm->rank,
                                       .nranks = comm->nranks,
                                       .device = comm->device,
                                       .attached = attached,
                                       .control = attached ? alg_scratch_control(comm->scratch) : NULL,
                                       .phase = &comm->phase,
                                       .living = SHIM_COMM_ATTACHED};
    shim_record_on_mismatch(shim_comm_fail_mismatched);
    shim_record_begin(comm->record, &about);
}

static void conclude_forward(shim_setup_t *setup, const char *code, const char *why, shim_tell_t tell)
{
    shim_comm_t *comm = setup->comm;
    char class[SEL_CLASS_BYTES] = "unknown";
    if (setup->state >= STATE_OFFER)
        sel_topology_class(&setup->plan->topology, class);
    shim_setup_leave_idle(setup);
    alg_scratch_release(setup->scratch, false);
    setup->scratch = NULL;
    free(setup->plan);
    setup->plan = NULL;
    setup->state = STATE_DONE;
    const bool logs = logs_for_process(setup);
    if (setup->identity)
        meet_records(setup);
    shim_setup_forget_across(setup);
    begin_record(comm, false);
    setup->ops->declined(setup, &(shim_declined_t){code, why, class, tell, logs});
}

/* Lists the sources of the plan's rules, each once, as far as they fit. */
static void name_sources(const sel_plan_t *plan, char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < plan->rules; i++) {
        const char *source = plan->rule[i].source;
        if (source && !strstr(text, source) && used + strlen(source) + sizeof(", ") <= capacity)
            used += (size_t)snprintf(text + used, capacity - used, "%s%s", used ? ", " : "", source);
    }
}

static void log_attached(const shim_setup_t *setup)
{
    const shim_comm_t *comm = setup->comm;
    char class[SEL_CLASS_BYTES], sources[640];
    sel_topology_class(&comm->plan->topology, class);
    name_sources(comm->plan, sources, sizeof(sources));
    shim_info("Shunt attached communicator %p%s: verdict=attached rank=%u ranks=%u class=%s machine=%016llx "
              "scratch_kib=%zu reused=%d rules=%s",
              (void *)atomic_load(&comm->handle), net_memory_facts[shim_setup_kind(setup, setup->attempt)].told,
              comm->rank, comm->nranks, class, (unsigned long long)comm->plan->topology.fingerprint,
              alg_scratch_bytes(comm->scratch) / 1024, setup->pooled != 0, sources);
    const char *pin = shim_pin_caps();
    if (pin)
        shim_info("%s limits Shunt's kernels to %u blocks; if it is set for reproducible results, set "
                  "SHUNT_DETERMINISTIC=1 instead, which needs no limit",
                  pin, comm->plan->settings.max_blocks);
}

/* Drops a tuned table without rows for this class: it changes no choice, but this node's plan would differ from the
 * other nodes'. */
static void forget_other_rows(sel_settings_t *settings, const sel_topology_t *topology)
{
    char class[SEL_CLASS_BYTES];
    sel_topology_class(topology, class);
    const uint32_t hash = sel_class_hash(class);
    for (uint32_t i = 0; i < settings->tuned.rows && i < SEL_TUNED_ROWS; i++)
        if (settings->tuned.row[i].class_hash == hash)
            return;
    memset(&settings->tuned, 0, sizeof(settings->tuned));
}

/* Remakes the plan for all nodes' ranks. The scratch stays. */
static void plan_for_nodes(shim_setup_t *setup, sel_plan_t *plan, sel_settings_t *settings)
{
    sel_topology_t topology = plan->topology;
    topology.memory = ALG_MEMORY_NETWORK;
    topology.nranks = setup->across->nranks;
    topology.nodes = setup->across->nodes;
    topology.multicast = false;
    if (sel_link_on_cpu(topology.link))
        topology.link = SEL_LINK_NETWORK;
    *settings = setup->identity[0].settings;
    forget_other_rows(settings, &topology);
    sel_plan_init(plan, &topology, settings);
}

void shim_setup_post_plan(shim_setup_t *setup)
{
    struct {
        sel_settings_t settings;
        uint32_t arch, multiprocessors;
        uint64_t fingerprint;
    } terms;
    memset(&terms, 0, sizeof(terms));
    plan_for_nodes(setup, setup->plan, &terms.settings);
    const sel_topology_t *topology = &setup->plan->topology;
    terms.arch = topology->arch;
    terms.multiprocessors = topology->multiprocessors;
    terms.fingerprint = topology->fingerprint;
    const net_key_t key = net_key_hash(&terms, sizeof(terms));
    shim_nodes_agree(setup->nodes, &key);
}

static void join_nodes(shim_setup_t *setup)
{
    shim_nodes_serve(setup->nodes, alg_scratch_team(setup->scratch), alg_scratch_control(setup->scratch));
    setup->comm->nodes = setup->nodes;
    setup->nodes = NULL;
}

static bool all_blocking(const shim_setup_t *setup)
{
    bool blocking = true;
    if (setup->across)
        return setup->across->blocking;
    for (uint32_t r = 0; r < setup->comm->nranks; r++)
        blocking = blocking && setup->identity[r].blocking;
    return blocking;
}

static void conclude_attached(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    const bool logs = logs_for_process(setup);
    alg_scratch_team(setup->scratch)->limit = alg_limit(shim_setting_timeout_ns(comm->ops->timeout_ms), 0);
    if (!shim_settings()->priority)
        alg_scratch_team(setup->scratch)->priority = 0;
    if (setup->across)
        join_nodes(setup);
    comm->nonce = setup->across ? 0 : setup->identity[0].fresh_id;
    comm->scratch = setup->scratch;
    comm->life = alg_scratch_life(comm->scratch);
    comm->plan = setup->plan;
    memcpy(comm->bell, setup->bell, sizeof(comm->bell));
    setup->scratch = NULL;
    setup->plan = NULL;
    comm->all_block = all_blocking(setup);
    setup->ops->adopt(setup);
    meet_records(setup);
    shim_setup_forget_across(setup);
    setup->state = STATE_DONE;
    shim_setup_keep_count(setup);
    int joining = SHIM_COMM_JOINING;
    atomic_compare_exchange_strong(&comm->phase, &joining, SHIM_COMM_ATTACHED);
    begin_record(comm, true);
    setup->ops->show(setup);
    if (comm->plan->map.pieces > 1)
        shim_grow_attached(comm);
    if (logs)
        log_attached(setup);
}

static void leave_rendezvous(shim_setup_t *setup)
{
    net_leave(setup->rendezvous);
    setup->rendezvous = NULL;
}

void shim_setup_attach(shim_setup_t *setup)
{
    conclude_attached(setup);
    leave_rendezvous(setup);
}

/* told: "rank 2: CODE why", or "CODE why". Codes are words, since versions number them differently. */
static void conclude_declined(shim_setup_t *setup, const char *told, shim_tell_t tell)
{
    char code[SEL_CODE_BYTES], why[TEXT_BYTES];
    const char *said = strncmp(told, "rank ", 5) == 0 ? strstr(told, ": ") : NULL;
    said = said ? said + 2 : told;
    size_t length = strspn(said, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    if (said[length] != ' ' || length >= sizeof(code))
        length = 0;
    snprintf(code, sizeof(code), "%.*s", (int)length, said);
    snprintf(why, sizeof(why), "%.*s%s", (int)(said - told), told, said + length + (length > 0));
    conclude_forward(setup, length > 0 ? code : "UNKNOWN", why, tell);
}

/* Whether this rank has posted its proof. If not, an attached verdict comes from a broken rank. */
static bool has_proven(const shim_setup_t *setup)
{
    return setup->scratch && setup->state == STATE_PROOF;
}

static bool apply_verdict(shim_setup_t *setup, shim_tell_t tell)
{
    switch (net_verdict(setup->rendezvous)) {
    case NET_ATTACHED:
        if (has_proven(setup) && setup->across) {
            shim_setup_enter(setup, STATE_NODES);
            return true;
        }
        if (has_proven(setup))
            conclude_attached(setup);
        else
            conclude_forward(setup, sel_reason_code(SEL_FORWARD_EARLY), shim_text_EARLY, tell);
        break;
    case NET_DECLINED:
        if (tell == SHIM_TELL_FAULT && !net_decided(setup->rendezvous))
            tell = SHIM_TELL_REASON;
        conclude_declined(setup, net_reason(setup->rendezvous), tell);
        break;
    default:
        return false;
    }
    leave_rendezvous(setup);
    return true;
}

bool shim_setup_apply_verdict(shim_setup_t *setup)
{
    return apply_verdict(setup, SHIM_TELL_REASON);
}

void shim_setup_decline(shim_setup_t *setup, sel_reason_t reason, const char *format, ...)
{
    char told[TEXT_BYTES];
    const char *code = sel_reason_code(reason);
    const size_t before = (size_t)snprintf(told, sizeof(told), "%s ", code);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(told + before, sizeof(told) - before, format, arguments);
    va_end(arguments);
    if (setup->state == STATE_NODES || !setup->rendezvous) { /* this node's verdict is set, or there is none */
        conclude_forward(setup, code, told + before, tell_of(setup, reason));
        leave_rendezvous(setup);
        return;
    }
    net_decide(setup->rendezvous, NET_DECLINED, told);
    apply_verdict(setup, tell_of(setup, reason));
}
