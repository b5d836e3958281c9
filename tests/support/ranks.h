/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h - run the same function as several ranks, with a time limit.
 *
 * The test program itself never calls the library: it forks before the first call.
 * So a rank that hangs or crashes cannot stop the test, every run starts with a
 * fresh library, and each run can have its own settings. Threads run in one forked
 * process for the same reasons.
 */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS_MAX = 16, RANKS_WORDS = 64 };

typedef enum ranks_shape {
    RANKS_PROCESSES, /* one process a rank */
    RANKS_THREADS,   /* one process, one thread a rank */
    RANKS_SOLO       /* one process, one thread for all ranks: the body runs once, as rank 0 */
} ranks_shape_t;

/* Memory that all ranks of a run see. */
typedef struct ranks_shared {
    _Atomic uint32_t waiting;
    _Atomic uint32_t generation;
    ncclUniqueId id;
    _Atomic uint64_t words[RANKS_WORDS]; /* for the test's own use, zero at the start */
} ranks_shared_t;

typedef struct ranks {
    int rank;
    int nranks;
    const void *arg;
    ranks_shared_t *shared;
} ranks_t;

typedef void (*ranks_body_t)(ranks_t *ranks);

typedef struct ranks_plan {
    ranks_shape_t shape;
    int nranks;
    int seconds;            /* limit of the run, only against hanging; 0: 300 */
    uint32_t killed;        /* ranks (bits) that must die by SIGKILL; all others must exit with 0 */
    const char *const *env; /* name, value, name, value, ..., NULL; or NULL */
    ranks_body_t body;
    const void *arg;
    ranks_shared_t *shared; /* the caller's, from ranks_share; NULL: one of the run's own */
} ranks_plan_t;

/* Zeroed memory that forked ranks share with this process; lives as long as the process. */
ranks_shared_t *ranks_share(void);
/* Run ranks; returns the number that did not end as expected, after a line each on stderr. */
int ranks_run(const ranks_plan_t *plan);

/* A barrier of all ranks. */
void ranks_barrier(ranks_t *ranks);
/* For a rank that ends before others: it counts as arrived at their next barrier. */
void ranks_leave(ranks_t *ranks);
/* A fresh unique id from rank 0, for all; a barrier. */
ncclUniqueId ranks_id(ranks_t *ranks);
/* A communicator of all ranks. */
ncclComm_t ranks_init(ranks_t *ranks);
/* Wait until word `index` is at least `value`. */
void ranks_wait(ranks_t *ranks, int index, uint64_t value);
double ranks_seconds(void);
/* Stop this process (SIGSTOP). A child calls wait(arg), then continues it. */
void ranks_stop_while(void (*wait)(const void *arg), const void *arg);

/* Report and end this process with status 1. Never returns. */
void check_failed(const char *file, int line, const char *what, const char *detail) __attribute__((noreturn));
const char *check_detail(ncclResult_t result);

#define CHECK(condition)                                      \
    do {                                                      \
        if (!(condition))                                     \
            check_failed(__FILE__, __LINE__, #condition, ""); \
    } while (0)
/* The call must return exactly this result. */
#define CHECK_RESULT(call, expected)                                                              \
    do {                                                                                          \
        ncclResult_t check_result = (call);                                                       \
        if (check_result != (expected))                                                           \
            check_failed(__FILE__, __LINE__, #call " == " #expected, check_detail(check_result)); \
    } while (0)
#define CHECK_NCCL(call) CHECK_RESULT(call, ncclSuccess)
/* The call must fail, with any code. */
#define CHECK_FAILS(call)                                                                 \
    do {                                                                                  \
        ncclResult_t check_result = (call);                                               \
        if (check_result == ncclSuccess || check_result == ncclInProgress)                \
            check_failed(__FILE__, __LINE__, #call " fails", check_detail(check_result)); \
    } while (0)

#endif
