/*
 * redop.c - the user's operators of a communicator.
 *
 * A small table a communicator, made with its first operator, with a lock of
 * its own that calls with built-in operators never take. Owned by the
 * communicator's state; freed with it.
 */
#include "shim/comm/redop.h"

#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithm.h"
#include "shim/host/host.h"
#include "shim/names/names.h"
#include "shim/real/real.h"

typedef struct entry {
    ncclRedOp_t op; /* FREE_OP where the entry is free */
    shim_redop_t redop;
} entry_t;

typedef struct table {
    pthread_mutex_t lock;
    uint32_t count;
    entry_t *entries;
} table_t;

#define FREE_OP ((ncclRedOp_t)0)

static table_t *table_of(shim_comm_t *comm)
{
    return atomic_load_explicit(&comm->redops, memory_order_acquire);
}

static table_t *table_make(shim_comm_t *comm)
{
    void *there = table_of(comm);
    if (there != NULL)
        return there;
    table_t *table = calloc(1, sizeof(*table));
    if (table == NULL)
        return NULL;
    pthread_mutex_init(&table->lock, NULL);
    if (atomic_compare_exchange_strong(&comm->redops, &there, table))
        return table;
    pthread_mutex_destroy(&table->lock);
    free(table);
    return there;
}

/* Under the lock. */
static entry_t *entry_of(table_t *table, ncclRedOp_t op)
{
    for (uint32_t i = 0; i < table->count; i++)
        if (table->entries[i].op == op)
            return &table->entries[i];
    return NULL;
}

/* A free entry, more of them if there is none; NULL without memory. Under the lock. */
static entry_t *entry_free(table_t *table)
{
    entry_t *entry = entry_of(table, FREE_OP);
    if (entry != NULL)
        return entry;
    uint32_t count = table->count > 0 ? 2 * table->count : 4;
    entry_t *entries = realloc(table->entries, count * sizeof(*entries));
    if (entries == NULL)
        return NULL;
    for (uint32_t i = table->count; i < count; i++)
        entries[i].op = FREE_OP;
    entry = &entries[table->count];
    table->entries = entries;
    table->count = count;
    return entry;
}

/* A handle that the real NCCL gives out again replaces what it meant before. */
static bool remember(shim_comm_t *comm, ncclRedOp_t op, const shim_redop_t *redop)
{
    table_t *table = table_make(comm);
    if (table == NULL)
        return false;
    pthread_mutex_lock(&table->lock);
    entry_t *entry = entry_of(table, op);
    if (entry == NULL)
        entry = entry_free(table);
    if (entry != NULL)
        *entry = (entry_t){.op = op, .redop = *redop};
    pthread_mutex_unlock(&table->lock);
    return entry != NULL;
}

static bool drop(shim_comm_t *comm, ncclRedOp_t op)
{
    table_t *table = table_of(comm);
    if (table == NULL)
        return false;
    pthread_mutex_lock(&table->lock);
    entry_t *entry = entry_of(table, op);
    if (entry != NULL)
        entry->op = FREE_OP;
    pthread_mutex_unlock(&table->lock);
    return entry != NULL;
}

bool shim_redop_find(shim_comm_t *comm, ncclRedOp_t op, shim_redop_t *redop)
{
    table_t *table = table_of(comm);
    if (table == NULL || (int)op < (int)ncclNumOps)
        return false;
    pthread_mutex_lock(&table->lock);
    entry_t *entry = entry_of(table, op);
    if (entry != NULL)
        *redop = entry->redop;
    pthread_mutex_unlock(&table->lock);
    return entry != NULL;
}

void shim_redop_forget(shim_comm_t *comm)
{
    table_t *table = atomic_exchange(&comm->redops, NULL);
    if (table == NULL)
        return;
    pthread_mutex_destroy(&table->lock);
    free(table->entries);
    free(table);
}

/* ---- The entry points ------------------------------------------------------------ */

