/* SPDX-License-Identifier: Apache-2.0 */
/* table_test.c - what a process reads of its tuned table (setup/table_load.c), in CPU mode, whose NCCL has version 0.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka wants the three above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shim/setup/table_load.h"

/* A change of NCCL and back: a class's last line counts, and its place among the classes. */
static void classes_are_in_the_order_of_their_last_lines(void **state)
{
    static const char text[] = "# shunt table 2\n# machine: 0000000000000007\n"
                               "# measured: shm-sm89-4-p2p, nccl 0\n"
                               "# measured: pcie-sm89-4, nccl 22809\n"
                               "# measured: pcie-sm89-2, nccl 0\n"
                               "# measured: nvswitch-sm90-4, nccl 22809\n"
                               "# measured: shm-sm89-4-p2p, nccl 22809\n";
    char path[] = "/tmp/shunt-table-XXXXXX";
    sel_tuned_t tuned = {0};
    (void)state;
    const int file = mkstemp(path);
    assert_true(file >= 0 && write(file, text, sizeof text - 1) == (ssize_t)(sizeof text - 1) && close(file) == 0);
    setenv("SHUNT_DEVICE", "cpu", 1);
    setenv("SHUNT_TABLE", path, 1);
    shim_table_wanted(4, 7, &tuned);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tuned.machine, 7);
    assert_int_equal(tuned.measured[0], sel_class_hash("pcie-sm89-4"));
    assert_int_equal(tuned.measured[1], sel_class_hash("nvswitch-sm90-4"));
    assert_int_equal(tuned.measured[2], sel_class_hash("shm-sm89-4-p2p"));
    assert_int_equal(tuned.measured[3], 0);
    assert_int_equal(tuned.old, 7);
    assert_int_equal(tuned.known, 4); /* once measured with this NCCL */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(classes_are_in_the_order_of_their_last_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
