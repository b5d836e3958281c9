/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_rooms.c - fakes of what the calls use: the real NCCL, the selector, an algorithm, set-up. Only functions that
 * the tested calls need have an effect.
 */
#include "fake.h"

#include <string.h>

#include "shim/base/device.h"
#include "shim/comm/grow.h"
#include "shim/comm/reap.h"
#include "shim/comm/share.h"
#include "shim/cpu/table.h"
#include "shim/real/real.h"
#include "shim/setup/attach.h"
#include "tests/support/coll_config.h"

/* ---- The real NCCL: whatever is forwarded is a name and a stream ------------------------ */

static struct pending {
    ncclComm_t comm;
    cudaStream_t stream;
} pending[FAKE_WORKS];
static uint32_t pending_count;

/* Calls without work, which are on no stream. */
static ncclResult_t real_name(const char *name, ncclComm_t comm)
{
    fake.real_call[fake.real_calls++] = name;
    const ncclResult_t result = comm == NULL ? ncclInvalidArgument : fake.forward_result;
    if (fake.real_depth > 0 && result != ncclSuccess)
        fake.real_error = result;
    return result;
}

static ncclResult_t real_call(const char *name, ncclComm_t comm, cudaStream_t stream)
{
    const ncclResult_t result = real_name(name, comm);
    if (result == ncclSuccess && fake.real_depth > 0) {
        pending[pending_count++] = (struct pending){comm, stream};
    } else if (result == ncclSuccess) {
        const int device = fake.device;
        const shim_comm_t *known = shim_comm_find(comm);
        fake.device = known != NULL ? known->device : device;
        fake_work(FAKE_REAL, stream, 0);
        fake.device = device;
    }
    return result;
}

static ncclResult_t real_ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                       ncclComm_t comm, cudaStream_t stream)
{
    (void)send, (void)recv, (void)type, (void)op;
    return count == 0 ? real_name("ncclAllReduce", comm) : real_call("ncclAllReduce", comm, stream);
}

static ncclResult_t real_ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)send, (void)recv, (void)count, (void)type, (void)op;
    return real_call("ncclReduceScatter", comm, stream);
}

static ncclResult_t real_ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                    int root, ncclComm_t comm, cudaStream_t stream)
{
    (void)send, (void)recv, (void)count, (void)type, (void)op, (void)root;
    return real_call("ncclReduce", comm, stream);
}

static ncclResult_t real_ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                       cudaStream_t stream)
{
    (void)send, (void)recv, (void)count, (void)type;
    return real_call("ncclAllGather", comm, stream);
}

static ncclResult_t real_ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                      cudaStream_t stream)
{
    (void)send, (void)recv, (void)count, (void)type;
    return real_call("ncclAlltoAll", comm, stream);
}

static ncclResult_t real_ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                       ncclComm_t comm, cudaStream_t stream)
{
    (void)send, (void)recv, (void)count, (void)type, (void)root;
    return real_call("ncclBroadcast", comm, stream);
}

static ncclResult_t real_ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                    ncclComm_t comm, cudaStream_t stream)
{
    (void)send, (void)recv, (void)count, (void)type, (void)root;
    return real_call("ncclGather", comm, stream);
}

static ncclResult_t real_ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                     ncclComm_t comm, cudaStream_t stream)
{
    (void)send, (void)recv, (void)count, (void)type, (void)root;
    return real_call("ncclScatter", comm, stream);
}

static ncclResult_t real_ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                                   cudaStream_t stream)
{
    (void)buffer, (void)count, (void)type, (void)root;
    return real_call("ncclBcast", comm, stream);
}

static ncclResult_t real_ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                  cudaStream_t stream)
{
    (void)send, (void)count, (void)type, (void)peer;
    return real_call("ncclSend", comm, stream);
}

static ncclResult_t real_ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                  cudaStream_t stream)
{
    (void)recv, (void)count, (void)type, (void)peer;
    return real_call("ncclRecv", comm, stream);
}

