/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The note that makes `shunt run` measure: which one is followed, the effect of a failure, and when these GPUs are not
 * measured.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/tune/tune.h"

static char folder[] = "/tmp/shunt-note-XXXXXX";

static void path_of(uint64_t machine, uint32_t ranks, const char *suffix, char path[256])
{
    char host[128] = "";
    gethostname(host, sizeof host - 1);
    snprintf(path, 256, "%s/" SEL_NOTE_NAME "%s", folder, (unsigned long long)machine, ranks, host, suffix);
}

static void leave(uint64_t machine, uint32_t ranks, const char *suffix, const char *text)
{
    char path[256];
    path_of(machine, ranks, suffix, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static bool is_there(uint64_t machine, uint32_t ranks)
{
    char path[256];
    path_of(machine, ranks, "", path);
    return access(path, F_OK) == 0;
}

static void drop(uint64_t machine, uint32_t ranks, const char *suffix)
{
    char path[256];
    path_of(machine, ranks, suffix, path);
    assert_int_equal(unlink(path), 0);
}

static void the_most_ranks_that_are_visible(void **state)
{
    (void)state;
    tune_note_t note;
    assert_false(tune_note_find(folder, &note));
    assert_false(tune_note_find("", &note));
    leave(7, 2, "", "nvswitch-sm90-2 22809 /usr/lib/with a blank/libnccl.so.2\n");
    leave(7, 4, "", "nvswitch-sm90-4 22809 /usr/lib/libnccl.so.2\n");
    leave(7, 8, ".elsewhere", "nvswitch-sm90-8 22809 /usr/lib/libnccl.so.2\n"); /* another node */
    assert_true(tune_note_find(folder, &note));
    assert_int_equal(note.ranks, 4);
    assert_true(note.machine == 7);
    setenv("CUDA_VISIBLE_DEVICES", "1,3", 1);
    assert_true(tune_note_find(folder, &note));
    assert_int_equal(note.ranks, 2);
    assert_string_equal(note.class_name, "nvswitch-sm90-2");
    assert_int_equal(note.nccl_version, 22809);
    assert_string_equal(note.nccl, "/usr/lib/with a blank/libnccl.so.2");
    setenv("CUDA_VISIBLE_DEVICES", "3", 1);
    assert_false(tune_note_find(folder, &note));
    unsetenv("CUDA_VISIBLE_DEVICES");
    drop(7, 2, "");
    drop(7, 4, "");
    drop(7, 8, ".elsewhere");
}

/* An empty note, and a link, which another user may have made, are not followed. */
static void wrong_notes(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "nvswitch-sm90-2 22809 /usr/lib/libnccl.so.2", "nvswitch-sm90-2\n",
                                        "nvswitch-sm90-2 22809 \n\n", "a-name-that-is-longer-than-any-class-is 1 -\n"};
    tune_note_t note;
    char path[256], target[280];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        leave(7, 2, "", wrong[i]);
        assert_false(tune_note_find(folder, &note));
        assert_false(is_there(7, 2));
    }
    path_of(7, 2, "", path);
    snprintf(target, sizeof target, "%s.target", path);
    leave(7, 2, ".target", "nvswitch-sm90-2 22809 /usr/lib/libnccl.so.2\n");
    assert_int_equal(symlink(target, path), 0);
    assert_false(tune_note_find(folder, &note));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(link(target, path), 0);
    assert_false(tune_note_find(folder, &note));
    assert_int_equal(unlink(path), 0);
    if (geteuid() == 0) {
        assert_int_equal(rename(target, path), 0);
        assert_int_equal(chown(path, 1, 1), 0);
        assert_false(tune_note_find(folder, &note));
        assert_int_equal(rename(path, target), 0);
    }
    drop(7, 2, ".target");
    leave(7, 9, "", "nvswitch-sm90-9 22809 /usr/lib/libnccl.so.2\n"); /* no family has so many ranks */
    assert_false(tune_note_find(folder, &note));
    drop(7, 9, "");
}

