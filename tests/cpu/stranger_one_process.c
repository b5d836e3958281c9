/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program written from NCCL's manual: one process, one thread, several devices,
 * ncclCommInitAll, groups. It does not know Shunt.
 */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { DEVICES = 4, COUNT = 32 * 1024 };

static void must(ncclResult_t result, const char *what)
{
    if (result == ncclSuccess)
        return;
    printf("%s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
    exit(EXIT_FAILURE);
}

int main(void)
{
    ncclComm_t comms[DEVICES];
    int devices[DEVICES] = {0, 1, 2, 3};
    float *send[DEVICES], *receive[DEVICES];

    alarm(60);
    for (int i = 0; i < DEVICES; i++) {
        send[i] = malloc(COUNT * sizeof(float));
        receive[i] = malloc(COUNT * sizeof(float));
        if (!send[i] || !receive[i])
            return EXIT_FAILURE;
        for (int k = 0; k < COUNT; k++)
            send[i][k] = (float)(i + k % 100);
    }
    must(ncclCommInitAll(comms, DEVICES, devices), "ncclCommInitAll");
    for (int repeat = 0; repeat < 10; repeat++) {
        must(ncclGroupStart(), "ncclGroupStart");
        for (int i = 0; i < DEVICES; i++)
            must(ncclAllReduce(send[i], receive[i], COUNT, ncclFloat, ncclSum, comms[i], NULL), "ncclAllReduce");
        must(ncclGroupEnd(), "ncclGroupEnd");
    }
    for (int i = 0; i < DEVICES; i++) {
        for (int k = 0; k < COUNT; k++) {
            if (receive[i][k] != (float)(6 + 4 * (k % 100))) {
                printf("device %d element %d: %g\n", i, k, (double)receive[i][k]);
                return EXIT_FAILURE;
            }
        }
    }
    for (int i = 0; i < DEVICES; i++)
        must(ncclCommDestroy(comms[i]), "ncclCommDestroy");
    for (int i = 0; i < DEVICES; i++) {
        free(send[i]);
        free(receive[i]);
    }
    printf("Success\n");
    return EXIT_SUCCESS;
}
