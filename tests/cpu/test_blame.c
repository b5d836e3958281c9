/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults injected at random: one rank skips a call, swaps two, passes another count, type, operator or root, is late,
 * is stopped or is killed, in a random program of several communicators, in groups drawn for each rank or none. The
 * only report must name that rank and the call. Without a fault there is no report.
 *
 * A rank at fault continues after the report, so the result depends on the machine's speed only if other ranks are late
 * themselves, which is reported too. So a draw whose ranks ended well, with other reports than expected, is repeated
 * with a longer limit. A crash, a wrong result of a call or no report at all is not forgiven. Where ranks call
 * different things, waits are not judged: on a slow machine two ranks may report the difference, but nothing else may
 * be wrong.
 */
#include "cpu.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum {
    DRAWS = 100,
    WORKERS = 4,
    SECONDS = 30,
    LIMIT_MS = 1000,
    LATE_MS = 1000, /* of a report behind the limit, by the watcher's clock */
    MOST_RANKS = 4,
    MOST_COMMS = 3,
    MOST_STEPS = 16,
    COUNT = 64,
    TEXT_BYTES = 16384
};

typedef enum fault {
    NONE,
    LATE,
    STOPPED,
    KILLED,
    SKIPPED,
    SWAPPED,
    OTHER_COUNT,
    OTHER_TYPE,
    OTHER_OPERATOR,
    OTHER_ROOT,
    FAULTS
} fault_t;
static const char *const fault_names[FAULTS] = {"none",    "late",  "stopped", "killed",   "skipped",
                                                "swapped", "count", "type",    "operator", "root"};

typedef enum form { ALL_REDUCE, REDUCE_SCATTER, REDUCE, ALL_GATHER, BROADCAST, FORMS } form_t;

typedef struct step {
    form_t form;
    int comm, count, type, op, root; /* type: fp32 or int32; op: sum or maximum; the root of the communicator's ranks */
    bool begins, ends;               /* a group */
} step_t;

typedef struct program {
    step_t step[MOST_STEPS];
    int steps;
} program_t;

typedef struct draw {
    uint64_t seed;
    fault_t fault;
    ranks_shape_t shape;
    int nranks, comms, faulty; /* the rank at fault */
    int at;                    /* LATE, STOPPED, KILLED: before this step */
    program_t program[MOST_RANKS];
    /* What is expected: a hang (the call's number from `first` on, `last` at most), or a mismatch at `first`. */
    bool hangs, differs, queued; /* queued: calls that it has made in a group that has not ended */
    int comm, first, last;
    step_t own, others; /* of a mismatch */
    char file[64];
    int limit_ms;
    bool slow; /* it failed, perhaps since the machine is slow */
} draw_t;

/* ---- Programs ------------------------------------------------------------------------------ */

static bool reduces(const step_t *step)
{
    return step->form <= REDUCE;
}

static bool is_rooted(const step_t *step)
{
    return step->form == REDUCE || step->form == BROADCAST;
}

/* Whether NCCL considers both calls equal (record_agree). Both types have 4 bytes. */
static bool are_alike(const step_t *a, const step_t *b)
{
    return a->form == b->form && a->count == b->count && (!is_rooted(a) || a->root == b->root) &&
           (!reduces(a) || (a->type == b->type && a->op == b->op));
}

static void draw_step(uint64_t *seed, const draw_t *draw, const step_t *before, step_t *step)
{
    const bool again = before && data_below(seed, 4) > 0;
    *step = (step_t){.form = (form_t)data_below(seed, FORMS),
                     .comm = again ? before->comm : (int)data_below(seed, (uint64_t)draw->comms),
                     .count = COUNT >> data_below(seed, 3),
                     .type = (int)data_below(seed, 2),
                     .op = (int)data_below(seed, 2),
                     .root = (int)data_below(seed, (uint64_t)draw->nranks)};
    if (again && data_below(seed, 3) > 0) /* short calls of one kind become a list */
        *step = (step_t){.form = ALL_REDUCE, .comm = before->comm, .count = step->count};
}

/* Draw the groups of all ranks. With threads a report does not name the one that waits elsewhere, so then a group has
 * calls of one communicator. */