static void make_older(uint32_t ranks, const char *suffix, time_t seconds)
{
    char path[256];
    path_of(7, ranks, suffix, path);
    const struct timeval old[2] = {{time(NULL) - seconds, 0}, {time(NULL) - seconds, 0}};
    assert_int_equal(utimes(path, old), 0);
}

/* Leave a note, lock it and end it, and check the end in the open file, as a process that waited for the lock sees
 * it. */
static void end_note(tune_note_t *note, tune_note_end_t end)
{
    leave(7, 2, "", "host-2 0 -\n");
    assert_true(tune_note_find(folder, note));
    const int file = tune_note_lock(note, 0, -1);
    assert_true(file >= 0);
    tune_note_end(note, file, end);
    char text[64] = "";
    assert_true(pread(file, text, sizeof text - 1, 0) > 0);
    assert_string_equal(text, end == TUNE_NOTE_NEVER ? "host-2 0 -\nnever\n" : "host-2 0 -\nfailed\n");
    close(file);
    assert_int_equal(tune_note_lock(note, 0, -1), -1); /* who waited meanwhile */
    assert_false(tune_note_find(folder, note));
    assert_int_equal(is_there(7, 2), end != TUNE_NOTE_DONE);
}

static void a_failure_counts_for_an_hour(void **state)
{
    (void)state;
    tune_note_t note;
    end_note(&note, TUNE_NOTE_DONE);
    end_note(&note, TUNE_NOTE_FAILED);
    make_older(2, "", 3700);
    assert_false(tune_note_find(folder, &note));
    assert_false(is_there(7, 2));
    assert_int_equal(tune_note_lock(&note, 0, -1), -1); /* another process has measured */
}

/* A note with `never` stays, so that no program leaves another; a table by `shunt tune` removes it. */
static void never_is_for_ever(void **state)
{
    (void)state;
    tune_note_t note;
    char table[256];
    snprintf(table, sizeof table, "%s/table.csv", folder);
    end_note(&note, TUNE_NOTE_NEVER);
    make_older(2, "", 30 * 24 * 3600);
    leave(8, 2, "", "host-2 0 -\nnever\n");
    leave(7, 3, "", "host-3 0 -\nfailed\n");
    assert_false(tune_note_find(folder, &note));
    assert_true(is_there(7, 2) && is_there(8, 2) && is_there(7, 3));
    tune_note_forget(table, 7);
    assert_true(!is_there(7, 2) && is_there(8, 2) && is_there(7, 3));
    drop(8, 2, "");
    drop(7, 3, "");
}

/* Old notes of any host are removed, since a container has a new host name each time. */
static void old_notes_of_any_host_go(void **state)
{
    (void)state;
    static const char *const nodes[] = {"", ".elsewhere"};
    tune_note_t note;
    char target[256], path[256];
    for (uint32_t ranks = 2; ranks <= 3; ranks++) {
        for (int i = 0; i < 2; i++) {
            leave(7, ranks, nodes[i], "host-2 0 -\n");
            make_older(ranks, nodes[i], (ranks == 2 ? 8 : 6) * 24 * 3600);
        }
    }
    path_of(7, 4, ".elsewhere", path);
    path_of(7, 3, "", target);
    assert_int_equal(symlink(target, path), 0);
    assert_true(tune_note_find(folder, &note));
    assert_int_equal(note.ranks, 3);
    assert_false(is_there(7, 2));
    path_of(7, 2, ".elsewhere", path);
    assert_int_equal(access(path, F_OK), -1);
    drop(7, 3, "");
    drop(7, 3, ".elsewhere");
    drop(7, 4, ".elsewhere");
}