static ncclResult_t real_signal(int peer, int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream)
{
    (void)peer, (void)signal, (void)context, (void)flags;
    return real_call("ncclSignal", comm, stream);
}

static ncclResult_t real_put_signal(const void *local, size_t count, ncclDataType_t type, int peer, ncclWindow_t window,
                                    size_t offset, int signal, int context, unsigned flags, ncclComm_t comm,
                                    cudaStream_t stream)
{
    (void)local, (void)count, (void)type, (void)peer, (void)window, (void)offset;
    (void)signal, (void)context, (void)flags;
    return real_call("ncclPutSignal", comm, stream);
}

static ncclResult_t real_wait_signal(int count, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream)
{
    (void)count, (void)signals;
    return real_call("ncclWaitSignal", comm, stream);
}

/* The collectives with a configuration, by their parameters. */
static void see_tag(const ncclCollConfig_t *config)
{
    const coll_config_t *c = (const void *)config;
    fake.config_tag = c ? c->tag : 0;
}

#define REAL_REDUCING(name)                                                                                          \
    static ncclResult_t real_##name(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, \
                                    ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)            \
    {                                                                                                                \
        (void)send, (void)recv, (void)count, (void)type, (void)op;                                                   \
        see_tag(config);                                                                                             \
        return real_call(#name, comm, stream);                                                                       \
    }
#define REAL_MOVING(name)                                                                                             \
    static ncclResult_t real_##name(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, \
                                    cudaStream_t stream, const ncclCollConfig_t *config)                              \
    {                                                                                                                 \
        (void)send, (void)recv, (void)count, (void)type;                                                              \
        see_tag(config);                                                                                              \
        return real_call(#name, comm, stream);                                                                        \
    }
#define REAL_ROOTED(name)                                                                                      \
    static ncclResult_t real_##name(const void *send, void *recv, size_t count, ncclDataType_t type, int root, \
                                    ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)      \
    {                                                                                                          \
        (void)send, (void)recv, (void)count, (void)type, (void)root;                                           \
        see_tag(config);                                                                                       \
        return real_call(#name, comm, stream);                                                                 \
    }
REAL_REDUCING(ncclAllReduceConfig)
REAL_REDUCING(ncclReduceScatterConfig)
REAL_MOVING(ncclAllGatherConfig)
REAL_MOVING(ncclAlltoAllConfig)
REAL_ROOTED(ncclBroadcastConfig)
REAL_ROOTED(ncclGatherConfig)
REAL_ROOTED(ncclScatterConfig)

static ncclResult_t real_ncclReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                          ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                                          const ncclCollConfig_t *config)
{
    (void)send, (void)recv, (void)count, (void)type, (void)op, (void)root;
    see_tag(config);
    return real_call("ncclReduceConfig", comm, stream);
}

static ncclResult_t real_suspend(ncclComm_t comm, int flags)
{
    (void)comm, (void)flags;
    return fake.forward_result;
}

static ncclResult_t real_resume(ncclComm_t comm)
{
    (void)comm;
    return fake.forward_result;
}

static ncclResult_t real_start(void)
{
    fake.real_depth++;
    return ncclSuccess;
}

static ncclResult_t real_end(void)
{
    if (fake.real_depth == 0)
        return ncclInvalidUsage;
    if (--fake.real_depth > 0)
        return ncclSuccess;
    ncclResult_t result = fake.real_error;
    for (uint32_t i = 0; i < pending_count && result == ncclSuccess; i++)
        fake_work(FAKE_REAL, pending[i].stream, 0);
    for (uint32_t i = 0; i < pending_count * pending_count; i++) {
        const struct pending *one = &pending[i / pending_count], *other = &pending[i % pending_count];
        if (one->comm == other->comm)
            fake_join(one->stream, other->stream);
    }
    pending_count = 0;
    fake.real_error = ncclSuccess;
    return result != ncclSuccess ? result : fake.real_state;
}

static ncclResult_t real_simulate(ncclSimInfo_t *info)
{
    if (info != NULL)
        info->estimatedTime = (float)pending_count; /* one a call */
    pending_count = 0;
    return real_end();
}

