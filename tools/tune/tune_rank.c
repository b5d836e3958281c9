/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_rank.c - one rank of `shunt tune`, a process of its own.
 *
 * Every rank does the same for each case: each algorithm with each grid is a candidate, candidates with equal launches
 * are dropped, and two heats of growing length select a few for the final. The final is measured anew, alternating with
 * the built-in choice and the real NCCL, so luck in a heat has no effect. All ranks decide alike, since they read the
 * same times from shared memory.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/tune/tune_rank.h"

#define MIB ((uint64_t)1 << 20)

enum {
    MOST_CALLS = 50, /* calls of one timed run */
    LEAST_CALLS = 2
};
#define RUN_SECONDS 1e-3 /* approximate length of a timed run */
#define QUICK_SECONDS 4e-4

/* Among candidates within this ratio, prefer the winner of the size before: the table gets fewer rows. */
#define SAME_SPEED 1.015

/* A heat eliminates candidates slower than the fastest by the factor `within`, and all but the `stay` fastest. */
typedef struct heat {
    uint32_t rounds;
    double within;
    uint32_t stay;
} heat_t;
enum { HEATS = 2 };
static const heat_t heats[HEATS] = {{1, 1.3, 8}, {3, 1.08, 3}};
static const heat_t quick_heats[HEATS] = {{1, 1.3, 4}, {2, 1.1, 2}};
/* With --beside more candidates stay, since the fastest alone need not win. */
static const heat_t beside_heats[HEATS] = {{1, 1.3, 16}, {3, 1.08, 8}};

/* The default is first: of grids with the same launch, the first goes into the table. All have few enough blocks to
 * leave room for the program's own kernels. */
static const grid_t short_grids[] = {{32, 1024}, {16, 1024}, {32, 512}, {16, 512}, {8, 512}, {32, 256}, {32, 128}};
static const grid_t long_grids[] = {{64, 1024}, {64, 512}, {48, 1024}, {32, 1024}, {48, 512}, {32, 512}, {24, 512}};
static const grid_t quick_short_grids[] = {{32, 1024}, {32, 512}}, quick_long_grids[] = {{64, 1024}, {64, 512}};
/* With --beside: smaller grids slow the program's kernels less. */
static const grid_t beside_grids[] = {{64, 1024}, {64, 512}, {48, 1024}, {32, 1024}, {48, 512}, {32, 512},
                                      {24, 1024}, {24, 512}, {16, 1024}, {16, 512},  {8, 512}};
static const grid_t cpu_grids[] = {{1, 1}, {2, 1}};

/* ---- Candidates ---- */

bool tune_set_policy(tuner_t *tuner, const entrant_t *entrant)
{
    bench_rank_t *rank = &tuner->rank;
    return entrant->nccl || rank->shunt.shunt_set_policy(rank->side[0].comm, entrant->policy) == 0 ||
           bench_fail(rank, "the policy %s was refused", entrant->policy);
}

static bool note_launch(tuner_t *tuner, entrant_t *entrant)
{
    shunt_decision_t decision = {.size = sizeof decision};
    if (tuner->rank.shunt.shunt_last_decision(&decision) != 0) {
        return bench_fail(&tuner->rank, "the library does not say what it launched");
    }
    snprintf(entrant->name, sizeof entrant->name, "%s", decision.taken ? decision.algorithm : "nccl");
    entrant->launched = (grid_t){decision.taken ? decision.blocks : 0, decision.taken ? decision.threads : 0};
    entrant->guessed = strcmp(decision.source, "predicted") == 0 || strcmp(decision.source, "no row") == 0;
    return true;
}

