/* SPDX-License-Identifier: Apache-2.0 */
/* last_error.h - the text of ncclGetLastError for errors that Shunt found. */
#ifndef SHUNT_SHIM_LAST_ERROR_H
#define SHUNT_SHIM_LAST_ERROR_H

/* An empty text makes ncclGetLastError return the real NCCL's. */
void shim_set_last_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A copy, valid until this thread asks again; "": ask the real NCCL. */
const char *shim_last_error(void);

#endif
