/* SPDX-License-Identifier: Apache-2.0 */
/* preload.c - an empty library to preload. */
int tools_preload_marker(void);

int tools_preload_marker(void)
{
    return 1;
}
