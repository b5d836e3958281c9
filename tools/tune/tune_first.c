/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_first.c - what `shunt run` measures before its program, where a program before has met no table.
 *
 * The library leaves a note beside the tables: an empty file that names the machine, the number of ranks and this host
 * (SEL_NOTE_FORMAT). Its lock keeps the other processes of this host waiting, such as the ranks that srun starts; the
 * kernel drops it when its holder dies. The one that holds it measures, replaces the table atomically and removes the
 * note. A run that fails removes it, too: the next program that meets no table leaves another.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/tune/tune.h"

/* Seconds until the ranks are ended, which takes up to half a second more. */
#define TWO_GPUS_SECONDS 5.4
#define A_GPU_SECONDS 1.0 /* for each further one */
enum { MOST_WAIT_MS = 60000, STEP_MS = 50, BUSY_PERCENT = 10 };

typedef struct note {
    uint64_t machine;
    uint32_t ranks;
    char path[PATH_MAX + NAME_MAX + 2];
} note_t;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static bool given(const char *variable)
{
    const char *value = secure_getenv(variable);
    return value != NULL && value[0] != '\0';
}

/* What would make the note or the table useless: the library leaves no note either. */
static bool switched_off(void)
{
    const char *tune = secure_getenv("SHUNT_TUNE"), *enable = secure_getenv("SHUNT_ENABLE");
    return (tune != NULL && strcmp(tune, "0") == 0) || (enable != NULL && strcmp(enable, "0") == 0) ||
           given("SHUNT_TABLE") || given("SHUNT_ALGO");
}

static bool cache_folder(char folder[PATH_MAX])
{
    tool_shunt_t shunt;
    char error[TOOL_ERROR_BYTES], *slash;
    if (!tool_open_shunt(&shunt, NULL, error) || shunt.shunt_table_path(0, folder, PATH_MAX) != 0 ||
        (slash = strrchr(folder, '/')) == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

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

/* The note of this host with the most ranks that the visible GPUs allow. */
static bool find_note(note_t *note)
{
    char folder[PATH_MAX], host[256] = "";
    const uint32_t visible = visible_gpus();
    gethostname(host, sizeof host - 1);
    DIR *listing = cache_folder(folder) ? opendir(folder) : NULL;
    note->ranks = 0;
    for (struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
        char name[NAME_MAX + 1];
        uint64_t machine;
        uint32_t ranks;
        if (sscanf(entry->d_name, "wanted-%16" SCNx64 "-%1u.", &machine, &ranks) != 2 || ranks > visible ||
            ranks <= note->ranks) {
            continue;
        }
        snprintf(name, sizeof name, SEL_NOTE_FORMAT, (unsigned long long)machine, ranks, host);
        if (strcmp(name, entry->d_name) == 0) {
            *note = (note_t){.machine = machine, .ranks = ranks};
            snprintf(note->path, sizeof note->path, "%s/%s", folder, name);
        }
    }
    if (listing != NULL) {
        closedir(listing);
    }
    return note->ranks >= 2;
}

/* Lock the note; -1: another process has measured, or measures for too long. */
static int lock_note(const note_t *note)
{
    struct stat facts;
    const int file = open(note->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    for (int waited = 0; file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0; waited += STEP_MS) {
        if (waited >= MOST_WAIT_MS) {
            close(file);
            return -1;
        }
        usleep(STEP_MS * 1000);
    }
    if (file >= 0 && (fstat(file, &facts) != 0 || facts.st_nlink == 0)) {
        close(file);
        return -1;
    }
    return file;
}

/* Why these GPUs cannot be measured now; NULL if they can. */
static const char *obstacle(const bench_machine_t *machine, const note_t *note)
{
    if (!machine->host && machine->gpus.count < note->ranks) {
        return "fewer GPUs are visible than the program before had";
    }
    if (machine->fingerprint != note->machine) {
        return "the visible GPUs are of another kind than those of the program before";
    }
    for (uint32_t i = 0; i < machine->gpus.listed && i < note->ranks; i++) {
        if (machine->gpus.gpu[i].busy_percent > BUSY_PERCENT) {
            return "they are busy";
        }
    }
    return NULL;
}

static bool measure(const note_t *note, bench_machine_t *machine)
{
    static tune_options_t options;
    static char line[] = "run";
    char *argv[] = {line, NULL};
    const double start = now(), most = TWO_GPUS_SECONDS + A_GPU_SECONDS * (note->ranks - 2);
    /* Until the first row there is no progress to show. */
    fprintf(stderr, "shunt run: measuring %u GPUs once, %.0f s at most (--no-tune: not)\n", note->ranks, most + 0.6);
    if (tune_options_parse(&options, 1, argv) != TOOL_OK || !bench_look("run", machine)) {
        return false;
    }
    const char *why = obstacle(machine, note);
    if (why != NULL) {
        fprintf(stderr, "shunt run: %u GPUs are not measured: %s; estimates are used\n", note->ranks, why);
        return false;
    }
    options.quick = true;
    options.ranks = note->ranks;
    options.types = 1u << bench_type_find("bfloat16");
    options.to_bytes = UINT64_C(64) << 20;
    if (tune_settle(&options, machine) != TOOL_OK) {
        return false;
    }
    options.limit_s = most - (now() - start);
    if (!tune_quick(&options, machine)) {
        fprintf(stderr, "shunt run: %u GPUs are not measured; estimates are used, and `shunt tune` measures them\n",
                note->ranks);
        return false;
    }
    return true;
}

/* In a process of its own. */
static void follow_note(const note_t *note)
{
    static const char *const not_theirs[] = {"SHUNT_STATS", "SHUNT_TRACE", "SHUNT_DEBUG_FILE", "SHUNT_DETERMINISTIC"};
    const int file = lock_note(note);
    bench_machine_t *machine = mmap(NULL, sizeof *machine, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (file < 0 || machine == MAP_FAILED) {
        return;
    }
    for (size_t i = 0; i < sizeof not_theirs / sizeof not_theirs[0]; i++) {
        unsetenv(not_theirs[i]);
    }
    setenv("SHUNT_TUNE", "0", 1); /* the ranks leave no note */
    (void)measure(note, machine);
    (void)unlink(note->path);
}

void tune_first(void)
{
    note_t note;
    if (switched_off() || !find_note(&note)) {
        return;
    }
    const pid_t parent = getpid();
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) {
            follow_note(&note);
        }
        _exit(0);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "shunt run: measuring was ended by signal %d; estimates are used\n", WTERMSIG(status));
    }
}
