/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table_load.c - reads the tuned table's text once and keeps it. Faulty lines are skipped with a warning. Another
 * machine's table is not used.
 */
#define _GNU_SOURCE
#include "shim/setup/table_load.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "selector/table_file.h"
#include "shim/base/file.h"
#include "shim/base/log.h"
#include "shim/base/owner.h"
#include "shim/base/settings.h"
#include "shim/real/real.h"
#include "transport/transport.h"

enum { TABLE_PATH_BYTES = 4096, TOLD_FAULTS = 8 };

static pthread_once_t once = PTHREAD_ONCE_INIT; /* not a net_lock_t: load() logs, which takes one; they never nest */
static _Thread_local uint64_t asked;            /* the machine whose table load() reads */
static char *text;                              /* NULL: no table */
static size_t text_bytes;
static char path[TABLE_PATH_BYTES];

static bool cache_folder(char *folder, size_t capacity)
{
    const char *own = shim_settings()->cache_dir, *xdg = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    int length = 0;
    if (own[0] != '\0')
        length = snprintf(folder, capacity, "%s", own);
    else if (xdg != NULL && xdg[0] == '/') /* XDG: relative paths are ignored */
        length = snprintf(folder, capacity, "%s/shunt", xdg);
    else if (home != NULL && home[0] != '\0')
        length = snprintf(folder, capacity, "%s/.cache/shunt", home);
    return length > 0 && (size_t)length < capacity;
}

bool shim_table_path(uint64_t machine, char *to, size_t capacity)
{
    char folder[TABLE_PATH_BYTES], whole[TABLE_PATH_BYTES + 32];
    if (!cache_folder(folder, sizeof(folder)))
        return false;
    int length = snprintf(whole, sizeof(whole), "%s/table-%016llx.csv", folder, (unsigned long long)machine);
    if ((size_t)length >= capacity)
        return false;
    memcpy(to, whole, (size_t)length + 1);
    return true;
}

static int read_file(const char *name, char **to, size_t *bytes)
{
    struct stat facts;
    int file = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not wait */
    if (file < 0)
        return -errno;
    int error = fstat(file, &facts) != 0                                         ? -errno
                : !S_ISREG(facts.st_mode) || facts.st_size > SEL_FILE_MOST_BYTES ? -EFBIG
                                                                                 : 0;
    char *memory = error ? NULL : malloc((size_t)facts.st_size + 1);
    if (!error && !memory)
        error = -ENOMEM;
    size_t got = 0;
    while (!error && got < (size_t)facts.st_size) {
        ssize_t part = read(file, memory + got, (size_t)facts.st_size - got);
        if (part < 0 && errno != EINTR)
            error = -errno;
        if (part == 0)
            break; /* the file has shrunk */
        got += part > 0 ? (size_t)part : 0;
    }
    close(file);
    if (error) {
        free(memory);
        return error;
    }
    *to = memory;
    *bytes = got;
    return 0;
}

static bool bind_row(const sel_file_row_t *row, sel_tuned_row_t *bound)
{
    uint8_t algorithm = SEL_NCCL;
    if (strcmp(row->algorithm, "nccl") != 0) {
        const alg_algorithm_t *named = alg_find(row->collective, row->algorithm);
        algorithm = 0;
        while (algorithm < alg_registry_count && alg_registry[algorithm] != named)
            algorithm++;
        if (algorithm == alg_registry_count)
            return false;
    }
    *bound = (sel_tuned_row_t){.from_bytes = row->from_bytes,
                               .to_bytes = row->to_bytes,
                               .class_hash = sel_class_hash(row->class_name),
                               .blocks = row->blocks,
                               .threads = row->threads,
                               .collective = (uint8_t)row->collective,
                               .kinds = row->kinds,
                               .algorithm = algorithm};
    return true;
}

static void log_fault(uint32_t faults, const char *fault)
{
    if (faults < TOLD_FAULTS)
        shim_warn("%s:%s; the line is skipped; correct it, or run `shunt tune`", path, fault);
    else if (faults == TOLD_FAULTS)
        shim_warn("%s: further faulty lines are skipped; write the table again with `shunt tune`", path);
}

