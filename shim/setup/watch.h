/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - host mode: the thread that watches peers.
 */
#ifndef SHUNT_SHIM_WATCH_H
#define SHUNT_SHIM_WATCH_H

/* Start it, once a process. For the first communicator of the host device. */
void shim_host_watch(void);

#endif
