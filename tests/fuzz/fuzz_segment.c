/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_segment.c - a rendezvous segment as another process may have written it: every query is answered from within the
 * segment, and nothing hangs or accesses memory outside it.
 *
 * Input: records of a place in the segment (4 bytes), a length (1 byte) and that many
 * bytes, which are written there.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/segment.h"

enum { RANKS = 4 };

static char name[SEGMENT_NAME_BYTES];
static uint8_t *segment, *pristine;
static net_rendezvous_t *joined;
static net_key_t key;

static void expect(int so)
{
    if (!so)
        abort();
}

static void remove_segment(void)
{
    shm_unlink(name);
}

static void begin(void)
{
    const int64_t pid = getpid();
    key = net_key_hash(&pid, sizeof(pid));
    const net_key_t shown = net_key_name(&key);
    snprintf(name, sizeof(name), "/shunt-%lu-%016" PRIx64 "%016" PRIx64, (unsigned long)geteuid(), shown.word[0],
             shown.word[1]);
    expect(net_join(&key, &joined) == 0 && net_set_rank(joined, 0, RANKS) == 0);
    expect(net_post(joined, 0, name, sizeof(name)) == 0);
    atexit(remove_segment);
    const int fd = shm_open(name, O_RDWR, 0);
    segment = mmap(NULL, sizeof(net_segment_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    expect(fd >= 0 && segment != MAP_FAILED);
    close(fd);
    pristine = malloc(sizeof(net_segment_t));
    memcpy(pristine, segment, sizeof(net_segment_t));
}

static void scribble(const uint8_t *data, size_t size)
{
    while (size >= 5) {
        uint32_t at;
        memcpy(&at, data, sizeof(at));
        const size_t place = at % sizeof(net_segment_t);
        size_t length = data[4] < size - 5 ? data[4] : size - 5;
        const size_t room = sizeof(net_segment_t) - place, written = length < room ? length : room;
        memcpy(segment + place, data + 5, written);
        data += 5 + length;
        size -= 5 + length;
    }
}

static void ask_everything(void)
{
    static uint8_t record[NET_RECORD_BYTES];
    expect(net_count(joined) <= NET_MAX_SLOTS + 1);
    for (uint32_t stage = 0; stage < NET_STAGES; stage++) {
        (void)net_poll(joined, stage);
        (void)net_missing(joined, stage);
        for (uint32_t rank = 0; rank <= RANKS; rank++) {
            size_t size = 0;
            if (net_read(joined, stage, rank, record, sizeof(record), &size) == 0)
                expect(size <= net_record_bytes(stage));
        }
    }
    for (uint32_t rank = 0; rank <= RANKS; rank++) {
        (void)net_rank_gone(joined, rank);
        (void)net_present(joined, rank);
    }
    const char *reason = net_reason(joined);
    expect(strlen(reason) < SEGMENT_REASON_BYTES);
    for (; *reason; reason++)
        expect(*reason >= ' ' && *reason <= '~');
    expect(net_verdict(joined) <= NET_DECLINED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!joined)
        begin();
    memcpy(segment, pristine, sizeof(net_segment_t));
    scribble(data, size);
    ask_everything();
    net_set_away(joined, true);
    (void)net_decide(joined, NET_DECLINED, "done");
    expect(net_verdict(joined) != NET_PENDING);
    ask_everything();
    return 0;
}
