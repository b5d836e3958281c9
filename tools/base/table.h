/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - a tuned table's file, and whether programs use it.
 */
#ifndef SHUNT_TOOLS_TABLE_H
#define SHUNT_TOOLS_TABLE_H

#include "tools/base/tool.h"

/* Read a file, at most one byte more than a table may have. The caller frees the text. False: errno says why. */
bool tool_table_read(const char *path, char **text, size_t *bytes);
/* Whether programs use the table, as the library decides (shim/setup/table_load.c); with `forced` also another
 * machine's. False: `fault` begins with the path, and says why. */
bool tool_table_is_used(const char *path, uint64_t machine, bool forced, char fault[TOOL_ERROR_BYTES]);

#endif
