/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - opens the files that Shunt writes: log, statistics, trace.
 */
#ifndef SHUNT_SHIM_FILE_H
#define SHUNT_SHIM_FILE_H

/* Open a file to write, close-on-exec, or make it; `flags` are further ones of open(2), without O_TRUNC: an existing
 * file must be checked first. -1 with the reason in `why` if it is not this user's own file: another user with write
 * access to the folder could otherwise choose the file that is overwritten. Character devices (/dev/null, a terminal)
 * are allowed, and so are /dev/stderr and /dev/stdout. */
int shim_file_open(const char *path, int flags, const char **why);

/* Descriptor 2 if it may be written to as stderr; -1 if it is closed, or close-on-exec: then it is a file that the
 * program opened after it had closed stderr, which no program's children would miss. */
int shim_file_stderr(void);

#endif
