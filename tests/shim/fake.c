/* SPDX-License-Identifier: Apache-2.0 */
/* fake.c - see fake.h. Communicators of the fake NCCL are never freed: a test may check a destroyed one. */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/account/track.h"
#include "shim/base/device.h"
#include "shim/call/device.h"
#include "shim/call/group.h"
#include "shim/comm/drain.h"
#include "shim/comm/order.h"
#include "shim/comm/redop.h"
#include "shim/comm/share.h"
#include "shim/comm/stop.h"
#include "shim/nodes/rdma.h"
#include "shim/real/real.h"
#include "shim/setup/link.h"
#include "shim/setup/multicast.h"

fake_t fake;
_Thread_local unsigned fake_depth;
atomic_int fake_late_s;
atomic_int fake_day_s;
atomic_bool fake_stopped;
_Thread_local unsigned fake_ticks;
_Thread_local unsigned fake_pids;
static _Thread_local long ticked;

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    int error = __real_clock_gettime(clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec -= atomic_load(&fake_day_s);
    return error;
}

uint64_t __real_net_now_ns(void);
uint64_t __wrap_net_now_ns(void);

uint64_t __wrap_net_now_ns(void)
{
    const uint64_t second = 1000000000, late = (uint64_t)atomic_load(&fake_late_s) * second;
    if (!atomic_load(&fake_stopped))
        return __real_net_now_ns() + late;
    ticked += fake_ticks > 0;
    fake_ticks -= fake_ticks > 0;
    return second + (uint64_t)ticked * second / 10 + late;
}

net_process_t __real_net_process_self(void);
net_process_t __wrap_net_process_self(void);

net_process_t __wrap_net_process_self(void)
{
    net_process_t self = __real_net_process_self();
    self.pid_namespace += fake_pids;
    return self;
}

static shim_real_t nccl;

/* ---- The real NCCL --------------------------------------------------------------- */

static struct {
    ncclUniqueId id;
    _Atomic int joined;
} worlds[256];
static int world_count;
static pthread_mutex_t world_lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic int *world_of(const ncclUniqueId *id)
{
    pthread_mutex_lock(&world_lock);
    int i = 0;
    while (i < world_count && memcmp(&worlds[i].id, id, sizeof(*id)))
        i++;
    if (i == world_count) {
        if (i == sizeof(worlds) / sizeof(worlds[0]))
            abort();
        worlds[world_count++].id = *id;
    }
    pthread_mutex_unlock(&world_lock);
    return &worlds[i].joined;
}

static bool is_ready(ncclComm_t comm)
{
    return !comm->joined || atomic_load(comm->joined) >= comm->nranks;
}

static _Atomic(ncclComm_t) newest;

static ncclComm_t make(int rank, int nranks, _Atomic int *joined)
{
    ncclComm_t comm = calloc(1, sizeof(*comm));
    *comm = (struct ncclComm){.rank = rank, .nranks = nranks, .device = rank, .joined = joined};
    comm->older = atomic_load(&newest);
    while (!atomic_compare_exchange_weak(&newest, &comm->older, comm))
        ;
    return comm;
}

static ncclResult_t init(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    atomic_store(&fake.freed_before, fake.freed);
    *comm = make(rank, nranks, world_of(&id));
    atomic_fetch_add((*comm)->joined, 1);
    if (config && config->blocking == 0)
        return ncclInProgress;
    if (!fake_depth)
        fake_wait_ready(*comm);
    return ncclSuccess;
}

void fake_wait_ready(ncclComm_t comm)
{
    while (!is_ready(comm))
        usleep(100);
}

/* Of which NCCL uses the first 48 bytes. */
static ncclResult_t get_unique_id(ncclUniqueId *id)
{
    memset(id->internal, 0x5a, 48);
    return ncclSuccess;
}

static ncclResult_t init_plain(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    return init(comm, nranks, id, rank, NULL);
}

static ncclResult_t init_all(ncclComm_t *comms, int count, const int *devices)
{
    for (int i = 0; i < count; i++) {
        comms[i] = make(i, count, NULL);
        comms[i]->device = devices ? devices[i] : i;
    }
    return ncclSuccess;
}

