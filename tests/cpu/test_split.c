/* SPDX-License-Identifier: Apache-2.0 */
/* ncclCommSplit: colours, keys, no colour, children of children, several at once. */
#include "cpu.h"

#include <pthread.h>

static void expect_place(ncclComm_t comm, int nranks, int rank)
{
    int count = -1, user = -1;
    CHECK(comm != NULL);
    CHECK_NCCL(ncclCommCount(comm, &count));
    CHECK_NCCL(ncclCommUserRank(comm, &user));
    CHECK(count == nranks);
    CHECK(user == rank);
}

/* Some calls on a communicator; returns the hash of all outputs. */
static uint64_t use(ncclComm_t comm, uint64_t seed)
{
    call_shape_t shape = {0, 0, false};
    uint64_t hash = 0;
    int count, rank;
    CHECK_NCCL(ncclCommCount(comm, &count));
    CHECK_NCCL(ncclCommUserRank(comm, &rank));
    for (uint64_t i = 0; i < 10; i++) {
        data_case_t c = {ncclFloat16, REF_SUM, DATA_RANDOM, seed * 100 + i, 1 + 37 * i, count};
        call_run(comm, rank, &c, shape, &hash);
    }
    return hash;
}

/* A split by odd and even ranks with reversed keys gives communicators in reverse order. */
static void colours_body(ranks_t *ranks)
{
    ncclComm_t parent = ranks_init(ranks), child = NULL;
    int colour = ranks->rank % 2, members = (ranks->nranks + 1 - colour) / 2;
    CHECK_NCCL(ncclCommSplit(parent, colour, -ranks->rank, &child, NULL));
    expect_place(child, members, members - 1 - ranks->rank / 2);
    call_agree_with(ranks, colour, use(child, 3));
    call_agree(ranks, use(parent, 4));
    CHECK_NCCL(ncclCommDestroy(child));
    call_agree(ranks, use(parent, 5));
    CHECK_NCCL(ncclCommDestroy(parent));
}

static void colours(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 6, colours_body, NULL);
    cpu_run(RANKS_PROCESSES, 3, colours_body, NULL);
    cpu_run(RANKS_THREADS, 5, colours_body, NULL);
}

/* Rank 0, which takes part without a colour, gets no communicator; equal keys keep the parent's order. */
static void no_colour_body(ranks_t *ranks)
{
    ncclComm_t parent = ranks_init(ranks), child = parent;
    int colour = ranks->rank == 0 ? NCCL_SPLIT_NOCOLOR : 7;
    CHECK_NCCL(ncclCommSplit(parent, colour, 0, &child, NULL));
    if (ranks->rank == 0) {
        CHECK(child == NULL);
        call_agree_with(ranks, 0, 0);
    } else {
        expect_place(child, ranks->nranks - 1, ranks->rank - 1);
        call_agree_with(ranks, 1, use(child, 8));
        CHECK_NCCL(ncclCommDestroy(child));
    }
    call_agree(ranks, use(parent, 9));
    CHECK_NCCL(ncclCommDestroy(parent));
}

static void no_colour(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 4, no_colour_body, NULL);
    cpu_run(RANKS_THREADS, 3, no_colour_body, NULL);
}

/* Repeated splits down to single ranks work, and parents can be destroyed before their children. */
static void deep_body(ranks_t *ranks)
{
    ncclComm_t comms[4];
    int depth = 0, size = ranks->nranks, rank = ranks->rank;
    comms[depth] = ranks_init(ranks);
    while (size > 1) {
        int half = size / 2, leader = ranks->rank - rank % half;
        CHECK_NCCL(ncclCommSplit(comms[depth], rank / half, rank, &comms[depth + 1], NULL));
        depth++;
        size = half;
        rank %= half;
        expect_place(comms[depth], size, rank);
        call_agree_with(ranks, leader, use(comms[depth], (uint64_t)(10 + depth)));
    }
    for (int i = 0; i < depth; i++)
        CHECK_NCCL(ncclCommDestroy(comms[i]));
    use(comms[depth], 20);
    CHECK_NCCL(ncclCommDestroy(comms[depth]));
}

