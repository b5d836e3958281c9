/* SPDX-License-Identifier: Apache-2.0 */
/* network_ranks.h - ranks that meet and connect, for tests of the network. Each is a thread or a process. */
#ifndef SHUNT_TESTS_NETWORK_RANKS_H
#define SHUNT_TESTS_NETWORK_RANKS_H

#include "children.h"
#include "transport/network/meeting.h"

#ifndef LONG_S
#define LONG_S 300 /* a broken build (broken.cmake) waits less */
#endif
enum { MOST = 4, WINDOW = 1 << 20 };

extern const net_interfaces_t loopback;

net_limit_t for_long(void);
net_limit_t for_ms(uint32_t ms);

/* One group of ranks. */
typedef struct group {
    net_invitation_t invitation;
    net_key_t key;
} group_t;

/* The key is of zeros where there is no invitation. */
group_t new_group(void);
/* Meet twice, and exchange records of two lengths. `argument` is a group. */
int meet_twice(uint32_t rank, uint32_t nranks, void *argument);

net_landing_t new_landing(uint32_t nranks);
void free_landing(net_landing_t *landing);
uint64_t flag_of(const net_landing_t *landing, uint32_t peer);

/* Connect all ranks of a test; 0 or the line that failed. */
int connect_all(const group_t *group, const net_rdma_t *rdma, uint32_t rank, uint32_t nranks,
                const net_landing_t *landing, net_network_t **network);
/* Put 20 steps to every peer, alternately at both ends of the window, and then NET_PUTS at a time. */
int put_steps(net_network_t *network, const net_landing_t *landing, uint32_t rank, uint32_t nranks);
/* Made-up devices have threads, which the thread sanitizer allows to no child of a program that has some. */
#if defined(__SANITIZE_THREAD__)
#define CHILDREN_HAVE_DEVICES false
#else
#define CHILDREN_HAVE_DEVICES true
/* Runs the tests, or the one that the program's first argument names, for at most LONG_S. Returns the number of
 * failures. */
struct CMUnitTest;
int network_run(const struct CMUnitTest *tests, size_t count, int argc, char **argv);

#endif
/* Connect as SHUNT_IBV_SO says (rdma_wish.h), put, and close. `argument` is a group. */
int connect_and_put(uint32_t rank, uint32_t nranks, void *argument);

/* Runs the tests, or the one that the program's first argument names, for at most LONG_S. Returns the number of
 * failures. */
struct CMUnitTest;
int network_run(const struct CMUnitTest *tests, size_t count, int argc, char **argv);

#endif
