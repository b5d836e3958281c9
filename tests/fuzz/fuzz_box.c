/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_box.c - messages to the box of descriptors: only one with this box's token gives
 * a descriptor, once, and all others are closed.
 *
 * Input: records of a byte, how many descriptors go with the message (0 to 3), a length,
 * and that many bytes.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/descriptor_box.h"

enum { MOST = 3 };

static void expect(int so)
{
    if (!so)
        abort();
}

/* The lowest free descriptor number, which is the same before and after unless a descriptor was left open. */
static int lowest(void)
{
    const int number = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    expect(number >= 0 && close(number) == 0);
    return number;
}

static void send_message(int to, const uint8_t *bytes, size_t size, size_t count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MOST * sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)bytes, size};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof(int));
        for (size_t i = 0; i < count; i++)
            memcpy(CMSG_DATA(rights) + i * sizeof(int), &to, sizeof(int));
    }
    (void)sendmsg(to, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t token[2] = {0x5151515151515151, 0x5252525252525252},
                   from[2] = {0x5353535353535353, 0x5454545454545454};
    const int on = 1, before = lowest();
    int pair[2], taken = -1;
    expect(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    expect(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0);
    net_box_t box = {.socket = pair[0], .mark = net_mark(pair[0]), .token = {token[0], token[1]}};
    bool may_give = false;
    for (int messages = 0; size >= 2 && messages < 32; messages++) {
        const size_t length = data[1] < size - 2 ? data[1] : size - 2, count = data[0] % (MOST + 1);
        send_message(pair[1], data + 2, length, count);
        may_give = may_give || (length >= 32 && memcmp(data + 2, token, 16) == 0 && memcmp(data + 18, from, 16) == 0);
        data += 2 + length;
        size -= 2 + length;
    }
    if (net_box_take(&box, from, &taken) == 0) {
        expect(may_give && taken >= 0 && close(taken) == 0);
    }
    expect(box.letters <= NET_BOX_CAPACITY);
    net_box_close(&box);
    close(pair[1]);
    expect(lowest() == before);
    return 0;
}