/* Makes one call before the timing: connecting and loading are lazy. */
static bool enter(tuner_t *tuner, const bench_case_t *one, const entrant_t *from)
{
    entrant_t *entrant = &tuner->entrant[tuner->entrants];
    bench_rank_t *rank = &tuner->rank;
    *entrant = *from;
    if (!tune_set_policy(tuner, entrant) || !bench_issue(rank, &rank->side[entrant->nccl ? 1 : 0], one, 0) ||
        !rank->device->wait(rank)) {
        return false;
    }
    if (entrant->nccl) {
        snprintf(entrant->name, sizeof entrant->name, "nccl");
    } else if (!note_launch(tuner, entrant)) {
        return false;
    }
    tuner->entrants++;
    return true;
}

static bool same_launch(const entrant_t *a, const entrant_t *b)
{
    return strcmp(a->name, b->name) == 0 && a->launched.blocks == b->launched.blocks &&
           a->launched.threads == b->launched.threads;
}

/* Whether an earlier candidate has the same launch, or the call was forwarded because the algorithm does not fit. */
static bool needless(const tuner_t *tuner, const entrant_t *entrant)
{
    if (strcmp(entrant->name, "nccl") == 0) {
        return true;
    }
    for (const entrant_t *other = tuner->entrant; other < entrant; other++) {
        if (!other->nccl && same_launch(other, entrant)) {
            return true;
        }
    }
    return false;
}

static bool enter_grids(tuner_t *tuner, const bench_case_t *one, const char *name, const grid_t *grids, size_t count)
{
    for (size_t i = 0; i < count && tuner->entrants < TUNE_MOST_ENTRANTS; i++) {
        entrant_t entrant = {.asked = grids[i]};
        snprintf(entrant.policy, sizeof entrant.policy, "%s:%s:%ux%u", alg_collective_name(one->collective), name,
                 grids[i].blocks, grids[i].threads);
        if (!enter(tuner, one, &entrant)) {
            return false;
        }
        if (needless(tuner, &tuner->entrant[tuner->entrants - 1])) {
            tuner->entrants--;
        }
    }
    return true;
}

static const grid_t *grids_for(const tuner_t *tuner, const bench_case_t *one, size_t *count)
{
    const bool cpu = tuner->rank.shared->machine.cpu;
    const uint32_t blocks = alg_collective_blocks(one->collective, tuner->rank.nranks);
    const bool large = one->count * blocks * one->type->bytes > MIB;
    const bool beside = tuner->options->beside;
    if (tuner->options->quick && !cpu) {
        *count = 2;
        return large ? quick_long_grids : quick_short_grids;
    }
    *count = cpu      ? sizeof cpu_grids / sizeof cpu_grids[0]
             : !large ? sizeof short_grids / sizeof short_grids[0]
             : beside ? sizeof beside_grids / sizeof beside_grids[0]
                      : sizeof long_grids / sizeof long_grids[0];
    return cpu ? cpu_grids : !large ? short_grids : beside ? beside_grids : long_grids;
}

static bool enter_candidates(tuner_t *tuner, const bench_case_t *one)
{
    size_t count;
    const grid_t *grids = grids_for(tuner, one, &count);
    const char *name;
    for (uint32_t i = 0; (name = tuner->rank.shunt.shunt_algorithm(alg_collective_name(one->collective), i)) != NULL;
         i++) {
        if (!enter_grids(tuner, one, name, grids, count)) {
            return false;
        }
    }
    return true;
}

/* First the built-in choice, then the real NCCL if there is one, then the candidates. */
static bool enter_all(tuner_t *tuner, const bench_case_t *one)
{
    const entrant_t builtin = {.policy = TUNE_BUILTIN}, nccl = {.nccl = true}, table = {.policy = ""};
    tuner->entrants = 0;
    if (!enter(tuner, one, &builtin) || (tuner->rank.sides == 2 && !enter(tuner, one, &nccl))) {
        return false;
    }
    return tuner->options->check ? enter(tuner, one, &table) : enter_candidates(tuner, one);
}

/* ---- Rounds ---- */

