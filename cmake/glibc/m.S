/* SPDX-License-Identifier: Apache-2.0 */
/* m.S - functions of libm.so.6 that since glibc 2.29 do not call a program's matherr. */
#include "old.inc"

    .irp name, exp, exp2, log, log2, pow
    old \name, 2.2.5
    .endr
