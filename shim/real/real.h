/* SPDX-License-Identifier: Apache-2.0 */
/*
 * real.h - the real NCCL, to which calls are forwarded.
 *
 * Found and opened on first need, never in a constructor, and kept until the
 * process ends. Safe from any thread.
 */
#ifndef SHUNT_SHIM_REAL_H
#define SHUNT_SHIM_REAL_H

#include <stdbool.h>

#include "shim/names/names.h"

/* A version code as arguments for "%d.%d.%d". */
#define SHIM_VERSION_PARTS(code) (code) / 10000, (code) / 100 % 100, (code) % 100

typedef struct shim_real {
    void *handle;     /* of dlopen */
    const char *path; /* absolute, without links */
    int version;      /* as ncclGetVersion says: 22809 */
/* Each treated function, never NULL: one that the library lacks logs one line and returns ncclInvalidUsage. */
#define SHIM_TREATED(name) __typeof__(&name) name;
#include "shim/names/names.def"
} shim_real_t;

/* NULL if there is none; the answer is final. Host mode must not call it. The first call may take a second: it
 * searches, and opens a library of hundreds of MB. */
const shim_real_t *shim_real(void);
/* After shim_real said NULL: why, and what to do, as one line without an end. "" otherwise. */
const char *shim_real_failure(void);
/* For a call that needs it: if there is none, sets the last error; the caller returns ncclSystemError. */
const shim_real_t *shim_real_need(const char *function);
static inline bool shim_is_error(ncclResult_t result)
{
    return result != ncclSuccess && result != ncclInProgress;
}

/* Returns the real NCCL's result. After an error, ncclGetLastError returns its text. */
ncclResult_t shim_real_answer(ncclResult_t result);
/* Every function of the table becomes one that logs one line and returns ncclInvalidUsage. */
void shim_real_fill_missing(shim_real_t *table);
/* One log line for a name of NCCL's that cannot be called here: why, and what to do. */
void shim_real_log_missing(const char *name);
/* Address of any function of the library itself, NULL if it does not define it, or in a table without a library. */
void *shim_real_symbol(const shim_real_t *real, const char *name);

/* False while another real NCCL is loaded in this process, after one line that says so. */
bool shim_real_alone(const shim_real_t *real);

#endif
