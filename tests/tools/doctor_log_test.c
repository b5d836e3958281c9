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
    doctor_log_add("shunt: a:1:1 INFO real NCCL 2.28.9 at /x\n"
                   "shunt: a:1:1 INFO Shunt attached communicator 0x1: rank 0 of 4, class c-4, machine 0, rules: r\n"
                   "shunt: a:1:1 INFO Shunt forwards communicator 0x2 (rank 0 of 9, class unknown) to NCCL: 9 ranks\n"
                   "shunt: a:2:2 INFO Shunt forwards communicator 0x3 (rank 1 of 9, class unknown) to NCCL: 9 ranks\n"
                   "shunt: a:2:2 WARN Shunt forwards communicator 0x3 (rank 1 of 2, class c) to NCCL: a fault\n"
                   "shunt: a:2:2 WARN a thing happened\n"
                   "shunt:\n\nshunt: a WARN\nother words\nshunt: a:1:1 INFO Shunt attached communicator 0x4",
                   &log);
    assert_int_equal(log.attached, 2);
    assert_int_equal(log.forwarded.count, 2);
    assert_string_equal(log.forwarded.text[0], "9 ranks");
    assert_int_equal(log.forwarded.times[0], 2);
    assert_string_equal(log.forwarded.text[1], "a fault");
    assert_int_equal(log.real.count, 1);
    assert_string_equal(log.real.text[0], "/x");
    assert_int_equal(log.warnings.count, 1);
    assert_string_equal(log.warnings.text[0], "a thing happened");
}

/* More reasons than are stored, and one that is too long. */
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
    assert_non_null(strstr(doctor_advice("2 of its 4 ranks are on this host and run Shunt"), "shunt run"));
    assert_non_null(strstr(doctor_advice("no shared memory to meet the other ranks in: No space"), "--ipc=host"));
    assert_non_null(strstr(doctor_advice("NCCL_CHECK_MODE is set, which only NCCL obeys"), "unset"));
    assert_non_null(strstr(doctor_advice("NCCL_ALGO is set, which only NCCL obeys; if it is for the same bits, "
                                         "SHUNT_DETERMINISTIC=1 gives them faster"),
                           "shunt run --deterministic"));
    assert_non_null(strstr(doctor_advice("its ranks are on several hosts, which NCCL reaches by more than sockets"),
                           "docs/hosts.md"));
    assert_non_null(strstr(
        doctor_advice("ranks of other hosts did not come to an earlier meeting, or could not be reached"), "ports"));
    assert_non_null(strstr(doctor_advice("16 ranks"), "2 to 8"));
    assert_null(doctor_advice("rank 3 has settings that nobody knows"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(entries), cmocka_unit_test(bounds), cmocka_unit_test(advice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
