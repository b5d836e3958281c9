/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make.c - a call from its entry point to launch.c, to the group's queue, or to forward.c.
 *
 * Only certainly valid calls are taken (docs/design.md, "The path of a call"). Once a launch was attempted, its error
 * is returned and the call never forwarded, because other ranks may have launched.
 *
 * The decision depends only on facts that are equal on all ranks, with four exceptions. In each of them this rank
 * forwards the call while its peers take it and wait. The real NCCL then fails the call (docs/lab/proofs.md):
 *   - a NULL buffer that this rank needs
 *   - a non-blocking communicator that is not ready
 *   - a stream whose capture cannot be queried
 *   - a device that cannot be made current
 */
#include "shim/call/call.h"

#include "shim/account/ranges.h"
#include "shim/account/statistics.h"
#include "shim/account/trace.h"
#include "shim/base/device.h"
#include "shim/base/last_error.h"
#include "shim/call/device.h"
#include "shim/call/group.h"
#include "shim/call/group_state.h"
#include "shim/call/launch.h"
#include "shim/call/note.h"
#include "shim/comm/grow.h"
#include "shim/comm/order.h"
#include "shim/comm/redop.h"
#include "shim/comm/stop.h"
#include "shim/real/real.h"
#include "shim/setup/attach.h"

_Static_assert((int)ALG_INT8 == (int)ncclInt8 && (int)ALG_UINT8 == (int)ncclUint8 && (int)ALG_INT32 == (int)ncclInt32 &&
                   (int)ALG_UINT32 == (int)ncclUint32 && (int)ALG_INT64 == (int)ncclInt64 &&
                   (int)ALG_UINT64 == (int)ncclUint64,
               "integer types have NCCL's numbers");
_Static_assert((int)ALG_FLOAT16 == (int)ncclFloat16 && (int)ALG_FLOAT32 == (int)ncclFloat32 &&
                   (int)ALG_FLOAT64 == (int)ncclFloat64 && (int)ALG_BFLOAT16 == (int)ncclBfloat16 &&
                   (int)ALG_FLOAT8_E4M3 == (int)ncclFloat8e4m3 && (int)ALG_FLOAT8_E5M2 == (int)ncclFloat8e5m2,
               "floating-point types have NCCL's numbers");
_Static_assert((int)ALG_SUM == (int)ncclSum && (int)ALG_PROD == (int)ncclProd && (int)ALG_MAX == (int)ncclMax &&
                   (int)ALG_MIN == (int)ncclMin && (int)ALG_AVG == (int)ncclAvg &&
                   (int)ALG_PREMUL_SUM == (int)ncclNumOps,
               "operators have NCCL's numbers");

/* The first NCCL with 8-bit floats; the first with ncclAlltoAll, ncclGather and ncclScatter. */
enum { FLOAT8_VERSION = 22400, BLOCKS_VERSION = 22800 };

shim_place_t shim_call_place(const shim_call_t *call)
{
    const bool known = call->comm != NULL && call->attached && call->comm->plan != NULL;
    return known ? shim_place(&call->comm->plan->topology, call->alg.type, call->capture.id != 0) : 0;
}

bool shim_call_sees_capture(shim_call_t *call)
{
    if (!call->asked) {
        call->asked = true;
        call->seen = shim_capture_query(call->stream, &call->capture) == 0;
    }
    return call->seen;
}

bool shim_call_has_buffers(const shim_call_t *call)
{
    const bool root = call->alg.root == call->comm->rank;
    switch (call->collective) {
    case ALG_REDUCE:
    case ALG_GATHER:
        return call->alg.input != NULL && (!root || call->alg.output != NULL);
    case ALG_BROADCAST:
    case ALG_SCATTER:
        return call->alg.output != NULL && (!root || call->alg.input != NULL);
    case SHIM_SEND:
        return call->alg.input != NULL;
    case SHIM_RECV:
        return call->alg.output != NULL;
    default:
        return call->alg.input != NULL && call->alg.output != NULL;
    }
}

static bool set_op(shim_call_t *call)
{
    if ((unsigned)call->op < (unsigned)ncclNumOps) {
        call->alg.op = (alg_op_t)call->op;
        return true;
    }
    shim_redop_t redop;
    if (!shim_redop_find(call->comm, call->op, &redop) || redop.type != shim_call_type(call))
        return false;
    call->alg.op = ALG_PREMUL_SUM;
    call->alg.scalar_pointer = redop.scalar_pointer;
    call->alg.scalar_bits = redop.scalar_bits;
    return true;
}

