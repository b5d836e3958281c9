/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h - CPU mode: starts the thread that watches peers, unless it runs; logs a failure. */
#ifndef SHUNT_SHIM_CPU_WATCH_H
#define SHUNT_SHIM_CPU_WATCH_H

void shim_cpu_watch(void);

#endif
