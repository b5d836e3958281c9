/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.h - run a scenario in a process of its own.
 *
 * Which NCCL is the real one is decided once a process, so every scenario that
 * loads one gets a fresh process. What it writes to stderr, which is where the
 * log goes, comes back as text.
 */
#ifndef SHUNT_TESTS_CHILD_H
#define SHUNT_TESTS_CHILD_H

#include <stddef.h>
#include <stdio.h>

/* In a scenario: it fails, says where, and ends. */
#define CHILD_CHECK(condition)                                                      \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            return 1;                                                               \
        }                                                                           \
    } while (0)

/* 0 if the scenario returned 0. A signal, another value or 300 s without an end are -1, and the child's
 * stderr is shown. `log` gets that text in any case, cut to `capacity`. */
int child_run(int (*scenario)(void *argument), void *argument, char *log, size_t capacity);

/* How often a text occurs in a log. */
int child_count(const char *log, const char *text);

/* The environment of every scenario: no setting of Shunt's but the device, and the path if there is one. */
void child_settings(const char *device, const char *nccl_path);

#endif