/* An empty message does nothing. A rank's message to itself can match only in a group. */
static bool set_message(shim_call_t *call)
{
    const bool send = call->collective == SHIM_SEND;
    alg_call_t *alg = &call->alg;
    call->message = (alg_message_t){.buffer = send ? (void *)alg->input : alg->output,
                                    .bytes = alg->count * alg_type_bytes(alg->type),
                                    .peer = alg->root,
                                    .send = send};
    return alg->count == 0 ||
           (shim_call_has_buffers(call) && (alg->root != call->comm->rank || shim_group_depth() > 0));
}

bool shim_call_set(shim_call_t *call)
{
    alg_call_t *alg = &call->alg;
    const uint32_t nranks = call->comm->nranks;
    const bool message = shim_call_is_message(call);
    alg->collective = message ? ALG_SEND_RECV : (alg_collective_t)call->collective;
    if (alg->root >= nranks || (unsigned)alg->type >= ALG_TYPE_COUNT)
        return false;
    if (alg->count > SIZE_MAX / (alg_type_bytes(alg->type) * alg_collective_blocks(alg->collective, nranks)))
        return false;
    if (message)
        return set_message(call);
    return alg->count > 0 && shim_call_has_buffers(call) && (!alg_collective_reduces(alg->collective) || set_op(call));
}

/* Whether this rank's blocks are slower: buffers are unaligned, or the blocks also copy a message to itself
 * (selector/measured/messages-2-h100.csv). */
static bool is_slow(const shim_call_t *call)
{
    return !alg_call_is_aligned(&call->alg) || (shim_call_is_message(call) && call->alg.root == call->comm->rank);
}

sel_choice_t shim_call_choose(shim_call_t *call)
{
    const sel_query_t query = {.collective = call->alg.collective,
                               .type = call->alg.type,
                               .op = call->alg.op,
                               .count = call->alg.count,
                               .slow = is_slow(call)};
    const sel_choice_t choice = sel_choose(call->comm->plan, &query);
    call->algorithm = choice.algorithm;
    call->alg.blocks = choice.blocks;
    call->alg.aligned_blocks = choice.aligned_blocks;
    call->alg.threads = choice.threads;
    call->reason = choice.reason;
    call->source = choice.source;
    call->message.bulk = choice.algorithm != NULL && choice.algorithm->bulk_messages;
    return choice;
}

bool shim_call_has_memory(shim_call_t *call)
{
    const alg_map_t *map = alg_scratch_map(call->comm->scratch);
    const uint32_t piece = alg_piece_of(map, call->algorithm, alg_call_bytes(&call->alg, call->comm->nranks));
    if (call->alg.count == 0 || shim_grow(call->comm, piece))
        return true;
    call->reason = SEL_FORWARD_MEMORY;
    return false;
}

/* NCCL's non-blocking communicators refuse calls while one is in progress. */
static bool ready(const shim_call_t *call)
{
    shim_comm_t *comm = call->comm;
    if (comm->all_block)
        return true;
    ncclResult_t state;
    const unsigned long long pending = shim_order_pending(comm);
    if (shim_real()->ncclCommGetAsyncError(call->handle, &state) != ncclSuccess || state != ncclSuccess)
        return false;
    shim_order_record_pending(comm, pending);
    return true;
}

static bool real_knows(const shim_call_t *call)
{
    const int version = shim_real()->version;
    const bool float8 = call->alg.type == ALG_FLOAT8_E4M3 || call->alg.type == ALG_FLOAT8_E5M2;
    const bool blocks =
        call->collective == ALG_ALL_TO_ALL || call->collective == ALG_GATHER || call->collective == ALG_SCATTER;
    return (!float8 || version >= FLOAT8_VERSION) && (!blocks || version >= BLOCKS_VERSION);
}

static ncclResult_t queue(const shim_call_t *call)
{
    const shim_use_t use = shim_call_is_message(call) ? SHIM_USE_MESSAGE : SHIM_USE_COLLECTIVE;
    ncclResult_t result = shim_group_use(call->comm, call->stream, &call->capture, use);
    if (result == ncclSuccess)
        result = shim_group_queue(call);
    return shim_group_check(result);
}

void shim_call_list(shim_call_t *call)
{
    call->alg.messages = &call->message;
    call->alg.message_count = shim_call_is_message(call);
}

