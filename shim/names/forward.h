/*
 * forward.h - what a call gets that nobody serves.
 */
#ifndef SHUNT_SHIM_FORWARD_H
#define SHUNT_SHIM_FORWARD_H

/* One log line for a name of NCCL's that cannot be called here: why, and what to do. The first time a name
 * is met; its call then returns ncclInvalidUsage. */
void shim_forward_missing(const char *name);

#endif
