/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h - CPU mode: the thread that watches peers. */
#ifndef SHUNT_SHIM_WATCH_H
#define SHUNT_SHIM_WATCH_H

/* Start the thread unless it runs; logs a failure. */
void shim_cpu_watch(void);

#endif