static void check_rows(sel_file_t file)
{
    sel_file_row_t row;
    sel_tuned_row_t bound;
    char fault[SEL_FILE_FAULT_BYTES];
    uint32_t faults = 0, rows[ALG_MAX_RANKS + 1] = {0};
    sel_file_step_t step;
    while ((step = sel_file_next(&file, &row, fault)) != SEL_FILE_END) {
        if (step == SEL_FILE_ROW && !bind_row(&row, &bound)) {
            snprintf(fault, sizeof(fault), "%u: this version has no algorithm %s of %s", file.line, row.algorithm,
                     alg_collective_name(row.collective));
        } else if (step == SEL_FILE_ROW) {
            if (++rows[row.ranks] == SEL_TUNED_ROWS + 1)
                shim_warn("%s:%u: more than %d rows for %u ranks; the others are not used; tune fewer sizes", path,
                          file.line, SEL_TUNED_ROWS, row.ranks);
            continue;
        }
        log_fault(faults++, fault);
    }
}

static const char *refusal(uint64_t machine, char *reason, size_t capacity)
{
    sel_file_t file;
    char fault[SEL_FILE_FAULT_BYTES];
    if (!sel_file_open(&file, text, text_bytes, fault)) {
        snprintf(reason, capacity, "%s:%s", path, fault);
        return reason;
    }
    if (file.machine == machine || shim_settings()->table_force) {
        check_rows(file);
        return NULL;
    }
    snprintf(reason, capacity,
             "%s was measured on another machine (%016llx, this is %016llx); run `shunt tune` here, or set "
             "SHUNT_TABLE_FORCE=1",
             path, (unsigned long long)file.machine, (unsigned long long)machine);
    return reason;
}

static void load(void)
{
    const uint64_t machine = asked;
    const char *given = shim_settings()->table;
    bool named = given[0] != '\0' ? snprintf(path, sizeof(path), "%s", given) < (int)sizeof(path)
                                  : shim_table_path(machine, path, sizeof(path));
    if (!named)
        return;
    int error = read_file(path, &text, &text_bytes);
    bool none = error == -ENOENT || error == -ENOTDIR || (error == -EACCES && access(path, F_OK) != 0);
    if (error && (given[0] != '\0' || !none)) {
        shim_warn("%s: %s; the built-in table is used; run `shunt tune`, or name another table in SHUNT_TABLE", path,
                  error == -EFBIG ? "not a file of at most 1 MiB" : strerror(-error));
        return;
    }
    char reason[TABLE_PATH_BYTES + SEL_FILE_FAULT_BYTES];
    if (text && refusal(machine, reason, sizeof(reason))) {
        shim_warn("%s; the built-in table is used", reason);
        free(text);
        text = NULL;
    }
}

/* The loaded NCCL's version; 0: none. */
static uint32_t nccl_version(void)
{
    const shim_real_t *real = shim_real_used();
    return real ? (uint32_t)real->version : 0;
}

static void swap_bits(uint32_t *bits, uint32_t at)
{
    const uint32_t differ = (*bits >> at ^ *bits >> (at + 1)) & 1;
    *bits ^= differ * (3u << at);
}

/* The class's place, behind all others: they are in the order of their last lines. */
static uint32_t place_of(uint32_t hash, sel_tuned_t *tuned)
{
    uint32_t at = 0;
    while (at < SEL_MEASURED_CLASSES && tuned->measured[at] && tuned->measured[at] != hash)
        at++;
    for (; at + 1 < SEL_MEASURED_CLASSES && tuned->measured[at + 1]; at++) {
        tuned->measured[at] = tuned->measured[at + 1];
        tuned->measured[at + 1] = hash;
        swap_bits(&tuned->old, at);
        swap_bits(&tuned->known, at);
    }
    return at;
}

/* Notes which classes were measured with the loaded NCCL. A class's last line counts. */
static void collect_measured(const sel_file_t *file, uint32_t nranks, sel_tuned_t *tuned)
{
    for (uint32_t i = 0; i < file->measured; i++) {
        sel_topology_t topology;
        const uint32_t hash = sel_class_hash(file->of[i].class_name), at = place_of(hash, tuned);
        if (!sel_topology_parse(file->of[i].class_name, &topology) || topology.nranks != nranks ||
            at == SEL_MEASURED_CLASSES)
            continue;
        const bool same = file->of[i].nccl == nccl_version();
        tuned->measured[at] = hash;
        tuned->old = (tuned->old & ~(1u << at)) | (uint32_t)!same << at;
        tuned->known |= (uint32_t)same << at;
    }
}

static void collect(uint32_t nranks, sel_tuned_t *tuned)
{
    sel_file_t file;
    sel_file_row_t row;
    sel_tuned_row_t bound;
    char fault[SEL_FILE_FAULT_BYTES];
    sel_file_step_t step;
    if (!sel_file_open(&file, text, text_bytes, fault))
        return;
    tuned->machine = file.machine;
    tuned->forced = shim_settings()->table_force;
    while ((step = sel_file_next(&file, &row, fault)) != SEL_FILE_END) {
        if (step != SEL_FILE_ROW || row.ranks != nranks || !bind_row(&row, &bound))
            continue;
        if (tuned->rows < SEL_TUNED_ROWS)
            tuned->row[tuned->rows++] = bound;
    }
    tuned->link = file.link;
    tuned->pinned = file.pinned;
    collect_measured(&file, nranks, tuned);
}

