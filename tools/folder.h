/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.h - a private folder for what the processes of a command leave: statistics, logs, output.
 */
#ifndef SHUNT_TOOLS_FOLDER_H
#define SHUNT_TOOLS_FOLDER_H

#include <limits.h>
#include <stdbool.h>

/* A new folder in $TMPDIR or /tmp that nobody else can read. False: told, for `command`. */
bool tool_folder_make(const char *command, char path[PATH_MAX]);
/* The folder and the files in it. */
void tool_folder_remove(const char *path);
/* Visit each plain file whose name begins with `prefix`, as text that ends with a NUL; of a larger one its first 16
 * MiB. False: the folder or a file cannot be read, or the visitor said so. */
bool tool_folder_each(const char *folder, const char *prefix, bool (*visit)(const char *text, void *context),
                      void *context);

#endif
