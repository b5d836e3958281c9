/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_note.c - the note that a program leaves if it finds no table. See tune.h.
 *
 * The library writes it beside the tables (SEL_NOTE_NAME, SEL_NOTE_LINE). The file's name contains the machine, the
 * number of ranks and this node; its first line the class and the program's NCCL. A second line records that measuring
 * failed, at the file's modification time, or must never be tried again. That line is written even before the note is
 * removed: over NFS a process that has the file open does not see that another node removed it. The kernel releases the
 * lock when all holders have died.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/tune/tune.h"

#define QUIET_SECONDS 1.0 /* seconds of waiting before a line reports it */
enum {
    STEP_MS = 20,
    BUSY_PERCENT = 10,
    RETRY_SECONDS = 3600,
    OLD_SECONDS = 7 * 24 * 3600,
    LINE_BYTES = PATH_MAX + 128
};
static const uint64_t busy_bytes = UINT64_C(2) << 30; /* more than the driver and one context use */

static const char failed[] = "failed\n", never[] = "never\n"; /* the second line */

/* Number of GPUs in CUDA_VISIBLE_DEVICES; UINT32_MAX: not set. */
static uint32_t visible_gpus(void)
{
    const char *list = secure_getenv("CUDA_VISIBLE_DEVICES");
    uint32_t count = list != NULL && list[0] != '\0';
    for (const char *comma = list; comma != NULL && (comma = strchr(comma, ',')) != NULL; comma++) {
        count++;
    }
    return list != NULL ? count : UINT32_MAX;
}

/* Open only this user's own note: it names a library to open. */
static int open_note(const char *path)
{
    struct stat facts;
    const int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* NFS locks need a writable file */
    if (file < 0) {
        return -1;
    }
    if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_uid != geteuid() || facts.st_nlink != 1) {
        close(file);
        return -1;
    }
    return file;
}

typedef enum state { NOTE_WANTED, NOTE_FAILED, NOTE_NEVER, NOTE_WRONG } state_t;

static bool is_older(int file, time_t seconds)
{
    struct stat facts;
    return fstat(file, &facts) == 0 && time(NULL) - facts.st_mtime >= seconds;
}

static state_t read_note(int file, tune_note_t *note)
{
    char text[LINE_BYTES];
    int path = 0;
    const ssize_t bytes = pread(file, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    char *end = strchr(text, '\n');
    if (end == NULL) {
        return NOTE_WRONG;
    }
    *end = '\0';
    _Static_assert(SEL_CLASS_BYTES == 32, "the width below");
    if (sscanf(text, "%31s %" SCNu32 " %n", note->class_name, &note->nccl_version, &path) != 2 || text[path] == '\0' ||
        strlen(text + path) >= sizeof note->nccl) {
        return NOTE_WRONG;
    }
    snprintf(note->nccl, sizeof note->nccl, "%s", text + path);
    if (end[1] == '\0') {
        return NOTE_WANTED;
    }
    if (strcmp(end + 1, never) == 0) {
        return NOTE_NEVER;
    }
    return is_older(file, RETRY_SECONDS) ? NOTE_WRONG : NOTE_FAILED;
}

/* Parse a note's file name into `note`; the text is read under the lock. */
static bool is_note(const char *folder, const char *entry, tune_note_t *note, bool *here)
{
    char name[NAME_MAX + 1], host[256] = "";
    gethostname(host, sizeof host - 1);
    if (sscanf(entry, "wanted-%16" SCNx64 "-%1" SCNu32 ".", &note->machine, &note->ranks) != 2 ||
        note->ranks > BENCH_MAX_RANKS) {
        return false;
    }
    snprintf(name, sizeof name, SEL_NOTE_NAME, (unsigned long long)note->machine, note->ranks, "");
    snprintf(note->path, sizeof note->path, "%s/%s", folder, entry);
    if (strncmp(entry, name, strlen(name)) != 0) {
        return false;
    }
    *here = strcmp(entry + strlen(name), host) == 0;
    return true;
}

/* Open the next note of a folder. -1: none. */
static int next_note(DIR *listing, const char *folder, tune_note_t *note, bool *here)
{
    for (struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
        *note = (tune_note_t){0};
        const int file = is_note(folder, entry->d_name, note, here) ? open_note(note->path) : -1;
        if (file >= 0) {
            return file;
        }
    }
    return -1;
}

bool tune_note_find(const char *folder, tune_note_t *found)
{
    const uint32_t visible = visible_gpus();
    DIR *listing = folder[0] != '\0' ? opendir(folder) : NULL;
    tune_note_t note;
    bool here;
    *found = (tune_note_t){0};
    for (int file; (file = next_note(listing, folder, &note, &here)) >= 0; close(file)) {
        const state_t state = here ? read_note(file, &note) : NOTE_FAILED;
        if (state == NOTE_WRONG || (state != NOTE_NEVER && is_older(file, OLD_SECONDS))) {
            (void)unlink(note.path);
        } else if (state == NOTE_WANTED && note.ranks <= visible && note.ranks > found->ranks) {
            *found = note;
        }
    }
    if (listing != NULL) {
        closedir(listing);
    }
    return found->ranks >= 2;
}

void tune_note_forget(const char *table, uint64_t machine)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(table, '/') - table), table);
    DIR *listing = opendir(folder);
    tune_note_t note;
    bool here;
    for (int file; (file = next_note(listing, folder, &note, &here)) >= 0; close(file)) {
        if (note.machine == machine && read_note(file, &note) == NOTE_NEVER) {
            (void)unlink(note.path);
        }
    }
    if (listing != NULL) {
        closedir(listing);
    }
}

