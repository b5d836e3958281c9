/* SPDX-License-Identifier: Apache-2.0 */
/* identity.c - what a rank tells the others (identity, settings), and what each concludes alike from all identities. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "shim/base/log.h"
#include "shim/base/nccl_env.h"
#include "shim/base/pins.h"
#include "shim/base/settings.h"
#include "shim/base/words.h"
#include "shim/setup/setup.h"
#include "shim/setup/table_load.h"

/* Raise with each change of records, kinds' order, scratch map or kernels' protocol: different builds of one release
 * must not attach to each other. */
enum { RECORD_LAYOUT = 16 << 8 | (int)NET_MEMORY_KINDS };
#define MOST_SCRATCH_BYTES (UINT64_C(16) << 30) /* as settings.def allows */

_Static_assert(sizeof(shim_identity_t) <= NET_RECORD_BYTES, "an identity does not fit into a record");

sel_link_t shim_identity_farthest(void)
{
    static const struct {
        const char *name; /* a digit: NCCL's older name */
        sel_link_t link;
    } levels[] = {{"LOC", SEL_LINK_CPU},     {"0", SEL_LINK_CPU},       {"NVL", SEL_LINK_BRIDGES},
                  {"NVB", SEL_LINK_BRIDGES}, {"C2C", SEL_LINK_BRIDGES}, {"PIX", SEL_LINK_PCIE},
                  {"1", SEL_LINK_PCIE},      {"PXB", SEL_LINK_PCIE},    {"2", SEL_LINK_PCIE},
                  {"P2C", SEL_LINK_PCIE},    {"PXN", SEL_LINK_PCIE},    {"PHB", SEL_LINK_PHB},
                  {"3", SEL_LINK_PHB}};
    if (shim_nccl_env_is_on("NCCL_P2P_DISABLE"))
        return SEL_LINK_CPU;
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if (shim_nccl_env_is("NCCL_P2P_LEVEL", levels[i].name))
            return levels[i].link;
    }
    return SEL_LINK_SYS;
}

/* The set variable that only NCCL obeys, or NULL. pins.h has more such variables. */
static const char *refused_variable(void)
{
    static const char *const plugins[] = {"NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN"};
    for (size_t i = 0; i < sizeof(plugins) / sizeof(plugins[0]); i++) {
        if (shim_nccl_env_names_something(plugins[i]))
            return plugins[i];
    }
    if (shim_nccl_env_is_on("NCCL_LAUNCH_ORDER_IMPLICIT"))
        return "NCCL_LAUNCH_ORDER_IMPLICIT";
    /* With it NCCL refuses pointers at which Shunt's kernel would fault. */
    if (shim_nccl_env_is_on("NCCL_CHECK_POINTERS"))
        return "NCCL_CHECK_POINTERS";
    const char *mode = shim_nccl_env("NCCL_CHECK_MODE");
    return mode && shim_begins_with_word(mode, "DEBUG") ? "NCCL_CHECK_MODE" : NULL;
}

bool shim_identity_refuses(shim_why_t *why)
{
    const char *pin = shim_pin_forwards(), *variable = pin ? NULL : refused_variable();
    if (pin)
        shim_why_write(why, SHIM_WHY(PINNED), pin);
    else if (variable)
        shim_why_write(why, SHIM_WHY(VARIABLE), variable);
    return pin || variable;
}

/* NCCL opens these plugins by default. The user has not chosen them, so Shunt takes calls nevertheless. */
void shim_identity_tell_plugins(void)
{
    static const struct {
        const char *name, *loses;
    } plugins[] = {
        {"libnccl-profiler.so", "it does not see the calls that Shunt takes; to profile all calls, set "
                                "NCCL_PROFILER_PLUGIN=libnccl-profiler.so: Shunt then forwards them"},
        {"libnccl-env.so", "Shunt does not see the variables that it sets; set them in the environment"},
    };
    static atomic_bool told[sizeof(plugins) / sizeof(plugins[0])];
    for (size_t i = 0; i < sizeof(plugins) / sizeof(plugins[0]); i++) {
        if (shim_nccl_plugin_loaded(plugins[i].name) && !atomic_exchange(&told[i], true))
            shim_warn("%s is loaded: %s", plugins[i].name, plugins[i].loses);
    }
}

static net_key_t hash_text(const char *text)
{
    return net_key_hash(text ? text : "", text ? strlen(text) : 0);
}

static net_key_t boot_id(void)
{
    char text[64] = "";
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        ssize_t got = read(file, text, sizeof(text) - 1);
        text[got > 0 ? got : 0] = 0;
        close(file);
    }
    return hash_text(text);
}

