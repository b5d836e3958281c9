/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - see message.h. An end owns its buffer from message_prepare to message_finish. */
#include "message.h"

#include <stdlib.h>
#include <string.h>

static void fill(const message_t *m, void *data)
{
    const data_case_t c = {.type = m->type, .kind = DATA_BITS, .seed = m->seed, .count = m->count, .nranks = 1};
    data_fill(&c, 0, data);
}

static size_t bytes_of(const message_t *m)
{
    return m->count * ref_bytes(m->type);
}

void message_prepare(message_end_t *end, const message_t *m, bool sends, ncclComm_t comm, size_t offset)
{
    *end = (message_end_t){.m = *m, .sends = sends, .comm = comm};
    CHECK(data_buffer_make(&end->buffer, bytes_of(m), offset));
    if (sends)
        fill(m, end->buffer.data);
    end->hash = data_hash(0, end->buffer.data, bytes_of(m));
}

ncclResult_t message_issue_at(const message_end_t *end, void *data, cudaStream_t stream)
{
    const message_t *m = &end->m;
    if (m->count == 0)
        data = NULL;
    if (end->sends)
        return ncclSend(data, m->count, m->type, m->to, end->comm, stream);
    return m->as_bytes ? ncclRecv(data, bytes_of(m), ncclUint8, m->from, end->comm, stream)
                       : ncclRecv(data, m->count, m->type, m->from, end->comm, stream);
}

ncclResult_t message_issue(const message_end_t *end)
{
    return message_issue_at(end, end->buffer.data, NULL);
}

static void check_arrived(const message_end_t *end)
{
    const message_t *m = &end->m;
    const size_t bytes = bytes_of(m);
    char text[200];
    uint8_t *sent = malloc(bytes + 1);
    CHECK(sent);
    fill(m, sent);
    size_t i = 0;
    while (i < bytes && sent[i] == end->buffer.data[i])
        i++;
    if (i < bytes) {
        snprintf(text, sizeof(text), "byte %zu of %zu from rank %d to %d is %02x, not %02x (seed %llu)", i, bytes,
                 m->from, m->to, end->buffer.data[i], sent[i], (unsigned long long)m->seed);
        check_failed(__FILE__, __LINE__, "right message: ", text);
    }
    free(sent);
}

void message_finish(message_end_t *end)
{
    CHECK(data_buffer_guarded(&end->buffer));
    if (end->sends)
        CHECK(data_hash(0, end->buffer.data, bytes_of(&end->m)) == end->hash);
    else
        check_arrived(end);
    data_buffer_free(&end->buffer);
}

void message_run(const message_t *m, bool sends, ncclComm_t comm, size_t offset)
{
    message_end_t end;
    message_prepare(&end, m, sends, comm, offset);
    CHECK_NCCL(message_issue(&end));
    message_finish(&end);
}
