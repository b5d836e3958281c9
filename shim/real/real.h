/* SPDX-License-Identifier: Apache-2.0 */
/* real.h - the real NCCL, to which calls are forwarded: opened on first need, never in a constructor, and kept until
 * the process ends. Safe from any thread. */
#ifndef SHUNT_SHIM_REAL_H
#define SHUNT_SHIM_REAL_H

#include <stdbool.h>

#include "shim/names/names.h"

/* A version code as arguments for "%d.%d.%d". */
#define SHIM_VERSION_PARTS(code) (code) / 10000, (code) / 100 % 100, (code) % 100

typedef struct shim_real {
    void *handle;     /* of dlopen */
    const char *path; /* absolute, without links */
    int version;      /* as ncclGetVersion returns it: 22809 */
/* Never NULL: a function that the library lacks logs one line and returns ncclInvalidUsage. */
#define SHIM_TREATED(name) __typeof__(&name) name;
#include "shim/names/names.def"
} shim_real_t;

/* The real NCCL; NULL: there is none, and never will be. The first call opens hundreds of MB, in up to a second. */
const shim_real_t *shim_real(void);
/* The same, but NULL in CPU mode, where it takes no calls. */
const shim_real_t *shim_real_used(void);
/* After shim_real returned NULL: one line with cause and remedy; else "". */
const char *shim_real_failure(void);
/* As shim_real. Without a real NCCL it sets the last error, and the caller returns ncclSystemError. */
const shim_real_t *shim_real_need(const char *function);
/* As shim_real. Without a real NCCL its functions set the last error and return ncclSystemError. */
const shim_real_t *shim_real_or_none(void);
static inline bool shim_is_error(ncclResult_t result)
{
    return result != ncclSuccess && result != ncclInProgress;
}

/* The real NCCL's result. After an error, ncclGetLastError returns its text. */
ncclResult_t shim_real_answer(ncclResult_t result);
/* Fills the table with functions that log one line and return ncclInvalidUsage. */
void shim_real_fill_missing(shim_real_t *table);
void shim_real_log_missing(const char *name);
/* Address of a function, if the library itself defines it. NULL: it does not, or there is no library. */
void *shim_real_symbol(const shim_real_t *real, const char *name);

/* False, after one log line, if the process has another real NCCL. */
bool shim_real_alone(const shim_real_t *real);

#endif
