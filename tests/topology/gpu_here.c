/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This machine as its drivers report it: NVML's answers must be consistent, and unchanged after writing and reading a
 * file. Their time, which is part of an init, is printed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "selector/topology/topology.h"

enum { SKIP = 77 };

static sel_machine_t machine, again;
static int faults;

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void check(int holds, const char *what)
{
    if (!holds) {
        printf("check failed: %s\n", what);
        faults++;
    }
}

static const char *bus_of(uint32_t gpu)
{
    return machine.pci[machine.gpu[gpu].pci].bus;
}

/* Time the queries in the order of an init: the first starts NVML, the second reads a GPU's links. */
static void time_questions(void)
{
    sel_reach_t reach;
    const double start = now_ms();
    sel_nvml_add_gpus(&machine, "/nonexistent");
    const double listed = now_ms();
    for (uint32_t b = 1; b < machine.gpus; b++)
        sel_nvml_reach(bus_of(0), bus_of(b), &reach);
    const double reached = now_ms();
    printf("NVML: start and links of %u GPUs %.2f ms, then reach of one %.3f ms\n", machine.gpus, listed - start,
           reached - listed);
}

static void compare_answers(void)
{
    for (uint32_t a = 0; a < machine.gpus; a++) {
        for (uint32_t b = 0; b < machine.gpus; b++) {
            sel_reach_t out = {.link = SEL_LINK_CPU}, in = {.link = SEL_LINK_CPU};
            if (a == b)
                continue;
            const int there = sel_nvml_reach(bus_of(a), bus_of(b), &out);
            const int back = sel_nvml_reach(bus_of(b), bus_of(a), &in);
            check(there == back && out.link == in.link, "the way back is the way there");
            const sel_reach_t by_links = sel_gpu_reach(&machine, a, b);
            check(there < 0 || (there == 1) == (by_links.link < SEL_LINK_PCIE) || machine.gpu[a].nvlinks.targets == 0,
                  "peer access over NVLink where there are NVLinks, and only there");
        }
    }
}

static void write_and_read(void)
{
    char *text = NULL, fault[256] = "";
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    sel_machine_print_xml(&machine, out);
    fclose(out);
    check(sel_machine_parse(&again, "this machine", text, bytes, fault, sizeof fault), fault);
    check(again.gpus == machine.gpus && again.nics == machine.nics, "all GPUs and NICs come back");
    free(text);
}

int main(void)
{
    time_questions();
    if (machine.gpus == 0) {
        printf("skipped: NVML shows no GPU\n");
        return SKIP;
    }
    memset(&machine, 0, sizeof machine);
    const double start = now_ms();
    sel_machine_add_gpus(&machine, "/sys");
    sel_machine_add_nics(&machine, "/sys");
    printf("/sys: %.2f ms\n", now_ms() - start);
    sel_machine_print(&machine, stdout);
    compare_answers();
    write_and_read();
    return faults > 0;
}
