/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every type with every operator, 1 to 8 ranks, as processes, as threads, and as
 * one thread for all ranks; exact, random and hostile data.
 */
#include "cpu.h"

static const size_t counts[] = {1, 2, 3, 7, 15, 16, 17, 31, 33, 127, 1000};
enum { COUNTS = sizeof(counts) / sizeof(counts[0]), CALLS_A_CASE = 3 };

typedef void (*visit_t)(const data_case_t *c, void *context);

/* Visit each type, operator and kind of data with a few counts, which change from case to case. */
static void visit_all(int nranks, visit_t visit, void *context)
{
    data_case_t c = {.nranks = nranks};
    size_t next = (size_t)nranks;
    for (int type = 0; type < REF_TYPES; type++) {
        for (int op = 0; op < REF_OPS; op++) {
            for (int kind = 0; kind < DATA_KINDS; kind++) {
                for (int i = 0; i < CALLS_A_CASE; i++) {
                    c.type = (ncclDataType_t)type;
                    c.op = (ref_op_t)op;
                    c.kind = (data_kind_t)kind;
                    c.seed = next;
                    c.count = counts[next++ % COUNTS];
                    visit(&c, context);
                }
            }
        }
        c = (data_case_t){(ncclDataType_t)type, (ref_op_t)(type % REF_OPS), DATA_RANDOM, next, 4097, nranks};
        visit(&c, context);
        c = (data_case_t){(ncclDataType_t)type, REF_SUM, DATA_BITS, next, (size_t)scaled(65537), nranks};
        visit(&c, context);
    }
}

typedef struct rank_context {
    ncclComm_t comm;
    int rank;
    uint64_t hash;
} rank_context_t;

static void visit_rank(const data_case_t *c, void *argument)
{
    rank_context_t *context = argument;
    call_shape_t shape = {0, 0, (c->seed & 1) != 0};
    call_run(context->comm, context->rank, c, shape, &context->hash);
}

static void values_body(ranks_t *ranks)
{
    rank_context_t context = {.comm = ranks_init(ranks), .rank = ranks->rank};
    visit_all(ranks->nranks, visit_rank, &context);
    call_agree(ranks, context.hash);
    CHECK_NCCL(ncclCommDestroy(context.comm));
}

static void visit_solo(const data_case_t *c, void *comms)
{
    call_shape_t shape = {0, 0, (c->seed & 1) != 0};
    call_run_solo(comms, c, shape);
}

static void solo_body(ranks_t *ranks)
{
    ncclComm_t comms[REF_MAX_RANKS];
    const int *nranks = ranks->arg;
    CHECK_NCCL(ncclCommInitAll(comms, *nranks, NULL));
    visit_all(*nranks, visit_solo, comms);
    for (int r = 0; r < *nranks; r++)
        CHECK_NCCL(ncclCommDestroy(comms[r]));
}

static void processes(void **state)
{
    (void)state;
    for (int n = 1; n <= REF_MAX_RANKS; n++)
        cpu_run(RANKS_PROCESSES, n, values_body, NULL);
}

static void threads(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 2, values_body, NULL);
    cpu_run(RANKS_THREADS, 3, values_body, NULL);
    cpu_run(RANKS_THREADS, 8, values_body, NULL);
}

static void one_thread(void **state)
{
    static const int sizes[] = {1, 2, 5, 8};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        cpu_run(RANKS_SOLO, 1, solo_body, &sizes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes),
        cmocka_unit_test(threads),
        cmocka_unit_test(one_thread),
    };
    cpu_limit(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
