/* SPDX-License-Identifier: Apache-2.0 */
/* shrink.h - the keys of a shrink's children. */
#ifndef SHUNT_SHIM_SHRINK_H
#define SHUNT_SHIM_SHRINK_H

#include "shim/comm/comm.h"

/* Begin a shrink without these ranks, listed in any order. Sets the child's key, equal on all remaining ranks. NULL: an
 * invalid list, or no memory. */
shim_shrink_t *shim_shrink_begin(shim_comm_t *parent, const int *excluded, int count, net_key_t *child);
/* The shrink was refused, so the next one uses its key. NULL is allowed. */
void shim_shrink_take_back(shim_shrink_t *shrink);
void shim_shrink_forget(shim_comm_t *comm);

#endif
