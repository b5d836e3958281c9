/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program written from NCCL's manual: rank 0 makes the unique id and passes it
 * to the other processes through a file; each runs the executable again with its
 * rank as argument. It does not know Shunt.
 */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, COUNT = 1000 };

static int fail(const char *what, ncclResult_t result)
{
    fprintf(stderr, "%s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
    return EXIT_FAILURE;
}

static int write_id(const char *path, const ncclUniqueId *id)
{
    char temporary[512];
    FILE *file;
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    file = fopen(temporary, "wb");
    if (!file || fwrite(id, sizeof(*id), 1, file) != 1 || fclose(file) != 0)
        return -1;
    return rename(temporary, path);
}

static void read_id(const char *path, ncclUniqueId *id)
{
    FILE *file;
    while (!(file = fopen(path, "rb")))
        usleep(1000);
    if (fread(id, sizeof(*id), 1, file) != 1)
        exit(EXIT_FAILURE);
    fclose(file);
}

static int rank_main(int rank, const char *path)
{
    int data[COUNT], seen_rank = -1, seen_count = -1;
    double mean = rank, result_mean = 0;
    ncclUniqueId id;
    ncclComm_t comm;
    ncclResult_t result;

    if (rank == 0) {
        if ((result = ncclGetUniqueId(&id)) != ncclSuccess)
            return fail("ncclGetUniqueId", result);
        if (write_id(path, &id))
            return EXIT_FAILURE;
    } else {
        read_id(path, &id);
    }
    if ((result = ncclCommInitRank(&comm, RANKS, id, rank)) != ncclSuccess)
        return fail("ncclCommInitRank", result);
    if (ncclCommUserRank(comm, &seen_rank) || ncclCommCount(comm, &seen_count) || seen_rank != rank ||
        seen_count != RANKS)
        return EXIT_FAILURE;
    for (int i = 0; i < COUNT; i++)
        data[i] = i - rank;
    if ((result = ncclAllReduce(data, data, COUNT, ncclInt, ncclMax, comm, NULL)) != ncclSuccess)
        return fail("ncclAllReduce", result);
    if ((result = ncclAllReduce(&mean, &result_mean, 1, ncclDouble, ncclAvg, comm, NULL)) != ncclSuccess)
        return fail("ncclAllReduce", result);
    for (int i = 0; i < COUNT; i++)
        if (data[i] != i)
            return EXIT_FAILURE;
    if (result_mean != 1.5)
        return EXIT_FAILURE;
    if ((result = ncclCommFinalize(comm)) != ncclSuccess)
        return fail("ncclCommFinalize", result);
    if ((result = ncclCommDestroy(comm)) != ncclSuccess)
        return fail("ncclCommDestroy", result);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/stranger-XXXXXX", path[64], number[8];
    pid_t pids[RANKS];
    int wrong = 0;

    alarm(60);
    if (argc == 3)
        return rank_main(atoi(argv[1]), argv[2]);
    if (!mkdtemp(folder))
        return EXIT_FAILURE;
    snprintf(path, sizeof(path), "%s/id", folder);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            snprintf(number, sizeof(number), "%d", r);
            execl("/proc/self/exe", argv[0], number, path, (char *)NULL);
            _exit(127);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        int status = -1;
        if (waitpid(pids[r], &status, 0) != pids[r] || status != 0)
            wrong++;
    }
    unlink(path);
    rmdir(folder);
    printf("%s\n", wrong ? "Failure" : "Success");
    return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