static void draw_groups(uint64_t *seed, const draw_t *draw, program_t *program)
{
    bool open = false;
    for (int i = 0; i < program->steps; i++) {
        step_t *step = &program->step[i];
        const bool last = i + 1 == program->steps || (draw->shape == RANKS_THREADS && step[1].comm != step->comm);
        step->begins = !open && data_below(seed, 2) == 0;
        open = open || step->begins;
        step->ends = open && (last || data_below(seed, 5) == 0);
        open = open && !step->ends;
    }
}

/* The number of a step among its communicator's steps. */
static int number_of(const program_t *program, int at)
{
    int number = 0;
    for (int i = 0; i <= at; i++)
        number += program->step[i].comm == program->step[at].comm;
    return number;
}

/* The first step of the group that is open before step `at`; `at` if none is. */
static int group_of(const program_t *program, int at)
{
    int first = at;
    if (!program->step[at].begins)
        for (int i = at - 1; i >= 0 && !program->step[i].ends; i--)
            if (program->step[i].begins)
                return i;
    return first;
}

/* Change the program of the rank at fault; false if the fault cannot be at step `at`. */
static bool inject(draw_t *draw, int at)
{
    program_t *program = &draw->program[draw->faulty];
    step_t *step = &program->step[at], own = *step, *next = step + 1;
    const bool behind = at + 1 < program->steps && next->comm == step->comm && !are_alike(step, next);
    draw->at = at;
    draw->comm = step->comm;
    draw->first = draw->last = number_of(program, at);
    draw->others = *step;
    switch (draw->fault) {
    case LATE:
    case STOPPED:
        draw->hangs = true;
        return true;
    case KILLED:
        return true;
    case SKIPPED: /* the last one, or one whose successor meets the others' */
        draw->hangs = at + 1 == program->steps;
        draw->differs = !draw->hangs;
        if (!draw->hangs && !behind)
            return false;
        memmove(step, next, (size_t)(program->steps - at - 1) * sizeof *step);
        program->steps--;
        own = *step;
        break;
    case SWAPPED:
        if (!behind)
            return false;
        own = *next;
        *next = *step;
        break;
    case OTHER_COUNT:
        own.count = step->count == COUNT ? COUNT / 2 : COUNT;
        break;
    case OTHER_TYPE:
        own.type = !step->type;
        break;
    case OTHER_OPERATOR:
        own.op = !step->op;
        break;
    case OTHER_ROOT:
        own.root = (step->root + 1) % draw->nranks;
        break;
    default:
        return true;
    }
    if (draw->fault != SKIPPED)
        *step = own;
    if (draw->hangs)
        return true;
    draw->differs = true;
    draw->own = own;
    return !are_alike(&draw->others, &own);
}

/* Set the expectation for a late rank: the others wait for the first call of its open group, or for a list from that
 * call on. */
static void expect_late(draw_t *draw)
{
    const program_t *program = &draw->program[draw->faulty];
    const int begin = group_of(program, draw->at);
    int last = draw->at;
    while (last < program->steps - 1 && program->step[last].comm != program->step[begin].comm)
        last++;
    draw->comm = program->step[begin].comm;
    draw->queued = begin < draw->at;
    draw->first = number_of(program, begin);
    draw->last = program->step[last].comm == draw->comm ? number_of(program, last) : draw->first;
}

static bool try_draw(draw_t *draw, uint64_t *seed)
{
    const bool process = draw->fault == STOPPED || draw->fault == KILLED;
    program_t program = {.steps = 6 + (int)data_below(seed, MOST_STEPS - 6)};
    draw->shape = process || data_below(seed, 2) ? RANKS_PROCESSES : RANKS_THREADS;
    draw->nranks = 2 + (int)data_below(seed, MOST_RANKS - 1);
    draw->comms = 1 + (int)data_below(seed, MOST_COMMS);
    draw->faulty = (int)data_below(seed, (uint64_t)draw->nranks);
    draw->hangs = draw->differs = draw->queued = false;
    for (int i = 0; i < program.steps; i++)
        draw_step(seed, draw, i > 0 ? &program.step[i - 1] : NULL, &program.step[i]);
    for (int r = 0; r < draw->nranks; r++)
        draw->program[r] = program;
    const bool possible =
        inject(draw, draw->fault == SKIPPED && data_below(seed, 2) ? program.steps - 1
                                                                   : (int)data_below(seed, (uint64_t)program.steps));
    for (int r = 0; r < draw->nranks; r++)
        draw_groups(seed, draw, &draw->program[r]);
    if (draw->fault == LATE || draw->fault == STOPPED)
        expect_late(draw);
    return possible;
}

