/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - this library's log lines, in the form of libnccl.so.2's (shim/base/log.h), always to stderr; SHUNT_DEBUG=none
 * stops them. Safe from any thread; preserves errno. A logger of its own, since Shunt's needs libnccl.so.2's settings
 * and file, and that may be another NCCL. */
#ifndef SHUNT_SHIM_EP_LOG_H
#define SHUNT_SHIM_EP_LOG_H

void shim_ep_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
