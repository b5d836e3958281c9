/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - host mode: the thread that watches peers.
 */
#ifndef SHUNT_SHIM_WATCH_H
#define SHUNT_SHIM_WATCH_H

/* Start it, once a process, for the host device's first communicator. */
void shim_host_watch(void);

#endif
