/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owner.h - whose a folder is, before root leaves a file there.
 *
 * sudo may keep the caller's HOME. A file of root's in it is one that the caller cannot replace, and a folder of root's
 * one in which the caller's own programs cannot leave a table.
 */
#ifndef SHUNT_SHIM_OWNER_H
#define SHUNT_SHIM_OWNER_H

#include <stdbool.h>

/* Whether this process is root, and a folder on the absolute path `path`, whose last part is not looked at, belongs to
 * another user. Folders that are missing belong to nobody. */
bool shim_path_is_foreign(const char *path);

#endif
