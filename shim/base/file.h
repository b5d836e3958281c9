/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - opens the files that Shunt writes: log, statistics, trace.
 */
#ifndef SHUNT_SHIM_FILE_H
#define SHUNT_SHIM_FILE_H

/* Open or make a file for writing, close-on-exec. `flags`: more of open(2)'s, not O_TRUNC, since existing files are
 * checked first. -1 with the reason in `why` if it is not the user's own: whoever may write to the folder could
 * otherwise choose the file. Character devices, /dev/stderr and /dev/stdout are allowed. */
int shim_file_open(const char *path, int flags, const char **why);

/* 2 if stderr is open; else -1. A close-on-exec descriptor 2 is a file that the program opened after closing stderr. */
int shim_file_stderr(void);

#endif
