/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals.h - the signals that end a command: SIGINT, SIGTERM and SIGHUP, except those that it was started to ignore
 * (nohup).
 */
#ifndef SHUNT_TOOLS_SIGNALS_H
#define SHUNT_TOOLS_SIGNALS_H

#include <signal.h>

/* Sets their handler. Interrupted system calls fail with EINTR. */
void tool_signals_catch(void (*handler)(int signal));
/* Adds them to a set. */
void tool_signals_add(sigset_t *set);
/* In a rank: its parent gets them, and ends it. Ignores all three. */
void tool_signals_ignore(void);

#endif