static void deep(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 8, deep_body, NULL);
    cpu_run(RANKS_THREADS, 4, deep_body, NULL);
}

/* Several children of one parent, with overlapping ranks, work at once. */
static void siblings_body(ranks_t *ranks)
{
    enum { CHILDREN = 5 };
    ncclComm_t parent = ranks_init(ranks), children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        int leader = ranks->rank % (i + 1); /* the lowest rank of the same colour */
        CHECK_NCCL(ncclCommSplit(parent, ranks->rank % (i + 1), ranks->rank, &children[i], NULL));
        call_agree_with(ranks, leader, use(children[i], (uint64_t)i));
    }
    for (int round = 0; round < 3; round++)
        for (int i = CHILDREN - 1; i >= 0; i--)
            use(children[i], (uint64_t)(round * 10 + i));
    for (int i = 0; i < CHILDREN; i++)
        CHECK_NCCL(ncclCommDestroy(children[i]));
    CHECK_NCCL(ncclCommDestroy(parent));
}

static void siblings(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 4, siblings_body, NULL);
}

typedef struct splitter {
    ncclComm_t parent;
    int rank;
    uint64_t hash;
} splitter_t;

static void *splitter_main(void *argument)
{
    splitter_t *splitter = argument;
    for (uint64_t i = 0; i < 8; i++) {
        ncclComm_t child = NULL;
        CHECK_NCCL(ncclCommSplit(splitter->parent, 0, splitter->rank, &child, NULL));
        splitter->hash ^= use(child, i);
        CHECK_NCCL(ncclCommDestroy(child));
    }
    return NULL;
}

/* Two threads of each rank can split two parents at the same time. */
static void concurrent_body(ranks_t *ranks)
{
    pthread_t threads[2];
    splitter_t splitters[2];
    for (int i = 0; i < 2; i++)
        splitters[i] = (splitter_t){ranks_init(ranks), ranks->rank, 0};
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, splitter_main, &splitters[i]) == 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        call_agree(ranks, splitters[i].hash);
        CHECK_NCCL(ncclCommDestroy(splitters[i].parent));
    }
}

static void concurrent(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 3, concurrent_body, NULL);
    cpu_run(RANKS_THREADS, 2, concurrent_body, NULL);
}

/* One thread can split all ranks in a group. */
static void solo_body(ranks_t *ranks)
{
    enum { SOLO = 4 };
    ncclComm_t parents[SOLO], children[SOLO] = {NULL};
    call_shape_t shape = {0, 0, false};
    data_case_t c = {ncclFloat32, REF_SUM, DATA_SMALL, 6, 40, SOLO / 2};
    (void)ranks;
    CHECK_NCCL(ncclCommInitAll(parents, SOLO, NULL));
    CHECK_NCCL(ncclGroupStart());
    for (int r = 0; r < SOLO; r++)
        CHECK_NCCL(ncclCommSplit(parents[r], r / 2, r, &children[r], NULL));
    CHECK_NCCL(ncclGroupEnd());
    for (int r = 0; r < SOLO; r++)
        expect_place(children[r], 2, r % 2);
    call_run_solo(&children[0], &c, shape);
    call_run_solo(&children[2], &c, shape);
    for (int r = 0; r < SOLO; r++) {
        CHECK_NCCL(ncclCommDestroy(children[r]));
        CHECK_NCCL(ncclCommDestroy(parents[r]));
    }
}

static void solo(void **state)
{
    (void)state;
    cpu_run(RANKS_SOLO, 1, solo_body, NULL);
}

/* ---- Modes -------------------------------------------------------------------------------- */

static void poll_ready(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    for (; state == ncclInProgress; usleep(100))
        CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclSuccess);
}

static ncclComm_t init_mode(ranks_t *ranks, int blocking)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    config.blocking = blocking;
    const ncclResult_t result = ncclCommInitRankConfig(&comm, ranks->nranks, ranks_id(ranks), ranks->rank, &config);
    CHECK(result == ncclSuccess || (result == ncclInProgress && !blocking));
    poll_ready(comm);
    return comm;
}

