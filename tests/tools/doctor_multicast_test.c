/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `shunt doctor` says of NVLink multicast.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tools/doctor/doctor.h"

static void the_class_tells(void **state)
{
    (void)state;
    char text[DOCTOR_LINE_BYTES];
    assert_true(doctor_multicast_text("nvswitch-sm90-8-mc", text));
    assert_string_equal(text, "multicast: on (class nvswitch-sm90-8-mc): all-reduces, reduce-scatters and all-gathers "
                              "above 4 MB go to NCCL, except where `shunt tune` has measured Shunt to be faster");
    assert_true(doctor_multicast_text("nvswitch-sm90-m78-4", text));
    assert_string_equal(text,
                        "multicast: off (class nvswitch-sm90-m78-4), as where Shunt's built-in table was measured");
}

static void without_nvswitch_there_is_none(void **state)
{
    (void)state;
    char text[DOCTOR_LINE_BYTES];
    static const char *const names[] = {"", "host-4", "pcie-sm80-4", "mesh-sm80-4", "shm-sm89-4"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_false(doctor_multicast_text(names[i], text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_class_tells),
        cmocka_unit_test(without_nvswitch_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