void shim_table_wanted(uint32_t nranks, uint64_t machine, sel_tuned_t *tuned)
{
    asked = machine;
    pthread_once(&once, load);
    if (text)
        collect(nranks, tuned);
}

/* Makes the path's last two folders, as `shunt tune` does. Never makes the folder that SHUNT_CACHE_DIR names. */
static void make_folder(const char *folder)
{
    char above[TABLE_PATH_BYTES];
    snprintf(above, sizeof(above), "%s", folder);
    char *slash = strrchr(above, '/');
    if (shim_settings()->cache_dir[0] != '\0' || !slash)
        return;
    *slash = '\0';
    (void)mkdir(above, 0755);
    (void)mkdir(folder, 0755);
}

/* The note names this program's NCCL, since `shunt run` might find another one. An existing note is kept. */
static bool leave_note(const char *class_name, const sel_topology_t *topology)
{
    const char *why;
    const shim_real_t *real = shim_real_used();
    char table[TABLE_PATH_BYTES], note[TABLE_PATH_BYTES + 320], host[256] = "", line[TABLE_PATH_BYTES + 64];
    gethostname(host, sizeof(host) - 1);
    if (!shim_table_path(topology->fingerprint, table, sizeof(table)))
        return false;
    *strrchr(table, '/') = '\0';
    make_folder(table);
    snprintf(note, sizeof(note), "%s/" SEL_NOTE_NAME, table, (unsigned long long)topology->fingerprint,
             topology->nranks, host);
    const int length = snprintf(line, sizeof(line), SEL_NOTE_LINE, class_name, nccl_version(), real ? real->path : "-");
    struct stat facts;
    const int file = shim_file_open(note, O_WRONLY, &why);
    if (file < 0)
        return false;
    if (fstat(file, &facts) == 0 && !facts.st_size && (size_t)length < sizeof(line))
        net_write(file, line, (size_t)length); /* a note without its line is ignored */
    close(file);
    return true;
}

static bool may_leave_note(const sel_topology_t *topology)
{
    const char *run = secure_getenv("SHUNT_RUN");
    const shim_tune_t tune = shim_settings()->tune;
    return tune == SHIM_TUNE_ALWAYS ||
           (tune == SHIM_TUNE_AUTO && run && strcmp(run, "1") == 0 && !sel_link_on_cpu(topology->link));
}

/* False with SHUNT_CACHE_DIR: a user who sets it wants files there. */
static bool is_of_another_user(const sel_topology_t *topology)
{
    char table[TABLE_PATH_BYTES];
    return shim_settings()->cache_dir[0] == '\0' && shim_table_path(topology->fingerprint, table, sizeof(table)) &&
           shim_path_is_foreign(table);
}

void shim_table_note(const sel_plan_t *plan)
{
    static atomic_uint noted; /* bit n: noted for n ranks */
    const shim_settings_t *settings = shim_settings();
    const sel_topology_t *topology = &plan->topology;
    const sel_measurement_t measurement = sel_plan_measurement(plan);
    char class[SEL_CLASS_BYTES];
    if (measurement == SEL_MEASURED || measurement == SEL_MEASURED_EARLIER || settings->table[0] != '\0' ||
        settings->algo[0] != '\0' || atomic_fetch_or(&noted, 1u << topology->nranks) >> topology->nranks & 1)
        return;
    sel_topology_class(topology, class);
    const bool may = may_leave_note(topology), foreign = may && is_of_another_user(topology);
    const bool leaves = may && !foreign && leave_note(class, topology);
    shim_info("%s for class %s: %s; `shunt tune` measures it%s",
              measurement == SEL_MEASURED_OTHER ? "the table" : "there is no table", class,
              measurement == SEL_MEASURED_OTHER
                  ? "it was measured with another NCCL, so a row counts only if it is clearly faster"
                  : "built-in rows and cautious estimates decide which calls Shunt takes",
              leaves    ? ", and so does the next `shunt run`, for a few seconds (SHUNT_TUNE=0 prevents it)"
              : foreign ? "; the home folder is another user's, in which root leaves no note for `shunt run`"
              : may     ? "; no note for `shunt run` can be left in the cache folder (SHUNT_CACHE_DIR)"
                        : "");
}
