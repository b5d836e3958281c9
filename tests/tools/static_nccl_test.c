/* SPDX-License-Identifier: Apache-2.0 */
/* static_nccl_test.c - which files count as having NCCL linked in. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "tools/doctor/static_nccl.h"

/* As in JAX's plugin: a function that opens the shared library and jumps into it. It has NCCL's name, and no size. */
__asm__(".pushsection .text\n"
        ".type ncclCommInitRank, %function\n"
        "ncclCommInitRank:\n"
        ".4byte 0\n"
        ".popsection\n");

static void functions_count(void **state)
{
    (void)state;
    assert_true(tool_static_nccl(STATIC));
}

static void stubs_do_not(void **state)
{
    (void)state;
    assert_false(tool_static_nccl("/proc/self/exe"));
}

static void nor_does_what_cannot_be_read(void **state)
{
    (void)state;
    assert_false(tool_static_nccl("/nowhere/file"));
    assert_false(tool_static_nccl("/"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_count),
        cmocka_unit_test(stubs_do_not),
        cmocka_unit_test(nor_does_what_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
