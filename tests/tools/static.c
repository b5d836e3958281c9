/* SPDX-License-Identifier: Apache-2.0 */
/* static.c - a program with an NCCL name linked into it, for `shunt doctor`. */
#include <unistd.h>

int ncclCommInitRank(void);

__attribute__((visibility("hidden"))) int ncclCommInitRank(void)
{
    return 0;
}

int main(void)
{
    sleep(2);
    return ncclCommInitRank();
}
