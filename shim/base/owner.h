/* SPDX-License-Identifier: Apache-2.0 */
/* owner.h - whether a folder is another user's, asked before root leaves a file there. sudo may keep the caller's HOME,
 * and the caller's own programs could not write to root's files. */
#ifndef SHUNT_SHIM_OWNER_H
#define SHUNT_SHIM_OWNER_H

#include <stdbool.h>

/* True if this process is root and a folder on the absolute `path` belongs to another user. The path's last part is not
 * checked; missing folders are skipped. */
bool shim_path_is_foreign(const char *path);

#endif