static ncclResult_t real_async_error(ncclComm_t comm, ncclResult_t *state)
{
    (void)comm;
    if (fake.real_state == ncclInProgress && ++fake.polls == 3)
        fake.real_state = ncclSuccess;
    *state = fake.real_state;
    return ncclSuccess;
}

static ncclResult_t real_create_op(ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence,
                                   ncclComm_t comm)
{
    (void)scalar, (void)type, (void)residence, (void)comm;
    *op = (ncclRedOp_t)77;
    return ncclSuccess;
}

static ncclResult_t real_destroy_op(ncclRedOp_t op, ncclComm_t comm)
{
    (void)op, (void)comm;
    return ncclSuccess;
}

const shim_real_t *shim_real(void)
{
    static const shim_real_t real = {.version = 22809,
                                     .ncclAllReduce = real_ncclAllReduce,
                                     .ncclReduceScatter = real_ncclReduceScatter,
                                     .ncclReduce = real_ncclReduce,
                                     .ncclAllGather = real_ncclAllGather,
                                     .ncclAlltoAll = real_ncclAlltoAll,
                                     .ncclBroadcast = real_ncclBroadcast,
                                     .ncclBcast = real_ncclBcast,
                                     .ncclGather = real_ncclGather,
                                     .ncclScatter = real_ncclScatter,
                                     .ncclAllReduceConfig = real_ncclAllReduceConfig,
                                     .ncclReduceScatterConfig = real_ncclReduceScatterConfig,
                                     .ncclReduceConfig = real_ncclReduceConfig,
                                     .ncclAllGatherConfig = real_ncclAllGatherConfig,
                                     .ncclAlltoAllConfig = real_ncclAlltoAllConfig,
                                     .ncclBroadcastConfig = real_ncclBroadcastConfig,
                                     .ncclGatherConfig = real_ncclGatherConfig,
                                     .ncclScatterConfig = real_ncclScatterConfig,
                                     .ncclSend = real_ncclSend,
                                     .ncclRecv = real_ncclRecv,
                                     .ncclSignal = real_signal,
                                     .ncclPutSignal = real_put_signal,
                                     .ncclWaitSignal = real_wait_signal,
                                     .ncclCommSuspend = real_suspend,
                                     .ncclCommResume = real_resume,
                                     .ncclGroupStart = real_start,
                                     .ncclGroupEnd = real_end,
                                     .ncclGroupSimulateEnd = real_simulate,
                                     .ncclCommGetAsyncError = real_async_error,
                                     .ncclRedOpCreatePreMulSum = real_create_op,
                                     .ncclRedOpDestroy = real_destroy_op};
    return &real;
}

const char *shim_real_failure(void)
{
    return "";
}

/* ---- An algorithm, and a selector that takes up to FAKE_TAKEN_LIMIT elements, 100 a block -------------- */

static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
{
    if (fake.late_wait_error != 0)
        fake.wait_error = fake.late_wait_error;
    if (fake.launches_left > 0 && --fake.launches_left == 0)
        fake.launch_error = cudaErrorInvalidResourceHandle;
    if (fake.launch_error != 0 && fake.launches_part)
        fake_work(FAKE_OURS, stream, 0);
    if (fake.launch_error == 0) {
        fake.apart |= (uint64_t)!team->dependent_launch << fake.launches;
        alg_call_t *launched = &fake.launched[fake.launches++];
        *launched = *call;
        launched->messages = &fake.message[fake.messages];
        for (uint32_t i = 0; i < call->message_count; i++)
            fake.message[fake.messages++] = call->messages[i];
        launched->parts = &fake.part[fake.parts];
        for (uint32_t i = 0; i < call->part_count; i++)
            fake.part[fake.parts++] = call->parts[i];
        fake_work(FAKE_OURS, stream, call->scalar_bits);
    }
    return fake.launch_error;
}

static void shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
{
    (void)bytes, (void)nranks, (void)blocks, (void)threads;
}

