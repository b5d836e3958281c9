/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box_test.c - the box through which descriptors travel, and that damaged or hostile messages do no harm.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <setjmp.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "children.h"
#include "tests/support/skips.h"
#include "transport/descriptor_box.h"

enum { ANOTHER_USER = 54321 /* an unused user id */ };

static const uint64_t TOKEN_A[2] = {1, 2}, TOKEN_B[2] = {3, 4}, TOKEN_C[2] = {5, 6};

static bool same_file(int a, int b)
{
    struct stat info_a, info_b;
    return fstat(a, &info_a) == 0 && fstat(b, &info_b) == 0 && info_a.st_ino == info_b.st_ino &&
           info_a.st_dev == info_b.st_dev;
}

static void test_box_delivers(void **state)
{
    (void)state;
    char name_a[NET_BOX_NAME_BYTES], name_b[NET_BOX_NAME_BYTES];
    net_box_t a, b;
    int got;
    int before = open_descriptors();
    int one = memfd_create("one", 0), two = memfd_create("two", 0);
    assert_int_equal(net_box_open(&a, TOKEN_A, name_a), 0);
    assert_int_equal(net_box_open(&b, TOKEN_B, name_b), 0);
    assert_string_not_equal(name_a, name_b);
    assert_int_equal(net_box_take(&b, TOKEN_A, &got), -ENOENT);
    assert_int_equal(net_box_send(&a, name_b, TOKEN_B, one), 0);
    assert_int_equal(net_box_send(&b, name_b, TOKEN_B, two), 0);
    assert_int_equal(net_box_take(&b, TOKEN_C, &got), -ENOENT);
    assert_int_equal(net_box_take(&b, TOKEN_A, &got), 0);
    assert_true(same_file(got, one));
    close(got);
    assert_int_equal(net_box_take(&b, TOKEN_A, &got), -ENOENT);
    /* The second is never taken: closing the box closes it. */
    net_box_close(&a);
    net_box_close(&b);
    assert_int_equal(net_box_send(&a, name_b, TOKEN_B, one), -EBADF);
    close(one);
    close(two);
    assert_int_equal(open_descriptors(), before);
}

static void test_box_refuses(void **state)
{
    (void)state;
    char name_a[NET_BOX_NAME_BYTES], name_b[NET_BOX_NAME_BYTES], unterminated[NET_BOX_NAME_BYTES];
    net_box_t a, b;
    int got;
    assert_int_equal(net_box_open(&a, TOKEN_A, name_a), 0);
    assert_int_equal(net_box_open(&b, TOKEN_B, name_b), 0);
    int before = open_descriptors();
    assert_int_equal(net_box_send(&a, name_b, TOKEN_C, a.socket), 0); /* not b's token */
    assert_int_equal(net_box_take(&b, TOKEN_A, &got), -ENOENT);
    memset(unterminated, 'x', sizeof unterminated);
    assert_int_equal(net_box_send(&a, unterminated, TOKEN_B, a.socket), -EPROTO);
    assert_int_equal(net_box_send(&a, "", TOKEN_B, a.socket), -EPROTO);
    net_box_close(&b);
    assert_int_equal(net_box_send(&a, name_b, TOKEN_B, a.socket), -ENOENT);
    assert_int_equal(open_descriptors(), before - 1);
    net_box_close(&a);
}

typedef struct box_target {
    char name[NET_BOX_NAME_BYTES];
} box_target_t;

/* Send raw messages that are short or have two descriptors or none. */
static int send_rubbish(uint32_t rank, uint32_t nranks, void *argument)
{
    const box_target_t *target = argument;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)rank, (void)nranks;
    memcpy(address.sun_path, target->name, strlen(target->name));
    const socklen_t size = sizeof address;
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(fd >= 0);
    uint64_t words[8] = {TOKEN_B[0], TOKEN_B[1], TOKEN_A[0], TOKEN_A[1]};
    CHECK(sendto(fd, words, 32, 0, (struct sockaddr *)&address, size) == 32); /* no descriptor */
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = words, .iov_len = 8};
    struct msghdr header = {.msg_name = &address,
                            .msg_namelen = size,
                            .msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(rights), (int[]){0, 1}, 2 * sizeof(int));
    for (part.iov_len = 8; part.iov_len <= 64; part.iov_len += 28) /* too short, short, too long */
        CHECK(sendmsg(fd, &header, 0) == (ssize_t)part.iov_len);
    return 0;
}