static void make_draw(draw_t *draw, uint64_t number)
{
    uint64_t seed = 1000 + number;
    *draw = (draw_t){.seed = number, .fault = (fault_t)(number % FAULTS)};
    while (!try_draw(draw, &seed))
        continue;
}

/* ---- Reports ------------------------------------------------------------------------------- */

static void read_reports(const char *file, char text[TEXT_BYTES])
{
    FILE *from = fopen(file, "r");
    const size_t size = from ? fread(text, 1, TEXT_BYTES - 1, from) : 0;
    text[size] = '\0';
    if (from)
        fclose(from);
}

/* The rank on a communicator: in every second one the ranks are in reverse order. */
static int rank_on(const draw_t *draw, int comm, int rank)
{
    return comm % 2 == 0 ? rank : draw->nranks - 1 - rank;
}

/* A call's text as in reports, which is compared at its name. */
static void call_text(const step_t *step, int number, bool whole, char *text, size_t capacity)
{
    static const char *const names[FORMS] = {"all-reduce", "reduce-scatter", "reduce", "all-gather", "broadcast"};
    int length = snprintf(text, capacity, "%s #%d of %d %s", names[step->form], number, step->count,
                          step->type == 0 ? "fp32" : "int32");
    if (whole && reduces(step))
        length += snprintf(text + length, capacity - (size_t)length, ", %s", step->op == 0 ? "sum" : "maximum");
    if (whole && is_rooted(step))
        snprintf(text + length, capacity - (size_t)length, ", root %d", step->root);
}

static bool is_number_of(const draw_t *draw, const char *call, int number)
{
    const program_t *program = &draw->program[(draw->faulty + 1) % draw->nranks];
    char expected[128];
    for (int i = 0; i < program->steps; i++) {
        if (program->step[i].comm != draw->comm || number_of(program, i) != number)
            continue;
        call_text(&program->step[i], number, false, expected, sizeof expected);
        return strcmp(call, expected) == 0;
    }
    return false;
}

typedef struct hang {
    char comm[20], call[128], cause[32];
    int waited_ms, rank, pid; /* of the first rank to blame */
    bool alone;               /* it is the only one */
} hang_t;

static bool read_hang(const char *line, hang_t *hang)
{
    const char *comm = strstr(line, ",\"communicator\":"), *call = strstr(line, ",\"call\":");
    const char *cause = strstr(line, "\"cause\""), *end = strchr(line, '\n');
    const char *next = cause ? strstr(cause + 1, "\"cause\"") : NULL;
    hang->alone = !next || next > end;
    return end && comm && call && sscanf(comm, ",\"communicator\":\"%19[^\"]\"", hang->comm) == 1 &&
           sscanf(call,
                  ",\"call\":\"%127[^\"]\",\"waited_ms\":%d,\"waits_for\":[{\"rank\":%d,\"pid\":%d,"
                  "\"device\":-1,\"cause\":\"%31[^\"]\"",
                  hang->call, &hang->waited_ms, &hang->rank, &hang->pid, hang->cause) == 5;
}

static bool is_right_hang(const draw_t *draw, const char *line, hang_t *hang)
{
    bool known = false;
    if (!read_hang(line, hang))
        return false;
    for (int n = draw->first; n <= draw->last; n++)
        known = known || is_number_of(draw, hang->call, n);
    const bool called = draw->queued && strcmp(hang->cause, "not-begun") == 0;
    return known && hang->alone && hang->waited_ms < draw->limit_ms + LATE_MS &&
           hang->rank == rank_on(draw, draw->comm, draw->faulty) &&
           (called || strcmp(hang->cause, draw->fault == STOPPED ? "stopped" : "not-called") == 0);
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end && end[1] ? end + 1 : NULL;
}

static bool has_right_hang(const draw_t *draw, const char *text, hang_t *hang)
{
    for (const char *line = text; line; line = next_line(line))
        if (is_right_hang(draw, line, hang))
            return true;
    return false;
}

/* Whether one report is as expected. In a group, ranks may wait on other communicators, too, for the same process. */
static bool are_right_hangs(const draw_t *draw, const char *text)
{
    hang_t right, other;
    int reports = 0;
    if (!has_right_hang(draw, text, &right))
        return false;
    for (const char *line = text; line; line = next_line(line)) {
        if (!read_hang(line, &other) || other.pid != right.pid)
            return false;
        reports += strcmp(other.comm, right.comm) == 0;
    }
    return reports == 1;
}

