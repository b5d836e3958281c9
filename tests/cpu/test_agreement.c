/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks started with different settings: rank 0's apply to all, one line in all logs together names the ranks and
 * variables that differ, and results are right.
 */
#include "cpu.h"

#include <shunt.h>
#include <string.h>

enum { LOG_BYTES = 8192, TABLE_PATH_BYTES = 32 };

typedef struct wishes {
    const char *const (*set)[2]; /* variable and value, one pair a rank; value NULL: not set */
    const char *algorithm;       /* what every rank must use; NULL: not checked */
    const char *log;             /* where all ranks write */
} wishes_t;

static void reduce_and_destroy(ranks_t *ranks, ncclComm_t comm, const char *algorithm)
{
    static const size_t counts[] = {1, 1000, 20000};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        const data_case_t c = {
            .type = ncclFloat32, .kind = DATA_RANDOM, .seed = i + 1, .count = counts[i], .nranks = ranks->nranks};
        call_run(comm, ranks->rank, &c, (call_shape_t){0}, &hash);
        shunt_decision_t decision = {.size = sizeof(decision)};
        CHECK(shunt_last_decision(&decision) == 0);
        CHECK(algorithm == NULL || strcmp(decision.algorithm, algorithm) == 0);
    }
    call_agree(ranks, hash);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void wishing_body(ranks_t *ranks)
{
    const wishes_t *wishes = ranks->arg;
    const char *const *pair = wishes->set[ranks->rank];
    if (pair[1] != NULL)
        setenv(pair[0], pair[1], 1);
    setenv("SHUNT_DEBUG_FILE", wishes->log, 1);
    for (int again = 0; again < 2; again++) /* the second communicator logs no other line */
        reduce_and_destroy(ranks, ranks_init(ranks), wishes->algorithm);
}

/* Run ranks with these settings; returns all ranks' logs. */
static void run(int nranks, const char *const (*set)[2], const char *algorithm, char *log)
{
    char path[] = "/tmp/shunt-agreement-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const wishes_t wishes = {.set = set, .algorithm = algorithm, .log = path};
    cpu_run(RANKS_PROCESSES, nranks, wishing_body, &wishes);
    ssize_t got = read(fd, log, LOG_BYTES - 1);
    close(fd);
    unlink(path);
    log[got > 0 ? got : 0] = '\0';
}

static int lines_of(const char *log)
{
    int lines = 0;
    for (; *log != '\0'; log++)
        lines += *log == '\n';
    return lines;
}

static void expect_one_line(const char *log, const char *text)
{
    if (lines_of(log) != 1 || strstr(log, " WARN ") == NULL || strstr(log, text) == NULL)
        fail_msg("not one warning with \"%s\":\n%s", text, log);
}

static void the_same_settings(void **state)
{
    (void)state;
    static const char *const set[][2] = {{"SHUNT_ALGO", "twoshot"}, {"SHUNT_ALGO", "twoshot"}};
    char log[LOG_BYTES];
    run(2, set, "twoshot", log);
    assert_string_equal(log, "");
}

static void two_policies(void **state)
{
    (void)state;
    static const char *const set[][2] = {{"SHUNT_ALGO", "twoshot"}, {"SHUNT_ALGO", "oneshot"}};
    char log[LOG_BYTES];
    run(2, set, "twoshot", log);
    expect_one_line(log, "set them alike: SHUNT_ALGO (rank 1)\n");
}

static void unset_on_rank_0(void **state)
{
    (void)state;
    static const char *const set[][2] = {
        {"SHUNT_ALGO", NULL}, {"SHUNT_ALGO", "staged"}, {"SHUNT_ALGO", NULL}, {"SHUNT_ALGO", "^staged"}};
    char log[LOG_BYTES];
    run(4, set, NULL, log);
    expect_one_line(log, "set them alike: SHUNT_ALGO (ranks 1, 3)\n");
}

/* A rank with the policy `nccl`, which the CPU device cannot follow, gets rank 0's. */
static void forwarding_on_one_rank(void **state)
{
    (void)state;
    static const char *const set[][2] = {{"SHUNT_ALGO", "oneshot"}, {"SHUNT_ALGO", "nccl"}};
    char log[LOG_BYTES];
    run(2, set, NULL, log);
    expect_one_line(log, "SHUNT_ALGO (rank 1)\n");
}

static void several_variables(void **state)
{
    (void)state;
    static const char *const set[][2] = {{"SHUNT_ALGO", "twoshot"},
                                         {"SHUNT_SCRATCH_BYTES", "2M"},
                                         {"SHUNT_MAX_CTAS", "1"},
                                         {"SHUNT_DETERMINISTIC", "1"}};
    char log[LOG_BYTES];
    run(4, set, "twoshot", log);
    expect_one_line(log, "SHUNT_SCRATCH_BYTES (rank 1), SHUNT_MAX_CTAS (rank 2), SHUNT_DETERMINISTIC (rank 3), "
                         "SHUNT_ALGO (ranks 1, 2, 3)\n");
}

static void write_table(char path[TABLE_PATH_BYTES], const char *line)
{
    snprintf(path, TABLE_PATH_BYTES, "/tmp/shunt-table-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0 && dprintf(fd, "# shunt table 1\n# machine: 0\n%s\n", line) > 0);
    close(fd);
}

static void two_tables(void **state)
{
    (void)state;
    char path[TABLE_PATH_BYTES], log[LOG_BYTES];
    write_table(path, "allreduce,2,host-2,any,any,0,,staged,1,1,test");
    const char *const tuned_first[][2] = {{"SHUNT_TABLE", path}, {"SHUNT_TABLE", NULL}};
    run(2, tuned_first, "staged", log);
    expect_one_line(log, "set them alike: SHUNT_TABLE (rank 1)\n");
    const char *const tuned_last[][2] = {{"SHUNT_TABLE", NULL}, {"SHUNT_TABLE", path}};
    run(2, tuned_last, NULL, log);
    expect_one_line(log, "set them alike: SHUNT_TABLE (rank 1)\n");
    unlink(path);
}

/* Tables with the same rows but different figures of the links do not cause different predictions on the ranks. */
static void two_links(void **state)
{
    (void)state;
    char path[2][TABLE_PATH_BYTES], log[LOG_BYTES];
    write_table(path[0], "# link: 390 GB/s among 2 GPUs, one way 1 us");
    write_table(path[1], "# link: 20 GB/s among 2 GPUs, one way 1 us");
    const char *const differ[][2] = {{"SHUNT_TABLE", path[0]}, {"SHUNT_TABLE", path[1]}};
    run(2, differ, NULL, log);
    expect_one_line(log, "set them alike: SHUNT_TABLE (rank 1)\n");
    const char *const alike[][2] = {{"SHUNT_TABLE", path[1]}, {"SHUNT_TABLE", path[1]}};
    run(2, alike, NULL, log);
    assert_string_equal(log, "");
    unlink(path[0]);
    unlink(path[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_settings), cmocka_unit_test(two_policies),
        cmocka_unit_test(unset_on_rank_0),   cmocka_unit_test(forwarding_on_one_rank),
        cmocka_unit_test(several_variables), cmocka_unit_test(two_tables),
        cmocka_unit_test(two_links),
    };
    /* Sanitizer runs give every rank a small scratch, which is a setting too. */
    unsetenv("SHUNT_SCRATCH_BYTES");
    setenv("SHUNT_CACHE_DIR", "/nowhere", 1); /* not the tuned table of the user who runs this */
    cpu_limit(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
