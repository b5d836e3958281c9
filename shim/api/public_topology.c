/* SPDX-License-Identifier: Apache-2.0 */
/* public_topology.c - functions of shunt.h about the topology of machines. */
#define _GNU_SOURCE
/* See public.c. */
#pragma GCC visibility push(default)
#include "shunt.h"
#pragma GCC visibility pop

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/setup/machine.h"

static sel_machine_t *read_machine(const char *file, char *fault, size_t capacity)
{
    sel_machine_t *machine = calloc(1, sizeof(*machine));
    if (machine == NULL && capacity > 0)
        snprintf(fault, capacity, "out of memory");
    if (machine != NULL && file == NULL)
        shim_machine_read(machine);
    if (machine != NULL && file != NULL && !sel_machine_load(machine, file, fault, capacity)) {
        free(machine);
        machine = NULL;
    }
    return machine;
}

int shunt_topology(const char *file, int xml, char *text, size_t capacity)
{
    if (text == NULL)
        capacity = 0;
    sel_machine_t *machine = read_machine(file, text, capacity);
    if (machine == NULL)
        return -1;
    char *whole = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&whole, &bytes);
    if (out != NULL) {
        (xml ? sel_machine_print_xml : sel_machine_print)(machine, out);
        fclose(out);
    }
    free(machine);
    if (whole == NULL)
        return -1;
    if (capacity > 0)
        snprintf(text, capacity, "%s", whole);
    free(whole);
    return (int)bytes;
}

int shunt_topology_class(const char *file, shunt_communicator_t *facts)
{
    sel_machine_t *machine = facts != NULL && facts->size > 0 ? read_machine(file, NULL, 0) : NULL;
    if (machine == NULL)
        return -1;
    shunt_communicator_t full = {.size = facts->size};
    uint32_t gpu[SEL_MAX_GPUS];
    const uint32_t count = sel_machine_team(machine, gpu);
    if (count > 1) {
        const sel_topology_t topology = sel_machine_topology(machine, gpu, count);
        full.ranks = count;
        full.machine = topology.fingerprint;
        sel_topology_class(&topology, full.class_name);
    }
    free(machine);
    memcpy(facts, &full, full.size < sizeof(full) ? full.size : sizeof(full));
    return 0;
}