static ncclComm_t late_child;
static ncclComm_t *late_place;

static ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
    (void)key;
    (void)config;
    atomic_store(&fake.freed_before, fake.freed);
    *newcomm = NULL;
    void (*in_split)(void) = atomic_exchange(&fake.in_split, NULL);
    if (in_split)
        in_split();
    if (fake.split_result != ncclSuccess)
        return fake.split_result;
    ncclComm_t child = make(fake.split_rank[comm->rank], fake.split_nranks[comm->rank], NULL);
    if (fake.split_late) {
        late_child = child;
        late_place = newcomm;
        return ncclInProgress;
    }
    if (color != NCCL_SPLIT_NOCOLOR)
        *newcomm = child;
    return ncclSuccess;
}

static ncclResult_t shrink(ncclComm_t comm, int *excluded, int count, ncclComm_t *newcomm, ncclConfig_t *config,
                           int flags)
{
    (void)excluded, (void)count, (void)flags;
    return split(comm, 0, 0, newcomm, config);
}

static ncclResult_t set_encryption(const ncclEncryptionConfig_t *config)
{
    return config ? ncclSuccess : ncclInvalidArgument;
}

static ncclResult_t async_error(ncclComm_t comm, ncclResult_t *error)
{
    atomic_fetch_add(&fake.polls, 1);
    *error = atomic_load(&comm->failed) ? ncclSystemError : is_ready(comm) ? ncclSuccess : ncclInProgress;
    if (late_place && *error == ncclSuccess) {
        *late_place = late_child;
        late_place = NULL;
    }
    return ncclSuccess;
}

static ncclResult_t count_of(const ncclComm_t comm, int *count)
{
    *count = comm->nranks;
    return ncclSuccess;
}

