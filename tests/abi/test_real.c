/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_real.c - which library is taken for the real NCCL, which never is, and that its calls to its own functions do
 * not reach Shunt.
 *
 * This program has Shunt in its global scope, like a preload: the nccl* calls of a
 * library opened here bind to Shunt unless it prevents that.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "child.h"
#include "fake_nccl.h"
#include "shunt.h"
#include "tests/support/skips.h"

enum { SYSTEM_ERROR = 2, INVALID_USAGE = 5, LOG_BYTES = 32768 };

int ncclGetVersion(int *version);
int ncclGetUniqueId(void *id);
const char *ncclGetErrorString(int code);
const char *ncclGetLastError(void *comm);
typedef struct id {
    char bytes[128];
} unique_id_t;
int ncclCommInitRank(void **comm, int nranks, unique_id_t id, int rank);

static char log_text[LOG_BYTES];
static char work[] = "/tmp/shunt-abi-XXXXXX";

static const char *in_work(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", work, name);
    return path;
}

/* ---- Slots ----------------------------------------------------------------------------- */

typedef struct slot_count {
    int own, foreign, writable; /* writable: whether the slot's page is, in /proc/self/maps */
} slot_count_t;

static int page_is_writable(uintptr_t address)
{
    char line[PATH_MAX + 128];
    int writable = -1;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[5];
        if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3 && address >= from && address < to)
            writable = rights[1] == 'w';
    }
    if (maps)
        fclose(maps);
    return writable;
}

static void count_table(const struct link_map *map, const ElfW(Sym) * symbols, const char *names,
                        const ElfW(Rela) * table, size_t bytes, slot_count_t *count)
{
    for (size_t i = 0; i < bytes / sizeof *table; i++) {
        const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(table[i].r_info)];
        const char *name = names + symbol->st_name;
        if (symbol->st_shndx == SHN_UNDEF || (strncmp(name, "nccl", 4) != 0 && strncmp(name, "pnccl", 5) != 0))
            continue;
        uintptr_t *slot = (uintptr_t *)(map->l_addr + table[i].r_offset);
        struct link_map *target = NULL;
        Dl_info info;
        if (dladdr1((void *)*slot, &info, (void **)&target, RTLD_DL_LINKMAP) && target == map)
            count->own++;
        else
            count->foreign++;
        count->writable += page_is_writable((uintptr_t)slot) != 0;
    }
}

/* The targets of a library's references to its own nccl* names. */
static slot_count_t count_slots(void *handle)
{
    slot_count_t count = {0};
    struct link_map *map = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    const ElfW(Rela) *data = NULL, *jumps = NULL;
    size_t data_bytes = 0, jump_bytes = 0;
    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
        return count;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        const void *address = (const void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB)
            symbols = address;
        else if (entry->d_tag == DT_STRTAB)
            names = address;
        else if (entry->d_tag == DT_RELA)
            data = address;
        else if (entry->d_tag == DT_RELASZ)
            data_bytes = entry->d_un.d_val;
        else if (entry->d_tag == DT_JMPREL)
            jumps = address;
        else if (entry->d_tag == DT_PLTRELSZ)
            jump_bytes = entry->d_un.d_val;
    }
    count_table(map, symbols, names, data, data_bytes, &count);
    count_table(map, symbols, names, jumps, jump_bytes, &count);
    return count;
}

static int scenario_fake_slots(void *unused)
{
    int version = 0;
    (void)unused;
    child_settings("cuda", ABI_FAKE);
    void *fake = dlopen(ABI_FAKE, RTLD_NOW | RTLD_LOCAL);
    CHILD_CHECK(fake != NULL);
    /* The premise: before Shunt has seen it, the fake's calls lead to Shunt. */
    CHILD_CHECK(count_slots(fake).foreign >= 3);
    CHILD_CHECK(ncclGetVersion(&version) == 0 && version == FAKE_VERSION_CODE);
    slot_count_t count = count_slots(fake);
    CHILD_CHECK(count.foreign == 0 && count.own >= 3);
    CHILD_CHECK(count.own > count.writable); /* relocated pages are read-only again */
    void *(*in_code)(void) = (void *(*)(void))dlsym(fake, "fake_address_in_code");
    void *(*in_data)(void) = (void *(*)(void))dlsym(fake, "fake_address_in_data");
    int (*bcast)(void *, uint64_t) = (int (*)(void *, uint64_t))dlsym(fake, "ncclBcast");
    CHILD_CHECK(in_code() == dlsym(fake, "ncclGetErrorString"));
    CHILD_CHECK(in_data() == dlsym(fake, "ncclGetLastError"));
    int calls = 0;
    CHILD_CHECK(bcast(&calls, 1) == 0 && calls == 1);
    return 0;
}

