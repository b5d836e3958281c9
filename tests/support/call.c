/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - see call.h. A call_t owns its buffers from call_prepare to call_finish or call_cancelled. */
#include "call.h"

#include <stdlib.h>
#include <string.h>

/* Elements of the largest buffer of any rank. */
static size_t most_bytes(const coll_t *k)
{
    size_t in = coll_input_count(k, k->root), out = coll_output_count(k, k->root);
    return (in > out ? in : out) * ref_bytes(k->c.type);
}

static size_t output_bytes(const call_t *call)
{
    return coll_output_count(&call->k, (uint32_t)call->rank) * ref_bytes(call->k.c.type);
}

/* First of the buffer's bytes that are not the output. */
static uint64_t rest_hash(const call_t *call)
{
    const data_buffer_t *buffer = &call->output;
    const size_t before = (size_t)((uint8_t *)call->recv - buffer->data), end = before + output_bytes(call);
    uint64_t hash = data_hash(0, buffer->data, before);
    return data_hash(hash, buffer->data + end, buffer->size - end);
}

static void prepare_in_place(call_t *call, size_t offset)
{
    const ptrdiff_t at = coll_in_place_at(&call->k, (uint32_t)call->rank) * (ptrdiff_t)ref_bytes(call->k.c.type);
    CHECK(data_buffer_make(&call->output, most_bytes(&call->k), offset));
    uint8_t *send = call->output.data + (at > 0 ? at : 0);
    call->send = send;
    call->recv = call->output.data - (at < 0 ? at : 0);
    coll_fill(&call->k, (uint32_t)call->rank, send);
    call->input_hash = rest_hash(call);
}

/* Whether the call gets a buffer, although this rank does not use it. */
static bool is_given(const call_t *call)
{
    return (call->k.c.seed + (uint64_t)call->rank) % 2 == 0;
}

static void prepare_apart(call_t *call, size_t in, size_t out, call_shape_t shape)
{
    const size_t width = ref_bytes(call->k.c.type), most = most_bytes(&call->k);
    CHECK(data_buffer_make(&call->input, in ? in * width : most, shape.input_offset));
    CHECK(data_buffer_make(&call->output, out ? out * width : most, shape.output_offset));
    if (in)
        coll_fill(&call->k, (uint32_t)call->rank, call->input.data);
    call->send = in || is_given(call) ? call->input.data : NULL;
    call->recv = out || is_given(call) ? call->output.data : NULL;
    call->input_hash = data_hash(0, call->input.data, call->input.size);
}

void call_prepare_coll(call_t *call, ncclComm_t comm, int rank, const coll_t *k, call_shape_t shape)
{
    uint64_t scalar = 0;
    const size_t in = coll_input_count(k, (uint32_t)rank), out = coll_output_count(k, (uint32_t)rank);
    *call = (call_t){.k = *k, .rank = rank, .comm = comm, .op = ncclSum};
    call->in_place = shape.in_place && in && out && k->collective != ALG_ALL_TO_ALL;
    if (call->in_place)
        prepare_in_place(call, shape.output_offset);
    else
        prepare_apart(call, in, out, shape);
    if (!coll_reduces(k))
        return;
    call->op = (ncclRedOp_t)k->c.op;
    if (k->c.op != REF_PREMUL)
        return;
    data_scalar(&k->c, rank, &scalar);
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&call->op, &scalar, k->c.type, ncclScalarHostImmediate, comm));
}

ncclResult_t call_issue_with(const call_t *call, ncclRedOp_t op)
{
    const void *send = call->send;
    void *recv = call->recv;
    const size_t count = call->k.c.count;
    const ncclDataType_t type = call->k.c.type;
    const int root = (int)call->k.root;
    switch (call->k.collective) {
    case ALG_REDUCE_SCATTER:
        return ncclReduceScatter(send, recv, count, type, op, call->comm, call->stream);
    case ALG_REDUCE:
        return ncclReduce(send, recv, count, type, op, root, call->comm, call->stream);
    case ALG_ALL_GATHER:
        return ncclAllGather(send, recv, count, type, call->comm, call->stream);
    case ALG_ALL_TO_ALL:
        return ncclAlltoAll(send, recv, count, type, call->comm, call->stream);
    case ALG_BROADCAST:
        if (send == recv) /* in place, and the call has that form */
            return ncclBcast(recv, count, type, root, call->comm, call->stream);
        return ncclBroadcast(send, recv, count, type, root, call->comm, call->stream);
    case ALG_GATHER:
        return ncclGather(send, recv, count, type, root, call->comm, call->stream);
    case ALG_SCATTER:
        return ncclScatter(send, recv, count, type, root, call->comm, call->stream);
    default:
        return ncclAllReduce(send, recv, count, type, op, call->comm, call->stream);
    }
}

ncclResult_t call_issue(call_t *call)
{
    ncclResult_t result = call_issue_with(call, call->op);
    /* NCCL allows destroying an operator right after the call that uses it, even inside a group. */
    if (call->op >= ncclNumOps)
        CHECK_NCCL(ncclRedOpDestroy(call->op, call->comm));
    return result;
}

