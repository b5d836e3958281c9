/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that wait too long, and ranks that call different things: each is reported once, with the rank at fault and
 * what it does. Without a fault nothing is reported.
 *
 * A rank at fault waits for the report of its fault before it continues. On a busy machine other ranks may be late as
 * well and are reported rightly; such lines, on other calls, are ignored.
 */
#include "cpu.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { TEXT_BYTES = 65536, SECONDS = 100, COUNT = 64 };

static char g_file[64];

/* Read all reports so far. */
static void read_reports(char text[TEXT_BYTES])
{
    FILE *file = fopen(g_file, "r");
    size_t size = file ? fread(text, 1, TEXT_BYTES - 1, file) : 0;
    text[size] = '\0';
    if (file)
        fclose(file);
}

/* The number of occurrences of `part` in `text`. */
static int count_of(const char *text, const char *part)
{
    int count = 0;
    while ((text = strstr(text, part))) {
        text += strlen(part);
        count++;
    }
    return count;
}

/* Copy the line around `at`; false if its end is not written yet. */
static bool line_at(const char *text, const char *at, char line[TEXT_BYTES])
{
    const char *begin = at, *end = strchr(at, '\n');
    while (begin > text && begin[-1] != '\n')
        begin--;
    if (!end)
        return false;
    memcpy(line, begin, (size_t)(end - begin));
    line[end - begin] = '\0';
    return true;
}

/* Wait until each of `parts` is in a complete line; the list ends with NULL. */
static void wait_for_reports(const char *const *parts)
{
    char text[TEXT_BYTES] = "", line[TEXT_BYTES];
    for (int naps = 0; naps < SECONDS * 100; naps++) {
        const char *const *part = parts;
        read_reports(text);
        for (const char *at; *part && (at = strstr(text, *part)) && line_at(text, at, line); part++)
            continue;
        if (!*part)
            return;
        usleep(10000);
    }
    check_failed(__FILE__, __LINE__, "there is a report", text);
}

static void wait_for_report(const void *part)
{
    wait_for_reports((const char *const[]){part, NULL});
}

/* Run ranks and return the reports. `error`: the ranks fail, since they call different things. */
static void hang_run(ranks_shape_t shape, int nranks, ranks_body_t body, const void *arg, const char *limit_ms,
                     bool error, char text[TEXT_BYTES])
{
    const char *const env[] = {"SHUNT_HANG_WARN_MS", limit_ms, "SHUNT_HANG_FILE", g_file, "SHUNT_MISMATCH_ERROR",
                               error ? "1" : "0",    NULL};
    ranks_plan_t plan = {.shape = shape, .nranks = nranks, .env = env, .body = body, .arg = arg};
    unlink(g_file);
    assert_int_equal(ranks_run(&plan), 0);
    read_reports(text);
    unlink(g_file);
}

static void contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no \"%s\" in: %s", part, text);
}

/* The only report of this call, which blames one rank. */
static void report_of(const char *text, const char *call, char line[TEXT_BYTES])
{
    if (count_of(text, call) != 1)
        fail_msg("not one report of \"%s\" in: %s", call, text);
    assert_true(line_at(text, strstr(text, call), line));
    contains(line, "\"report\":\"hang\"");
    if (count_of(line, "\"cause\":\"") != 1)
        fail_msg("not one rank to blame in: %s", line);
}

static ncclResult_t sum(ncclComm_t comm)
{
    float in[COUNT] = {0}, out[COUNT];
    return ncclAllReduce(in, out, COUNT, ncclFloat32, ncclSum, comm, NULL);
}

/* ---- A rank that is late ---------------------------------------------------------------- */

#define LATE_CALL "all-reduce #6 of 64 fp32 on a communicator of 3 ranks has waited "

