/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owner.h - who owns a folder, before root leaves a file there.
 *
 * sudo may keep the caller's HOME. The caller's own programs cannot write to a root-owned file or folder there.
 */
#ifndef SHUNT_SHIM_OWNER_H
#define SHUNT_SHIM_OWNER_H

#include <stdbool.h>

/* True if this process is root and a folder on the absolute `path` belongs to another user. The last part of the path
 * is not checked; missing folders are skipped. */
bool shim_path_is_foreign(const char *path);

#endif
