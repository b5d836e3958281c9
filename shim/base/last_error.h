/* SPDX-License-Identifier: Apache-2.0 */
/*
 * last_error.h - the text behind ncclGetLastError, where Shunt found the error.
 */
#ifndef SHUNT_SHIM_LAST_ERROR_H
#define SHUNT_SHIM_LAST_ERROR_H

/* Set the text of ncclGetLastError; an empty text restores the real NCCL's. */
void shim_set_last_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "" means: ask the real NCCL. The text is a copy that the thread owns until it asks again. */
const char *shim_last_error(void);

#endif
