/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.h - run a scenario in a process of its own.
 *
 * A process decides once which NCCL is the real one, so every scenario that loads one gets a new process. Its stderr,
 * which contains the log, is returned as text.
 */
#ifndef SHUNT_TESTS_CHILD_H
#define SHUNT_TESTS_CHILD_H

#include <stddef.h>
#include <stdio.h>

/* In a scenario: fail, print where, and exit. */
#define CHILD_CHECK(condition)                                                            \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
            return 1;                                                                     \
        }                                                                                 \
    } while (0)

/* Run a scenario. 0 if it returned 0; -1 after another value, a signal or 300 s, and the child's stderr is then
 * printed. `log` always gets the child's stderr, cut to `capacity`. */
int child_run(int (*scenario)(void *argument), void *argument, char *log, size_t capacity);

/* The number of times that a text occurs in a log. */
int child_count(const char *log, const char *text);

/* Set the environment of the following scenarios: the only settings of Shunt are the device and, if given, the path of
 * NCCL. */
void child_settings(const char *device, const char *nccl_path);

#endif