net_key_t shim_identity_nccl_node(void)
{
    char name[256] = "";
    gethostname(name, sizeof(name) - 1);
    const char *given = shim_nccl_env("NCCL_HOSTID");
    const struct {
        net_key_t boot, name;
    } node = {given ? hash_text(NULL) : boot_id(), hash_text(given ? given : name)};
    return net_key_hash(&node, sizeof(node));
}

enum { TRY_MASK = 7 }; /* of an id: the try's number */
_Static_assert((int)NET_MOST_KINDS <= TRY_MASK + 1, "more tries than numbers");

static uint64_t random_id(void)
{
    uint64_t id = 0;
    if (getrandom(&id, sizeof(id), GRND_NONBLOCK) != sizeof(id))
        id = net_now_ns() ^ (uint64_t)getpid() << 40;
    id &= ~(uint64_t)TRY_MASK;
    return id ? id : TRY_MASK + 1;
}

static sel_settings_t own_settings(const shim_comm_t *comm, uint64_t machine)
{
    const shim_settings_t *settings = shim_settings();
    sel_settings_t wanted;
    memset(&wanted, 0, sizeof(wanted)); /* ranks compare all bytes, padding included */
    wanted.scratch_bytes = settings->scratch_bytes;
    wanted.max_blocks = settings->max_ctas;
    if (comm->config.max_blocks && (!wanted.max_blocks || comm->config.max_blocks < wanted.max_blocks))
        wanted.max_blocks = comm->config.max_blocks;
    wanted.deterministic = settings->deterministic;
    snprintf(wanted.policy, sizeof(wanted.policy), "%s", settings->algo);
    shim_table_wanted(comm->nranks, machine, &wanted.tuned);
    return wanted;
}

int shim_identity_fill(const shim_setup_t *setup, shim_identity_t *identity)
{
    const shim_comm_t *comm = setup->comm;
    memset(identity, 0, sizeof(*identity));
    identity->layout = RECORD_LAYOUT;
    identity->version = SHUNT_VERSION_CODE;
    identity->process = net_process_self();
    identity->boot = boot_id();
    identity->node_id = hash_text(shim_nccl_env("NCCL_HOSTID"));
    identity->fresh_id = random_id();
    identity->blocking = setup->request.config.blocking;
    identity->vmm = !shim_nccl_env_is("NCCL_CUMEM_ENABLE", "0");
    identity->shared_memory = !shim_nccl_env_is_on("NCCL_SHM_DISABLE");
    identity->device = (uint32_t)comm->device;
    shim_record_offer(comm->record, &identity->record);
    int error = setup->ops->look(comm, identity);
    /* If the GPUs differ in kind, sel_plan_init ignores the table. */
    identity->settings = own_settings(comm, setup->ops->fingerprint(&identity->gpu.fingerprint, 1));
    return error;
}

/* Compares the rank's identity with rank 0's, and its GPU with those of all lower ranks. */
static bool rank_mismatches(const shim_setup_t *setup, uint32_t rank, shim_why_t *why)
{
    const shim_identity_t *first = &setup->identity[0], *other = &setup->identity[rank];
    char fault[16];
    why->reason = SEL_TAKEN;
    if (other->layout != first->layout || other->version != first->version)
        shim_why_write(why, SHIM_WHY(VERSION), rank, 0u);
    else if (memcmp(&other->boot, &first->boot, sizeof(first->boot)) ||
             memcmp(&other->node_id, &first->node_id, sizeof(first->node_id)))
        shim_why_write(why, SHIM_WHY(OTHER_NODE), rank);
    else if (rank == 0 && (first->settings.scratch_bytes > MOST_SCRATCH_BYTES ||
                           !sel_policy_check(first->settings.policy, fault, sizeof(fault))))
        shim_why_write(why, SHIM_WHY(SETTINGS), rank);
    for (uint32_t r = 0; r < rank && why->reason == SEL_TAKEN && !setup->ops->share; r++) {
        if (!memcmp(setup->identity[r].gpu.uuid, other->gpu.uuid, sizeof(other->gpu.uuid)))
            shim_why_write(why, SHIM_WHY(SHARED_GPU), rank);
    }
    return why->reason != SEL_TAKEN;
}

bool shim_identity_mismatches(const shim_setup_t *setup, shim_why_t *why)
{
    bool mismatches = false;
    for (uint32_t r = 0; r < setup->comm->nranks && !mismatches; r++)
        mismatches = rank_mismatches(setup, r, why);
    return mismatches;
}

/* sel_settings_t's fields, by the variables that users know. max_blocks also comes from maxCTAs and
 * NCCL_MAX_NCHANNELS. */
#define COMPARED(setting)                                                               \
    setting("SHUNT_SCRATCH_BYTES", scratch_bytes) setting("SHUNT_MAX_CTAS", max_blocks) \
        setting("SHUNT_DETERMINISTIC", deterministic) setting("SHUNT_ALGO", policy) setting("SHUNT_TABLE", tuned)