/* Another user cannot send to the box, and so cannot fill it: a message of this user fits. */
static int send_as_stranger(uint32_t rank, uint32_t nranks, void *argument)
{
    const box_target_t *target = argument;
    char name[NET_BOX_NAME_BYTES];
    net_box_t box;
    (void)rank, (void)nranks;
    CHECK(setuid(ANOTHER_USER) == 0);
    CHECK(net_box_open(&box, TOKEN_A, name) == 0);
    for (int i = 0; i < 1000; i++)
        CHECK(net_box_send(&box, target->name, TOKEN_B, box.socket) == -EACCES);
    CHECK(unlink(target->name) != 0);
    net_box_close(&box);
    return 0;
}

static int open_and_vanish(uint32_t rank, uint32_t nranks, void *argument)
{
    box_target_t *target = argument;
    net_box_t box;
    (void)rank, (void)nranks;
    return net_box_open(&box, TOKEN_A, target->name);
}

static void test_box_of_another_user(void **state)
{
    (void)state;
    box_target_t target;
    net_box_t box, friend;
    char name[NET_BOX_NAME_BYTES];
    int got;
    if (geteuid() != 0)
        skip_because("another user needs root");
    assert_int_equal(net_box_open(&box, TOKEN_B, target.name), 0);
    assert_int_equal(net_box_open(&friend, TOKEN_A, name), 0);
    assert_int_equal(run_processes(1, send_as_stranger, &target), 0);
    assert_int_equal(net_box_send(&friend, target.name, TOKEN_B, friend.socket), 0);
    assert_int_equal(net_box_take(&box, TOKEN_A, &got), 0);
    close(got);
    net_box_close(&friend);
    net_box_close(&box);
}

/* No name remains in use: the name of a box with a dead owner is removed, that of an open box stays. */
static void test_box_names(void **state)
{
    (void)state;
    box_target_t *dead = mmap(NULL, sizeof *dead, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    net_box_t box, friend;
    char name[NET_BOX_NAME_BYTES], other[NET_BOX_NAME_BYTES];
    int got;
    assert_true(dead != MAP_FAILED);
    assert_int_equal(net_box_open(&box, TOKEN_B, name), 0);
    assert_int_equal(net_box_open(&friend, TOKEN_A, other), 0);
    assert_int_equal(run_processes(1, open_and_vanish, dead), 0);
    net_box_sweep(dead->name, 60);
    assert_int_equal(access(dead->name, F_OK), 0);
    net_box_sweep(dead->name, 0);
    assert_int_equal(access(dead->name, F_OK), -1);
    net_box_sweep(name, 0);
    assert_int_equal(access(name, F_OK), 0);
    assert_int_equal(net_box_send(&friend, name, TOKEN_B, friend.socket), 0);
    assert_int_equal(net_box_take(&box, TOKEN_A, &got), 0);
    close(got);
    assert_int_equal(access(name, F_OK), -1);
    net_box_close(&friend);
    assert_int_equal(access(other, F_OK), -1);
    net_box_close(&box);
    munmap(dead, sizeof *dead);
}

static void test_box_survives_invalid_messages(void **state)
{
    (void)state;
    box_target_t target;
    net_box_t box;
    int got;
    assert_int_equal(net_box_open(&box, TOKEN_B, target.name), 0);
    int before = open_descriptors();
    assert_int_equal(run_processes(1, send_rubbish, &target), 0);
    assert_int_equal(net_box_take(&box, TOKEN_A, &got), -ENOENT);
    assert_int_equal(open_descriptors(), before);
    net_box_close(&box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_box_delivers),
        cmocka_unit_test(test_box_refuses),
        cmocka_unit_test(test_box_survives_invalid_messages),
        cmocka_unit_test(test_box_of_another_user),
        cmocka_unit_test(test_box_names),
    };
    return cmocka_run_group_tests_name("box", tests, NULL, NULL);
}