static bool round_of(tuner_t *tuner, const bench_case_t *one, entrant_t *entrant, double *seconds)
{
    if (!tuner->bench.graph && !tune_set_policy(tuner, entrant)) {
        return false;
    }
    return bench_round(&tuner->rank, one, &entrant->run, seconds);
}

/* Time the remaining candidates in turn, starting with a different one in each round. */
static bool rounds_of(tuner_t *tuner, const bench_case_t *one, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        for (uint32_t turn = 0; turn < tuner->entrants; turn++) {
            entrant_t *entrant = &tuner->entrant[(turn + i) % tuner->entrants];
            if (!entrant->out && !round_of(tuner, one, entrant, &entrant->times[i])) {
                return false;
            }
        }
    }
    for (uint32_t i = 0; i < tuner->entrants; i++) {
        if (!tuner->entrant[i].out) {
            tuner->entrant[i].median = bench_median(tuner->entrant[i].times, rounds);
        }
    }
    return true;
}

/* Set the number of calls so that the slower of NCCL and the built-in choice takes about RUN_SECONDS. */
static bool set_calls(tuner_t *tuner, const bench_case_t *one)
{
    double slower = 0;
    tuner->bench.graph = false;
    tuner->bench.warmup = 1;
    for (uint32_t i = 0; i < tuner->rank.sides; i++) {
        const bench_run_t run = {.side = &tuner->rank.side[i], .calls = LEAST_CALLS};
        double seconds = 0;
        if (!tune_set_policy(tuner, &tuner->entrant[i]) || !bench_round(&tuner->rank, one, &run, &seconds)) {
            return false;
        }
        slower = fmax(slower, seconds);
    }
    const double run = tuner->options->quick ? QUICK_SECONDS : RUN_SECONDS;
    const double calls = slower > 0 ? run / slower : MOST_CALLS;
    tuner->bench.calls = (uint32_t)fmin(fmax(calls, LEAST_CALLS), MOST_CALLS);
    tuner->bench.warmup = tuner->bench.calls / 2 + 1;
    return true;
}

static bool open_runs(tuner_t *tuner, const bench_case_t *one, bool captured)
{
    tuner->bench.graph = captured;
    for (uint32_t i = 0; i < tuner->entrants; i++) {
        entrant_t *entrant = &tuner->entrant[i];
        if (!tune_set_policy(tuner, entrant) ||
            !bench_run_open(&tuner->rank, one, &tuner->rank.side[entrant->nccl ? 1 : 0], tuner->bench.calls,
                            &entrant->run)) {
            return false;
        }
    }
    return true;
}

static void close_runs(tuner_t *tuner)
{
    for (uint32_t i = 0; i < tuner->entrants; i++) {
        bench_run_close(&tuner->rank, &tuner->entrant[i].run);
    }
}

/* ---- Heats, and the final ---- */

/* The candidates follow the built-in choice and NCCL. */
static uint32_t first_candidate(const tuner_t *tuner)
{
    return tuner->rank.sides;
}

static bool won_before(const tuner_t *tuner, const entrant_t *entrant)
{
    return strcmp(entrant->policy, tuner->winner.policy) == 0;
}

static uint32_t faster_than(const tuner_t *tuner, const entrant_t *entrant)
{
    uint32_t faster = 0;
    for (uint32_t i = first_candidate(tuner); i < tuner->entrants; i++) {
        faster += !tuner->entrant[i].out && tuner->entrant[i].median < entrant->median;
    }
    return faster;
}

static double fastest(const tuner_t *tuner)
{
    double best = INFINITY;
    for (uint32_t i = first_candidate(tuner); i < tuner->entrants; i++) {
        if (!tuner->entrant[i].out) {
            best = fmin(best, tuner->entrant[i].median);
        }
    }
    return best;
}