static ncclResult_t launch(shim_call_t *call)
{
    shim_call_list(call);
    const shim_launch_t one = {.comm = call->comm,
                               .algorithm = call->algorithm,
                               .call = &call->alg,
                               .stream = call->stream,
                               .capture = &call->capture};
    pthread_mutex_lock(&call->comm->lock);
    ncclResult_t result = shim_launch(&one);
    pthread_mutex_unlock(&call->comm->lock);
    return result;
}

/* Bytes as in the real NCCL's ranges. */
bool shim_call_begin_range(const shim_call_t *call)
{
    return shim_ranges_wanted() && shim_range_begin(call->function, call->alg.count * alg_type_bytes(call->alg.type));
}

/* The communicator's device must be current. */
static bool take(shim_call_t *call, ncclResult_t *result)
{
    call->reason = SEL_FORWARD_STREAM;
    if (!shim_call_sees_capture(call))
        return false;
    const sel_choice_t choice = shim_call_choose(call);
    if (choice.algorithm == NULL || !shim_call_has_memory(call))
        return false;
    shim_count_taken(call->collective, shim_call_place(call), shim_call_bytes(call), &choice);
    *result = ncclSuccess;
    if (call->alg.count == 0)
        return true;
    shim_note_call(call);
    const bool ranged = shim_call_begin_range(call);
    *result = shim_group_depth() > 0 ? queue(call) : launch(call);
    if (ranged)
        shim_range_end();
    return true;
}

static bool take_if_valid(shim_call_t *call, ncclResult_t *result)
{
    /* call->reason is set in advance, for the case that the next check fails. */
    call->reason = SEL_FORWARD_ARGUMENTS;
    if (!shim_call_set(call) || !real_knows(call))
        return false;
    call->reason = SEL_FORWARD_NOT_READY;
    if (!ready(call))
        return false;
    net_visit_t visit;
    call->reason = SEL_FORWARD_STREAM;
    if (net_device_enter(&visit, call->comm->device) != 0)
        return false;
    bool taken = take(call, result);
    net_device_leave(&visit);
    return taken;
}

/* Whether Shunt may take the call; if not, *reason says why. */
static bool is_ours(const shim_call_t *call, sel_reason_t *reason)
{
    *reason = SEL_FORWARD_COLLECTIVE;
    if (call->collective >= ALG_COLLECTIVE_COUNT && !shim_call_is_message(call))
        return false;
    *reason = SEL_FORWARD_CONFIGURATION;
    if (call->more != NULL)
        return false;
    *reason = SEL_FORWARD_UNATTACHED;
    return call->attached;
}

/* CUDA may already have shut down. */
static ncclResult_t exiting(const shim_call_t *call)
{
    shim_set_last_error("%s: no calls are made while the process exits", call->function);
    return ncclSystemError;
}

static int is_captured(shim_call_t *call, ncclResult_t result)
{
    if (shim_is_error(result) || !shim_call_sees_capture(call))
        return -1;
    return call->capture.id != 0;
}

static ncclResult_t make(shim_call_t *call)
{
    ncclResult_t result;
    if (call->comm != NULL)
        call->attached =
            shim_attach_settle(call->comm) && !atomic_load_explicit(&call->comm->suspended, memory_order_relaxed);
    if (call->attached && shim_comm_exiting())
        return exiting(call);
    if (!is_ours(call, &call->reason) || !take_if_valid(call, &result))
        result = shim_call_forward(call);
    return result;
}

const shim_call_ops_t shim_call_cuda = {.make = make,
                                        .captured = is_captured,
                                        .group_end = shim_group_end_cuda,
                                        .nccl = shim_real_or_none,
                                        .answer = shim_real_answer,
                                        .comm = shim_comm_acquire};

const shim_call_ops_t *shim_call_ops(const shim_comm_t *comm)
{
    const bool cpu = comm != NULL ? comm->ops != &shim_device_cuda : shim_cpu_mode();
    return cpu ? &shim_call_cpu : &shim_call_cuda;
}

ncclResult_t shim_call_make(shim_call_t *call)
{
    call->start_ns = shim_trace_begin();
    call->comm = shim_comm_acquire(call->handle);
    const shim_call_ops_t *ops = shim_call_ops(call->comm);
    const ncclResult_t result = ops->make(call);
    if (shim_is_error(result))
        shim_note_failure(call);
    if (call->start_ns != 0)
        shim_note_trace(call, ops->captured(call, result), result);
    if (call->comm != NULL)
        shim_comm_release(call->comm);
    return result;
}