static void late_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    for (int i = 0; i < 5; i++)
        CHECK_NCCL(sum(comm));
    ranks_barrier(ranks); /* none but the rank at fault is late */
    if (ranks->rank == ranks->nranks - 1)
        wait_for_report(LATE_CALL);
    CHECK_NCCL(sum(comm));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void a_rank_that_has_not_called_is_named(void **state)
{
    (void)state;
    char text[TEXT_BYTES], line[TEXT_BYTES];
    for (int i = 0; i < scaled(3); i++) {
        hang_run(i % 2 ? RANKS_THREADS : RANKS_PROCESSES, 3, late_body, NULL, "1500", false, text);
        report_of(text, LATE_CALL, line);
        contains(line, " s for rank 2 (pid ");
        contains(line, "it has not made this call: its last call was all-reduce #5 of 64 fp32, which ended ");
        contains(line, "\"waits_for\":[{\"rank\":2,");
        contains(line, "\"cause\":\"not-called\"");
        assert_null(strstr(line, "another communicator"));
    }
}

#define GROUPED_CALL "all-reduce #1 of 64 fp32 on a communicator of 2 ranks has waited "

/* A call in a group that has not ended is reported as not begun. */
static void grouped_body(ranks_t *ranks)
{
    float in[COUNT] = {0}, out[COUNT];
    ncclComm_t comm = ranks_init(ranks);
    ranks_barrier(ranks); /* none but the rank at fault is late */
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(in, out, COUNT, ncclFloat32, ncclSum, comm, NULL));
    if (ranks->rank == 1)
        wait_for_report(GROUPED_CALL);
    CHECK_NCCL(ncclGroupEnd());
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void a_call_that_has_not_begun_is_told_from_one_not_made(void **state)
{
    (void)state;
    char text[TEXT_BYTES], line[TEXT_BYTES];
    hang_run(RANKS_PROCESSES, 2, grouped_body, NULL, "1500", false, text);
    report_of(text, GROUPED_CALL, line);
    contains(line, "\"cause\":\"not-begun\"");
    contains(line, " s for rank 1 (pid ");
    contains(line, "it has made the call, but has not begun it: its group may not have ended; its last call was ");
}

#define STOPPED_CALL "all-reduce #2 of 64 fp32 on a communicator of 3 ranks has waited "

/* A stopped rank is reported. Its child continues it after the report. */
static void stopped_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    CHECK_NCCL(sum(comm));
    ranks_barrier(ranks); /* none but the rank at fault is late */
    if (ranks->rank == 1)
        ranks_stop_while(wait_for_report, STOPPED_CALL);
    CHECK_NCCL(sum(comm));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void a_stopped_rank_is_named(void **state)
{
    (void)state;
    char text[TEXT_BYTES], line[TEXT_BYTES];
    hang_run(RANKS_PROCESSES, 3, stopped_body, NULL, "1500", false, text);
    report_of(text, STOPPED_CALL, line);
    contains(line, "\"cause\":\"stopped\"");
    contains(line, " s for rank 1 (pid ");
    contains(line, "its process is stopped (SIGSTOP, or a debugger); its last call was all-reduce #1 of 64 fp32");
}

/* ---- Two communicators in crossed orders ------------------------------------------------- */

typedef struct both {
    ncclComm_t comms[2];
    const char *reports[3]; /* until these are there; NULL */
} both_t;

static void *abort_both(void *arg)
{
    const both_t *both = arg;
    wait_for_reports(both->reports);
    for (int i = 0; i < 2; i++)
        if (both->comms[i])
            CHECK_NCCL(ncclCommAbort(both->comms[i]));
    return NULL;
}

#define CROSSED_BY_0 "all-reduce #2 of 64 fp32 on a communicator of 2 ranks has waited "
#define CROSSED_BY_1 "all-reduce #3 of 64 fp32 on a communicator of 2 ranks has waited "

static void crossed_body(ranks_t *ranks)
{
    both_t both = {{ranks_init(ranks), NULL}, {CROSSED_BY_0, CROSSED_BY_1, NULL}};
    pthread_t aborter;
    both.comms[1] = ranks_init(ranks);
    CHECK_NCCL(sum(both.comms[0]));
    CHECK_NCCL(sum(both.comms[1]));
    CHECK_NCCL(sum(both.comms[1]));
    ranks_barrier(ranks);
    CHECK(pthread_create(&aborter, NULL, abort_both, &both) == 0);
    CHECK_FAILS(sum(both.comms[ranks->rank])); /* rank 0 on the first, rank 1 on the second */
    pthread_join(aborter, NULL);
}