/* Blocking rank 0 and the non-blocking others keep their modes, which their children inherit. */
static void mixed_modes_body(ranks_t *ranks)
{
    const bool blocks = ranks->rank == 0;
    ncclComm_t comm[3] = {init_mode(ranks, blocks)};
    for (int i = 1; i < 3; i++) {
        CHECK_NCCL(ncclCommSplit(comm[i - 1], 0, ranks->rank, &comm[i], NULL));
        CHECK(comm[i] != NULL || !blocks);
        while (!comm[i])
            poll_ready(comm[i - 1]);
        poll_ready(comm[i]);
        call_agree(ranks, use(comm[i], (uint64_t)i));
    }
    ranks_barrier(ranks);
    for (int i = 2; i >= 0; i--)
        CHECK_NCCL(ncclCommDestroy(comm[i]));
}

/* A configuration without a mode gives NCCL's default, whatever the parent's mode. */
static void default_mode_body(ranks_t *ranks)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm[3] = {init_mode(ranks, 0)};
    CHECK_NCCL(ncclCommSplit(comm[0], 0, ranks->rank, &comm[1], &config));
    while (!comm[1])
        poll_ready(comm[0]);
    poll_ready(comm[1]);
    CHECK_NCCL(ncclCommSplit(comm[1], 0, ranks->rank, &comm[2], NULL));
    CHECK(comm[2] != NULL);
    call_agree(ranks, use(comm[2], 3));
    ranks_barrier(ranks);
    for (int i = 2; i >= 0; i--)
        CHECK_NCCL(ncclCommDestroy(comm[i]));
}

static void modes(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 3, mixed_modes_body, NULL);
    cpu_run(RANKS_THREADS, 2, mixed_modes_body, NULL);
    cpu_run(RANKS_PROCESSES, 2, default_mode_body, NULL);
}

/* If one rank refuses a split, it ends on the others at their time limit, and the parent can be split again. */
static void refused_body(ranks_t *ranks)
{
    ncclComm_t parent = ranks_init(ranks), child = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER, broken = NCCL_CONFIG_INITIALIZER;
    broken.magic = 1;
    const bool refused = ranks->rank == 0;
    if (*(const bool *)ranks->arg)
        CHECK_FAILS(ncclCommSplit(parent, refused ? -7 : 1, 0, &child, NULL));
    else
        CHECK_FAILS(ncclCommSplit(parent, 1, 0, &child, refused ? &broken : &config));
    ranks_barrier(ranks);
    CHECK_NCCL(ncclCommSplit(parent, 1, 0, &child, NULL));
    expect_place(child, ranks->nranks, ranks->rank);
    call_agree(ranks, use(child, 3));
    CHECK_NCCL(ncclCommDestroy(child));
    /* At once, on all ranks, and in a group. */
    CHECK_FAILS(ncclCommSplit(parent, -7, 0, &child, NULL));
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclCommSplit(parent, 1, 0, &child, NULL));
    (void)ncclCommSplit(parent, -7, 0, &child, NULL);
    CHECK_FAILS(ncclGroupEnd());
    ranks_barrier(ranks);
    CHECK_NCCL(ncclCommSplit(parent, ranks->rank % 2, 0, &child, NULL));
    CHECK_NCCL(ncclCommDestroy(child));
    call_agree(ranks, use(parent, 4));
    CHECK_NCCL(ncclCommDestroy(parent));
}

static void refused(void **state)
{
    static const char *const impatient[] = {"SHUNT_TIMEOUT_MS", "3000", NULL};
    (void)state;
    for (int colour = 0; colour < 2; colour++) {
        const bool by_colour = colour == 1;
        ranks_plan_t plan = {
            .shape = RANKS_PROCESSES, .nranks = 3, .env = impatient, .body = refused_body, .arg = &by_colour};
        assert_int_equal(ranks_run(&plan), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(colours),    cmocka_unit_test(no_colour), cmocka_unit_test(deep),  cmocka_unit_test(siblings),
        cmocka_unit_test(concurrent), cmocka_unit_test(solo),      cmocka_unit_test(modes), cmocka_unit_test(refused),
    };
    cpu_limit(80);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