static ncclResult_t rank_of(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

static ncclResult_t device_of(const ncclComm_t comm, int *device)
{
    *device = comm->device;
    return ncclSuccess;
}

static ncclResult_t destroy(ncclComm_t comm)
{
    if (comm)
        atomic_fetch_add(&comm->destroys, 1);
    return fake.destroy_result;
}

static ncclResult_t abort_comm(ncclComm_t comm)
{
    if (comm)
        atomic_fetch_add(&comm->aborts, 1);
    return ncclSuccess;
}

static ncclResult_t finalize(ncclComm_t comm)
{
    return atomic_fetch_add(&comm->finalizes, 1) ? ncclInvalidArgument : ncclSuccess;
}

/* As in NCCL: not during a finalize, and once. */
static ncclResult_t revoke_comm(ncclComm_t comm, int flags)
{
    if (flags != 0 || atomic_load(&comm->finalizes) || atomic_fetch_add(&comm->revokes, 1))
        return ncclInvalidArgument;
    return ncclSuccess;
}

bool shim_real_alone(const shim_real_t *real)
{
    (void)real;
    return true;
}

void fake_real_version(int version)
{
    nccl.version = version;
}

const shim_real_t *shim_real(void)
{
    return &nccl;
}

const char *shim_real_failure(void)
{
    return "";
}

void *shim_real_symbol(const shim_real_t *real, const char *name)
{
    (void)name;
    return (void *)real;
}

void fake_reset(void)
{
    memset(&fake, 0, sizeof(fake));
    for (int i = 0; i < FAKE_RANKS; i++) {
        fake.reach[i] = (sel_reach_t){.link = SEL_LINK_NVSWITCH, .lanes = 18};
        fake.kind[i] = 7;
        fake.arch[i] = 90;
    }
    nccl = (shim_real_t){.path = "fake", .version = 22809};
    nccl.ncclGetUniqueId = get_unique_id;
    nccl.ncclCommInitRank = init_plain;
    nccl.ncclCommInitRankConfig = init;
    nccl.ncclCommInitAll = init_all;
    nccl.ncclCommSplit = split;
    nccl.ncclCommShrink = shrink;
    nccl.ncclSetEncryption = set_encryption;
    nccl.ncclCommGetAsyncError = async_error;
    nccl.ncclCommCount = count_of;
    nccl.ncclCommUserRank = rank_of;
    nccl.ncclCommCuDevice = device_of;
    nccl.ncclCommDestroy = destroy;
    nccl.ncclCommAbort = abort_comm;
    nccl.ncclCommFinalize = finalize;
    nccl.ncclCommRevoke = revoke_comm;
}

/* ---- Folders of the shim ----------------------------------------------------------- */

void shim_track_collect(void)
{
}

size_t shim_track_text(int pid, char *text, size_t size)
{
    (void)pid, (void)text, (void)size;
    return 0;
}

uint64_t shim_track_left_out(void)
{
    return 0;
}

void shim_track_forget(void)
{
}

void shim_track_prepare(int device, uint64_t life)
{
    (void)device, (void)life;
}

unsigned shim_group_depth(void)
{
    return fake_depth;
}

ncclResult_t shim_group_check(ncclResult_t result)
{
    return result;
}

bool shim_cpu_mode(void)
{
    return false;
}

const shim_call_ops_t *shim_call_ops(const shim_comm_t *comm)
{
    (void)comm;
    static const shim_call_ops_t ops = {
        .nccl = shim_real_or_none, .answer = shim_real_answer, .comm = shim_comm_acquire};
    return &ops;
}

uint32_t shim_share_multiprocessors(int device, void *stream)
{
    (void)device;
    (void)stream;
    return 0;
}

unsigned long long shim_share_place(void *stream, unsigned long long stream_id)
{
    (void)stream, (void)stream_id;
    return 0;
}

int net_event_query(void *event)
{
    (void)event;
    return 0;
}

bool shim_redop_find(shim_comm_t *comm, ncclRedOp_t op, shim_redop_t *redop)
{
    (void)comm;
    (void)op;
    (void)redop;
    return false;
}

void shim_redop_forget(shim_comm_t *comm)
{
    (void)comm;
}

static bool waits(const shim_comm_t *comm)
{
    ncclComm_t handle = atomic_load(&comm->handle);
    return handle && handle->waits && comm->scratch && alg_scratch_control(comm->scratch)->abort == 0;
}

bool shim_drain(shim_comm_t *comm, uint32_t limit_ms)
{
    fake.drains++;
    if (fake.half_abort_in_drain) {
        atomic_store(&comm->aborted, true);
        shim_comm_stop(comm);
    }
    fake.half_abort_in_drain = false;
    const ncclComm_t aborted = fake.abort_in_drain; /* as if by another thread */
    fake.abort_in_drain = NULL;
    if (aborted)
        ncclCommAbort(aborted);
    return !limit_ms || !waits(comm);
}

bool shim_drained(shim_comm_t *comm)
{
    return !fake.running && !waits(comm);
}

bool shim_drained_held(const shim_comm_t *comm)
{
    return !fake.running && !waits(comm);
}

bool shim_group_finalize(shim_comm_t *comm)
{
    (void)comm;
    return false;
}

void shim_group_wait_for_polls(shim_comm_t *comm)
{
    (void)comm;
}

unsigned long long shim_order_pending(shim_comm_t *comm)
{
    (void)comm;
    return 0;
}

void shim_order_record_pending(shim_comm_t *comm, unsigned long long number)
{
    (void)comm, (void)number;
}

void shim_drain_forget(shim_comm_t *comm)
{
    (void)comm;
}

void shim_rdma_read(int device, shim_rdma_t *rdma)
{
    (void)device;
    *rdma = (shim_rdma_t){.wish.off = "made-up GPUs"};
}

int shim_link_gpu(int device, shim_gpu_t *gpu, sel_gpu_kind_t *kind)
{
    (void)kind;
    void (*in_step)(void) = atomic_exchange(&fake.in_step, NULL);
    if (in_step)
        in_step();
    *gpu = (shim_gpu_t){.arch = fake.arch[device],
                        .multiprocessors = 132,
                        .multicast = shim_multicast_least(fake.multicast),
                        .fingerprint = fake.kind[device]};
    gpu->uuid[0] = fake.same_gpu ? 1 : (uint8_t)(device + 1);
    return 0;
}

bool shim_link_peers(int device, const shim_gpu_t *gpu, uint32_t own, uint32_t count)
{
    (void)gpu;
    (void)own;
    (void)count;
    return !fake.unreached[device];
}

sel_reach_t shim_link_reach(int device, const shim_gpu_t *gpu, uint32_t own, uint32_t count)
{
    (void)gpu;
    (void)own;
    (void)count;
    return fake.reach[device];
}

/* ---- Folders below ------------------------------------------------------------------- */

int net_scope_enter(net_scope_t *scope, int device)
{
    (void)scope;
    (void)device;
    return 0;
}

void net_scope_leave(net_scope_t *scope)
{
    (void)scope;
}

int net_cuda_errno(int error)
{
    return error ? -EIO : 0;
}

bool sel_policy_check(const char *policy, char *fault, size_t bytes)
{
    (void)fault;
    (void)bytes;
    return policy != NULL;
}

void sel_plan_init(sel_plan_t *plan, const sel_topology_t *topology, const sel_settings_t *settings)
{
    memset(plan, 0, sizeof(*plan));
    plan->topology = *topology;
    plan->settings = *settings;
    for (; fake.sources && fake.sources[plan->rules]; plan->rules++)
        plan->rule[plan->rules].source = fake.sources[plan->rules];
    if (topology->memory == ALG_MEMORY_PINNED)
        alg_map_init_shm(&plan->map, settings->scratch_bytes);
    else
        alg_map_init(&plan->map, settings->scratch_bytes);
}

bool sel_plan_prefers_pinned(const sel_plan_t *plan)
{
    return fake.prefers_pinned && plan->topology.link >= SEL_LINK_PCIE && plan->topology.memory == ALG_MEMORY_PEER;
}

sel_measurement_t sel_plan_measurement(const sel_plan_t *plan)
{
    (void)plan;
    return fake.measurement;
}

bool sel_plan_serves(const sel_plan_t *plan)
{
    (void)plan;
    return !fake.serves_nothing;
}

const alg_algorithm_t *const alg_registry[1];
const uint32_t alg_registry_count = 0;

const alg_algorithm_t *alg_find(alg_collective_t collective, const char *name)
{
    (void)collective;
    (void)name;
    return NULL;
}

struct alg_scratch {
    alg_team_t team;
    alg_control_t control;
    uint32_t rank;
    net_memory_kind_t kind;
};

uint64_t alg_scratch_idle(const alg_set_t *set, uint32_t rank, const alg_map_t *map)
{
    (void)set;
    return map->memory == fake.idle_in ? fake.idle[rank] : 0;
}

void alg_scratch_leave_idle(uint64_t id, uint32_t rank)
{
    atomic_fetch_add(&fake.left_idle, fake.idle[rank] == id);
}

static alg_scratch_t *scratch_new(uint32_t rank, net_memory_kind_t kind)
{
    alg_scratch_t *scratch = calloc(1, sizeof(*scratch));
    scratch->rank = rank;
    scratch->kind = kind;
    scratch->team.priority = FAKE_PRIORITY;
    return scratch;
}

int alg_scratch_take(uint64_t id, uint32_t rank, alg_scratch_t **scratch)
{
    if (fake.idle[rank] != id)
        return -ENOENT;
    atomic_fetch_add(&fake.taken, 1);
    *scratch = scratch_new(rank, NET_MEMORY_CUDA_IPC);
    return 0;
}

/* Kinds of a GPU without a field of `fake` are never there. */
static int create_error(net_memory_kind_t kind, uint32_t rank)
{
    const net_memory_facts_t *facts = &net_memory_facts[kind];
    if (facts->pinned)
        return fake.pinned_error[rank];
    if (kind == NET_MEMORY_CUDA_IPC)
        return fake.ipc_error[rank];
    if (kind == NET_MEMORY_CUDA_VMM)
        return fake.vmm_error[rank];
    return facts->driver ? -ENOSYS : 0;
}

int alg_scratch_create(alg_device_t device, int ordinal, net_memory_kind_t kind, const alg_set_t *set, uint64_t id,
                       uint32_t rank, uint32_t nranks, const alg_map_t *map, alg_scratch_t **scratch,
                       uint8_t offer[NET_OFFER_BYTES])
{
    (void)device;
    (void)ordinal;
    (void)set;
    (void)id;
    (void)nranks;
    (void)map;
    int error = create_error(kind, rank);
    if (error)
        return error;
    atomic_fetch_add(&fake.created, 1);
    *scratch = scratch_new(rank, kind);
    memset(offer, (int)rank + 1, NET_OFFER_BYTES);
    return 0;
}

int alg_scratch_send(alg_scratch_t *scratch, uint8_t offers[][NET_OFFER_BYTES])
{
    if (offers[scratch->rank][0] != scratch->rank + 1) /* none was made for a pooled one */
        return -EPROTO;
    atomic_fetch_add(&fake.sent, 1);
    return scratch->kind == NET_MEMORY_PINNED_SENT ? fake.unsent[scratch->rank] : 0;
}

int alg_scratch_open(alg_scratch_t *scratch, uint8_t offers[][NET_OFFER_BYTES])
{
    if (offers[scratch->rank][0] != scratch->rank + 1)
        return -EPROTO;
    return scratch->kind == NET_MEMORY_CUDA_VMM ? fake.open_error[scratch->rank]
           : scratch->kind == NET_MEMORY_PINNED ? fake.unopened[scratch->rank]
                                                : 0;
}

const alg_map_t *alg_scratch_map(const alg_scratch_t *scratch)
{
    (void)scratch;
    static const alg_map_t whole = {.pieces = 1};
    return &whole;
}

net_memory_kind_t alg_scratch_kind(const alg_scratch_t *scratch)
{
    return scratch->kind;
}

bool alg_scratch_peers_alive(const alg_scratch_t *scratch)
{
    (void)scratch;
    return true;
}

size_t alg_scratch_bytes(const alg_scratch_t *scratch)
{
    (void)scratch;
    return (size_t)80 << 20;
}

int shim_grow_start(net_bell_t *place)
{
    (void)place;
    return 0;
}

void shim_grow_attached(shim_comm_t *comm)
{
    (void)comm;
}

void shim_grow_end(shim_comm_t *comm)
{
    (void)comm;
}

int alg_scratch_prove_write(alg_scratch_t *scratch, uint64_t token)
{
    (void)scratch;
    return token ? 0 : -EINVAL;
}

int alg_scratch_prove_read(alg_scratch_t *scratch, uint64_t token)
{
    (void)token;
    return fake.proof_error[scratch->rank];
}

alg_team_t *alg_scratch_team(alg_scratch_t *scratch)
{
    return &scratch->team;
}

alg_control_t *alg_scratch_control(alg_scratch_t *scratch)
{
    return &scratch->control;
}

uint64_t alg_scratch_life(const alg_scratch_t *scratch)
{
    (void)scratch;
    return 1;
}

bool net_device_lost(int device, uint64_t life)
{
    (void)device, (void)life;
    return false;
}

uint64_t net_device_life(int device)
{
    (void)device;
    return 1;
}

void alg_scratch_release(alg_scratch_t *scratch, bool reusable)
{
    if (!scratch)
        return;
    atomic_fetch_add(reusable ? &fake.pooled : &fake.retired, 1);
    free(scratch);
}

bool alg_scratch_any_retired(void)
{
    return atomic_load(&fake.retired) > 0;
}

uint32_t alg_scratch_retired(void)
{
    return (uint32_t)atomic_load(&fake.retired);
}

static void count_stuck(shim_comm_t *comm, void *unused)
{
    (void)unused;
    const ncclComm_t handle = atomic_load(&comm->handle);
    const bool forwarded = atomic_load(&comm->phase) == SHIM_COMM_FORWARD && handle && handle->waits;
    atomic_fetch_add(&fake.stuck, atomic_load(&fake.retired) > 0 && (forwarded || waits(comm)));
}

/* Waits for all kernels, as each free of the driver does. */
void alg_scratch_reap(void)
{
    shim_comm_each_held(count_stuck, NULL);
    atomic_fetch_add(&fake.freed, atomic_exchange(&fake.retired, 0));
}