static bool run_heat(tuner_t *tuner, const bench_case_t *one, const heat_t *heat)
{
    for (uint32_t i = 0; i < first_candidate(tuner); i++) {
        tuner->entrant[i].out = true; /* not measured again until the final */
    }
    if (!rounds_of(tuner, one, heat->rounds)) {
        return false;
    }
    const double limit = fastest(tuner) * heat->within;
    bool leaves[TUNE_MOST_ENTRANTS];
    for (uint32_t i = first_candidate(tuner); i < tuner->entrants; i++) {
        const entrant_t *entrant = &tuner->entrant[i];
        const bool slow = entrant->median > limit;
        leaves[i] = slow || (faster_than(tuner, entrant) >= heat->stay && !won_before(tuner, entrant));
    }
    for (uint32_t i = first_candidate(tuner); i < tuner->entrants; i++) {
        tuner->entrant[i].out = tuner->entrant[i].out || leaves[i];
    }
    return true;
}

static bool run_final(tuner_t *tuner, const bench_case_t *one)
{
    for (uint32_t i = 0; i < first_candidate(tuner); i++) {
        tuner->entrant[i].out = false;
    }
    return rounds_of(tuner, one, tuner->final_rounds);
}

/* The fastest candidate, or the winner of the size before if it is equally fast; NULL without candidates. */
static const entrant_t *best_candidate(const tuner_t *tuner)
{
    const double best = fastest(tuner);
    const entrant_t *found = NULL;
    for (uint32_t i = first_candidate(tuner); i < tuner->entrants; i++) {
        const entrant_t *entrant = &tuner->entrant[i];
        if (entrant->out) {
            continue;
        }
        if (won_before(tuner, entrant) && entrant->median <= best * SAME_SPEED) {
            return entrant;
        }
        if (entrant->median == best) {
            found = entrant;
        }
    }
    return found;
}

/* bench_median has sorted the times. */
static double quartile(const tuner_t *tuner, const entrant_t *entrant, uint32_t which)
{
    return entrant->times[tuner->final_rounds * which / 4];
}

static bool clearly_faster(const tuner_t *tuner, const entrant_t *entrant, const entrant_t *other, double lead)
{
    return entrant->median * lead < other->median && quartile(tuner, entrant, 3) < quartile(tuner, other, 1);
}

/* A candidate that is clearly better than NCCL and the built-in choice, else the better of these two. */
static const entrant_t *choose(const tuner_t *tuner, bool captured)
{
    const entrant_t *builtin = &tuner->entrant[0];
    const bool forwards = tuner->rank.sides == 1 || strcmp(builtin->name, "nccl") == 0;
    const entrant_t *nccl = tuner->rank.sides == 2 ? &tuner->entrant[1] : builtin;
    const entrant_t *candidate = best_candidate(tuner);
    const tune_leads_t leads = tune_leads(tuner->options->quick, captured, builtin->guessed);
    const entrant_t *better = !forwards && nccl->median * leads.nccl_over_builtin < builtin->median ? nccl : builtin;
    return candidate != NULL && clearly_faster(tuner, candidate, builtin, leads.over_builtin) &&
                   clearly_faster(tuner, candidate, nccl, leads.over_nccl)
               ? candidate
               : better;
}

static double spread_of(const tuner_t *tuner, const entrant_t *entrant)
{
    return (quartile(tuner, entrant, 3) - quartile(tuner, entrant, 1)) / entrant->median;
}

