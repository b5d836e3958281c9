/* SPDX-License-Identifier: Apache-2.0 */
/* preload.c - a library to preload that does nothing but be found. */
int tools_preload_marker(void);

int tools_preload_marker(void)
{
    return 1;
}
