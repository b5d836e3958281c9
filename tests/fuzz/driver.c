/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c - a main for the harnesses of this folder: runs every file of a corpus, then mutations of them, which are
 * the same in each run.
 *
 * usage: HARNESS CORPUS_FOLDER MUTATIONS [FIRST]
 *
 * It needs no fuzzer and no coverage, so every build can run a harness; libFuzzer
 * finds new inputs with the same harness and corpus (CMakeLists.txt says how).
 * Mutation n is a function of n and the corpus alone. The inputs run in a child,
 * so that the parent can report the last one.
 */
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_FILES = 256, MOST_BYTES = 65536, PATH_BYTES = 4096, SECONDS_AN_INPUT = 100, MOST_CHANGES = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct file {
    char name[256];
    uint8_t *bytes;
    size_t size;
} file_t;

static file_t files[MOST_FILES];
static int file_count;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const file_t *)a)->name, ((const file_t *)b)->name);
}

static void read_file(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *stream = fopen(path, "r");
    if (stream == NULL || file_count == MOST_FILES)
        return;
    file_t *file = &files[file_count++];
    snprintf(file->name, sizeof(file->name), "%s", name);
    file->bytes = malloc(MOST_BYTES);
    file->size = fread(file->bytes, 1, MOST_BYTES, stream);
    fclose(stream);
}

static void read_corpus(const char *folder)
{
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        if (entry->d_name[0] != '.')
            read_file(folder, entry->d_name);
    }
    if (entries != NULL)
        closedir(entries);
    qsort(files, (size_t)file_count, sizeof(files[0]), by_name);
}

/* splitmix64 */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static size_t below(uint64_t *state, size_t limit)
{
    return limit > 0 ? (size_t)(next(state) % limit) : 0;
}

/* Insert a piece into the buffer, or overwrite with it; returns the new size. */
static size_t put(uint8_t *bytes, size_t size, size_t at, const uint8_t *piece, size_t length, size_t replaced)
{
    if (size - replaced + length > MOST_BYTES)
        return size;
    memmove(bytes + at + length, bytes + at + replaced, size - at - replaced);
    memcpy(bytes + at, piece, length);
    return size - replaced + length;
}

static size_t change(uint8_t *bytes, size_t size, uint64_t *state)
{
    static const uint8_t odd[] = {0,   1,   '\n', '\r', '\t', ' ', '#', '=',  '-',  ';',
                                  ',', ':', '0',  '9',  'K',  '"', '<', 0x7f, 0x80, 0xff};
    static const char *const numbers[] = {"0",    "-1", "4294967296", "18446744073709551615", "18446744073709551616",
                                          "1e308"};
    const size_t at = below(state, size + 1), left = size - at;
    const size_t length = below(state, left < 32 ? left + 1 : 32);
    const file_t *other = &files[below(state, (size_t)file_count)];
    uint8_t copy[32];
    switch (next(state) % 7) {
    case 0: /* a bit */
        if (left > 0)
            bytes[at] ^= (uint8_t)(1u << next(state) % 8);
        return size;
    case 1: /* a byte with a meaning, inserted or in place of another */
        copy[0] = odd[below(state, sizeof(odd))];
        return put(bytes, size, at, copy, 1, left > 0 ? next(state) % 2 : 0);
    case 2: /* a number at the edge of a type */
    {
        const char *number = numbers[below(state, sizeof(numbers) / sizeof(numbers[0]))];
        return put(bytes, size, at, (const uint8_t *)number, strlen(number), 0);
    }
    case 3: /* remove a piece */
        return put(bytes, size, at, copy, 0, length);
    case 4: /* repeat a piece */
        memcpy(copy, bytes + at, length);
        return put(bytes, size, at, copy, length, 0);
    case 5: /* cut the end off */
        return at;
    default: /* a piece of another file */
    {
        const size_t from = below(state, other->size);
        const size_t most = other->size - from;
        return put(bytes, size, at, other->bytes + from, below(state, most < 64 ? most + 1 : 64), 0);
    }
    }
}

static size_t mutate(uint64_t number, uint8_t *bytes)
{
    uint64_t state = number;
    const file_t *file = &files[below(&state, (size_t)file_count)];
    size_t size = file->size;
    memcpy(bytes, file->bytes, size);
    for (size_t changes = 1 + below(&state, MOST_CHANGES); changes > 0; changes--)
        size = change(bytes, size, &state);
    return size;
}

/* Copies the input into memory of exactly its size, so that an address sanitizer detects reads beyond it. */
static void run_one(const uint8_t *bytes, size_t size)
{
    uint8_t *exact = malloc(size > 0 ? size : 1);
    memcpy(exact, bytes, size);
    alarm(SECONDS_AN_INPUT);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static int run_all(uint64_t first, uint64_t count, _Atomic int64_t *at)
{
    static uint8_t bytes[MOST_BYTES];
    for (int i = 0; i < file_count; i++) {
        atomic_store(at, i - file_count);
        run_one(files[i].bytes, files[i].size);
    }
    for (uint64_t i = first; i < first + count; i++) {
        atomic_store(at, (int64_t)i);
        run_one(bytes, mutate(i, bytes));
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER MUTATIONS [FIRST]\n", argv[0]);
        return 2;
    }
    const uint64_t count = strtoull(argv[2], NULL, 10), first = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    _Atomic int64_t *at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    read_corpus(argv[1]);
    if (file_count == 0 || at == MAP_FAILED) {
        fprintf(stderr, "%s: no corpus in %s\n", argv[0], argv[1]);
        return 2;
    }
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        exit(run_all(first, count, at));
    if (child > 0 && waitpid(child, &status, 0) == child && status == 0) {
        printf("%d files, %llu mutations\n", file_count, (unsigned long long)count);
        return 0;
    }
    const int64_t last = atomic_load(at);
    if (last < 0)
        fprintf(stderr, "%s: file %s/%s fails\n", argv[0], argv[1], files[last + file_count].name);
    else
        fprintf(stderr, "%s: mutation %lld fails; again: %s %s 1 %lld\n", argv[0], (long long)last, argv[0], argv[1],
                (long long)last);
    return 1;
}