static uint64_t part_bytes(const alg_team_t *team, const alg_call_t *call)
{
    (void)team, (void)call;
    return FAKE_PART_BYTES;
}

/* A block fills a multiprocessor. */
static uint32_t block_room(uint32_t nranks, uint32_t threads)
{
    (void)nranks, (void)threads;
    return ALG_ROOM;
}

sel_choice_t sel_choose(const sel_plan_t *plan, const sel_query_t *query)
{
    (void)plan;
#define FAKE_PARTS                                                                                                 \
    {                                                                                                              \
        .name = "fake", .launch_cuda = launch, .shape = shape, .part_bytes = part_bytes, .block_room = block_room, \
        .piece = ALG_PIECE_HALVES                                                                                  \
    }
    static const alg_algorithm_t whole = {
        .name = "fake", .launch_cuda = launch, .block_room = block_room, .piece = ALG_PIECE_HALVES};
    static const alg_algorithm_t bulk = {.name = "bulk",
                                         .launch_cuda = launch,
                                         .bulk_messages = true,
                                         .block_room = block_room,
                                         .piece = ALG_PIECE_HALVES};
    static const alg_algorithm_t parts[3] = {FAKE_PARTS, FAKE_PARTS, FAKE_PARTS};
    const bool list = fake.lists && query->collective <= ALG_ALL_TO_ALL && query->collective != ALG_REDUCE;
    const bool by_bulk = fake.bulk_messages && query->collective == ALG_SEND_RECV && query->count > FAKE_BULK_LEAST;
    const alg_algorithm_t *algorithm = by_bulk                              ? &bulk
                                       : query->collective == ALG_BROADCAST ? &parts[0]
                                       : query->collective == ALG_REDUCE    ? &parts[1]
                                       : list                               ? &parts[2]
                                                                            : &whole;
    const uint32_t blocks =
        by_bulk ? (query->slow ? FAKE_SLOW_BLOCKS : FAKE_BULK_BLOCKS) : 1 + (uint32_t)query->count / 100;
    if (query->count > FAKE_TAKEN_LIMIT)
        return (sel_choice_t){.reason = SEL_FORWARD_TABLE, .source = "policy"};
    return (sel_choice_t){.algorithm = algorithm,
                          .blocks = blocks,
                          .aligned_blocks = blocks,
                          .threads = 32,
                          .reason = SEL_TAKEN,
                          .source = "tuned table"};
}

sel_choice_t sel_usual_grid(const sel_topology_t *topology, alg_collective_t collective, uint64_t bytes)
{
    (void)topology, (void)collective, (void)bytes;
    return (sel_choice_t){.blocks = 32, .threads = 1024};
}

void sel_plan_init(sel_plan_t *plan, const sel_topology_t *topology, const sel_settings_t *settings)
{
    (void)plan, (void)topology, (void)settings;
}

bool sel_policy_check(const char *policy, char *fault, size_t fault_bytes)
{
    (void)policy, (void)fault, (void)fault_bytes;
    return true;
}

alg_team_t *alg_scratch_team(alg_scratch_t *scratch)
{
    (void)scratch;
    static alg_team_t team = {.dependent_launch = 1};
    return &team;
}

alg_team_t alg_scratch_team_for(alg_scratch_t *scratch, uint32_t piece)
{
    fake.pieces |= 1u << piece;
    return *alg_scratch_team(scratch);
}

const alg_map_t *alg_scratch_map(const alg_scratch_t *scratch)
{
    (void)scratch;
    static const alg_map_t whole = {.pieces = 1},
                           pieces = {.pieces = ALG_PIECES, .short_most = FAKE_SHORT_ELEMENTS * sizeof(float)};
    return fake.cut ? &pieces : &whole;
}

bool alg_scratch_has(const alg_scratch_t *scratch, uint32_t piece)
{
    (void)scratch, (void)piece;
    return fake.grown;
}

