/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_topology.c - the parser of NCCL's topology files: any bytes give a machine
 * that answers all queries and is read back as it was written, or one line with
 * the position of the fault.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "selector/topology/topology.h"

static sel_machine_t machine, again;

static void require(int holds)
{
    if (!holds)
        abort();
}

static void ask_everything(void)
{
    uint32_t all[SEL_MAX_GPUS], lanes;
    char class[SEL_CLASS_BYTES];
    for (uint32_t a = 0; a < machine.gpus; a++) {
        all[a] = a;
        require(sel_nic_near(&machine, a) < (int32_t)machine.nics);
        for (uint32_t b = 0; b < machine.gpus; b++)
            require(sel_gpu_path(&machine, a, b, &lanes) <= SEL_PATH_SYS);
    }
    if (machine.gpus == 0)
        return;
    const sel_topology_t topology = sel_machine_topology(&machine, all, machine.gpus);
    sel_topology_class(&topology, class);
    require(topology.link > SEL_LINK_CPU && topology.link < SEL_LINK_COUNT && strlen(class) < sizeof class);
}

static char *printed(const sel_machine_t *what, void (*how)(const sel_machine_t *, FILE *), size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    require(out != NULL);
    how(what, out);
    fclose(out);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char fault[256] = "";
    if (!sel_machine_parse(&machine, "f", (const char *)data, size, fault, sizeof fault)) {
        require(strncmp(fault, "f:", 2) == 0 && strchr(fault, '\n') == NULL);
        return 0;
    }
    ask_everything();
    size_t bytes = 0, bytes_again = 0;
    char *text = printed(&machine, sel_machine_print_xml, &bytes);
    require(sel_machine_parse(&again, "g", text, bytes, fault, sizeof fault));
    char *text_again = printed(&again, sel_machine_print_xml, &bytes_again);
    require(strcmp(text, text_again) == 0);
    free(text);
    free(text_again);
    free(printed(&machine, sel_machine_print, &bytes));
    return 0;
}
