/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_machine.c - checks without a communicator: Shunt, NCCL, GPUs, links, shared memory, settings, table.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tools/base/table.h"
#include "tools/doctor/doctor.h"

enum { LEAST_SHARED_MIB = 16 }; /* the real NCCL needs some MiB a rank, Shunt some KiB */

/* ---- What the library reports, in a separate process ---- */

static void append(char *list, size_t capacity, const char *words)
{
    const size_t used = strlen(list);
    snprintf(list + used, capacity - used, "%s%s", used > 0 ? ", " : "", words);
}

/* The library reads the environment first, so it has refused a value there that it does not use. */
static void note_refused(const shunt_setting_t *setting, doctor_facts_t *facts)
{
    char text[512];
    const char *value = secure_getenv(setting->name);
    if (value != NULL && value[0] != '\0' && strcmp(setting->origin, "environment") != 0) {
        snprintf(text, sizeof text, "%s=%.100s (allowed: %s)", setting->name, value,
                 tool_setting_allows(setting->name));
        append(facts->refused, sizeof facts->refused, text);
    }
}

static void read_settings(const tool_shunt_t *shunt, doctor_facts_t *facts)
{
    shunt_setting_t setting;
    for (uint32_t i = 0; shunt->shunt_setting(i, &setting) == 0; i++) {
        char text[256];
        note_refused(&setting, facts);
        if (strcmp(setting.origin, "default") == 0 || strcmp(setting.value, setting.initial) == 0) {
            continue;
        }
        snprintf(text, sizeof text, "%s=%.100s (%.100s)", setting.name, setting.value, setting.origin);
        append(facts->settings, sizeof facts->settings, text);
        facts->disabled = facts->disabled || strcmp(setting.name, "SHUNT_ENABLE") == 0;
        facts->forced = facts->forced || strcmp(setting.name, "SHUNT_TABLE_FORCE") == 0;
        if (strcmp(setting.name, "SHUNT_TABLE") == 0) {
            snprintf(facts->table, sizeof facts->table, "%s", setting.value);
            facts->named = true;
        }
    }
}

/* A row's text ends with its source in parentheses. */
static void read_rules(const tool_shunt_t *shunt, doctor_facts_t *facts)
{
    char row[256];
    for (uint32_t i = 0; shunt->shunt_table_row(&facts->all, "allreduce", i, row, sizeof row) == 0; i++) {
        char *from = strrchr(row, '('), *to = strrchr(row, ')');
        if (from != NULL && to > from) {
            *to = '\0';
            if (strstr(facts->rules, from + 1) == NULL) {
                append(facts->rules, sizeof facts->rules, from + 1);
            }
        }
    }
}

static void query_library(void *argument)
{
    doctor_facts_t *facts = argument;
    tool_shunt_t shunt;
    if (!tool_open_shunt(&shunt, NULL, facts->error)) {
        return;
    }
    facts->all = (shunt_communicator_t){.size = sizeof facts->all};
    if (shunt.shunt_host_mode() == 1) {
        facts->all.ranks = 4;
        snprintf(facts->all.class_name, sizeof facts->all.class_name, "host-4");
    } else if (shunt.shunt_topology_class(NULL, &facts->all) != 0) {
        facts->all.ranks = 0;
    }
    read_settings(&shunt, facts);
    if (facts->all.ranks == 0) {
        return;
    }
    read_rules(&shunt, facts);
    if (!facts->named && (shunt.shunt_table_path(facts->all.machine, facts->table, sizeof facts->table) != 0 ||
                          access(facts->table, R_OK) != 0)) {
        return;
    }
    facts->tuned = tool_table_is_used(facts->table, facts->all.machine, facts->forced, facts->fault);
}

static void report_libraries(doctor_t *doctor)
{
    const bench_machine_t *machine = doctor->machine;
    char version[16];
    tool_version_text(machine->shunt_version, version);
    doctor_print(doctor, DOCTOR_OK, NULL, "Shunt %s, %s", version, doctor->report->library);
    doctor->check = "nccl";
    if (machine->nccl_version != 0) {
        tool_version_text(machine->nccl_version, version);
        doctor_print(doctor, DOCTOR_OK, NULL, "NCCL %s, %s", version, machine->nccl_path);
    } else if (!machine->cpu) {
        doctor_print(doctor, DOCTOR_FAULT,
                     "install NCCL (PyTorch's wheels bring it), or name it by SHUNT_NCCL_PATH=/path/libnccl.so.2",
                     "no NCCL found to forward calls to");
    }
}

