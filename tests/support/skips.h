/* SPDX-License-Identifier: Apache-2.0 */
/* skips.h - skipped tests of cmocka's programs, which end with TEST_SKIPPED (skips.c). After cmocka.h. */
#ifndef SHUNT_TESTS_SKIPS_H
#define SHUNT_TESTS_SKIPS_H

enum { TEST_SKIPPED = 77 }; /* SKIP_RETURN_CODE (cmake/tests.cmake) */

/* End this test as skipped. scripts/skips reads the line. */
#define skip_because(reason)                    \
    do {                                        \
        print_message("skipped: " reason "\n"); \
        skip();                                 \
    } while (0)

#endif
