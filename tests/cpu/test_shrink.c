/* SPDX-License-Identifier: Apache-2.0 */
/* ncclCommShrink: which ranks remain, in which order, repeatedly, from a broken parent, and after a revoke. */
#include "cpu.h"

#include <pthread.h>
#include <string.h>

static void use(ncclComm_t comm, int nranks, int rank)
{
    float in = 1, out = 0;
    int count = -1, user = -1;
    CHECK_NCCL(ncclCommCount(comm, &count));
    CHECK_NCCL(ncclCommUserRank(comm, &user));
    CHECK(count == nranks);
    CHECK(user == rank);
    CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK(out == (float)nranks);
}

/* Shrink by one rank; the others keep their order. */
static void without(ranks_t *ranks, ncclComm_t parent, int gone)
{
    ncclComm_t child = NULL;
    if (ranks->rank == gone)
        return;
    CHECK_NCCL(ncclCommShrink(parent, &gone, 1, &child, NULL, NCCL_SHRINK_DEFAULT));
    use(child, ranks->nranks - 1, ranks->rank - (ranks->rank > gone));
    CHECK_NCCL(ncclCommDestroy(child));
}

/* Run with little memory per communicator, since there are many and the default is 80 MB each. */
static void run(ranks_shape_t shape, int nranks, ranks_body_t body)
{
    static const char *const small[] = {"SHUNT_SCRATCH_BYTES", "1M", NULL};
    ranks_plan_t plan = {.shape = shape, .nranks = nranks, .env = small, .body = body};
    assert_int_equal(ranks_run(&plan), 0);
}

/* One parent can be shrunk without each rank in turn, although the ranks have then taken part in different shrinks. */
static void in_turn_body(ranks_t *ranks)
{
    ncclComm_t parent = ranks_init(ranks);
    for (int round = 0; round < 2; round++)
        for (int gone = 0; gone < ranks->nranks; gone++)
            without(ranks, parent, gone);
    use(parent, ranks->nranks, ranks->rank);
    CHECK_NCCL(ncclCommDestroy(parent));
}

static void in_turn(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 3, in_turn_body);
    run(RANKS_PROCESSES, 5, in_turn_body);
    run(RANKS_THREADS, 4, in_turn_body);
}

static void *twin_split(void *argument)
{
    ncclComm_t *comm = argument;
    CHECK_NCCL(ncclCommSplit(comm[0], 0, 0, &comm[1], NULL));
    return NULL;
}

/* Two children of the same ranks coexist and can be split at the same time. */
static void racing_twins_body(ranks_t *ranks)
{
    ncclComm_t parent = ranks_init(ranks), pair[2][2] = {{NULL}};
    int gone = 0;
    pthread_t thread[2];
    for (int i = 0; i < 2 && ranks->rank != gone; i++)
        CHECK_NCCL(ncclCommShrink(parent, &gone, 1, &pair[i][0], NULL, NCCL_SHRINK_DEFAULT));
    for (int i = 0; i < 2 && ranks->rank != gone; i++)
        CHECK(pthread_create(&thread[i], NULL, twin_split, pair[i]) == 0);
    for (int i = 0; i < 2 && ranks->rank != gone; i++) {
        CHECK(pthread_join(thread[i], NULL) == 0);
        use(pair[i][1], ranks->nranks - 1, ranks->rank - 1);
    }
    ranks_barrier(ranks);
}

static void twins(void **state)
{
    (void)state;
    for (int i = 0; i < scaled(8); i++)
        run(RANKS_PROCESSES, 4, racing_twins_body);
}

/* If one rank refuses a shrink, it ends on the others at their time limit, and the parent can be shrunk again. */
static void refused_body(ranks_t *ranks)
{
    ncclComm_t parent = ranks_init(ranks), child = NULL;
    int dead = 0, none = 99, count = 0;
    if (ranks->rank != dead) {
        CHECK_FAILS(ncclCommShrink(parent, ranks->rank == 1 ? &none : &dead, 1, &child, NULL, NCCL_SHRINK_DEFAULT));
        atomic_fetch_add(&ranks->shared->words[0], 1);
        ranks_wait(ranks, 0, (uint64_t)ranks->nranks - 1);
        CHECK_NCCL(ncclCommShrink(parent, &dead, 1, &child, NULL, NCCL_SHRINK_DEFAULT));
        CHECK_NCCL(ncclCommCount(child, &count));
        CHECK(count == ranks->nranks - 1);
        CHECK_NCCL(ncclCommDestroy(child));
    }
    ranks_barrier(ranks);
    CHECK_NCCL(ncclCommDestroy(parent));
}

static void refused(void **state)
{
    static const char *const impatient[] = {"SHUNT_TIMEOUT_MS", "3000", NULL};
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 3, .env = impatient, .body = refused_body};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_turn), cmocka_unit_test(twins), cmocka_unit_test(refused)};
    cpu_limit(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
