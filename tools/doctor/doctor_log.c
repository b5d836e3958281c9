/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_log.c - reads the library's log (SHUNT_DEBUG=info) and gives advice.
 *
 * The lines are those of shim/setup/verdict.c and shim/real/real.c; the reasons come from all of shim/setup/. An
 * unknown reason is printed without advice.
 */
#include <stdio.h>
#include <string.h>

#include "tools/base/folder.h"
#include "tools/doctor/doctor.h"

typedef struct advice {
    const char *words; /* of the reason */
    const char *text;
} advice_t;

static const advice_t advices[] = {
    {"ranks are on this host and run Shunt",
     "start every rank under `shunt run`, all on one host: put it behind a launcher (mpirun -np N shunt run -- CMD), "
     "or at the start of a container's command"},
    {"no shared memory", "give the container shared memory: docker run --ipc=host, or --shm-size=1g"},
    {"is on another host", "nothing: between hosts Shunt serves only short all-reduces (docs/hosts.md)"},
    {"by more than sockets",
     "try SHUNT_ALGO=allreduce:exchange, which has not been measured with RDMA (docs/hosts.md)"},
    {"did not come to an earlier meeting",
     "start every rank under `shunt run`, let the hosts reach each other's ports, "
     "and name their network in NCCL_SOCKET_IFNAME"},
    {"another version of Shunt", "let all ranks load the same libnccl.so.2"},
    {"shares its GPU", "give each rank a GPU of its own"},
    {"CUDA refuses it", "see the links above: a GPU that cannot reach the others, or containers that do not share IPC "
                        "(docker run --ipc=host)"},
    {"launchOrderImplicit is set", "leave launchOrderImplicit of the communicator's configuration at its default"},
    {"CTA policy is set",
     "leave NCCL_CTA_POLICY unset, and CTAPolicy of the communicator's configuration at its default"},
    {"SHUNT_DETERMINISTIC=1 gives",
     "set SHUNT_DETERMINISTIC=1 (`shunt run --deterministic`) if that variable is set for the same bits, and unset it "
     "otherwise (docs/determinism.md)"},
    {"is set, which only NCCL obeys", "unset that variable: it asks for NCCL's own algorithms"},
    {"neither peer access nor shared memory", "unset NCCL_P2P_DISABLE and NCCL_P2P_LEVEL, or NCCL_SHM_DISABLE"},
    {"NCCL_SHM_DISABLE is set", "unset NCCL_SHM_DISABLE"},
    {"SHUNT_ENABLE", "unset SHUNT_ENABLE"},
    {"is NCCL_COMM_ID shared", "give each communicator a unique id of its own"},
    {"built without CUDA", "build Shunt where nvcc is (cmake --preset release)"},
    {"stayed away", "see whether a rank hangs or is stopped"},
    {"died or gave up", "see why a rank ended early"},
};

const char *doctor_advice(const char *reason)
{
    for (size_t i = 0; i < sizeof advices / sizeof advices[0]; i++) {
        if (strstr(reason, advices[i].words) != NULL) {
            return advices[i].text;
        }
    }
    /* "16 ranks", and nothing more. */
    const char *rest = reason + strspn(reason, "0123456789");
    return rest != reason && strcmp(rest, " ranks") == 0 ? "nothing: Shunt serves communicators of 2 to 8 ranks" : NULL;
}

static void add_line(doctor_lines_t *lines, const char *text, size_t length)
{
    if (length >= DOCTOR_LINE_BYTES) {
        length = DOCTOR_LINE_BYTES - 1;
    }
    for (uint32_t i = 0; i < lines->count; i++) {
        if (strncmp(lines->text[i], text, length) == 0 && lines->text[i][length] == '\0') {
            lines->times[i]++;
            return;
        }
    }
    if (lines->count < DOCTOR_MOST_REASONS) {
        memcpy(lines->text[lines->count], text, length);
        lines->text[lines->count][length] = '\0';
        lines->times[lines->count++] = 1;
    }
}

/* "shunt: host:pid:thread INFO text" */
static void add_entry(const char *line, size_t length, doctor_log_t *log)
{
    static const char attached[] = "Shunt attached communicator", forwarded[] = "Shunt forwards communicator",
                      because[] = " to NCCL: ", real[] = "real NCCL ", at[] = " at ";
    const char *level = memchr(line, ' ', length), *end = line + length;
    level = level != NULL ? memchr(level + 1, ' ', (size_t)(end - level - 1)) : NULL;
    const char *text = level != NULL ? memchr(level + 1, ' ', (size_t)(end - level - 1)) : NULL;
    if (text == NULL) {
        return;
    }
    text++;
    const size_t bytes = (size_t)(end - text);
    if (bytes >= sizeof attached - 1 && memcmp(text, attached, sizeof attached - 1) == 0) {
        log->attached++;
    } else if (bytes >= sizeof forwarded - 1 && memcmp(text, forwarded, sizeof forwarded - 1) == 0) {
        const char *reason = memmem(text, bytes, because, sizeof because - 1);
        if (reason != NULL) {
            reason += sizeof because - 1;
            add_line(&log->forwarded, reason, (size_t)(end - reason));
        }
    } else if (bytes >= sizeof real - 1 && memcmp(text, real, sizeof real - 1) == 0) {
        const char *path = memmem(text, bytes, at, sizeof at - 1);
        if (path != NULL) {
            path += sizeof at - 1;
            add_line(&log->real, path, (size_t)(end - path));
        }
    } else if (strncmp(level, " WARN ", 6) == 0) {
        add_line(&log->warnings, text, bytes);
    }
}

void doctor_log_add(const char *text, doctor_log_t *log)
{
    for (const char *line = text; line[0] != '\0';) {
        const size_t length = strcspn(line, "\n");
        add_entry(line, length, log);
        line += length + (line[length] == '\n');
    }
}

static bool add_file(const char *text, void *log)
{
    doctor_log_add(text, log);
    return true;
}

void doctor_log_read(const char *folder, const char *prefix, doctor_log_t *log)
{
    memset(log, 0, sizeof *log);
    (void)tool_folder_each(folder, prefix, add_file, log);
}