bool shim_grow_wait(shim_comm_t *comm, uint32_t piece)
{
    (void)comm, (void)piece;
    fake.asks++;
    fake.grown = !fake.stays_short;
    return fake.grown;
}

void shim_grow_suspend(shim_comm_t *comm)
{
    (void)comm;
}

bool shim_grow_resume(shim_comm_t *comm)
{
    atomic_store(&comm->suspended, false);
    return true;
}

void shim_grow_end(shim_comm_t *comm)
{
    (void)comm;
}

void alg_scratch_release(alg_scratch_t *scratch, bool reusable)
{
    (void)scratch, (void)reusable;
}

void alg_scratch_reap(void)
{
    fake.reaps++;
}

bool alg_scratch_any_retired(void)
{
    return true;
}

uint32_t alg_scratch_retired(void)
{
    return 0;
}

alg_control_t *alg_scratch_control(alg_scratch_t *scratch)
{
    (void)scratch;
    static alg_control_t control;
    return &control;
}

void shim_nodes_call(shim_meeting_t *meeting, const alg_team_t *team, const alg_call_t *call, bool captured)
{
    (void)meeting, (void)team, (void)call, (void)captured;
}

void shim_nodes_flush(shim_meeting_t *meeting)
{
    (void)meeting;
}

const char *shim_nodes_fault(const shim_meeting_t *meeting)
{
    (void)meeting;
    return NULL;
}

void shim_nodes_end(shim_meeting_t *meeting)
{
    (void)meeting;
}

void net_leave(net_rendezvous_t *rendezvous)
{
    (void)rendezvous;
}

uint32_t shim_share_multiprocessors(int device, void *stream)
{
    (void)device, (void)stream;
    return fake.multiprocessors;
}

unsigned long long shim_share_place(void *stream, unsigned long long stream_id)
{
    (void)stream, (void)stream_id;
    return fake.multiprocessors;
}

bool net_device_lost(int device, uint64_t life)
{
    (void)device;
    return life != 0 && life != fake.life;
}

/* ---- Set-up and CPU mode ------------------------------------------------------------------ */

ncclResult_t shim_attach_after_group(ncclResult_t group_result)
{
    return group_result;
}

bool shim_attach_settle(shim_comm_t *comm)
{
    if (atomic_load(&comm->phase) == SHIM_COMM_JOINING && fake.while_settling)
        fake.while_settling(comm);
    return atomic_load(&comm->phase) == SHIM_COMM_ATTACHED;
}

int net_scope_enter(net_scope_t *scope, int device)
{
    (void)scope, (void)device;
    return 0;
}

void net_scope_leave(net_scope_t *scope)
{
    (void)scope;
}

int net_device_enter(net_visit_t *visit, int device)
{
    *visit = (net_visit_t){.context = (void *)(uintptr_t)fake.device, .changed = fake.device != device};
    return visit->changed ? cudaSetDevice(device) : cudaSuccess;
}

void net_device_leave(net_visit_t *visit)
{
    if (visit->changed)
        cudaSetDevice((int)(uintptr_t)visit->context);
}

bool shim_cpu_mode(void)
{
    return false;
}

const shim_real_t *shim_cpu_nccl(void)
{
    return NULL;
}

/* ---- Communicators --------------------------------------------------------------------------- */

shim_comm_t *fake_comm(int device, bool blocking)
{
    static uintptr_t next = 0x10000;
    shim_comm_t *comm = shim_comm_new(&shim_device_cuda);
    atomic_store(&comm->handle, (ncclComm_t)(next += 256));
    comm->device = device;
    comm->life = fake.life;
    comm->config.blocking = comm->all_block = blocking;
    comm->nranks = 2;
    comm->config.graph_mixing = true;
    atomic_store(&comm->phase, SHIM_COMM_ATTACHED);
    shim_share_join(comm);
    shim_comm_insert(comm);
    shim_comm_release(comm); /* the table's reference remains */
    return comm;
}

void fake_comm_end(shim_comm_t *comm)
{
    shim_comm_drop(comm, comm->handle);
    shim_comm_reap();
}