double tune_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static bool lock(int file, double most_s, int tell)
{
    const double start = tune_now();
    bool told = false;
    while (flock(file, LOCK_EX | LOCK_NB) != 0) {
        const double waited = tune_now() - start;
        if (errno != EWOULDBLOCK || waited > most_s) {
            return false;
        }
        if (waited > QUIET_SECONDS && !told) {
            told = true;
            dprintf(tell, "shunt run: another process measures; waiting at most %.0f s\n", ceil(most_s - waited));
        }
        usleep(STEP_MS * 1000);
    }
    return true;
}

int tune_note_lock(tune_note_t *note, double most_s, int tell)
{
    struct stat facts;
    const int file = open_note(note->path);
    if (file >= 0 && lock(file, most_s, tell) && fstat(file, &facts) == 0 && facts.st_nlink == 1 &&
        read_note(file, note) == NOTE_WANTED) {
        return file;
    }
    if (file >= 0) {
        close(file);
    }
    return -1;
}

void tune_note_end(const tune_note_t *note, int file, tune_note_end_t end)
{
    const char *word = end == TUNE_NOTE_NEVER ? never : failed;
    const bool written = lseek(file, 0, SEEK_END) >= 0 && write(file, word, strlen(word)) == (ssize_t)strlen(word);
    if (end == TUNE_NOTE_DONE || !written) {
        (void)unlink(note->path);
    }
}

const char *tune_note_obstacle(const tune_note_t *note, const bench_machine_t *machine, bool *unfit)
{
    *unfit = false;
    if (!machine->cpu && machine->gpus.count < note->ranks) {
        return "the program that left the note saw more GPUs";
    }
    if (machine->fingerprint != note->machine) {
        *unfit = true;
        return "the program that left the note saw GPUs of another kind";
    }
    if (!machine->cpu && (uint32_t)machine->nccl_version != note->nccl_version) {
        return "the NCCL of the program that left the note is gone";
    }
    for (uint32_t i = 0; i < machine->gpus.listed && i < note->ranks; i++) {
        if (machine->gpus.gpu[i].busy_percent > BUSY_PERCENT || machine->gpus.gpu[i].used_bytes > busy_bytes) {
            return "the GPUs are busy";
        }
    }
    return NULL;
}
