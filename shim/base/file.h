/*
 * file.h - opens the files that Shunt writes: log, statistics, trace.
 */
#ifndef SHUNT_SHIM_FILE_H
#define SHUNT_SHIM_FILE_H

/* Open a file to write, close-on-exec, or make it; `flags` are those of open(2) beyond that, without O_TRUNC: what is
 * there must be looked at first. -1 with a few words in `why` for what is not this user's own file: another user who
 * can write to the folder could otherwise choose what is written over. A character device (/dev/null, a terminal) will
 * do, and /dev/stderr and /dev/stdout are what they name. */
int shim_file_open(const char *path, int flags, const char **why);

#endif
