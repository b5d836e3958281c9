/* SPDX-License-Identifier: Apache-2.0 */
/* reserve.h - pages for a file in memory. Private to this folder. */
#ifndef SHUNT_TRANSPORT_RESERVE_H
#define SHUNT_TRANSPORT_RESERVE_H

#include <stddef.h>

/* Give the file this size and all its pages now: a lack of memory is -ENOSPC or -ENOMEM here and not a SIGBUS later.
 * -EFBIG if it is above the process's limit on file sizes. */
int net_reserve(int fd, size_t bytes);

#endif