static void fill_result(const tuner_t *tuner, const bench_case_t *one, const entrant_t *choice, tune_result_t *result)
{
    const entrant_t *builtin = &tuner->entrant[0];
    const bool is_builtin = choice == builtin;
    size_t grids;
    const grid_t *grid = tuner->options->check ? &choice->launched : &choice->asked;
    if (is_builtin && builtin->guessed && strcmp(builtin->name, "nccl") != 0) {
        grid = grids_for(tuner, one, &grids); /* the model uses the default grid */
    }
    snprintf(result->choice, sizeof result->choice, "%s", is_builtin ? TUNE_BUILTIN : choice->name);
    snprintf(result->builtin, sizeof result->builtin, "%s", builtin->name);
    result->guessed = builtin->guessed;
    result->blocks = grid->blocks;
    result->threads = grid->threads;
    result->seconds = choice->median;
    result->spread = spread_of(tuner, choice);
    result->quick = tuner->options->quick;
    result->builtin_seconds = builtin->median;
    result->nccl_seconds = tuner->rank.sides == 2 ? tuner->entrant[1].median : 0;
    result->beside_seconds = choice->beside;
    result->builtin_beside_seconds = builtin->beside;
    result->nccl_beside_seconds = tuner->rank.sides == 2 ? tuner->entrant[1].beside : 0;
    result->candidates = tuner->entrants - first_candidate(tuner);
}

/* If the table's and the built-in choice have the same launch, they share one time. */
static const entrant_t *table_choice(const tuner_t *tuner)
{
    const entrant_t *table = &tuner->entrant[tuner->entrants - 1];
    return same_launch(table, &tuner->entrant[0]) ? &tuner->entrant[0] : table;
}

static bool measure(tuner_t *tuner, const bench_case_t *one, bool captured, tune_result_t *result)
{
    if (!enter_all(tuner, one) || !set_calls(tuner, one) || !open_runs(tuner, one, captured)) {
        return false;
    }
    for (size_t i = 0; !tuner->options->check && i < HEATS; i++) {
        const bool quick = tuner->options->quick;
        if (!run_heat(tuner, one, tuner->options->beside ? &beside_heats[i] : quick ? &quick_heats[i] : &heats[i])) {
            return false;
        }
        bench_tell_part(&tuner->rank, 0, (uint32_t)i + 1, HEATS + 1);
    }
    if (!run_final(tuner, one)) {
        return false;
    }
    const entrant_t *choice = tuner->options->check ? table_choice(tuner) : choose(tuner, captured);
    if (tuner->options->beside && !tuner->options->check && !tune_beside(tuner, one, &choice)) {
        return false;
    }
    fill_result(tuner, one, choice, result);
    tuner->winner = *choice;
    close_runs(tuner);
    return true;
}

/* ---- The cases ---- */

/* Roots rotate: a fixed root runs ahead, and its calls seem too short. */
static bool run_case(tuner_t *tuner, const bench_kind_t *kind, bool captured, uint64_t bytes, int rows)
{
    const bench_case_t one = {.collective = kind->collective,
                              .rotates = true,
                              .type = &bench_types[kind->type],
                              .op = &bench_ops[kind->op],
                              .count = bench_count(&tuner->bench, kind, bytes)};
    tune_result_t result;
    if (one.count == 0) {
        return true;
    }
    bench_begin(&tuner->rank, &one);
    memset(&result, 0, sizeof result);
    result.collective = kind->collective;
    result.ranks = tuner->rank.nranks;
    result.captured = captured;
    result.type = kind->type;
    result.bytes = bytes;
    result.machine = tuner->facts.machine;
    memcpy(result.class_name, tuner->facts.class_name, sizeof result.class_name);
    bench_tell_part(&tuner->rank, bytes, 0, 1);
    if (!measure(tuner, &one, captured, &result)) {
        return false;
    }
    bench_tell_part(&tuner->rank, 0, 0, 1); /* progress: the finished result follows, so its part is 0 again */
    if (tuner->rank.rank == 0 && write(rows, &result, sizeof result) != (ssize_t)sizeof result) {
        return bench_fail(&tuner->rank, "the parent is gone");
    }
    return true;
}

static bool run_sizes(tuner_t *tuner, const bench_kind_t *kind, int rows)
{
    const tune_options_t *options = tuner->options;
    memset(&tuner->winner, 0, sizeof tuner->winner);
    for (uint32_t i = 0; i < options->sizes; i++) {
        if (!run_case(tuner, kind, !options->eager, options->size[i], rows)) {
            return false;
        }
    }
    return true;
}

