/* SPDX-License-Identifier: Apache-2.0 */
/* dl.S - functions that glibc 2.34 moved from libdl.so.2 into libc.so.6. */
#include "old.inc"

    .irp name, dladdr, dlclose, dlerror, dlopen, dlsym, dlvsym
    old \name, 2.2.5
    .endr
    old dladdr1, 2.3.3
    old dlinfo, 2.3.3
    old dlmopen, 2.3.4