static void test_fake_slots(void **state)
{
    (void)state;
    assert_int_equal(child_run(scenario_fake_slots, NULL, log_text, sizeof log_text), 0);
    assert_string_equal(log_text, "");
}

static int scenario_installed(void *path)
{
    int version = 0;
    child_settings("cuda", path);
    CHILD_CHECK(ncclGetVersion(&version) == 0 && version >= 21800);
    CHILD_CHECK(strcmp(ncclGetErrorString(0), "no error") == 0);
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    slot_count_t count = count_slots(library);
    CHILD_CHECK(count.foreign == 0 && count.own > 0);
    return 0;
}

static void test_installed(void **state)
{
    (void)state;
    if (ABI_INSTALLED[0] == '\0')
        skip_because("no NCCL is installed");
    assert_int_equal(child_run(scenario_installed, (void *)ABI_INSTALLED, log_text, sizeof log_text), 0);
}

/* ---- The setting -------------------------------------------------------------------------- */

/* If the path is not an NCCL, the first call fails and the program continues. */
static int scenario_refused(void *path)
{
    char id[128];
    child_settings("cuda", path);
    CHILD_CHECK(shunt_nccl_path() == NULL);
    CHILD_CHECK(ncclGetUniqueId(id) != 0);
    CHILD_CHECK(ncclParamGetI8(1) == INVALID_USAGE);
    CHILD_CHECK(ncclGetErrorString(0) != NULL);
    return 0;
}

static void assert_refused(const char *path, const char *reason)
{
    assert_int_equal(child_run(scenario_refused, (void *)path, log_text, sizeof log_text), 0);
    if (child_count(log_text, reason) == 0)
        fail_msg("%s: the log does not say \"%s\":\n%s", path, reason, log_text);
    assert_true(child_count(log_text, "SHUNT_NCCL_PATH") > 0);
}

static void copy_file(const char *from, const char *to, off_t most)
{
    char piece[65536];
    int source = open(from, O_RDONLY), target = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    assert_true(source >= 0 && target >= 0);
    for (ssize_t got; most > 0 && (got = read(source, piece, sizeof piece)) > 0;) {
        if (got > most)
            got = most;
        assert_int_equal(write(target, piece, (size_t)got), got);
        most -= got;
    }
    close(source);
    close(target);
}

static void test_self(void **state)
{
    (void)state;
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", ABI_SHUNT);
    *strrchr(folder, '/') = '\0';
    assert_refused(ABI_SHUNT, "Shunt itself");
    assert_refused(folder, "Shunt itself");
    assert_int_equal(symlink(ABI_SHUNT, in_work("link.so")), 0);
    assert_refused(in_work("link.so"), "Shunt itself");
    copy_file(ABI_SHUNT, in_work("copy.so"), INT32_MAX);
    assert_refused(in_work("copy.so"), "another copy of Shunt");
}

static void test_no_library(void **state)
{
    (void)state;
    assert_refused(in_work("missing.so"), "no such file");
    assert_int_equal(symlink("loop", in_work("loop")), 0);
    assert_refused(in_work("loop"), "symbolic links");
    assert_int_equal(mkdir(in_work("empty"), 0700), 0);
    assert_refused(in_work("empty"), "no libnccl.so.2 in this folder");
    assert_int_equal(mkfifo(in_work("pipe"), 0600), 0);
    assert_refused(in_work("pipe"), "not a file");
    assert_refused("/dev/null", "not a file");
    copy_file(ABI_FAKE, in_work("secret.so"), INT32_MAX);
    assert_int_equal(chmod(in_work("secret.so"), 0), 0);
    if (geteuid() != 0)
        assert_refused(in_work("secret.so"), "denied");
}

/* Every call that needs the real NCCL fails with the same message: the call's name, and why there is no NCCL. */
static int scenario_one_error(void *path)
{
    static const char *const names[] = {"ncclGetUniqueId",  "ncclCommInitRank", "ncclCommInitAll", "ncclCommSplit",
                                        "ncclCommDestroy",  "ncclCommCount",    "ncclCommSuspend", "ncclMemAlloc",
                                        "ncclCommRegister", "ncclRedOpDestroy", "ncclGroupStart",  "ncclGroupEnd",
                                        "ncclAllReduce",    "ncclSend"};
    child_settings("cuda", path);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int (*call)(long, long, long, long, long, long, long) =
            (int (*)(long, long, long, long, long, long, long))dlsym(RTLD_DEFAULT, names[i]);
        int result = call(0, 0, 0, 0, 0, 0, 0);
        const char *text = ncclGetLastError(NULL);
        if (result != SYSTEM_ERROR || strncmp(text, names[i], strlen(names[i])) != 0)
            fprintf(stderr, "%s: %d, %s\n", names[i], result, text);
        CHILD_CHECK(result == SYSTEM_ERROR);
        CHILD_CHECK(strncmp(text, names[i], strlen(names[i])) == 0 && strstr(text, "SHUNT_NCCL_PATH"));
    }
    return 0;
}