/* What the operator stands for; a scalar of the host is read now. */
static shim_redop_t describe(const void *scalar, ncclDataType_t type, ncclScalarResidence_t residence)
{
    shim_redop_t redop = {.type = type, .scalar_pointer = NULL, .scalar_bits = 0};
    if (residence == ncclScalarHostImmediate)
        memcpy(&redop.scalar_bits, scalar, alg_type_bytes((alg_type_t)type));
    else
        redop.scalar_pointer = scalar;
    return redop;
}

static ncclResult_t refused(const char *function, const char *why)
{
    shim_set_last_error("%s: %s", function, why);
    return ncclInvalidArgument;
}

/* A number that no other operator of this process has, so that one of another communicator, or one
 * that was destroyed, is never mistaken for it. */
static ncclRedOp_t new_op(void)
{
    static atomic_uint next;
    uint32_t span = (uint32_t)ncclMaxRedOp - (uint32_t)ncclNumOps;
    return (ncclRedOp_t)((uint32_t)ncclNumOps + atomic_fetch_add(&next, 1) % span);
}

static ncclResult_t create_host(ncclRedOp_t *op, const void *scalar, ncclDataType_t type,
                                ncclScalarResidence_t residence, ncclComm_t handle)
{
    static const char function[] = "ncclRedOpCreatePreMulSum";
    ncclResult_t result = shim_host_check_comm(handle, function);
    if (result != ncclSuccess)
        return result;
    if (op == NULL)
        return refused(function, "op is NULL");
    if (scalar == NULL)
        return refused(function, "scalar is NULL");
    if (alg_type_bytes((alg_type_t)type) == 0)
        return refused(function, "datatype is none of NCCL's");
    if (residence != ncclScalarHostImmediate && residence != ncclScalarDevice)
        return refused(function, "residence is none of NCCL's");
    shim_redop_t redop = describe(scalar, type, residence);
    ncclRedOp_t made = new_op();
    if (!remember(shim_comm_find(handle), made, &redop)) {
        shim_set_last_error("%s: out of memory", function);
        return ncclSystemError;
    }
    *op = made;
    return ncclSuccess;
}

static ncclResult_t destroy_host(ncclRedOp_t op, ncclComm_t handle)
{
    static const char function[] = "ncclRedOpDestroy";
    if ((int)op >= 0 && (int)op < (int)ncclNumOps)
        return refused(function, "op is one of NCCL's own");
    shim_comm_t *comm = shim_comm_find(handle);
    if (comm == NULL)
        return refused(function, "comm is no communicator");
    return drop(comm, op) ? ncclSuccess : refused(function, "op is unknown to this communicator");
}

static ncclResult_t no_real(const char *function)
{
    shim_set_last_error("%s: %s", function, shim_real_failure());
    return ncclInvalidUsage;
}

SHIM_PUBLIC(ncclRedOpCreatePreMulSum);
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    if (shim_host_mode())
        return create_host(op, scalar, datatype, residence, comm);
    const shim_real_t *real = shim_real();
    if (real == NULL)
        return no_real("ncclRedOpCreatePreMulSum");
    ncclResult_t result = real->ncclRedOpCreatePreMulSum(op, scalar, datatype, residence, comm);
    shim_comm_t *state = result == ncclSuccess ? shim_comm_acquire(comm) : NULL;
    if (state == NULL)
        return result;
    /* What cannot be remembered is forwarded wherever it is used, and that on this rank alone would
     * part the ranks; so the operator is given back. */
    shim_redop_t redop = describe(scalar, datatype, residence);
    if (!remember(state, *op, &redop)) {
        real->ncclRedOpDestroy(*op, comm);
        shim_set_last_error("ncclRedOpCreatePreMulSum: out of memory");
        result = ncclSystemError;
    }
    shim_comm_release(state);
    return result;
}

SHIM_PUBLIC(ncclRedOpDestroy);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    if (shim_host_mode())
        return destroy_host(op, comm);
    const shim_real_t *real = shim_real();
    if (real == NULL)
        return no_real("ncclRedOpDestroy");
    ncclResult_t result = real->ncclRedOpDestroy(op, comm);
    shim_comm_t *state = result == ncclSuccess ? shim_comm_acquire(comm) : NULL;
    if (state == NULL)
        return result;
    drop(state, op);
    shim_comm_release(state);
    return result;
}