static bool run_cases(tuner_t *tuner, int rows)
{
    const tune_options_t *options = tuner->options;
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        bench_kind_t kind = {.collective = (alg_collective_t)c};
        for (uint32_t type = 0; (options->collectives >> c & 1) != 0; type++) {
            type = tune_next_type(options, kind.collective, type);
            if (type == bench_type_count) {
                break;
            }
            kind.type = (int32_t)type;
            if (!run_sizes(tuner, &kind, rows)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- Few cases ---- */

/* The collectives that decode and training steps use most are first. */
static const alg_collective_t quick_order[] = {ALG_ALL_REDUCE, ALG_ALL_GATHER, ALG_REDUCE_SCATTER,
                                               ALG_ALL_TO_ALL, ALG_SEND_RECV,  ALG_BROADCAST,
                                               ALG_REDUCE,     ALG_GATHER,     ALG_SCATTER};
_Static_assert(sizeof quick_order / sizeof quick_order[0] == ALG_COLLECTIVE_COUNT, "each has its place");

static bool run_points(tuner_t *tuner, alg_collective_t collective, bool coarse, tune_points_t *points, int rows)
{
    const tune_options_t *options = tuner->options;
    const bench_kind_t kind = {.collective = collective, .type = (int32_t)tune_next_type(options, collective, 0)};
    uint64_t bytes;
    memset(&tuner->winner, 0, sizeof tuner->winner);
    while ((bytes = tune_points_next(points, coarse)) != 0) {
        if (!run_case(tuner, &kind, !options->eager, bytes, rows)) {
            return false;
        }
        tune_points_add(points, bytes, tuner->winner.name);
    }
    return true;
}

/* Measure coarse sizes of every collective, then the ranges in which the choice changes. */
static bool run_quick(tuner_t *tuner, int rows)
{
    static tune_points_t points[ALG_COLLECTIVE_COUNT];
    const tune_options_t *options = tuner->options;
    for (int fine = 0; fine < 2; fine++) {
        for (int i = 0; i < ALG_COLLECTIVE_COUNT; i++) {
            const alg_collective_t collective = quick_order[i];
            tune_points_t *of = &points[collective];
            of->from_bytes = options->from_bytes;
            of->to_bytes = options->to_bytes;
            if ((options->collectives >> collective & 1) != 0 && !run_points(tuner, collective, fine == 0, of, rows)) {
                return false;
            }
        }
    }
    return true;
}

static bool learn_facts(tuner_t *tuner)
{
    bench_rank_t *rank = &tuner->rank;
    tuner->facts.size = sizeof tuner->facts;
    if (rank->shunt.shunt_communicator(rank->side[0].comm, &tuner->facts) != 0 || tuner->facts.ranks == 0) {
        return bench_fail(rank, "Shunt forwards this communicator, so there is nothing to tune; SHUNT_DEBUG=info "
                                "says why");
    }
    return true;
}

bool tune_rank_run(const void *job, bench_shared_t *shared, uint32_t number, int rows)
{
    const tune_job_t *work = job;
    static tuner_t tuner; /* too large for the stack */
    tuner.options = work->options;
    tuner.final_rounds = tuner.options->quick ? TUNE_QUICK_ROUNDS : TUNE_FINAL_ROUNDS;
    tuner.bench.ranks = work->ranks;
    tuner.bench.to_bytes = work->options->to_bytes;
    tuner.bench.nccl = true;
    tuner.bench.beside = tuner.options->beside && !tuner.options->check;
    for (uint32_t side = 0; side < 2; side++) {
        tuner.rank.side[side].op = ncclSum;
    }
    if (!bench_rank_open(&tuner.rank, &tuner.bench, shared, number) || !learn_facts(&tuner)) {
        return false;
    }
    return (tuner.options->quick ? run_quick(&tuner, rows) : run_cases(&tuner, rows)) && bench_rank_close(&tuner.rank);
}
