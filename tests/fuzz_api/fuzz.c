/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz.c - make random programs of API calls, run them, and shorten those that
 * fail.
 *
 *   fuzz_api [--seed N|today] [--seconds N] [--programs N]   random programs, from seed N on; "today": another each day
 *   fuzz_api FILE...                                    stored programs
 *
 * A program that fails (a wrong result, a crash, a sanitizer's report, or no end
 * within the limit) is printed with its output, then without the steps that do not
 * matter. Exit status 1 if there was any.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { LIMIT_SECONDS = 300, SHRINK_SECONDS = 240, AGAIN = 3 };

/* Run a program with its output in a file. 0: it succeeded. */
static int run(const fuzz_program_t *program, int output)
{
    int screen = dup(STDERR_FILENO);
    /* A call that no act ends does not end within the program's limit, so that no program fails on a busy machine. */
    static const char *const patient[] = {"SHUNT_TIMEOUT_MS", "600000", NULL};
    fuzz_run_t arg = {.program = program};
    arg.shared = mmap(NULL, sizeof(*arg.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(arg.shared != MAP_FAILED && screen >= 0);
    ranks_plan_t plan = {.shape = program->threads ? RANKS_THREADS : RANKS_PROCESSES,
                         .nranks = program->actors,
                         .seconds = LIMIT_SECONDS,
                         .killed = program->dies >= 0 ? 1u << program->dies : 0,
                         .env = patient,
                         .body = fuzz_act,
                         .arg = &arg};
    CHECK(ftruncate(output, 0) == 0 && lseek(output, 0, SEEK_SET) == 0);
    fflush(NULL);
    dup2(output, STDERR_FILENO);
    int wrong = ranks_run(&plan);
    fflush(NULL);
    dup2(screen, STDERR_FILENO);
    close(screen);
    munmap(arg.shared, sizeof(*arg.shared));
    return wrong;
}

/* Whether the program fails in one of several runs. */
static bool fails(const fuzz_program_t *program, int output)
{
    for (int i = 0; i < AGAIN; i++)
        if (run(program, output))
            return true;
    return false;
}

static fuzz_program_t without(const fuzz_program_t *program, int first, int count)
{
    fuzz_program_t less = *program;
    memmove(&less.step[first], &less.step[first + count],
            sizeof(less.step[0]) * (size_t)(program->count - first - count));
    less.count -= count;
    return less;
}

/* Remove halves, quarters, and so on down to single steps, while it still fails. */
static void shorten(fuzz_program_t *program, int output)
{
    double end = ranks_seconds() + SHRINK_SECONDS;
    for (int size = program->count / 2; size > 0; size /= 2) {
        for (int first = 0; first + size <= program->count && ranks_seconds() < end;) {
            fuzz_program_t less = without(program, first, size);
            if (fails(&less, output))
                *program = less;
            else
                first += size;
        }
    }
}

static void show(int output)
{
    char text[4096];
    ssize_t got;
    lseek(output, 0, SEEK_SET);
    while ((got = read(output, text, sizeof(text))) > 0)
        fwrite(text, 1, (size_t)got, stdout);
}

static void report(const fuzz_program_t *program, const char *title, int output)
{
    printf("---- %s\n", title);
    show(output);
    printf("---- the program\n");
    fuzz_write(program, stdout);
    fflush(stdout);
}

static int run_files(char **path, int output)
{
    int wrong = 0;
    for (; *path; path++) {
        fuzz_program_t program;
        bool right = fuzz_read(&program, *path);
        if (right && fails(&program, output)) {
            report(&program, *path, output);
            right = false;
        }
        printf("%s: %s\n", *path, right ? "passed" : "FAILED");
        wrong += !right;
    }
    return wrong;
}

static int run_random(uint64_t seed, double seconds, uint64_t programs, int output)
{
    double end = ranks_seconds() + seconds;
    uint64_t done = 0, wrong = 0;
    for (; done < programs && ranks_seconds() < end; done++) {
        fuzz_program_t program;
        char title[64];
        fuzz_make(&program, seed + done);
        if (run(&program, output) == 0)
            continue;
        wrong++;
        snprintf(title, sizeof(title), "seed %llu", (unsigned long long)(seed + done));
        report(&program, title, output);
        if (fails(&program, output)) {
            shorten(&program, output);
            (void)fails(&program, output);
            report(&program, "shorter", output);
        } else {
            printf("---- it does not fail again\n");
        }
    }
    printf("%llu programs from seed %llu on, %llu failed\n", (unsigned long long)done, (unsigned long long)seed,
           (unsigned long long)wrong);
    return wrong != 0;
}

/* Days are a million programs apart. */
static uint64_t seed_of(const char *text)
{
    return strcmp(text, "today") == 0 ? (uint64_t)time(NULL) / 86400 * 1000000 : strtoull(text, NULL, 10);
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, programs = UINT64_MAX;
    double seconds = 1e9;
    int output = memfd_create("fuzz", MFD_CLOEXEC), at = 1;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        if (strcmp(argv[at], "--seed") == 0)
            seed = seed_of(argv[at + 1]);
        else if (strcmp(argv[at], "--seconds") == 0)
            seconds = strtod(argv[at + 1], NULL);
        else if (strcmp(argv[at], "--programs") == 0)
            programs = strtoull(argv[at + 1], NULL, 10);
        else
            break;
    }
    const bool endless = programs == UINT64_MAX && seconds >= 1e9;
    if (output < 0 || (at == argc && endless) || (at < argc && strncmp(argv[at], "--", 2) == 0)) {
        fprintf(stderr, "usage: fuzz_api [--seed N|today] [--seconds N] [--programs N] | FILE...\n");
        return 2;
    }
    return at < argc ? run_files(argv + at, output) != 0 : run_random(seed, seconds, programs, output);
}
