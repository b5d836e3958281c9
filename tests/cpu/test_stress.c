/* SPDX-License-Identifier: Apache-2.0 */
/* Thousands of small calls of every sort on one communicator, stalls, and communicators side by side. */
#include "cpu.h"

#include <pthread.h>

typedef struct stress {
    int calls;
    size_t largest;
    int stall_one_in; /* a rank sleeps a little before one call in this many; 0: never */
} stress_t;

/* Make random calls: `seed`, the same on all ranks, determines the calls, and the rank its buffers and times. */
static void stress(ncclComm_t comm, int rank, int nranks, uint64_t seed, const stress_t *how, uint64_t *hash)
{
    uint64_t shared = seed, own = seed * 31 + (uint64_t)rank + 1;
    for (int i = 0; i < how->calls; i++) {
        coll_t k = {.c = {.nranks = nranks, .seed = data_random(&shared)}};
        call_shape_t shape;
        size_t bytes;
        if (data_below(&shared, 4) > 0) /* else an all-reduce */
            k.collective = (alg_collective_t)data_below(&shared, COLL_COUNT);
        k.root = (uint32_t)data_below(&shared, (uint64_t)nranks);
        k.c.type = (ncclDataType_t)data_below(&shared, REF_TYPES);
        k.c.op = (ref_op_t)data_below(&shared, REF_OPS);
        k.c.kind = (data_kind_t)data_below(&shared, DATA_KINDS);
        k.c.count = 1 + data_below(&shared, data_below(&shared, 8) == 0 ? how->largest : 64);
        bytes = ref_bytes(k.c.type);
        shape.input_offset = data_below(&own, 16 / bytes + 1) * bytes;
        shape.output_offset = data_below(&own, 16 / bytes + 1) * bytes;
        shape.in_place = data_below(&own, 3) == 0;
        if (how->stall_one_in && data_below(&own, (uint64_t)how->stall_one_in) == 0)
            usleep((useconds_t)data_below(&own, 3000));
        call_run_coll(comm, rank, &k, shape, hash);
    }
}

static void stress_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    stress_t how = *(const stress_t *)ranks->arg;
    uint64_t hash = 0;
    how.calls = scaled(how.calls);
    stress(comm, ranks->rank, ranks->nranks, 1234, &how, &hash);
    call_agree(ranks, hash);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void many_calls(void **state)
{
    static const stress_t pair = {6000, 3000, 0}, eight = {1500, 3000, 0}, stalled = {600, 20000, 8};
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, stress_body, &pair);
    cpu_run(RANKS_THREADS, 3, stress_body, &pair);
    cpu_run(RANKS_PROCESSES, 8, stress_body, &eight);
    cpu_run(RANKS_PROCESSES, 4, stress_body, &stalled);
    cpu_run(RANKS_THREADS, 4, stress_body, &stalled);
}

/* Two threads of a rank, each with a communicator of its own, at the same time. */
typedef struct side {
    ncclUniqueId id;
    int rank, nranks;
    uint64_t seed, hash;
} side_t;

static void *side_main(void *argument)
{
    static const stress_t how_many = {400, 2000, 16};
    side_t *side = argument;
    stress_t how = how_many;
    ncclComm_t comm = NULL;
    how.calls = scaled(how.calls);
    CHECK_NCCL(ncclCommInitRank(&comm, side->nranks, side->id, side->rank));
    stress(comm, side->rank, side->nranks, side->seed, &how, &side->hash);
    CHECK_NCCL(ncclCommDestroy(comm));
    return NULL;
}

static void side_by_side_body(ranks_t *ranks)
{
    pthread_t threads[2];
    side_t sides[2];
    for (int i = 0; i < 2; i++)
        sides[i] = (side_t){ranks_id(ranks), ranks->rank, ranks->nranks, (uint64_t)i + 5, 0};
    sides[1].rank = ranks->nranks - 1 - ranks->rank; /* the second one in reverse order */
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, side_main, &sides[i]) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    call_agree(ranks, sides[0].hash);
    call_agree(ranks, sides[1].hash);
}

static void side_by_side(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, side_by_side_body, NULL);
    cpu_run(RANKS_PROCESSES, 4, side_by_side_body, NULL);
    cpu_run(RANKS_THREADS, 3, side_by_side_body, NULL);
}

/* One thread can alternate between two communicators of the same ranks. */
static void in_turn_body(ranks_t *ranks)
{
    ncclComm_t first = ranks_init(ranks), second = ranks_init(ranks);
    stress_t how = {scaled(40), 500, 0};
    uint64_t hash = 0;
    CHECK(first != second);
    for (uint64_t i = 0; i < 10; i++)
        stress(i & 1 ? first : second, ranks->rank, ranks->nranks, i, &how, &hash);
    call_agree(ranks, hash);
    CHECK_NCCL(ncclCommDestroy(first));
    stress(second, ranks->rank, ranks->nranks, 11, &how, &hash);
    CHECK_NCCL(ncclCommDestroy(second));
}

static void in_turn(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 3, in_turn_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_calls),
        cmocka_unit_test(side_by_side),
        cmocka_unit_test(in_turn),
    };
    cpu_limit(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
