/* SPDX-License-Identifier: Apache-2.0 */
/*
 * children.h - run a body as several ranks, each in a process or a thread.
 *
 * Bodies return 0 or the line of the first failed check, after reporting it on
 * stderr: cmocka's assertions belong to the test's own process and thread.
 */
#ifndef SHUNT_TESTS_CHILDREN_H
#define SHUNT_TESTS_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "transport/transport.h"

#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            return __LINE__;                                                \
        }                                                                   \
    } while (0)

typedef int (*body_t)(uint32_t rank, uint32_t nranks, void *argument);

#ifndef LONG_S
#define LONG_S 300 /* after which a child is killed by its alarm; a broken build (broken.cmake) waits less */
#endif

/* Run a body in processes; returns the number of ranks that failed. */
int run_processes(uint32_t nranks, body_t body, void *argument);
int run_threads(uint32_t nranks, body_t body, void *argument);
/* One child; its pid. wait_child: true if it returned 0. */
pid_t start_child(body_t body, uint32_t rank, uint32_t nranks, void *argument);
bool wait_child(pid_t pid);
/* End a child that waits to be ended; true if it lived until then. */
bool end_child(pid_t pid);

net_key_t random_key(void);
/* Wait until `count` ranks have joined (200 s); below: until all have posted a stage. 0, or net_poll's error. */
int wait_count(const net_rendezvous_t *rendezvous, uint32_t count);
int wait_stage(const net_rendezvous_t *rendezvous, uint32_t stage);
/* The number of this user's segments that have a name. */
int segment_names(void);
int open_descriptors(void);
/* The number of lines of /proc/self/maps that contain `text`. */
int mappings_of(const char *text);

#endif