static void a_rank_that_waits_on_another_communicator_is_named_with_it(void **state)
{
    (void)state;
    char text[TEXT_BYTES], line[TEXT_BYTES];
    hang_run(RANKS_PROCESSES, 2, crossed_body, NULL, "2500", false, text);
    report_of(text, CROSSED_BY_0, line);
    contains(line, " s for rank 1 (pid ");
    contains(line, "it has not made this call: its last call was all-reduce #1 of 64 fp32, which ended ");
    contains(line, "it waits in all-reduce #3 of 64 fp32 of another communicator (2 ranks)");
    report_of(text, CROSSED_BY_1, line);
    contains(line, " s for rank 0 (pid ");
    contains(line, "it has not made this call: its last call was all-reduce #2 of 64 fp32, which ended ");
    contains(line, "it waits in all-reduce #2 of 64 fp32 of another communicator (2 ranks)");
}

#define ELSEWHERE_OF_3 "all-reduce #1 of 64 fp32 on a communicator of 3 ranks has waited "
#define ELSEWHERE_OF_2 "all-reduce #1 of 64 fp32 on a communicator of 2 ranks has waited "

/* A rank that waits on another communicator is reported, even to rank 0, which has never seen that communicator: it
 * belongs to ranks 1 and 2, of which rank 1 calls there. */
static void elsewhere_body(ranks_t *ranks)
{
    both_t both = {{ranks_init(ranks), NULL}, {ELSEWHERE_OF_3, ELSEWHERE_OF_2, NULL}};
    pthread_t aborter;
    CHECK_NCCL(ncclCommSplit(both.comms[0], ranks->rank > 0 ? 1 : NCCL_SPLIT_NOCOLOR, 0, &both.comms[1], NULL));
    ranks_barrier(ranks);
    CHECK(pthread_create(&aborter, NULL, abort_both, &both) == 0);
    CHECK_FAILS(sum(both.comms[ranks->rank == 1]));
    pthread_join(aborter, NULL);
}

static void a_later_communicator_of_a_peer_is_seen(void **state)
{
    (void)state;
    char text[TEXT_BYTES], line[TEXT_BYTES];
    hang_run(RANKS_PROCESSES, 3, elsewhere_body, NULL, "2500", false, text);
    report_of(text, ELSEWHERE_OF_3, line);
    contains(line, "it has made no call on this communicator; it waits in all-reduce #1 of 64 fp32 of another "
                   "communicator (2 ranks)");
    report_of(text, ELSEWHERE_OF_2, line);
    contains(line, "it has made no call on this communicator; it waits in all-reduce #1 of 64 fp32 of another "
                   "communicator (3 ranks)");
}

#define MESSAGE_CALL "send #1 of 67,108,864 int8 on a communicator of 3 ranks has waited "

