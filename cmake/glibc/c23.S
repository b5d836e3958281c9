/* SPDX-License-Identifier: Apache-2.0 */
/* c23.S - functions of which glibc's headers name, since 2.38, variants that read binary numbers (0b1) too. */
#include "old.inc"

    .irp name, fscanf, sscanf, vsscanf, strtol, strtoll, strtoul, strtoull, strtoimax, strtoumax
    jump __isoc23_\name, \name
    .endr
