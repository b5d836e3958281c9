/* call.c - see call.h. A call_t owns its buffers from call_prepare to call_finish or call_cancelled. */
#include "call.h"

#include <string.h>

void call_prepare(call_t *call, ncclComm_t comm, int rank, const data_case_t *c, call_shape_t shape)
{
    uint64_t scalar = 0;
    size_t size = c->count * ref_bytes(c->type);
    *call = (call_t){.c = *c, .rank = rank, .comm = comm, .op = (ncclRedOp_t)c->op, .in_place = shape.in_place};
    CHECK(data_buffer_make(&call->output, size, shape.output_offset));
    if (shape.in_place) {
        data_fill(c, rank, call->output.data);
    } else {
        CHECK(data_buffer_make(&call->input, size, shape.input_offset));
        data_fill(c, rank, call->input.data);
        call->input_hash = data_hash(0, call->input.data, size);
    }
    if (c->op != REF_PREMUL)
        return;
    data_scalar(c, rank, &scalar);
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&call->op, &scalar, c->type, ncclScalarHostImmediate, comm));
}

ncclResult_t call_issue(call_t *call)
{
    const void *input = call->in_place ? call->output.data : call->input.data;
    ncclResult_t result =
        ncclAllReduce(input, call->output.data, call->c.count, call->c.type, call->op, call->comm, NULL);
    /* NCCL lets an operator go right after the call that uses it, even inside a group. */
    if (call->c.op == REF_PREMUL)
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

void call_finish(call_t *call, int shard, int shards, uint64_t *hash)
{
    char fault[256];
    if (!data_right(&call->c, REF_STRICT, call->output.data, (size_t)shard, (size_t)shards, fault, sizeof(fault)))
        check_failed(__FILE__, __LINE__, "right result: ", fault);
    /* The bound is looser than the rules for taken calls; it is checked so that a fault shared by the
     * rules and the library cannot hide. */
    if (call->c.kind != DATA_BITS &&
        !data_right(&call->c, REF_BOUND, call->output.data, (size_t)shard, (size_t)shards, fault, sizeof(fault)))
        check_failed(__FILE__, __LINE__, "result near the fp64 reference: ", fault);
    *hash = data_hash_output(*hash, &call->c, call->output.data);
    free_buffers(call);
}

void call_cancelled(call_t *call)
{
    if (!call->in_place)
        CHECK(data_buffer_untouched(&call->output));
    free_buffers(call);
}

void call_run(ncclComm_t comm, int rank, const data_case_t *c, call_shape_t shape, uint64_t *hash)
{
    call_t call;
    call_prepare(&call, comm, rank, c, shape);
    CHECK_NCCL(call_issue(&call));
    call_finish(&call, rank, c->nranks, hash);
}

void call_run_solo(const ncclComm_t *comms, const data_case_t *c, call_shape_t shape)
{
    call_t calls[REF_MAX_RANKS];
    uint64_t hash[REF_MAX_RANKS] = {0};
    for (int r = 0; r < c->nranks; r++)
        call_prepare(&calls[r], comms[r], r, c, shape);
    CHECK_NCCL(ncclGroupStart());
    for (int r = 0; r < c->nranks; r++)
        CHECK_NCCL(call_issue(&calls[r]));
    CHECK_NCCL(ncclGroupEnd());
    for (int r = 0; r < c->nranks; r++) {
        call_finish(&calls[r], r, c->nranks, &hash[r]);
        CHECK(hash[r] == hash[0]);
    }
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