static void test_one_error(void **state)
{
    (void)state;
    assert_int_equal(child_run(scenario_one_error, (void *)in_work("missing.so"), log_text, sizeof log_text), 0);
}

static void test_wrong_library(void **state)
{
    (void)state;
    char garbage[8192];
    for (size_t i = 0; i < sizeof garbage; i++)
        garbage[i] = (char)(i * 2654435761u >> 13);
    int file = open(in_work("garbage.so"), O_WRONLY | O_CREAT | O_EXCL, 0700);
    assert_int_equal(write(file, garbage, sizeof garbage), sizeof garbage);
    close(file);
    assert_refused(in_work("garbage.so"), "not a shared library");
    assert_refused(ABI_OLD, "older than 2.18");
    assert_refused(ABI_EXTENSION, "not NCCL");
}

/* Bytes of a library's file that the dynamic linker maps. */
static off_t mapped_bytes(const char *path)
{
    ElfW(Ehdr) header;
    ElfW(Phdr) part;
    off_t end = 0;
    int file = open(path, O_RDONLY);
    assert_int_equal(pread(file, &header, sizeof header, 0), sizeof header);
    for (int i = 0; i < header.e_phnum; i++) {
        off_t at = (off_t)(header.e_phoff + (size_t)i * sizeof part);
        assert_int_equal(pread(file, &part, sizeof part, at), sizeof part);
        if (part.p_type == PT_LOAD && (off_t)(part.p_offset + part.p_filesz) > end)
            end = (off_t)(part.p_offset + part.p_filesz);
    }
    close(file);
    return end;
}

/* A library truncated anywhere in its mapped part is refused; dlopen of most of these would end in a signal. */
static void test_cut_short(void **state)
{
    enum { CUTS = 12 };
    (void)state;
    off_t mapped = mapped_bytes(ABI_FAKE);
    for (int i = 0; i <= CUTS; i++) {
        copy_file(ABI_FAKE, in_work("cut.so"), i < CUTS ? mapped * i / CUTS : mapped - 1);
        assert_refused(in_work("cut.so"), "cut.so");
    }
}

/* ---- The search ------------------------------------------------------------------------------ */

static int path_is(const char *expected)
{
    char real[PATH_MAX];
    const char *path = shunt_nccl_path();
    if (path && realpath(expected, real) && strcmp(path, real) == 0)
        return 1;
    fprintf(stderr, "found %s, expected %s\n", path ? path : "nothing", expected);
    return 0;
}

static int scenario_folder_setting(void *unused)
{
    char folder[] = ABI_FAKE;
    (void)unused;
    *strrchr(folder, '/') = '\0';
    child_settings("cuda", folder);
    CHILD_CHECK(path_is(ABI_FAKE));
    return 0;
}

static int scenario_library_path(void *unused)
{
    char list[3 * PATH_MAX], folder[] = ABI_FAKE;
    (void)unused;
    *strrchr(folder, '/') = '\0';
    child_settings("cuda", NULL);
    snprintf(list, sizeof list, "%s/missing::relative:%s:/usr/lib", work, folder);
    setenv("LD_LIBRARY_PATH", list, 1);
    CHILD_CHECK(path_is(ABI_FAKE));
    return 0;
}

/* The NCCL wheel beside a loaded Python extension is preferred to LD_LIBRARY_PATH. */
static int scenario_wheel(void *unused)
{
    char folder[] = ABI_FAKE;
    (void)unused;
    *strrchr(folder, '/') = '\0';
    child_settings("cuda", NULL);
    setenv("LD_LIBRARY_PATH", folder, 1);
    CHILD_CHECK(dlopen(ABI_EXTENSION, RTLD_NOW) != NULL);
    CHILD_CHECK(path_is(ABI_WHEEL));
    return 0;
}

/* An NCCL that is already loaded, by its path, is preferred to all but the setting. */
static int scenario_loaded(void *unused)
{
    (void)unused;
    child_settings("cuda", NULL);
    CHILD_CHECK(dlopen(ABI_EXTENSION, RTLD_NOW) != NULL && dlopen(ABI_FAKE, RTLD_NOW) != NULL);
    CHILD_CHECK(path_is(ABI_FAKE));
    return 0;
}

