/* SPDX-License-Identifier: Apache-2.0 */
/*
 * info.h - the sub-commands that only print information; argv[0] is the sub-command's name.
 */
#ifndef SHUNT_TOOLS_INFO_H
#define SHUNT_TOOLS_INFO_H

int tool_info(int argc, char **argv);
int tool_settings(int argc, char **argv);

#endif
