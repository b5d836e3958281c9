/* SPDX-License-Identifier: Apache-2.0 */
/* segments.c - see segments.h. */
#include "segments.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "children.h"

void segment_name(const net_key_t *key, unsigned long uid, char name[SEGMENT_NAME_BYTES])
{
    const net_key_t shown = net_key_name(key);
    snprintf(name, SEGMENT_NAME_BYTES, "/shunt-%lu-%016lx%016lx", uid, (unsigned long)shown.word[0],
             (unsigned long)shown.word[1]);
}

bool segment_has_name(const net_key_t *key)
{
    char name[SEGMENT_NAME_BYTES];
    segment_name(key, geteuid(), name);
    int fd = shm_open(name, O_RDONLY, 0);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int whole_way(uint32_t rank, uint32_t nranks, void *argument)
{
    const net_key_t *key = argument;
    net_rendezvous_t *rendezvous;
    CHECK(net_join(key, &rendezvous) == 0);
    CHECK(wait_count(rendezvous, nranks) == 0);
    CHECK(net_set_rank(rendezvous, rank, nranks) == 0);
    for (uint32_t stage = 0; stage < NET_STAGES; stage++) {
        uint8_t record[NET_RECORD_BYTES];
        size_t size = rank == 0 ? 0 : net_record_bytes(stage) - rank;
        memset(record, (int)(rank * 16 + stage), sizeof record);
        CHECK(net_post(rendezvous, stage, record, size) == 0);
        CHECK(wait_stage(rendezvous, stage) == 0);
        for (uint32_t peer = 0; peer < nranks; peer++) {
            size_t got = 1;
            CHECK(net_read(rendezvous, stage, peer, record, sizeof record, &got) == 0);
            CHECK(got == (peer == 0 ? 0 : net_record_bytes(stage) - peer));
            for (size_t i = 0; i < got; i++)
                CHECK(record[i] == peer * 16 + stage);
            /* After the last stage a peer's process may have ended. */
            CHECK(stage == NET_STAGES - 1 || !net_rank_gone(rendezvous, peer));
        }
        if (stage == 0)
            net_unlink(rendezvous);
    }
    CHECK(net_decide(rendezvous, NET_ATTACHED, NULL) == NET_ATTACHED);
    CHECK(net_decide(rendezvous, NET_DECLINED, "too late") == NET_ATTACHED);
    CHECK(strcmp(net_reason(rendezvous), "") == 0);
    net_leave(rendezvous);
    return 0;
}