/* The real NCCL is found under the longer name where it was kept when Shunt replaced it. */
static int scenario_replaced(void *unused)
{
    char shunt[PATH_MAX], kept[PATH_MAX];
    (void)unused;
    child_settings("cuda", in_work("replaced"));
    snprintf(shunt, sizeof shunt, "%s", in_work("replaced/libnccl.so.2"));
    snprintf(kept, sizeof kept, "%s", in_work("replaced/libnccl.so.2.31.99"));
    CHILD_CHECK(mkdir(in_work("replaced"), 0700) == 0);
    CHILD_CHECK(symlink(ABI_SHUNT, shunt) == 0 && symlink(ABI_FAKE, kept) == 0);
    CHILD_CHECK(path_is(kept));
    return 0;
}

static void test_search(void **state)
{
    int (*const scenarios[])(void *) = {scenario_folder_setting, scenario_library_path, scenario_wheel, scenario_loaded,
                                        scenario_replaced};
    (void)state;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        assert_int_equal(child_run(scenarios[i], NULL, log_text, sizeof log_text), 0);
}

/* ---- Forked children ------------------------------------------------------------------------ */

/* What the exits of a child and of its child write into a pipe. */
static ssize_t written_by_children(int from)
{
    char bytes[16];
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0)
            exit(0);
        wait(NULL);
        exit(0);
    }
    return child > 0 && waitpid(child, NULL, 0) == child && fcntl(from, F_SETFL, O_NONBLOCK) == 0
               ? read(from, bytes, sizeof bytes)
               : 0;
}

/* Children exit without harm before NCCL has a RAS thread, while it has one, and after the program reused the thread's
 * descriptors for a pipe. */
static int scenario_children(void *path)
{
    void *comm = NULL;
    unique_id_t id = {{0}};
    int other[2];
    child_settings("cuda", path);
    CHILD_CHECK(ncclCommInitRank(&comm, 2, id, 0) == 4);
    void *fake = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    const int *(*starts)(void) = fake ? (const int *(*)(void))dlsym(fake, "fake_ras_starts") : NULL;
    CHILD_CHECK(starts != NULL);
    CHILD_CHECK(pipe(other) == 0 && written_by_children(other[0]) < 0);
    const int *end = starts();
    CHILD_CHECK(end && written_by_children(end[0]) < 0);
    CHILD_CHECK(dup2(other[0], end[0]) == end[0] && dup2(other[1], end[1]) == end[1]);
    CHILD_CHECK(written_by_children(end[0]) == 6); /* each child's handler */
    return 0;
}

static void test_children(void **state)
{
    (void)state;
    assert_int_equal(child_run(scenario_children, ABI_FAKE, log_text, sizeof log_text), 0);
}

/* ---- Two of them -------------------------------------------------------------------------- */

static int scenario_two_copies(void *second)
{
    void *comm = NULL;
    unique_id_t id = {{0}};
    child_settings("cuda", ABI_FAKE);
    CHILD_CHECK(ncclCommInitRank(&comm, 2, id, 0) == 4); /* what the fake returns, with one NCCL or two */
    CHILD_CHECK(dlopen(second, RTLD_NOW | RTLD_LOCAL) != NULL);
    for (int i = 0; i < 3; i++)
        CHILD_CHECK(ncclCommInitRank(&comm, 2, id, 0) == 4);
    return 0;
}

static void test_two_copies(void **state)
{
    (void)state;
    assert_int_equal(child_run(scenario_two_copies, ABI_WHEEL, log_text, sizeof log_text), 0);
    assert_int_equal(child_count(log_text, "two NCCLs in this process"), 1);
    assert_int_equal(child_count(log_text, ABI_WHEEL), 1);
    /* The same file again, or Shunt under another name, is not a second NCCL. */
    assert_int_equal(child_run(scenario_two_copies, ABI_FAKE, log_text, sizeof log_text), 0);
    assert_int_equal(child_count(log_text, "two NCCLs"), 0);
    char copy[PATH_MAX], command[2 * PATH_MAX];
    snprintf(copy, sizeof copy, "%s", in_work("libnccl.so.2"));
    snprintf(command, sizeof command, "cp '%s' '%s'", ABI_SHUNT, copy);
    assert_int_equal(system(command), 0);
    assert_int_equal(child_run(scenario_two_copies, copy, log_text, sizeof log_text), 0);
    assert_int_equal(child_count(log_text, "two NCCLs"), 0);
}

static int make_work(void **state)
{
    (void)state;
    return mkdtemp(work) ? 0 : -1;
}

static int remove_work(void **state)
{
    char command[PATH_MAX];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", work);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fake_slots), cmocka_unit_test(test_installed), cmocka_unit_test(test_self),
        cmocka_unit_test(test_no_library), cmocka_unit_test(test_one_error), cmocka_unit_test(test_wrong_library),
        cmocka_unit_test(test_cut_short),  cmocka_unit_test(test_search),    cmocka_unit_test(test_children),
        cmocka_unit_test(test_two_copies),
    };
    return cmocka_run_group_tests(tests, make_work, remove_work);
}