/* A process that waits for the lock reports it after a while, and gives up at its limit. */
static void waits(void **state)
{
    (void)state;
    tune_note_t note;
    char said[128] = "";
    int tell[2];
    assert_int_equal(pipe(tell), 0);
    leave(7, 2, "", "host-2 0 -\n");
    assert_true(tune_note_find(folder, &note));
    const int holder = tune_note_lock(&note, 0, -1);
    assert_true(holder >= 0);
    assert_int_equal(tune_note_lock(&note, 0.1, tell[1]), -1);
    assert_int_equal(fcntl(tell[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(read(tell[0], said, sizeof said - 1), -1);
    assert_int_equal(tune_note_lock(&note, 3.95, tell[1]), -1);
    assert_true(read(tell[0], said, sizeof said - 1) > 0);
    assert_string_equal(said, "shunt run: another process measures; waiting at most 3 s\n");
    close(holder);
    const int file = tune_note_lock(&note, 0, -1);
    assert_true(file >= 0);
    close(file);
    close(tell[0]);
    close(tell[1]);
    drop(7, 2, "");
}

static void obstacles(void **state)
{
    (void)state;
    static bench_machine_t machine = {.fingerprint = 7, .nccl_version = 22809, .gpus = {.count = 4, .listed = 4}};
    const tune_note_t note = {.machine = 7, .ranks = 2, .nccl_version = 22809};
    bool unfit;
    assert_null(tune_note_obstacle(&note, &machine, &unfit));
    machine.gpus.gpu[2].busy_percent = 100; /* not one of the two */
    assert_null(tune_note_obstacle(&note, &machine, &unfit));
    machine.gpus.gpu[1].busy_percent = 50;
    assert_string_equal(tune_note_obstacle(&note, &machine, &unfit), "the GPUs are busy");
    assert_false(unfit);
    machine.gpus.gpu[1].busy_percent = 0, machine.gpus.gpu[0].used_bytes = UINT64_C(3) << 30; /* held, but idle */
    assert_string_equal(tune_note_obstacle(&note, &machine, &unfit), "the GPUs are busy");
    assert_false(unfit);
    machine.gpus.gpu[0].used_bytes = UINT64_C(1) << 30; /* the driver's */
    assert_null(tune_note_obstacle(&note, &machine, &unfit));
    machine.gpus.count = 1;
    assert_non_null(strstr(tune_note_obstacle(&note, &machine, &unfit), "more GPUs"));
    assert_false(unfit);
    machine.gpus.count = 4, machine.fingerprint = 8;
    assert_non_null(strstr(tune_note_obstacle(&note, &machine, &unfit), "another kind"));
    assert_true(unfit);
    machine.fingerprint = 7, machine.nccl_version = 0;
    assert_non_null(strstr(tune_note_obstacle(&note, &machine, &unfit), "is gone"));
    assert_false(unfit);
}

static void a_programs_variables_are_forgotten(void **state)
{
    (void)state;
    static const char *const program[] = {"SHUNT_ALGO", "SHUNT_STATS",  "SHUNT_RUN",  "SHUNT_MAX_CTAS", "NCCL_ALGO",
                                          "NCCL_PROTO", "NCCL_COMM_ID", "NCCL_DEBUG", "NCCL_MAX_CTAS"};
    static const char *const machine[] = {"SHUNT_CACHE_DIR",    "SHUNT_NCCL_PATH",   "NCCL_P2P_DISABLE",
                                          "NCCL_SOCKET_IFNAME", "NCCL_CUMEM_ENABLE", "LD_LIBRARY_PATH"};
    for (size_t i = 0; i < sizeof program / sizeof program[0]; i++) {
        setenv(program[i], "1", 1);
    }
    for (size_t i = 0; i < sizeof machine / sizeof machine[0]; i++) {
        setenv(machine[i], "1", 1);
    }
    tool_forget_variables();
    for (size_t i = 0; i < sizeof program / sizeof program[0]; i++) {
        assert_null(getenv(program[i]));
    }
    for (size_t i = 0; i < sizeof machine / sizeof machine[0]; i++) {
        assert_string_equal(getenv(machine[i]), "1");
    }
}

static int make_folder(void **state)
{
    (void)state;
    unsetenv("CUDA_VISIBLE_DEVICES");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_ranks_that_are_visible),
        cmocka_unit_test(wrong_notes),
        cmocka_unit_test(a_failure_counts_for_an_hour),
        cmocka_unit_test(never_is_for_ever),
        cmocka_unit_test(old_notes_of_any_host_go),
        cmocka_unit_test(waits),
        cmocka_unit_test(obstacles),
        cmocka_unit_test(a_programs_variables_are_forgotten),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
