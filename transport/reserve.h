/* SPDX-License-Identifier: Apache-2.0 */
/* reserve.h - pages for a file in memory. */
#ifndef SHUNT_TRANSPORT_RESERVE_H
#define SHUNT_TRANSPORT_RESERVE_H

#include <stddef.h>

/* Allocates all pages of the file now: a lack of memory is -ENOSPC or -ENOMEM here, not a SIGBUS later. -EFBIG: above
 * `ulimit -f`. */
int net_reserve(int fd, size_t bytes);

#endif
