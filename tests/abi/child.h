/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.h - run a scenario in a process of its own.
 *
 * A process decides once which NCCL is the real one, so every scenario that loads
 * one gets a new process. Its stderr, with the log, comes back as text.
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

/* 0 if the scenario returned 0. A signal, another value or more than 300 s give -1, and the child's stderr is shown.
 * `log` gets that text in any case, cut to `capacity`. */
int child_run(int (*scenario)(void *argument), void *argument, char *log, size_t capacity);

/* Number of times that a text occurs in a log. */
int child_count(const char *log, const char *text);

/* Sets the environment of every scenario: of Shunt's settings only the device, and the path if given. */
void child_settings(const char *device, const char *nccl_path);

#endif