static bool is_mismatch(const draw_t *draw, const char *line)
{
    char call[2][128] = {"", ""}, own[128], others[128];
    int rank[2] = {-1, -1};
    const char *at = strstr(line, ",\"calls\":");
    if (!at || sscanf(at,
                      ",\"calls\":[{\"rank\":%d,\"pid\":%*d,\"call\":\"%127[^\"]\"},{\"rank\":%d,\"pid\":%*d,"
                      "\"call\":\"%127[^\"]\"}]",
                      &rank[0], call[0], &rank[1], call[1]) != 4)
        return false;
    const int faulty = rank[1] == rank_on(draw, draw->comm, draw->faulty);
    call_text(&draw->own, draw->first, true, own, sizeof own);
    call_text(&draw->others, draw->first, true, others, sizeof others);
    return rank[faulty] == rank_on(draw, draw->comm, draw->faulty) && (faulty == 0 || rank[0] == 0) &&
           strcmp(call[faulty], own) == 0 && strcmp(call[!faulty], others) == 0;
}

/* Whether all reports, of which there are several, are of this fault. */
static bool are_mismatches(const draw_t *draw, const char *text)
{
    int reports = 0;
    for (const char *line = text; line; line = next_line(line)) {
        if (!is_mismatch(draw, line))
            return false;
        reports++;
    }
    return reports > 1;
}

/* Whether there is exactly one report, of this fault, or none if none is expected. */
static bool is_right(const draw_t *draw, const char *text)
{
    const char *end = strchr(text, '\n');
    if (!draw->hangs && !draw->differs)
        return text[0] == '\0';
    return draw->hangs ? are_right_hangs(draw, text) : end && end[1] == '\0' && is_mismatch(draw, text);
}

/* ---- The ranks ------------------------------------------------------------------------------- */

/* Ends without the report, too: then the draw has failed by its reports. */
static void wait_for_report(const void *arg)
{
    const draw_t *draw = arg;
    char text[TEXT_BYTES] = "";
    hang_t hang;
    for (int naps = 0; naps < SECONDS * 100 && !has_right_hang(draw, text, &hang); naps++) {
        usleep(10000);
        read_reports(draw->file, text);
    }
}

static ncclResult_t issue(const step_t *step, ncclComm_t comm)
{
    static _Thread_local int32_t in[MOST_RANKS * COUNT], out[MOST_RANKS * COUNT];
    const ncclDataType_t type = step->type == 0 ? ncclFloat32 : ncclInt32;
    const ncclRedOp_t op = step->op == 0 ? ncclSum : ncclMax;
    const size_t count = (size_t)step->count;
    switch (step->form) {
    case ALL_REDUCE:
        return ncclAllReduce(in, out, count, type, op, comm, NULL);
    case REDUCE_SCATTER:
        return ncclReduceScatter(in, out, count, type, op, comm, NULL);
    case REDUCE:
        return ncclReduce(in, out, count, type, op, step->root, comm, NULL);
    case ALL_GATHER:
        return ncclAllGather(in, out, count, type, comm, NULL);
    default:
        return ncclBroadcast(in, out, count, type, step->root, comm, NULL);
    }
}

static void misbehave(ranks_t *ranks, const draw_t *draw)
{
    if (draw->fault == LATE)
        wait_for_report(draw);
    if (draw->fault == STOPPED)
        ranks_stop_while(wait_for_report, draw);
    if (draw->fault == KILLED) {
        ranks_leave(ranks);
        raise(SIGKILL);
    }
}

/* Up to the first call that fails. */
static ncclResult_t run_program(ranks_t *ranks, const draw_t *draw, const ncclComm_t *comm)
{
    const program_t *program = &draw->program[ranks->rank];
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < program->steps && result == ncclSuccess; i++) {
        const step_t *step = &program->step[i];
        if (step->begins)
            CHECK_NCCL(ncclGroupStart());
        if (ranks->rank == draw->faulty && i == draw->at)
            misbehave(ranks, draw);
        result = issue(step, comm[step->comm]);
        if (step->ends && result == ncclSuccess)
            result = ncclGroupEnd();
    }
    return result;
}

