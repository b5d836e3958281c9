/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: nested, many calls, many communicators, cancelled by an error, simulated. */
#include "cpu.h"

#include <string.h>

enum { GROUP_CALLS = 20, MAX_COMMS = 3 };

static coll_t random_coll(uint64_t *seed, int nranks)
{
    coll_t k = {.collective = (alg_collective_t)data_below(seed, COLL_COUNT),
                .root = (uint32_t)data_below(seed, (uint64_t)nranks),
                .c = {.nranks = nranks, .kind = DATA_RANDOM}};
    k.c.type = (ncclDataType_t)data_below(seed, REF_TYPES);
    k.c.op = (ref_op_t)data_below(seed, REF_OPS);
    k.c.count = data_below(seed, 700);
    k.c.seed = data_random(seed);
    return k;
}

/* Many calls of all collectives on several communicators in one group are right. */
static void many_body(ranks_t *ranks)
{
    ncclComm_t comms[MAX_COMMS];
    call_t calls[GROUP_CALLS];
    call_shape_t shape = {0, 0, false};
    uint64_t seed = 9, hash = 0;

    for (int i = 0; i < MAX_COMMS; i++)
        comms[i] = ranks_init(ranks);
    for (int round = 0; round < scaled(20); round++) {
        for (int i = 0; i < GROUP_CALLS; i++) {
            coll_t k = random_coll(&seed, ranks->nranks);
            shape.in_place = (i & 3) == 0;
            call_prepare_coll(&calls[i], comms[i % MAX_COMMS], ranks->rank, &k, shape);
        }
        CHECK_NCCL(ncclGroupStart());
        for (int i = 0; i < GROUP_CALLS; i++) {
            if (i % 5 == 0)
                CHECK_NCCL(ncclGroupStart()); /* nested ones change nothing */
            CHECK_NCCL(call_issue(&calls[i]));
            if (i % 5 == 4)
                CHECK_NCCL(ncclGroupEnd());
        }
        CHECK_NCCL(ncclGroupEnd());
        for (int i = 0; i < GROUP_CALLS; i++)
            call_finish(&calls[i], ranks->rank, ranks->nranks, &hash);
    }
    call_agree(ranks, hash);
    for (int i = 0; i < MAX_COMMS; i++)
        CHECK_NCCL(ncclCommDestroy(comms[i]));
}

static void many(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, many_body, NULL);
    cpu_run(RANKS_PROCESSES, 5, many_body, NULL);
    cpu_run(RANKS_THREADS, 4, many_body, NULL);
}

/* Parts of unequal length, some empty, as PyTorch's and vLLM's all-gather-v and reduce-scatter-v: a broadcast or a
 * reduce from or to each rank, all in one group, in one buffer. Some ranks may make them one by one. */
static size_t part_of(int rank, uint64_t round)
{
    return (round + (uint64_t)rank) % 3 == 0 ? 0 : 1 + (round * 37 + (uint64_t)rank * 101) % 900;
}

static void gather_parts(ncclComm_t comm, int rank, int nranks, uint64_t round, bool in_place, bool grouped)
{
    static _Thread_local int32_t all[RANKS_MAX * 900], own[900];
    const size_t count = part_of(rank, round);
    size_t at = 0;
    for (size_t i = 0; i < count; i++)
        own[i] = (int32_t)(round * 1000000 + (uint64_t)rank * 10000 + i);
    memset(all, 0, sizeof(all));
    if (grouped)
        CHECK_NCCL(ncclGroupStart());
    for (int root = 0; root < nranks; root++) {
        int32_t *part = all + at;
        if (in_place && root == rank)
            memcpy(part, own, count * sizeof(*own));
        CHECK_NCCL(ncclBroadcast(in_place || root != rank ? part : own, part, part_of(root, round), ncclInt32, root,
                                 comm, NULL));
        at += part_of(root, round);
    }
    if (grouped)
        CHECK_NCCL(ncclGroupEnd());
    at = 0;
    for (int root = 0; root < nranks; root++)
        for (size_t i = 0; i < part_of(root, round); i++)
            CHECK(all[at++] == (int32_t)(round * 1000000 + (uint64_t)root * 10000 + i));
}

