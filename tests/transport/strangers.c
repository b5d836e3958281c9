/* SPDX-License-Identifier: Apache-2.0 */
#include "strangers.h"

#include <arpa/inet.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int stranger_call(const net_address_t *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(address->port)};
    memcpy(&to.sin_addr, address->ip, 4);
    int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made >= 0 && connect(made, (struct sockaddr *)&to, sizeof(to)) != 0) {
        close(made);
        made = -1;
    }
    return made;
}

int stranger_bytes(int connection)
{
    uint8_t byte[64];
    int all = 0;
    struct pollfd one = {.fd = connection, .events = POLLIN};
    for (;;) {
        if (poll(&one, 1, LONG_S * 1000) <= 0)
            return -1;
        ssize_t got = recv(connection, byte, sizeof(byte), 0);
        if (got <= 0)
            return all;
        all += (int)got;
    }
}

wire_hello_t stranger_hello(const group_t *group, uint32_t rank, uint32_t nranks)
{
    return (wire_hello_t){.magic = WIRE_MAGIC,
                          .secret = {group->invitation.secret[0], group->invitation.secret[1]},
                          .group = group->key,
                          .rank = rank,
                          .nranks = nranks,
                          .rounds = 1};
}
