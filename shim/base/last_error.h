/* SPDX-License-Identifier: Apache-2.0 */
/*
 * last_error.h - the text behind ncclGetLastError, where Shunt found the error.
 */
#ifndef SHUNT_SHIM_LAST_ERROR_H
#define SHUNT_SHIM_LAST_ERROR_H

/* What ncclGetLastError says from now on; with an empty text, what the real NCCL says. */
void shim_set_last_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "" where the real NCCL is to be asked. The thread's own copy, until it asks again. */
const char *shim_last_error(void);

#endif
