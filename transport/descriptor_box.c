/* SPDX-License-Identifier: Apache-2.0 */
/* descriptor_box.c - a box owns its socket, its name and the descriptors not yet taken. */
#define _GNU_SOURCE
#include "transport/descriptor_box.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { SEND_NAPS = 10000 };

typedef struct message {
    uint64_t to[2];
    uint64_t from[2];
} message_t;

typedef union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
} control_t;

/* `name` comes from a peer. */
static int address_of(const char *name, struct sockaddr_un *address)
{
    size_t length = strnlen(name, NET_BOX_NAME_BYTES);
    if (length == 0 || length == NET_BOX_NAME_BYTES || length >= sizeof address->sun_path)
        return -EPROTO;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path, name, length);
    return 0;
}

static void remove_name(net_box_t *box)
{
    if (box->name[0] != '\0')
        unlink(box->name);
    box->name[0] = '\0';
}

int net_box_open(net_box_t *box, const uint64_t token[2], char name[NET_BOX_NAME_BYTES])
{
    struct sockaddr_un address;
    uint64_t tag[2];
    const int on = 1;
    if (getrandom(tag, sizeof tag, 0) != sizeof tag)
        return -EIO;
    snprintf(name, NET_BOX_NAME_BYTES, "/dev/shm/shunt-%lu-%016" PRIx64 "%016" PRIx64 ".box", (unsigned long)geteuid(),
             tag[0], tag[1]);
    int error = address_of(name, &address);
    if (error)
        return error;
    int fd = net_descriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -errno;
    /* fchmod before bind gives the name this mode from the start, except for bits that the umask removes. */
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 || fchmod(fd, 0600) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        error = -errno;
        close(fd);
        return error;
    }
    if (chmod(name, 0600) != 0) {
        error = -errno;
        unlink(name);
        close(fd);
        return error;
    }
    *box = (net_box_t){.socket = fd, .mark = net_mark(fd), .token = {token[0], token[1]}};
    memcpy(box->name, name, sizeof box->name);
    return 0;
}

int net_box_send(const net_box_t *box, const char *name, const uint64_t to[2], int descriptor)
{
    struct sockaddr_un address;
    int error = address_of(name, &address);
    if (error)
        return error;
    message_t message = {.to = {to[0], to[1]}, .from = {box->token[0], box->token[1]}};
    control_t control = {0};
    struct iovec part = {.iov_base = &message, .iov_len = sizeof message};
    struct msghdr header = {.msg_name = &address,
                            .msg_namelen = sizeof address,
                            .msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = CMSG_SPACE(sizeof(int))};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
    for (int naps = 0; naps < SEND_NAPS; naps++) {
        if (sendmsg(box->socket, &header, MSG_NOSIGNAL) == (ssize_t)sizeof message)
            return 0;
        if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
            return -errno;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return -EAGAIN;
}

static int unpack(struct msghdr *header, bool *ours)
{
    int descriptor = -1;
    *ours = false;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(header); at; at = CMSG_NXTHDR(header, at)) {
        if (at->cmsg_level != SOL_SOCKET)
            continue;
        if (at->cmsg_type == SCM_CREDENTIALS && at->cmsg_len == CMSG_LEN(sizeof(struct ucred))) {
            struct ucred sender;
            memcpy(&sender, CMSG_DATA(at), sizeof sender);
            *ours = sender.uid == geteuid() || sender.uid == getuid();
        }
        if (at->cmsg_type == SCM_RIGHTS) {
            size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (size_t i = 0; i < count; i++) {
                int one;
                memcpy(&one, CMSG_DATA(at) + i * sizeof one, sizeof one);
                if (descriptor < 0)
                    descriptor = net_descriptor(one);
                else
                    close(one);
            }
        }
    }
    return descriptor;
}

/* False if there is no message. Drops a foreign message with its descriptor. */
static bool receive(net_box_t *box)
{
    message_t message;
    control_t control;
    struct iovec part = {.iov_base = &message, .iov_len = sizeof message};
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t size = recvmsg(box->socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0)
        return errno == EINTR;
    bool ours;
    int descriptor = unpack(&header, &ours);
    bool valid = ours && descriptor >= 0 && size == (ssize_t)sizeof message && !(header.msg_flags & MSG_TRUNC) &&
                 message.to[0] == box->token[0] && message.to[1] == box->token[1] && box->letters < NET_BOX_CAPACITY;
    if (valid)
        box->letter[box->letters++] = (net_box_letter_t){{message.from[0], message.from[1]}, descriptor};
    else if (descriptor >= 0)
        close(descriptor);
    return true;
}

int net_box_take(net_box_t *box, const uint64_t from[2], int *descriptor)
{
    /* limited, so that a flood of foreign messages ends */
    for (int i = 0; i < 4 * NET_BOX_CAPACITY && receive(box); i++)
        ;
    for (uint32_t i = 0; i < box->letters; i++) {
        if (box->letter[i].from[0] != from[0] || box->letter[i].from[1] != from[1])
            continue;
        *descriptor = box->letter[i].descriptor;
        box->letter[i] = box->letter[--box->letters];
        remove_name(box);
        return 0;
    }
    return -ENOENT;
}

void net_box_close(net_box_t *box)
{
    for (uint32_t i = 0; i < box->letters; i++)
        close(box->letter[i].descriptor);
    box->letters = 0;
    if (box->socket >= 0) {
        remove_name(box);
        net_close(box->socket, &box->mark);
    }
    box->socket = -1;
}

void net_box_sweep(const char *name, long seconds)
{
    struct sockaddr_un address;
    struct stat info;
    struct timespec now;
    if (address_of(name, &address) != 0 || lstat(name, &info) != 0 || !S_ISSOCK(info.st_mode) ||
        info.st_uid != geteuid() || clock_gettime(CLOCK_REALTIME, &now) != 0 || now.tv_sec - info.st_ctime < seconds)
        return;
    int fd = net_descriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 && errno == ECONNREFUSED)
        unlink(name);
    close(fd);
}