/* A late receive is reported: rank 0 sends more than a ring holds, rank 1 receives late, and rank 2 takes no part. */
static void message_body(ranks_t *ranks)
{
    enum { BYTES = 64 << 20 };
    ncclComm_t comm = ranks_init(ranks);
    char *data = calloc(1, BYTES);
    CHECK(data);
    if (ranks->rank == 1)
        wait_for_report(MESSAGE_CALL);
    if (ranks->rank == 0)
        CHECK_NCCL(ncclSend(data, BYTES, ncclInt8, 1, comm, NULL));
    else if (ranks->rank == 1)
        CHECK_NCCL(ncclRecv(data, BYTES, ncclInt8, 0, comm, NULL));
    free(data);
    ranks_barrier(ranks);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void a_message_waits_for_its_peer_alone(void **state)
{
    (void)state;
    char text[TEXT_BYTES], line[TEXT_BYTES];
    hang_run(RANKS_PROCESSES, 3, message_body, NULL, "1500", false, text);
    report_of(text, MESSAGE_CALL, line);
    contains(line, " s for rank 1 (pid ");
    contains(line, "): it waits in no message: it has made no call on this communicator");
    contains(line, "\"cause\":\"no-message\"");
}

/* ---- Groups ------------------------------------------------------------------------------ */

/* What each rank does, letter by letter: ( and ) begin and end a group, a, b and c are all-reduces of 64, 32 and 16,
 * r, s and t broadcasts from ranks 0, 1 and 2; ! waits for the report. Several calls of a group are a list. */
typedef struct program {
    const char *rank[3];
    const char *call, *last;
} program_t;

static ncclResult_t run_letter(char letter, ncclComm_t comm)
{
    static _Thread_local float in[COUNT], out[COUNT];
    switch (letter) {
    case '(':
        return ncclGroupStart();
    case ')':
        return ncclGroupEnd();
    case 'a':
    case 'b':
    case 'c':
        return ncclAllReduce(in, out, (size_t)COUNT >> (letter - 'a'), ncclFloat32, ncclSum, comm, NULL);
    default:
        return ncclBroadcast(in, out, COUNT, ncclFloat32, letter - 'r', comm, NULL);
    }
}

static void wait_for_hang(const char *call)
{
    char part[128];
    snprintf(part, sizeof part, "%s on a communicator of 3 ranks has waited ", call);
    wait_for_report(part);
}

static void late_program_body(ranks_t *ranks)
{
    const program_t *program = ranks->arg;
    ncclComm_t comm = ranks_init(ranks);
    ranks_barrier(ranks); /* none but the rank at fault is late */
    for (const char *at = program->rank[ranks->rank]; *at; at++) {
        if (*at == '!')
            wait_for_hang(program->call);
        else
            CHECK_NCCL(run_letter(*at, comm));
    }
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void a_call_that_a_list_waits_for_is_named(void **state)
{
    (void)state;
    static const program_t programs[] = {
        {{"(aaa)", "(aaa)", "(aa)!a"}, "all-reduce #3 of 64 fp32", "all-reduce #2 of 64 fp32, which ended "},
        {{"(abc)", "abc", "(a)!(bc)"}, "all-reduce #2 of 32 fp32", "all-reduce #1 of 64 fp32, which ended "},
        {{"abc", "(abc)", "(ab)!c"}, "all-reduce #3 of 16 fp32", "all-reduce #2 of 32 fp32, which ended "},
        {{"(abc)", "(ab)c", "(a!bc)"}, "all-reduce #2 of 32 fp32", "all-reduce #1 of 64 fp32, "},
        {{"(abc)", "a(bc)", "(ab!c)"}, "all-reduce #3 of 16 fp32", "all-reduce #2 of 32 fp32, "},
        {{"(rst)", "rst", "(rs)!t"}, "broadcast #3 of 64 fp32", "broadcast #2 of 64 fp32, which ended "},
        {{"(aaa)(aaa)", "aaa(aaa)", "(aaa)(aa)!a"}, "all-reduce #6 of 64 fp32", "#5 of 64 fp32, which ended "}};
    char text[TEXT_BYTES], line[TEXT_BYTES], part[128];
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        hang_run(i % 2 ? RANKS_THREADS : RANKS_PROCESSES, 3, late_program_body, &programs[i], "1500", false, text);
        snprintf(part, sizeof part, "%s on a communicator of 3 ranks has waited ", programs[i].call);
        report_of(text, part, line);
        contains(line, " s for rank 2 (pid ");
        contains(line, "it has not made this call: its last call was ");
        contains(line, programs[i].last);
        contains(line, "\"waits_for\":[{\"rank\":2,");
        contains(line, "\"cause\":\"not-called\"");
    }
}

/* ---- Different calls --------------------------------------------------------------------- */

typedef enum difference { COUNTS, TYPES, OPERATORS, ROOTS, SWAPPED, SKIPPED, DIFFERENCES } difference_t;

static ncclResult_t differing_call(difference_t difference, bool other, ncclComm_t comm)
{
    static float in[2 * COUNT], out[2 * COUNT];
    switch (difference) {
    case COUNTS:
        return ncclAllReduce(in, out, other ? COUNT / 2 : COUNT, ncclFloat32, ncclSum, comm, NULL);
    case TYPES:
        return ncclAllReduce(in, out, COUNT, other ? ncclInt32 : ncclFloat32, ncclSum, comm, NULL);
    case OPERATORS:
        return ncclAllReduce(in, out, COUNT, ncclFloat32, other ? ncclMax : ncclSum, comm, NULL);
    case ROOTS:
        return ncclBroadcast(in, out, COUNT, ncclFloat32, other, comm, NULL);
    case SWAPPED:
        return other ? ncclBroadcast(in, out, COUNT, ncclFloat32, 0, comm, NULL)
                     : ncclAllReduce(in, out, COUNT, ncclFloat32, ncclSum, comm, NULL);
    default: /* the others' next call meets this rank's one after it */
        return other ? ncclAllGather(in, out, COUNT / 4, ncclFloat32, comm, NULL)
                     : ncclReduceScatter(in, out, COUNT / 4, ncclFloat32, ncclSum, comm, NULL);
    }
}

static void wait_for_invalid_usage(ncclComm_t comm)
{
    ncclResult_t async = ncclSuccess;
    for (int naps = 0; naps < SECONDS * 100 && async != ncclInvalidUsage; naps++) {
        CHECK_NCCL(ncclCommGetAsyncError(comm, &async));
        CHECK(async == ncclSuccess || async == ncclInvalidUsage);
        usleep(10000);
    }
    CHECK(async == ncclInvalidUsage);
}

static void differing_body(ranks_t *ranks)
{
    const difference_t difference = *(const difference_t *)ranks->arg;
    ncclComm_t comm = ranks_init(ranks);
    CHECK_NCCL(sum(comm));
    const ncclResult_t result = differing_call(difference, ranks->rank == 1, comm);
    CHECK(result == ncclSuccess || result == ncclInvalidUsage);
    wait_for_invalid_usage(comm);
    CHECK_RESULT(sum(comm), ncclInvalidUsage);
    ranks_barrier(ranks); /* who leaves is no fault of its own */
    CHECK_NCCL(ncclCommAbort(comm));
}

static void ranks_that_call_different_things_are_named_and_fail(void **state)
{
    (void)state;
    static const char *const words[DIFFERENCES][2] = {
        [COUNTS] = {"all-reduce #2 of 64 fp32, sum", "all-reduce #2 of 32 fp32, sum"},
        [TYPES] = {"all-reduce #2 of 64 fp32, sum", "all-reduce #2 of 64 int32, sum"},
        [OPERATORS] = {"all-reduce #2 of 64 fp32, sum", "all-reduce #2 of 64 fp32, maximum"},
        [ROOTS] = {"broadcast #2 of 64 fp32, root 0", "broadcast #2 of 64 fp32, root 1"},
        [SWAPPED] = {"all-reduce #2 of 64 fp32, sum", "broadcast #2 of 64 fp32, root 0"},
        [SKIPPED] = {"reduce-scatter #2 of 16 fp32, sum", "all-gather #2 of 16 fp32"}};
    char text[TEXT_BYTES], expected[200];
    for (difference_t i = 0; i < DIFFERENCES; i++) {
        hang_run(i % 2 ? RANKS_THREADS : RANKS_PROCESSES, 3, differing_body, &i, "60000", true, text);
        assert_int_equal(count_of(text, "\n"), 1);
        contains(text, "\"report\":\"mismatch\"");
        contains(text, "rank 0 (pid ");
        contains(text, "and rank 1 (pid ");
        snprintf(expected, sizeof expected, ") has called %s, and rank 1", words[i][0]);
        contains(text, expected);
        snprintf(expected, sizeof expected, ") has called %s; such calls", words[i][1]);
        contains(text, expected);
    }
}

/* As differing_body, but the calls are a program's; `call` and `last` are the two calls. */
static void differing_program_body(ranks_t *ranks)
{
    const program_t *program = ranks->arg;
    ncclComm_t comm = ranks_init(ranks);
    for (const char *at = program->rank[ranks->rank]; *at; at++) {
        const ncclResult_t result = run_letter(*at, comm);
        CHECK(result == ncclSuccess || result == ncclInvalidUsage);
    }
    wait_for_invalid_usage(comm);
    ranks_barrier(ranks); /* who leaves is no fault of its own */
    CHECK_NCCL(ncclCommAbort(comm));
}

static void lists_that_differ_are_named(void **state)
{
    (void)state;
    static const program_t programs[] = {
        {{"(abc)", "(abc)", "(acb)"}, "all-reduce #2 of 32 fp32, sum", "all-reduce #2 of 16 fp32, sum"}, /* swapped */
        {{"(abc)", "abc", "(ac)"}, "all-reduce #2 of 32 fp32, sum", "all-reduce #2 of 16 fp32, sum"},    /* left out */
        {{"aaa", "(aaa)", "(aba)"}, "all-reduce #2 of 64 fp32, sum", "all-reduce #2 of 32 fp32, sum"},   /* a count */
        {{"(aaa)", "(aa)a", "(aat)"}, "all-reduce #3 of 64 fp32, sum", "broadcast #3 of 64 fp32, root 2"}};
    char text[TEXT_BYTES], expected[200];
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        hang_run(i % 2 ? RANKS_THREADS : RANKS_PROCESSES, 3, differing_program_body, &programs[i], "60000", true, text);
        assert_int_equal(count_of(text, "\n"), 1);
        snprintf(expected, sizeof expected, ") has called %s, and rank 2 (pid ", programs[i].call);
        contains(text, expected);
        snprintf(expected, sizeof expected, ") has called %s; such calls", programs[i].last);
        contains(text, expected);
    }
}

