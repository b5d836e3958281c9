/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shrink.h - the keys of the children that a shrink makes.
 */
#ifndef SHUNT_SHIM_SHRINK_H
#define SHUNT_SHIM_SHRINK_H

#include "shim/comm/comm.h"

/* A shrink of `parent` without these ranks (in any order) begins: the key of its child, the same on all
 * ranks that are left. NULL for a list that is none, or without memory. */
shim_shrink_t *shim_shrink_begin(shim_comm_t *parent, const int *excluded, int count, net_key_t *child);
/* It was refused at once, so the other ranks wait for this one under the same key. NULL is fine. */
void shim_shrink_take_back(shim_shrink_t *shrink);
/* The end of a state: free what was counted. */
void shim_shrink_forget(shim_comm_t *comm);

#endif