#define COMPARED_BYTES(variable, field) sizeof(((sel_settings_t *)0)->field) +
#define COMPARED_ROW(variable, field) {variable, offsetof(sel_settings_t, field), sizeof(((sel_settings_t *)0)->field)},
_Static_assert(COMPARED(COMPARED_BYTES) 0 == sizeof(sel_settings_t), "a field of sel_settings_t is not compared");

static const struct compared {
    const char *variable;
    size_t offset, size;
} compared[] = {COMPARED(COMPARED_ROW)};

static uint32_t differing_ranks(const shim_setup_t *setup, const struct compared *setting, char *list, size_t capacity)
{
    const char *first = (const char *)&setup->identity[0].settings + setting->offset;
    uint32_t count = 0;
    size_t used = 0;
    for (uint32_t r = 1; r < setup->comm->nranks; r++) {
        const char *other = (const char *)&setup->identity[r].settings + setting->offset;
        if (memcmp(other, first, setting->size) != 0)
            used += (size_t)snprintf(list + used, capacity - used, "%s%u", count++ ? ", " : "", r);
    }
    return count;
}

void shim_identity_log_differences(const shim_setup_t *setup)
{
    static atomic_bool told;
    char text[sizeof(compared) / sizeof(compared[0]) * (ALG_MAX_RANKS * 4 + 40)];
    size_t used = 0;
    for (size_t i = 0; i < sizeof(compared) / sizeof(compared[0]); i++) {
        char list[ALG_MAX_RANKS * 4];
        uint32_t count = differing_ranks(setup, &compared[i], list, sizeof(list));
        if (count)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s (rank%s %s)", used ? ", " : "",
                                     compared[i].variable, count > 1 ? "s" : "", list);
    }
    if (used && setup->comm->rank == 0)
        shim_log(atomic_exchange(&told, true) ? SHIM_LOG_INFO : SHIM_LOG_WARN,
                 "communicator %p: settings differ between ranks; rank 0's are used; set them alike: %s",
                 (void *)atomic_load(&setup->comm->handle), text);
}

alg_set_t shim_identity_set(const shim_setup_t *setup)
{
    struct {
        net_process_t process;
        uint8_t uuid[16];
        uint64_t device;
    } member[ALG_MAX_RANKS];
    memset(member, 0, sizeof(member));
    for (uint32_t r = 0; r < setup->comm->nranks; r++) {
        member[r].process = setup->identity[r].process;
        memcpy(member[r].uuid, setup->identity[r].gpu.uuid, sizeof(member[r].uuid));
        member[r].device = setup->identity[r].device;
    }
    net_key_t key = net_key_hash(member, setup->comm->nranks * sizeof(member[0]));
    return (alg_set_t){{key.word[0], key.word[1]}};
}

sel_topology_t shim_identity_topology(const shim_setup_t *setup, sel_link_t link, alg_memory_t memory)
{
    sel_topology_t topology = {.link = link,
                               .memory = memory,
                               .nranks = setup->comm->nranks,
                               .arch = UINT32_MAX,
                               .multiprocessors = UINT32_MAX,
                               .multicast = true};
    uint64_t kind[ALG_MAX_RANKS];
    for (uint32_t r = 0; r < topology.nranks; r++) {
        const shim_gpu_t *gpu = &setup->identity[r].gpu;
        kind[r] = gpu->fingerprint;
        topology.arch = gpu->arch < topology.arch ? gpu->arch : topology.arch;
        if (gpu->multiprocessors < topology.multiprocessors)
            topology.multiprocessors = gpu->multiprocessors;
        topology.multicast = topology.multicast && gpu->multicast && gpu->multicast <= topology.nranks;
    }
    topology.fingerprint = setup->ops->fingerprint(kind, topology.nranks);
    return topology;
}

bool shim_identity_peers(const shim_setup_t *setup, sel_link_t link)
{
    bool peers = true;
    for (uint32_t r = 0; r < setup->comm->nranks; r++)
        peers = peers && link <= setup->identity[r].farthest;
    return peers;
}

bool shim_identity_shared_memory(const shim_setup_t *setup)
{
    bool shared = true;
    for (uint32_t r = 0; r < setup->comm->nranks; r++)
        shared = shared && setup->identity[r].shared_memory;
    return shared;
}

sel_reach_t shim_identity_reach(const shim_setup_t *setup, uint32_t *peers)
{
    const shim_comm_t *comm = setup->comm;
    shim_gpu_t gpu[ALG_MAX_RANKS];
    for (uint32_t r = 0; r < comm->nranks; r++)
        gpu[r] = setup->identity[r].gpu;
    *peers = shim_link_peers(comm->device, gpu, comm->rank, comm->nranks);
    return shim_link_reach(comm->device, gpu, comm->rank, comm->nranks);
}