/* ---- Nothing is wrong -------------------------------------------------------------------- */

/* Different calls on a communicator of their own: when they are reported, the watcher has looked at all calls before.
 */
static void differ_at_last(ranks_t *ranks)
{
    float in[COUNT] = {0}, out[COUNT];
    ncclComm_t comm = ranks_init(ranks);
    const ncclResult_t result = ncclAllReduce(in, out, ranks->rank == 0 ? 61 : 60, ncclFloat32, ncclSum, comm, NULL);
    CHECK(result == ncclSuccess || result == ncclInvalidUsage);
    wait_for_invalid_usage(comm);
    ranks_barrier(ranks); /* who leaves is no fault of its own */
    CHECK_NCCL(ncclCommAbort(comm));
}

/* No report for differences that are allowed: another type of the same size for moved bytes, calls that are empty on
 * one rank, a refused call, messages. */
static void allowed_body(ranks_t *ranks)
{
    static float in[4 * COUNT], out[4 * COUNT];
    ncclComm_t comm = ranks_init(ranks), child = NULL;
    for (int i = 0; i < scaled(400); i++) {
        const bool odd = ranks->rank == 1;
        CHECK_NCCL(sum(comm));
        CHECK_NCCL(odd ? ncclBroadcast(in, out, COUNT, ncclInt8, 0, comm, NULL)
                       : ncclBroadcast(in, out, COUNT / 4, ncclFloat32, 0, comm, NULL));
        if (odd)
            CHECK_NCCL(ncclAllReduce(in, out, 0, ncclFloat64, ncclMax, comm, NULL));
        CHECK_NCCL(ncclGroupStart());
        if (ranks->rank < 2) {
            CHECK_NCCL(ncclSend(in, COUNT, ncclFloat32, 1 - ranks->rank, comm, NULL));
            CHECK_NCCL(ncclRecv(out, COUNT, ncclFloat32, 1 - ranks->rank, comm, NULL));
        }
        CHECK_NCCL(ncclReduce(in, out, COUNT, ncclFloat32, ncclAvg, 2, comm, NULL));
        CHECK_NCCL(ncclGroupEnd());
    }
    CHECK_NCCL(ncclCommSplit(comm, ranks->rank / 2, 0, &child, NULL));
    for (int i = 0; i < 10 + ranks->rank / 2 * 10; i++)
        CHECK_NCCL(sum(child));
    if (ranks->rank == 2)
        CHECK_FAILS(ncclAllReduce(in, out, COUNT, ncclFloat32, (ncclRedOp_t)77, comm, NULL));
    CHECK_NCCL(sum(comm));
    differ_at_last(ranks);
    CHECK_NCCL(sum(comm));
    CHECK_NCCL(ncclCommDestroy(child));
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* Check that differ_at_last is all that is reported with this many processes and with this many threads. On a slow
 * machine two ranks may report it. */
static void expect_silence(ranks_body_t body, int processes, int threads)
{
    char text[TEXT_BYTES];
    for (ranks_shape_t shape = RANKS_PROCESSES; shape <= RANKS_THREADS; shape++) {
        hang_run(shape, shape == RANKS_PROCESSES ? processes : threads, body, NULL, "60000", true, text);
        assert_true(count_of(text, "\n") > 0);
        assert_int_equal(count_of(text, "has called all-reduce #1 of 61 fp32, sum, and rank "), count_of(text, "\n"));
    }
}

static void what_is_allowed_is_not_reported(void **state)
{
    (void)state;
    expect_silence(allowed_body, 3, 4);
}

/* No report if the ranks make the same calls in different groups. */
static void grouping_body(ranks_t *ranks)
{
    uint64_t calls = 3, groups = 100 + (uint64_t)ranks->rank;
    bool open = false;
    ncclComm_t comm = ranks_init(ranks);
    for (int i = 0; i < scaled(4000); i++) {
        if (data_below(&groups, 3) == 0) {
            CHECK_NCCL(open ? ncclGroupEnd() : ncclGroupStart());
            open = !open;
        }
        CHECK_NCCL(run_letter("abcrst"[data_below(&calls, 6)], comm));
    }
    if (open)
        CHECK_NCCL(ncclGroupEnd());
    ranks_barrier(ranks);
    differ_at_last(ranks);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void groups_may_differ(void **state)
{
    (void)state;
    expect_silence(grouping_body, 3, 3);
}

/* No report if all ranks are stopped for longer than the limit, as by a debugger, and continued. */
static void debugged_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    pid_t child = 0;
    atomic_store(&ranks->shared->words[ranks->rank], (uint64_t)getpid());
    ranks_barrier(ranks);
    if (ranks->rank == 0 && (child = fork()) == 0) {
        for (int pass = 0; pass < 2; pass++) {
            for (int r = 0; r < ranks->nranks; r++)
                kill((pid_t)atomic_load(&ranks->shared->words[r]), pass ? SIGCONT : SIGSTOP);
            sleep(pass ? 0 : 7);
        }
        atomic_store(&ranks->shared->words[10], 1);
        _exit(0);
    }
    for (bool done = false; !done;) {
        float word[2] = {ranks->rank == 0 && atomic_load(&ranks->shared->words[10]), 0};
        CHECK_NCCL(ncclAllReduce(word, word + 1, 1, ncclFloat32, ncclMax, comm, NULL));
        done = word[1] != 0;
    }
    if (child)
        CHECK(waitpid(child, NULL, 0) == child);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void a_stop_of_all_ranks_is_not_reported(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    hang_run(RANKS_PROCESSES, 3, debugged_body, NULL, "5000", false, text);
    assert_string_equal(text, "");
}

/* No report with a limit of 0, which is none, and without a record. */
static void silent_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    CHECK_NCCL(sum(comm));
    if (ranks->rank == 1)
        sleep(3);
    CHECK_NCCL(sum(comm));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void reports_can_be_turned_off(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    hang_run(RANKS_PROCESSES, 2, silent_body, NULL, "0", false, text);
    assert_string_equal(text, "");
    setenv("SHUNT_RECORD", "0", 1);
    hang_run(RANKS_PROCESSES, 2, silent_body, NULL, "1000", false, text);
    unsetenv("SHUNT_RECORD");
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_has_not_called_is_named),
        cmocka_unit_test(a_call_that_has_not_begun_is_told_from_one_not_made),
        cmocka_unit_test(a_stopped_rank_is_named),
        cmocka_unit_test(a_rank_that_waits_on_another_communicator_is_named_with_it),
        cmocka_unit_test(a_later_communicator_of_a_peer_is_seen),
        cmocka_unit_test(a_message_waits_for_its_peer_alone),
        cmocka_unit_test(a_call_that_a_list_waits_for_is_named),
        cmocka_unit_test(ranks_that_call_different_things_are_named_and_fail),
        cmocka_unit_test(lists_that_differ_are_named),
        cmocka_unit_test(what_is_allowed_is_not_reported),
        cmocka_unit_test(groups_may_differ),
        cmocka_unit_test(a_stop_of_all_ranks_is_not_reported),
        cmocka_unit_test(reports_can_be_turned_off),
    };
    cpu_limit(120);
    snprintf(g_file, sizeof g_file, "/tmp/shunt-hangs-%d", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
