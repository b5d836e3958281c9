/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_note.c - the note that a program leaves where it has met no table. See tune.h.
 *
 * The library writes it beside the tables (SEL_NOTE_NAME, SEL_NOTE_LINE): a file that names the machine, the number of
 * ranks and this host, with one line of the class and the program's NCCL. A second line says that measuring failed;
 * the time of the file is that of the failure. The kernel drops its lock when all holders have died.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/tune/tune.h"

enum { MOST_WAIT_MS = 30000, STEP_MS = 20, BUSY_PERCENT = 10, RETRY_SECONDS = 3600, LINE_BYTES = PATH_MAX + 128 };
static const uint64_t busy_bytes = UINT64_C(2) << 30; /* more than the driver and a context take */

static const char failed[] = "failed\n"; /* the second line */

/* Of CUDA_VISIBLE_DEVICES; UINT32_MAX: not set. */
static uint32_t visible_gpus(void)
{
    const char *list = secure_getenv("CUDA_VISIBLE_DEVICES");
    uint32_t count = list != NULL && list[0] != '\0';
    for (const char *comma = list; comma != NULL && (comma = strchr(comma, ',')) != NULL; comma++) {
        count++;
    }
    return list != NULL ? count : UINT32_MAX;
}

/* This user's own: it names a library that will be opened. */
static int open_note(const char *path)
{
    struct stat facts;
    const int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* NFS locks what can be written */
    if (file < 0) {
        return -1;
    }
    if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_uid != geteuid() || facts.st_nlink != 1) {
        close(file);
        return -1;
    }
    return file;
}

typedef enum state { NOTE_WANTED, NOTE_FAILED, NOTE_WRONG } state_t;

static state_t read_note(int file, tune_note_t *note)
{
    char text[LINE_BYTES];
    struct stat facts;
    int path = 0;
    const ssize_t bytes = pread(file, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    char *end = strchr(text, '\n');
    if (end == NULL || fstat(file, &facts) != 0) {
        return NOTE_WRONG;
    }
    *end = '\0';
    _Static_assert(SEL_CLASS_BYTES == 32, "the width below");
    if (sscanf(text, "%31s %" SCNu32 " %n", note->class_name, &note->nccl_version, &path) != 2 || text[path] == '\0' ||
        strlen(text + path) >= sizeof note->nccl) {
        return NOTE_WRONG;
    }
    snprintf(note->nccl, sizeof note->nccl, "%s", text + path);
    if (strcmp(end + 1, failed) == 0) {
        return time(NULL) - facts.st_mtime < RETRY_SECONDS ? NOTE_FAILED : NOTE_WRONG;
    }
    return NOTE_WANTED;
}

/* A note of this host; what it says is read when it is locked. */
static bool is_note(const char *folder, const char *entry, tune_note_t *note)
{
    char name[NAME_MAX + 1], host[256] = "";
    gethostname(host, sizeof host - 1);
    if (sscanf(entry, "wanted-%16" SCNx64 "-%1" SCNu32 ".", &note->machine, &note->ranks) != 2) {
        return false;
    }
    snprintf(name, sizeof name, SEL_NOTE_NAME, (unsigned long long)note->machine, note->ranks, host);
    snprintf(note->path, sizeof note->path, "%s/%s", folder, name);
    return strcmp(name, entry) == 0;
}

bool tune_note_find(const char *folder, tune_note_t *found)
{
    const uint32_t visible = visible_gpus();
    DIR *listing = folder[0] != '\0' ? opendir(folder) : NULL;
    *found = (tune_note_t){0};
    for (struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
        tune_note_t note = {0};
        if (!is_note(folder, entry->d_name, &note) || note.ranks < 2 || note.ranks > visible) {
            continue;
        }
        const int file = open_note(note.path);
        if (file < 0) {
            continue;
        }
        const state_t state = read_note(file, &note);
        if (state == NOTE_WRONG) {
            (void)unlink(note.path);
        } else if (state == NOTE_WANTED && note.ranks > found->ranks) {
            *found = note;
        }
        close(file);
    }
    if (listing != NULL) {
        closedir(listing);
    }
    return found->ranks >= 2;
}

int tune_note_lock(tune_note_t *note)
{
    struct stat facts;
    const int file = open_note(note->path);
    bool locked = file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0;
    for (int waited = 0; file >= 0 && !locked && errno == EWOULDBLOCK && waited < MOST_WAIT_MS; waited += STEP_MS) {
        usleep(STEP_MS * 1000);
        locked = flock(file, LOCK_EX | LOCK_NB) == 0;
    }
    if (locked && fstat(file, &facts) == 0 && facts.st_nlink == 1 && read_note(file, note) == NOTE_WANTED) {
        return file;
    }
    if (file >= 0) {
        close(file);
    }
    return -1;
}

bool tune_note_fail(int file)
{
    return lseek(file, 0, SEEK_END) >= 0 && write(file, failed, sizeof failed - 1) == (ssize_t)sizeof failed - 1;
}

const char *tune_note_obstacle(const tune_note_t *note, const bench_machine_t *machine, bool *unfit)
{
    *unfit = true;
    if (!machine->host && machine->gpus.count < note->ranks) {
        return "fewer GPUs are visible than the program before had";
    }
    if (machine->fingerprint != note->machine) {
        return "the visible GPUs are of another kind than those of the program before";
    }
    if (!machine->host && (uint32_t)machine->nccl_version != note->nccl_version) {
        return "the NCCL of the program before is not there any more";
    }
    *unfit = false;
    for (uint32_t i = 0; i < machine->gpus.listed && i < note->ranks; i++) {
        if (machine->gpus.gpu[i].busy_percent > BUSY_PERCENT || machine->gpus.gpu[i].used_bytes > busy_bytes) {
            return "they are busy";
        }
    }
    return NULL;
}