static void free_buffers(call_t *call)
{
    CHECK(data_buffer_guarded(&call->output));
    if (!call->in_place) {
        CHECK(data_buffer_guarded(&call->input));
        CHECK(data_hash(0, call->input.data, call->input.size) == call->input_hash);
        data_buffer_free(&call->input);
    }
    data_buffer_free(&call->output);
}

static void check_all_reduce(const call_t *call, int shard, int shards)
{
    char fault[256];
    const bool right =
        getenv("NCCL_HOSTID")
            ? data_right_on_nodes(&call->k.c, call->recv, (size_t)shard, (size_t)shards, fault, sizeof(fault))
            : data_right(&call->k.c, REF_STRICT, call->recv, (size_t)shard, (size_t)shards, fault, sizeof(fault));
    if (!right)
        check_failed(__FILE__, __LINE__, "right result: ", fault);
    /* The bound is looser than the rules for taken calls; it is checked too, so that a fault shared by the rules and
     * the library shows. */
    if (call->k.c.kind != DATA_BITS &&
        !data_right(&call->k.c, REF_BOUND, call->recv, (size_t)shard, (size_t)shards, fault, sizeof(fault)))
        check_failed(__FILE__, __LINE__, "result near the fp64 reference: ", fault);
}

static void check_other(const call_t *call)
{
    char fault[256], text[400];
    if (coll_right(&call->k, (uint32_t)call->rank, call->recv, fault, sizeof(fault)))
        return;
    snprintf(text, sizeof(text), "%s, collective %d, %s %s kind %d seed %llu count %zu root %u, in place: %d", fault,
             call->k.collective, ref_type_name(call->k.c.type), ref_op_name(call->k.c.op), call->k.c.kind,
             (unsigned long long)call->k.c.seed, call->k.c.count, call->k.root, call->in_place);
    check_failed(__FILE__, __LINE__, "right result: ", text);
}

void call_finish(call_t *call, int shard, int shards, uint64_t *hash)
{
    if (call->k.collective == ALG_ALL_REDUCE)
        check_all_reduce(call, shard, shards);
    else if (output_bytes(call) > 0)
        check_other(call);
    else
        CHECK(data_buffer_untouched(&call->output));
    if (call->in_place)
        CHECK(rest_hash(call) == call->input_hash);
    if (coll_alike(&call->k))
        *hash = data_hash(*hash, call->recv, output_bytes(call));
    free_buffers(call);
}

void call_cancelled(call_t *call)
{
    if (!call->in_place)
        CHECK(data_buffer_untouched(&call->output));
    free_buffers(call);
}

void call_run_coll(ncclComm_t comm, int rank, const coll_t *k, call_shape_t shape, uint64_t *hash)
{
    call_t call;
    call_prepare_coll(&call, comm, rank, k, shape);
    CHECK_NCCL(call_issue(&call));
    call_finish(&call, rank, k->c.nranks, hash);
}

void call_run_solo_coll(const ncclComm_t *comms, const coll_t *k, call_shape_t shape)
{
    call_t calls[REF_MAX_RANKS];
    uint64_t hash[REF_MAX_RANKS] = {0};
    const int nranks = k->c.nranks;
    for (int r = 0; r < nranks; r++)
        call_prepare_coll(&calls[r], comms[r], r, k, shape);
    CHECK_NCCL(ncclGroupStart());
    for (int r = 0; r < nranks; r++)
        CHECK_NCCL(call_issue(&calls[r]));
    CHECK_NCCL(ncclGroupEnd());
    for (int r = 0; r < nranks; r++) {
        call_finish(&calls[r], r, nranks, &hash[r]);
        CHECK(hash[r] == hash[0]);
    }
}

void call_prepare(call_t *call, ncclComm_t comm, int rank, const data_case_t *c, call_shape_t shape)
{
    const coll_t k = {.collective = ALG_ALL_REDUCE, .c = *c};
    call_prepare_coll(call, comm, rank, &k, shape);
}

void call_run(ncclComm_t comm, int rank, const data_case_t *c, call_shape_t shape, uint64_t *hash)
{
    const coll_t k = {.collective = ALG_ALL_REDUCE, .c = *c};
    call_run_coll(comm, rank, &k, shape, hash);
}

void call_run_solo(const ncclComm_t *comms, const data_case_t *c, call_shape_t shape)
{
    const coll_t k = {.collective = ALG_ALL_REDUCE, .c = *c};
    call_run_solo_coll(comms, &k, shape);
}

void call_agree_with(ranks_t *ranks, int leader, uint64_t hash)
{
    _Atomic uint64_t *words = ranks->shared->words;
    atomic_store(&words[ranks->rank], hash);
    ranks_barrier(ranks);
    CHECK(atomic_load(&words[leader]) == hash);
    ranks_barrier(ranks);
}

void call_agree(ranks_t *ranks, uint64_t hash)
{
    call_agree_with(ranks, 0, hash);
}
