/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - opens the files that Shunt writes. */
#ifndef SHUNT_SHIM_FILE_H
#define SHUNT_SHIM_FILE_H

/* Opens or creates a file for writing, close-on-exec. `flags`: further flags of open(2), not O_TRUNC, since an existing
 * file is checked first. -1 with the reason in `why` if the file is not the user's own (file.c). Character devices,
 * /dev/stderr and /dev/stdout are allowed. */
int shim_file_open(const char *path, int flags, const char **why);

/* 2 if stderr is open, else -1. A descriptor 2 with close-on-exec is a file opened after the program closed stderr. */
int shim_file_stderr(void);

#endif
