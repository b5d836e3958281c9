/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.h - a private folder for the files of a command's processes: statistics, logs, output.
 */
#ifndef SHUNT_TOOLS_FOLDER_H
#define SHUNT_TOOLS_FOLDER_H

#include <limits.h>
#include <stdbool.h>

/* Make a folder in $TMPDIR or /tmp that no other user can read. False after a message. */
bool tool_folder_make(const char *command, char path[PATH_MAX]);
void tool_folder_remove(const char *path);
/* Pass the text of each plain file whose name begins with `prefix` (at most the first 16 MiB, ended by a NUL) to
 * `visit`. False if the folder or a file cannot be read, or `visit` returned false. */
bool tool_folder_each(const char *folder, const char *prefix, bool (*visit)(const char *text, void *context),
                      void *context);

#endif
