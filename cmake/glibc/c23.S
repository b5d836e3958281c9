/* SPDX-License-Identifier: Apache-2.0 */
/* c23.S - the names that glibc's headers give these functions since 2.38. The newer ones read binary numbers (0b1) too. */
#include "old.inc"

    .irp name, fscanf, sscanf, vsscanf, strtol, strtoll, strtoul, strtoull, strtoimax, strtoumax
    jump __isoc23_\name, \name
    .endr