static void reduce_parts(ncclComm_t comm, int rank, int nranks, uint64_t round, bool grouped)
{
    static _Thread_local int32_t all[RANKS_MAX * 900], own[900];
    size_t at = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        all[i] = (int32_t)(i + round) * (rank + 1);
    memset(own, 0, sizeof(own));
    if (grouped)
        CHECK_NCCL(ncclGroupStart());
    for (int root = 0; root < nranks; root++) {
        CHECK_NCCL(ncclReduce(all + at, root == rank ? own : NULL, part_of(root, round), ncclInt32, ncclSum, root, comm,
                              NULL));
        at += part_of(root, round);
    }
    if (grouped)
        CHECK_NCCL(ncclGroupEnd());
    at = 0;
    for (int root = 0; root < rank; root++)
        at += part_of(root, round);
    for (size_t i = 0; i < part_of(rank, round); i++)
        CHECK(own[i] == (int32_t)(at + i + round) * (nranks * (nranks + 1) / 2));
}

static void parts_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    for (uint64_t round = 0; round < 30; round++) {
        const uint64_t way = round + (uint64_t)ranks->rank;
        gather_parts(comm, ranks->rank, ranks->nranks, round, round & 1, round < 10 || way % 3 > 0);
        reduce_parts(comm, ranks->rank, ranks->nranks, round, round < 10 || way % 2 > 0);
    }
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void parts(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, parts_body, NULL);
    cpu_run(RANKS_PROCESSES, 4, parts_body, NULL);
    cpu_run(RANKS_THREADS, 3, parts_body, NULL);
}

/* Only the outermost end launches: before it nothing has been written. */
static void nested_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    data_case_t c = {ncclFloat32, REF_SUM, DATA_SMALL, 3, 100, ranks->nranks};
    call_shape_t shape = {0, 0, false};
    uint64_t hash = 0;
    call_t call;

    call_prepare(&call, comm, ranks->rank, &c, shape);
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(call_issue(&call));
    CHECK_NCCL(ncclGroupEnd());
    CHECK_NCCL(ncclGroupEnd());
    CHECK(data_buffer_untouched(&call.output));
    CHECK_NCCL(ncclGroupEnd());
    call_finish(&call, ranks->rank, ranks->nranks, &hash);

    /* empty groups, and groups of nothing but empty calls */
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclGroupEnd());
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, comm, NULL));
    CHECK_NCCL(ncclGroupEnd());
    call_run(comm, ranks->rank, &c, shape, &hash);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void nested(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 3, nested_body, NULL);
    cpu_run(RANKS_THREADS, 2, nested_body, NULL);
}

/* One bad call cancels its whole group; the communicator stays usable. */
static void poisoned_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    data_case_t c = {ncclFloat16, REF_SUM, DATA_RANDOM, 3, 300, ranks->nranks};
    call_shape_t shape = {0, 0, false};
    uint64_t hash = 0;
    call_t before, after;

    for (int round = 0; round < 3; round++) {
        call_prepare(&before, comm, ranks->rank, &c, shape);
        call_prepare(&after, comm, ranks->rank, &c, shape);
        CHECK_NCCL(ncclGroupStart());
        CHECK_NCCL(call_issue(&before));
        CHECK_RESULT(ncclAllReduce(before.input.data, after.output.data, 1, (ncclDataType_t)99, ncclSum, comm, NULL),
                     ncclInvalidArgument);
        (void)call_issue(&after); /* NCCL goes on taking calls; the group's end returns the error */
        CHECK_RESULT(ncclGroupEnd(), ncclInvalidArgument);
        call_cancelled(&before);
        call_cancelled(&after);
        call_run(comm, ranks->rank, &c, shape, &hash);
    }
    call_agree(ranks, hash);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void poisoned(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, poisoned_body, NULL);
    cpu_run(RANKS_THREADS, 3, poisoned_body, NULL);
}

