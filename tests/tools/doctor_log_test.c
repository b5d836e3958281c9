/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `shunt doctor` reads from the library's log, and its advice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tools/doctor/doctor.h"

static void entries(void **state)
{
    (void)state;
    doctor_log_t log = {0};
    doctor_log_add(
        "shunt: a:1:1 INFO opened the real NCCL: nccl_version=2.28.9 nccl_path=/x y\n"
        "shunt: a:1:1 INFO Shunt attached communicator 0x1: verdict=attached rank=0 ranks=4 rules=r\n"
        "shunt: a:1:1 INFO Shunt forwards communicator 0x2 to NCCL: verdict=forwarded reason=RANKS why=9 ranks\n"
        "shunt: a:2:2 INFO Shunt forwards communicator 0x3 to NCCL: verdict=forwarded reason=RANKS why=9 ranks\n"
        "shunt: a:2:2 WARN Shunt forwards communicator 0x3 to NCCL: verdict=forwarded reason=NEW why=a fault\n"
        "shunt: a:2:2 WARN a thing happened\n"
        "shunt:\n\nshunt: a WARN\nother words\nshunt: a:1:1 INFO Shunt attached communicator 0x4: verdict=attached",
        &log);
    assert_int_equal(log.attached, 2);
    assert_int_equal(log.forwarded.count, 2);
    assert_string_equal(log.forwarded.text[0], "9 ranks");
    assert_int_equal(log.forwarded.times[0], 2);
    assert_string_equal(log.forwarded.text[1], "a fault");
    assert_int_equal(log.real.count, 1);
    assert_string_equal(log.real.text[0], "/x y");
    assert_int_equal(log.warnings.count, 1);
    assert_string_equal(log.warnings.text[0], "a thing happened");
}

/* More reasons than fit, and one that is too long, do no harm. */
static void bounds(void **state)
{
    (void)state;
    static const char head[] = "shunt: a:1:1 WARN ";
    doctor_log_t log = {0};
    char line[2048];
    for (int i = 0; i < 2 * DOCTOR_MOST_REASONS; i++) {
        snprintf(line, sizeof line, "%sline %d %01500d\n", head, i, 0);
        doctor_log_add(line, &log);
        doctor_log_add(line, &log);
    }
    assert_int_equal(log.warnings.count, DOCTOR_MOST_REASONS);
    assert_int_equal(strlen(log.warnings.text[0]), DOCTOR_LINE_BYTES - 1);
    assert_int_equal(log.warnings.times[DOCTOR_MOST_REASONS - 1], 2);
}

static void advice(void **state)
{
    (void)state;
    static const struct {
        const char *line, *word; /* NULL: no advice */
    } cases[] = {
        {"reason=FEW_HERE why=2 of its 4 ranks met on this node; the others are elsewhere, or run without Shunt",
         "shunt run"},
        {"reason=NO_SEGMENT why=no shared memory", "--ipc=host"},
        {"reason=VARIABLE why=rank 1: NCCL_CHECK_MODE is set", "unset"},
        {"reason=PINNED why=NCCL_ALGO is set", "shunt run --deterministic"},
        {"reason=FAST_NODES why=its ranks are on several nodes", "docs/nodes.md"},
        {"reason=NODES_ALONE why=ranks of other nodes did not come", "ports"},
        {"reason=RANKS why=16 ranks", "2 to 8"},
        {"reason=SETTINGS why=rank 0 has settings that are out of range", NULL},
        {"reason=NEWER why=what nobody knows", NULL},
        {"why=2 of its 4 ranks met on this node; the others are elsewhere, or run without Shunt", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        doctor_log_t log = {0};
        char line[256];
        snprintf(line, sizeof line, "shunt: a:1:1 INFO Shunt forwards it: verdict=forwarded %s\n", cases[i].line);
        doctor_log_add(line, &log);
        assert_int_equal(log.forwarded.count, 1);
        assert_int_equal(log.forwarded.advice[0] != NULL, cases[i].word != NULL);
        assert_true(cases[i].word == NULL || strstr(log.forwarded.advice[0], cases[i].word) != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(entries), cmocka_unit_test(bounds), cmocka_unit_test(advice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