static void report_gpus(doctor_t *doctor)
{
    const tool_gpus_t *gpus = &doctor->machine->gpus;
    if (doctor->machine->cpu) {
        const bool set = strstr(doctor->facts->settings, "SHUNT_DEVICE=cpu") != NULL ||
                         strstr(doctor->facts->settings, "SHUNT_DEVICE=host") != NULL; /* its older name */
        const bool built = bench_device_cuda != NULL;                                  /* this build has CUDA */
        doctor_print(doctor, DOCTOR_NOTE,
                     set     ? "unset SHUNT_DEVICE to use GPUs"
                     : built ? "to use GPUs, see whether nvidia-smi lists them (in a container: docker run --gpus all)"
                             : "to use GPUs, build Shunt where nvcc is (cmake --preset release)",
                     "no GPU is used: %s; the checks below use the CPU device, which is for tests and not for speed",
                     set ? "SHUNT_DEVICE is set to it" : "no CUDA driver answers");
        return;
    }
    if (gpus->count == 0) {
        doctor_print(doctor, DOCTOR_FAULT,
                     gpus->cuda_runtime == 0 ? "build Shunt where nvcc is (cmake --preset release)"
                     : gpus->cuda_driver != 0 && gpus->cuda_driver / 1000 < gpus->cuda_runtime / 1000
                         ? "install a newer driver, or build Shunt with a CUDA toolkit that this driver knows"
                         : "see whether nvidia-smi lists GPUs here (in a container: docker run --gpus all)",
                     "no GPU can be used: %s", gpus->error);
        return;
    }
    doctor_print(doctor, DOCTOR_OK, NULL, "%u x %s, driver %s, CUDA %u.%u", gpus->count, gpus->gpu[0].name,
                 gpus->driver[0] != '\0' ? gpus->driver : "unknown", gpus->cuda_driver / 1000,
                 gpus->cuda_driver % 1000 / 10);
    if (gpus->count == 1) {
        doctor_print(doctor, DOCTOR_NOTE, NULL, "one GPU: its collectives are copies, and there is nothing to gain");
    }
}

static void report_links(doctor_t *doctor)
{
    const tool_gpus_t *gpus = &doctor->machine->gpus;
    uint32_t pairs[TOOL_LINK_NONE + 1] = {0}, apart[2] = {0, 0};
    for (uint32_t from = 0; from < gpus->listed; from++) {
        for (uint32_t to = 0; to < gpus->listed; to++) {
            pairs[gpus->link[from][to]]++;
            if (gpus->link[from][to] == TOOL_LINK_NONE) {
                apart[0] = from;
                apart[1] = to;
            }
        }
    }
    if (gpus->listed < 2) {
        return;
    }
    if (pairs[TOOL_LINK_NONE] > 0) {
        doctor_print(
            doctor, DOCTOR_NOTE,
            "choose GPUs that reach each other (CUDA_VISIBLE_DEVICES; `shunt info` shows the pairs); in a virtual "
            "machine or with PCIe access control (ACS) ask for peer access to be let through",
            "no peer access between %u of %u pairs of GPUs, such as %u and %u", pairs[TOOL_LINK_NONE] / 2,
            gpus->listed * (gpus->listed - 1) / 2, apart[0], apart[1]);
    } else {
        doctor_print(doctor, DOCTOR_OK, NULL, "peer access between all pairs of GPUs, %s",
                     pairs[TOOL_LINK_PEER] == 0     ? "over NVLink"
                     : pairs[TOOL_LINK_NVLINK] == 0 ? "not over NVLink"
                                                    : "some of them over NVLink");
    }
}

static void report_multicast(doctor_t *doctor)
{
    char text[DOCTOR_LINE_BYTES];
    if (doctor_multicast_text(doctor->facts->all.class_name, text)) {
        doctor_print(doctor, DOCTOR_OK, NULL, "%s", text);
    }
}

/* Map shared memory that others could open. 0, or the error. */
static int try_shared_memory(void)
{
    char name[64];
    snprintf(name, sizeof name, "/shunt-doctor-%d", (int)getpid());
    const int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0) {
        return errno;
    }
    const int error = posix_fallocate(file, 0, 4096);
    close(file);
    shm_unlink(name);
    return error;
}

static bool in_container(void)
{
    return access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
           secure_getenv("KUBERNETES_SERVICE_HOST") != NULL;
}

