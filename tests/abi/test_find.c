/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_find.c - the search's parsers on good, cut and mangled input: run paths, the linker's cache, a library's header.
 * It includes the file under test, as its parsers are static.
 */
#include "shim/real/real_find.c" /* first, since it defines _GNU_SOURCE */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char work[] = "/tmp/shunt-abi-XXXXXX";
static char file_path[PATH_MAX];

static void write_file(const void *bytes, size_t size)
{
    FILE *file = fopen(file_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static int has(const shim_folders_t *folders, const char *path)
{
    for (size_t i = 0; i < folders->count; i++)
        if (strcmp(folders->path[i], path) == 0)
            return 1;
    return 0;
}

/* A small generator, so that a failure can be repeated. */
static uint32_t random_state = 12345;
static uint32_t random_next(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static void test_run_paths(void **state)
{
    shim_folders_t folders = {0};
    (void)state;
    find_add_list(&folders, "$ORIGIN/../a:${ORIGIN}:/b;/c::relative:/x/$LIB/y:/b", "/opt/app/bin/program");
    assert_int_equal(folders.count, 4);
    assert_string_equal(folders.path[0], "/opt/app/bin/../a");
    assert_string_equal(folders.path[1], "/opt/app/bin");
    assert_string_equal(folders.path[2], "/b");
    assert_string_equal(folders.path[3], "/c");
    find_add_list(&folders, "$ORIGIN/lib", "no-folder");
    find_add_list(&folders, NULL, "/a");
    find_add_list(&folders, "", "/a");
    assert_int_equal(folders.count, 4);
    char path[2 * PATH_MAX];
    memset(path, 'a', sizeof path);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    find_add_list(&folders, path, "/a");
    assert_int_equal(folders.count, 4);
    shim_folders_free(&folders);
}

static void test_python(void **state)
{
    shim_folders_t folders = {0};
    char path[PATH_MAX];
    (void)state;
    snprintf(path, sizeof path, "mkdir -p %s/venv/lib/python3.12 %s/venv/bin %s/venv/conda-meta", work, work, work);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s/venv/bin/python3", work);
    find_add_python_file(&folders, path);
    snprintf(path, sizeof path, "%s/venv/lib/python3.12/site-packages/nvidia/nccl/lib", work);
    assert_true(has(&folders, path));
    snprintf(path, sizeof path, "%s/venv/lib", work);
    assert_true(has(&folders, path));
    find_add_python_file(&folders, "python3");
    find_add_python_file(&folders, "/python3");
    find_add_python_file(&folders, "");
    shim_folders_free(&folders);
}

/* For a program that is not Python the search finds the first executable python3 in PATH, also through a link, and the
 * system's. */
static void test_python_in_path(void **state)
{
    shim_folders_t folders = {0};
    char command[PATH_MAX], path[PATH_MAX];
    char *saved = getenv("PATH") ? strdup(getenv("PATH")) : NULL;
    glob_t local = {0};
    (void)state;
    snprintf(
        command, sizeof command,
        "cd %s && for f in no dir one real later; do mkdir -p $f/bin $f/lib/python3.11; done && mkdir dir/bin/python3 "
        "&& : >no/bin/python3 && : >real/bin/python3.11 && : >later/bin/python3 && chmod +x */bin/python3* && "
        "chmod -x no/bin/python3 && ln -s ../../real/bin/python3.11 one/bin/python3",
        work);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "relative::/nowhere:%s/no/bin:%s/dir/bin:%s/one/bin:%s/later/bin", work, work, work,
             work);
    setenv("PATH", path, 1);
    shim_find_folders(&folders, NULL);
    static const char *const names[] = {"one", "real", "no", "dir", "later"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s/lib/python3.11/site-packages/nvidia/nccl/lib", work, names[i]);
        assert_int_equal(has(&folders, path), i < 2);
    }
    if (glob("/usr/local/lib/python3*", 0, NULL, &local) == 0) { /* where Debian's pip installs */
        snprintf(path, sizeof path, "%s/dist-packages/nvidia/nccl/lib", local.gl_pathv[0]);
        assert_true(has(&folders, path));
    }
    globfree(&local);
    shim_folders_free(&folders);

    unsetenv("PATH");
    shim_find_folders(&folders, NULL);
    assert_true(has(&folders, "/usr/lib"));
    shim_folders_free(&folders);
    if (saved)
        setenv("PATH", saved, 1);
    free(saved);
}

enum { CACHE_ENTRIES = 3 };

typedef struct cache {
    find_cache_header_t header;
    find_cache_entry_t entry[CACHE_ENTRIES];
    char strings[128];
} cache_t;

static cache_t good_cache(void)
{
    cache_t cache = {.header = {.entries = CACHE_ENTRIES, .string_bytes = sizeof cache.strings}};
    const uint32_t base = offsetof(cache_t, strings);
    memcpy(cache.header.magic, "glibc-ld.so.cache1.1", 20);
    static const char strings[] = "libc.so.6\0/lib/libc.so.6\0libnccl.so.2\0/one/libnccl.so.2\0/two/libnccl.so.2";
    memcpy(cache.strings, strings, sizeof strings);
    cache.entry[0] = (find_cache_entry_t){.flags = FIND_CACHE_FLAGS, .name = base, .path = base + 10};
    cache.entry[1] = (find_cache_entry_t){.flags = 3, .name = base + 25, .path = base + 38}; /* another ABI */
    cache.entry[2] = (find_cache_entry_t){.flags = FIND_CACHE_FLAGS, .name = base + 25, .path = base + 56};
    return cache;
}

static void test_cache(void **state)
{
    shim_folders_t folders = {0};
    cache_t cache = good_cache();
    (void)state;
    write_file(&cache, sizeof cache);
    find_add_cache(&folders, file_path);
    assert_int_equal(folders.count, 1);
    assert_string_equal(folders.path[0], "/two");
    shim_folders_free(&folders);

    char older[64 + sizeof cache] = "ld.so-1.7.0"; /* the table that preceded it until glibc 2.32 */
    memcpy(older + 64, &cache, sizeof cache);
    write_file(older, sizeof older);
    find_add_cache(&folders, file_path);
    assert_true(has(&folders, "/two"));
    shim_folders_free(&folders);
}

static void test_cache_mangled(void **state)
{
    (void)state;
    cache_t cache = good_cache();
    for (size_t size = 0; size < sizeof cache; size += 3) {
        shim_folders_t folders = {0};
        write_file(&cache, size);
        find_add_cache(&folders, file_path);
        shim_folders_free(&folders);
    }
    for (int round = 0; round < 500; round++) {
        shim_folders_t folders = {0};
        cache = good_cache();
        for (int flips = 0; flips < 4; flips++)
            ((uint8_t *)&cache)[20 + random_next() % (sizeof cache - 20)] = (uint8_t)random_next();
        write_file(&cache, sizeof cache);
        find_add_cache(&folders, file_path);
        shim_folders_free(&folders);
    }
}

static void test_header_mangled(void **state)
{
    enum { MOST = 1 << 20 };
    (void)state;
    size_t size = 0;
    char why[64];
    char *good = find_read_file(ABI_FAKE, &size), *bad = malloc(size);
    assert_true(good && bad && size < MOST);
    assert_true(shim_elf_check(ABI_FAKE, why, sizeof why));
    for (int round = 0; round < 500; round++) {
        memcpy(bad, good, size);
        for (int flips = 0; flips < 4; flips++) /* header, program headers, and sometimes any byte */
            bad[random_next() % (round % 4 ? 700 : size)] = (char)random_next();
        write_file(bad, size);
        why[0] = '\0';
        assert_true(shim_elf_check(file_path, why, sizeof why) || why[0] != '\0');
    }
    free(bad);
    free(good);
}

static void test_everything(void **state)
{
    shim_folders_t folders = {0};
    (void)state;
    shim_find_folders(&folders, NULL);
    assert_true(folders.count > 5 && has(&folders, "/usr/lib"));
    for (size_t i = 0; i < folders.count; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(folders.path[i], folders.path[k]);
    shim_folders_free(&folders);
    assert_null(folders.path);
}

static int make_work(void **state)
{
    (void)state;
    if (!mkdtemp(work))
        return -1;
    snprintf(file_path, sizeof file_path, "%s/file", work);
    return 0;
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
        cmocka_unit_test(test_run_paths),      cmocka_unit_test(test_python),         cmocka_unit_test(test_cache),
        cmocka_unit_test(test_cache_mangled),  cmocka_unit_test(test_header_mangled), cmocka_unit_test(test_everything),
        cmocka_unit_test(test_python_in_path),
    };
    return cmocka_run_group_tests(tests, make_work, remove_work);
}
