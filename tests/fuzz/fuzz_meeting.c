/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_meeting.c - what guests send to the listener, with or without the secret: its table stays consistent, and every
 * known guest is a rank of its group.
 *
 * Input: records of a guest's number, a length, and that many bytes which it says.
 */
#include <stdlib.h>
#include <sys/socket.h>

#define net_invite fuzz_net_invite /* the library has them, too */
#define net_invitation_valid fuzz_net_invitation_valid
#include "transport/network/listener.c"

enum { CALLERS = 4 };

static listener_t fuzzed = {.socket = -1, .secret = {0x5151515151515151, 0x5252525252525252}};

static void expect(int so)
{
    if (!so)
        abort();
}

static int find_guest(int connection)
{
    for (uint32_t i = 0; i < fuzzed.guests; i++) {
        if (fuzzed.guest[i].connection == connection)
            return (int)i;
    }
    return -1;
}

static void check_guests(void)
{
    expect(fuzzed.guests <= CALLERS);
    for (uint32_t i = 0; i < fuzzed.guests; i++) {
        const guest_t *guest = &fuzzed.guest[i];
        expect(!guest->known || (guest->hello.rank < guest->hello.nranks && guest->hello.nranks <= NET_NETWORK_RANKS &&
                                 guest->round < guest->hello.rounds));
        expect(!guest->posted || guest->head.bytes <= NET_ROUND_BYTES);
    }
}

/* Hear a guest until it has nothing more to send or is gone. */
static void hear_out(int connection)
{
    for (int looks = 0; looks < 64; looks++) {
        const int at = find_guest(connection);
        if (at < 0)
            return;
        hear_guest(&fuzzed, (uint32_t)at);
        check_guests();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pair[CALLERS][2];
    for (int i = 0; i < CALLERS; i++) {
        expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair[i]) == 0);
        fuzzed.guest[fuzzed.guests++] = (guest_t){.connection = pair[i][0]};
    }
    while (size >= 2) {
        const uint32_t who = data[0] % CALLERS;
        const size_t length = data[1] < size - 2 ? data[1] : size - 2;
        if (find_guest(pair[who][0]) >= 0 && send(pair[who][1], data + 2, length, MSG_NOSIGNAL) >= 0)
            hear_out(pair[who][0]);
        data += 2 + length;
        size -= 2 + length;
    }
    while (fuzzed.guests > 0)
        remove_guest(&fuzzed, 0);
    for (int i = 0; i < CALLERS; i++)
        wire_close(pair[i][1]);
    return 0;
}