static void report_shared_memory(doctor_t *doctor)
{
    static const char advice[] = "give the container shared memory: docker run --ipc=host, or --shm-size=1g; in "
                                 "Kubernetes an emptyDir with medium Memory at /dev/shm";
    struct statvfs space;
    const int error = try_shared_memory();
    if (error != 0) {
        doctor_print(doctor, DOCTOR_FAULT, advice, "ranks cannot meet: no shared memory in /dev/shm: %s",
                     strerror(error));
        return;
    }
    const uint64_t free_mib = statvfs("/dev/shm", &space) == 0 ? (uint64_t)space.f_bavail * space.f_frsize >> 20 : 0;
    if (free_mib < LEAST_SHARED_MIB) {
        /* Only a note for the CPU device, which never calls NCCL. */
        doctor_print(doctor, doctor->machine->cpu ? DOCTOR_NOTE : DOCTOR_FAULT, advice,
                     "/dev/shm has %llu MiB left: the real NCCL wants %d or more (Shunt itself some KiB a rank)",
                     (unsigned long long)free_mib, LEAST_SHARED_MIB);
        return;
    }
    doctor_print(doctor, DOCTOR_OK, NULL, "/dev/shm: %llu MiB free", (unsigned long long)free_mib);
    if (in_container()) {
        doctor_print(doctor, DOCTOR_NOTE, NULL,
                     "in a container: ranks in several containers of a node meet only if these share IPC (docker run "
                     "--ipc=host)");
    }
}

static void report_settings(doctor_t *doctor)
{
    const doctor_facts_t *facts = doctor->facts;
    char name[TOOL_NAME_BYTES];
    for (size_t at = 0; tool_unknown_name(&at, name);) {
        doctor_print(doctor, DOCTOR_NOTE, "see `shunt settings` for the names", "%s is no setting, and has no effect",
                     name);
    }
    if (facts->disabled) {
        doctor_print(doctor, DOCTOR_FAULT, "unset SHUNT_ENABLE", "SHUNT_ENABLE=0: Shunt forwards every call");
    }
    if (facts->refused[0] != '\0') {
        doctor_print(doctor, DOCTOR_FAULT, "correct or unset it", "not allowed, so the default is used: %s",
                     facts->refused);
    }
    if (facts->settings[0] != '\0') {
        doctor_print(doctor, DOCTOR_NOTE, NULL, "settings: %s", facts->settings);
    }
}

static void report_table(doctor_t *doctor)
{
    const doctor_facts_t *facts = doctor->facts;
    if (facts->all.ranks == 0) {
        return;
    }
    if (facts->tuned) {
        doctor_print(doctor, DOCTOR_OK, NULL, "tuned table: %s", facts->table);
        return;
    }
    if (facts->fault[0] != '\0') {
        doctor_print(doctor, DOCTOR_FAULT,
                     facts->named ? "unset SHUNT_TABLE, or name a table that `shunt tune` wrote on this machine"
                                  : "run `shunt tune`, which writes it anew",
                     "the tuned table is not used: %s", facts->fault);
        return;
    }
    /* Only the cost model covers a class that was not measured. */
    doctor_print(doctor, doctor->machine->cpu ? DOCTOR_OK : DOCTOR_NOTE,
                 doctor->machine->cpu ? NULL : "run `shunt tune` once, on idle GPUs: three minutes",
                 "no tuned table; rules for %s by: %s", facts->all.class_name,
                 facts->rules[0] != '\0' ? facts->rules : "none, so everything is forwarded");
}

bool doctor_machine(doctor_t *doctor)
{
    char *error = doctor->machine->error;
    doctor->check = "library";
    if (!tool_library_path(doctor->report->library, error)) {
        doctor_print(doctor, DOCTOR_FAULT, "set SHUNT_LIB to Shunt's libnccl.so.2", "no library: %s", error);
        return false;
    }
    if (!bench_look("doctor", doctor->machine)) {
        doctor_print(doctor, DOCTOR_FAULT, NULL, "%s cannot be used", doctor->report->library);
        return false;
    }
    const bool asked = bench_apart("doctor", "asking the library", query_library, doctor->facts);
    report_libraries(doctor);
    doctor->check = "gpus";
    report_gpus(doctor);
    doctor->check = "links";
    report_links(doctor);
    report_multicast(doctor);
    doctor->check = "shared_memory";
    report_shared_memory(doctor);
    if (asked && doctor->facts->error[0] == '\0') {
        doctor->check = "settings";
        report_settings(doctor);
        doctor->check = "table";
        report_table(doctor);
    }
    return true;
}
