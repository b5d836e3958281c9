/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - log lines in the form of libnccl.so.2's (shim/base/log.h), always to stderr; SHUNT_DEBUG=none stops them.
 * Safe from any thread; preserves errno. Shunt's own logger needs Shunt's libnccl.so.2, and the process may have
 * another NCCL. */
#ifndef SHUNT_SHIM_EP_LOG_H
#define SHUNT_SHIM_EP_LOG_H

void shim_ep_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
