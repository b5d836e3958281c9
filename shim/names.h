/*
 * names.h - NCCL's functions that have a body here, as the compiler sees them.
 *
 * The room is compiled with hidden visibility; the functions of names.def that
 * are treated are declared visible here, so their bodies need no attribute:
 *
 *     SHIM_PUBLIC(ncclCommCount);
 *     ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
 *     {
 */
#ifndef SHUNT_SHIM_NAMES_H
#define SHUNT_SHIM_NAMES_H

#include <nccl.h>

/* A function that the oldest nccl.h we build with does not declare. */
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 7)
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);
ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags);
#endif

#define SHIM_TREATED(name) extern __attribute__((visibility("default"))) __typeof__(name) name, p##name;
#include "shim/names.def"

/* Once a treated name, in the file that has its body: pncclX becomes a second name of ncclX. */
#define SHIM_PUBLIC(name) extern __typeof__(name) p##name __attribute__((alias(#name), visibility("default")))

#endif
