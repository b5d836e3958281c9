/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_multicast.c - whether the real NCCL may use NVLink multicast, as the class of the GPUs says
 * (docs/topology.md).
 */
#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor.h"

/* The text's 4 MB are MULTICAST_MOST_BYTES of selector/table.c. */
bool doctor_multicast_text(const char *class_name, char text[DOCTOR_LINE_BYTES])
{
    static const char mark[] = "-mc", meaning[] = "all-reduces, reduce-scatters and all-gathers above 4 MB go to NCCL, "
                                                  "except where `shunt tune` has measured Shunt to be faster";
    const size_t length = strlen(class_name);
    if (length >= strlen(mark) && strcmp(class_name + length - strlen(mark), mark) == 0) {
        snprintf(text, DOCTOR_LINE_BYTES, "multicast: on (class %s): %s", class_name, meaning);
        return true;
    }
    snprintf(text, DOCTOR_LINE_BYTES, "multicast: off (class %s), as where Shunt's built-in table was measured",
             class_name);
    return strncmp(class_name, "nvswitch-", strlen("nvswitch-")) == 0;
}