static void wait_for_error(ncclComm_t comm)
{
    ncclResult_t async = ncclSuccess;
    for (int naps = 0; naps < SECONDS * 100 && async != ncclInvalidUsage; naps++) {
        usleep(10000);
        CHECK_NCCL(ncclCommGetAsyncError(comm, &async));
    }
    CHECK(async == ncclInvalidUsage);
}

static void body(ranks_t *ranks)
{
    const draw_t *draw = ranks->arg;
    ncclComm_t comm[MOST_COMMS] = {ranks_init(ranks)};
    for (int i = 1; i < draw->comms; i++)
        CHECK_NCCL(ncclCommSplit(comm[0], 0, rank_on(draw, i, ranks->rank), &comm[i], NULL));
    ranks_barrier(ranks); /* none but the rank at fault is late */
    const ncclResult_t result = run_program(ranks, draw, comm);
    if (draw->differs) {
        wait_for_error(comm[draw->comm]);
        for (int i = 0; i < draw->comms; i++) /* others may be in later calls */
            if (i != draw->comm)
                CHECK_NCCL(ncclCommAbort(comm[i]));
        ranks_barrier(ranks); /* who leaves is no fault of its own */
        CHECK_NCCL(ncclCommAbort(comm[draw->comm]));
        return;
    }
    CHECK((result == ncclSuccess) == (draw->fault != KILLED));
    if (draw->fault == SKIPPED && draw->hangs && ranks->rank == draw->faulty) {
        wait_for_report(draw);
        CHECK_NCCL(issue(&draw->others, comm[draw->comm]));
    }
    ranks_barrier(ranks);
    for (int i = 0; i < draw->comms; i++)
        CHECK_NCCL(result == ncclSuccess ? ncclCommDestroy(comm[i]) : ncclCommAbort(comm[i]));
}

/* ---- Draws --------------------------------------------------------------------------------- */

static bool run_draw(draw_t *draw)
{
    char text[TEXT_BYTES], limit[16];
    const char *const env[] = {"SHUNT_HANG_WARN_MS",
                               limit,
                               "SHUNT_HANG_FILE",
                               draw->file,
                               "SHUNT_MISMATCH_ERROR",
                               "1",
                               "SHUNT_DEBUG",
                               "none",
                               NULL};
    const ranks_plan_t plan = {.shape = draw->shape,
                               .nranks = draw->nranks,
                               .seconds = 4 * SECONDS,
                               .killed = draw->fault == KILLED ? 1u << draw->faulty : 0,
                               .env = env,
                               .body = body,
                               .arg = draw};
    /* Where calls differ, waits are not judged. A rank that is killed ends its peers' calls on this device. */
    snprintf(limit, sizeof limit, "%d", draw->differs ? 600000 : draw->limit_ms);
    unlink(draw->file);
    const int failed = ranks_run(&plan);
    read_reports(draw->file, text);
    unlink(draw->file);
    if (failed == 0 && is_right(draw, text))
        return true;
    draw->slow = failed == 0 && (draw->differs ? are_mismatches(draw, text) : text[0] != '\0');
    fprintf(stderr, "draw %d, %s at rank %d of %d, communicator %d, call %d to %d, limit %d ms: %s\n", (int)draw->seed,
            fault_names[draw->fault], draw->faulty, draw->nranks, draw->comm, draw->first, draw->last, draw->limit_ms,
            text);
    return false;
}

/* Run every WORKERS-th draw. */
static int work(int worker)
{
    int failed = 0;
    for (int i = worker; i < DRAWS; i += WORKERS) {
        draw_t draw;
        make_draw(&draw, (uint64_t)i);
        snprintf(draw.file, sizeof draw.file, "/tmp/shunt-blame-%d-%d", (int)getppid(), worker);
        draw.limit_ms = LIMIT_MS;
        if (run_draw(&draw))
            continue;
        draw.limit_ms = 4 * LIMIT_MS;
        failed += !draw.slow || !run_draw(&draw);
    }
    return failed;
}

static void each_fault_is_named(void **state)
{
    (void)state;
    pid_t child[WORKERS];
    int failed = 0;
    for (int i = 0; i < WORKERS; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] == 0)
            _exit(work(i));
    }
    for (int i = 0; i < WORKERS; i++) {
        int status = 0;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status));
        failed += WEXITSTATUS(status);
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_fault_is_named)};
    cpu_limit(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