static void unbalanced_body(ranks_t *ranks)
{
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    (void)ranks;
    CHECK_RESULT(ncclGroupEnd(), ncclInvalidUsage);
    CHECK(strlen(ncclGetLastError(NULL)) > 0);
    CHECK_RESULT(ncclGroupSimulateEnd(&info), ncclInvalidUsage);
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclGroupEnd());
    CHECK_RESULT(ncclGroupEnd(), ncclInvalidUsage);
}

static void unbalanced(void **state)
{
    (void)state;
    cpu_run(RANKS_SOLO, 1, unbalanced_body, NULL);
}

/* A simulated end closes the group and launches nothing. */
static void simulated_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    data_case_t c = {ncclInt32, REF_MAX, DATA_RANDOM, 3, 64, ranks->nranks};
    call_shape_t shape = {0, 0, false};
    uint64_t hash = 0;
    call_t call;

    call_prepare(&call, comm, ranks->rank, &c, shape);
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(call_issue(&call));
    CHECK_NCCL(ncclGroupSimulateEnd(&info));
    call_cancelled(&call);
    CHECK_RESULT(ncclGroupEnd(), ncclInvalidUsage);
    call_run(comm, ranks->rank, &c, shape, &hash);
    call_agree(ranks, hash);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void simulated(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, simulated_body, NULL);
}

/* One thread can serve all ranks of two communicators: inits, calls on both, and destroys, each in a group. */
static void solo_body(ranks_t *ranks)
{
    enum { SOLO = 4 };
    ncclComm_t comms[2][SOLO];
    ncclUniqueId ids[2];
    call_t calls[2][SOLO];
    call_shape_t shape = {0, 0, false};
    uint64_t hash[SOLO] = {0};
    (void)ranks;

    CHECK_NCCL(ncclGetUniqueId(&ids[0]));
    CHECK_NCCL(ncclGetUniqueId(&ids[1]));
    CHECK(memcmp(&ids[0], &ids[1], sizeof(ids[0])) != 0);
    CHECK_NCCL(ncclGroupStart());
    for (int r = 0; r < SOLO; r++)
        for (int i = 0; i < 2; i++)
            CHECK_NCCL(ncclCommInitRank(&comms[i][r], SOLO, ids[i], r));
    CHECK_NCCL(ncclGroupEnd());
    for (uint64_t round = 0; round < 20; round++) {
        for (int i = 0; i < 2; i++) {
            data_case_t c = {ncclBfloat16, REF_SUM, DATA_RANDOM, round * 2 + (uint64_t)i, 50 + round, SOLO};
            for (int r = 0; r < SOLO; r++)
                call_prepare(&calls[i][r], comms[i][r], r, &c, shape);
        }
        CHECK_NCCL(ncclGroupStart());
        for (int r = 0; r < SOLO; r++)
            for (int i = 0; i < 2; i++)
                CHECK_NCCL(call_issue(&calls[i][r]));
        CHECK_NCCL(ncclGroupEnd());
        for (int i = 0; i < 2; i++)
            for (int r = 0; r < SOLO; r++)
                call_finish(&calls[i][r], r, SOLO, &hash[r]);
        for (int r = 1; r < SOLO; r++)
            CHECK(hash[r] == hash[0]);
    }
    CHECK_NCCL(ncclGroupStart());
    for (int r = 0; r < SOLO; r++)
        for (int i = 0; i < 2; i++)
            CHECK_NCCL(ncclCommDestroy(comms[i][r]));
    CHECK_NCCL(ncclGroupEnd());
}

static void solo(void **state)
{
    (void)state;
    cpu_run(RANKS_SOLO, 1, solo_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many),       cmocka_unit_test(parts),     cmocka_unit_test(nested), cmocka_unit_test(poisoned),
        cmocka_unit_test(unbalanced), cmocka_unit_test(simulated), cmocka_unit_test(solo),
    };
    cpu_limit(80);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
