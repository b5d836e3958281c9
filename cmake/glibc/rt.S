/* SPDX-License-Identifier: Apache-2.0 */
/* rt.S - functions that glibc 2.34 moved from librt.so.1 into libc.so.6. */
#include "old.inc"

    old shm_open, 2.2.5
    old shm_unlink, 2.2.5
