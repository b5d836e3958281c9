/* SPDX-License-Identifier: Apache-2.0 */
/* topology_xml.c - a machine from and to NCCL's topology format: <system version="1"> / <cpu numaid> / <pci busid>, at
 * any depth / <gpu dev sm> / <nvlink target count tclass>, or / <nic> / <net name>; a <nic> that is no PCI device is
 * below its <cpu>. */
#include "selector/topology/topology.h"
#include "selector/topology/xml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_DEPTH = 32, MOST_FILE_BYTES = 4 << 20 };

typedef enum node { NODE_ROOT, NODE_SYSTEM, NODE_CPU, NODE_PCI, NODE_GPU, NODE_NIC, NODE_OTHER } node_t;

typedef struct level {
    node_t node;
    xml_text_t name;
} level_t;

typedef struct parser {
    xml_reader_t xml;
    xml_element_t element;
    sel_machine_t *machine;
    uint32_t depth;
    level_t level[MOST_DEPTH];
    int32_t pci; /* -1: outside of any */
    bool seen;   /* <system> was read */
} parser_t;

static bool number(parser_t *p, const char *name, int64_t least, int64_t most, int64_t *out)
{
    return xml_number(&p->xml, &p->element, name, least, most, out);
}

static bool number32(parser_t *p, const char *name, uint32_t most, uint32_t *out)
{
    int64_t value = *out;
    const xml_attribute_t *attribute = xml_attribute(&p->element, name);
    if (attribute && attribute->value.bytes == 0)
        return true; /* NCCL writes unknown widths this way */
    if (!number(p, name, 0, most, &value))
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool word(parser_t *p, const char *name, char *out, size_t bytes)
{
    return xml_word(&p->xml, &p->element, name, out, bytes);
}

static bool need(parser_t *p, const char *name)
{
    return xml_need(&p->xml, &p->element, name);
}

static bool full(parser_t *p, uint32_t count, uint32_t most, const char *what)
{
    return count < most || xml_fault(&p->xml, &p->element.place, "at most %u %s", most, what);
}

/* "0x03", "0x030200": missing digits on the right are zero. */
static bool pci_class(parser_t *p, const char *name, uint32_t *out)
{
    const xml_attribute_t *attribute = xml_attribute(&p->element, name);
    uint32_t value = 0;
    if (!number32(p, name, 0xffffff, &value))
        return false;
    if (attribute && attribute->value.bytes > 2) {
        for (size_t digits = attribute->value.bytes - 2; digits < 6; digits++)
            value <<= 4;
        *out = value & 0xffffff;
    }
    return true;
}

static bool bus(parser_t *p, const char *name, char out[SEL_BUS_BYTES])
{
    char text[SEL_BUS_BYTES];
    if (!need(p, name) || !word(p, name, text, sizeof text))
        return false;
    const xml_attribute_t *attribute = xml_attribute(&p->element, name);
    return sel_bus_normal(text, out) || xml_fault(&p->xml, &attribute->place, "a PCI address such as 0000:17:00.0");
}

static bool begin_system(parser_t *p)
{
    int64_t version = 0;
    if (p->seen)
        return xml_fault(&p->xml, &p->element.place, "one <system>");
    p->seen = true;
    return need(p, "version") && number(p, "version", 1, 1, &version);
}

static bool begin_cpu(parser_t *p)
{
    sel_machine_t *machine = p->machine;
    if (!full(p, machine->cpus, SEL_MAX_CPUS, "NUMA nodes"))
        return false;
    sel_cpu_t *cpu = &machine->cpu[machine->cpus++];
    int64_t numa = -1;
    const bool good =
        need(p, "numaid") && number(p, "numaid", -1, 4095, &numa) && word(p, "affinity", cpu->set, sizeof cpu->set) &&
        word(p, "arch", cpu->arch, sizeof cpu->arch) && word(p, "vendor", cpu->vendor, sizeof cpu->vendor) &&
        number32(p, "familyid", UINT32_MAX, &cpu->family) && number32(p, "modelid", UINT32_MAX, &cpu->model);
    cpu->numa = (int32_t)numa;
    p->pci = -1;
    return good;
}

static bool begin_pci(parser_t *p)
{
    sel_machine_t *machine = p->machine;
    char address[SEL_BUS_BYTES] = "";
    if (!full(p, machine->pcis, SEL_MAX_PCI, "PCI devices") || !bus(p, "busid", address))
        return false;
    for (uint32_t i = 0; i < machine->pcis; i++) {
        if (strcmp(machine->pci[i].bus, address) == 0)
            return xml_fault(&p->xml, &p->element.place, "one machine: %s is here already", address);
    }
    sel_pci_t *pci = &machine->pci[machine->pcis];
    memcpy(pci->bus, address, sizeof address);
    pci->parent = p->pci;
    pci->cpu = machine->cpus - 1;
    p->pci = (int32_t)machine->pcis++;
    return pci_class(p, "class", &pci->class) && number32(p, "vendor", 0xffff, &pci->vendor) &&
           number32(p, "device", 0xffff, &pci->device) &&
           number32(p, "subsystem_vendor", 0xffff, &pci->subsystem_vendor) &&
           number32(p, "subsystem_device", 0xffff, &pci->subsystem_device) &&
           word(p, "link_speed", pci->speed, sizeof pci->speed) && number32(p, "link_width", 64, &pci->width);
}

static bool read_kind(parser_t *p, sel_gpu_kind_t *kind)
{
    int64_t bytes = 0;
    const bool good = number32(p, "sm", 999, &kind->arch) && word(p, "name", kind->name, sizeof kind->name) &&
                      number32(p, "multiprocessors", 65535, &kind->multiprocessors) &&
                      number(p, "memory", 0, INT64_MAX, &bytes) && number32(p, "driver", 10000000, &kind->driver);
    kind->memory_bytes = (uint64_t)bytes;
    return good;
}

/* Several <gpu> below one <pci> are ranks that share it. */
static bool begin_gpu(parser_t *p)
{
    sel_machine_t *machine = p->machine;
    sel_gpu_t *last = machine->gpus ? &machine->gpu[machine->gpus - 1] : NULL;
    if (last && last->pci == (uint32_t)p->pci) {
        last->nvlinks = (sel_nvlinks_t){0}; /* this <gpu> lists them again */
        return true;
    }
    if (!full(p, machine->gpus, SEL_MAX_GPUS, "GPUs"))
        return false;
    sel_gpu_t *gpu = &machine->gpu[machine->gpus++];
    int64_t index = -1;
    gpu->pci = (uint32_t)p->pci;
    const bool good = read_kind(p, &gpu->kind) && number(p, "dev", -1, 65535, &index) &&
                      number32(p, "multicast", SEL_MAX_GPUS, &gpu->multicast);
    gpu->index = (int32_t)index;
    return good;
}

static bool begin_nvlink(parser_t *p)
{
    sel_nvlinks_t *links = &p->machine->gpu[p->machine->gpus - 1].nvlinks;
    if (!full(p, links->targets, SEL_MAX_NVLINKS, "NVLink targets of a GPU"))
        return false;
    sel_nvlink_t *link = &links->to[links->targets++];
    char text[SEL_BUS_BYTES] = "";
    int64_t count = 0;
    if (!need(p, "target") || !word(p, "target", text, sizeof text) || !need(p, "count") ||
        !number(p, "count", 1, 255, &count))
        return false;
    link->count = (uint32_t)count;
    if (!sel_bus_normal(text, link->target))
        snprintf(link->target, sizeof link->target, "fffffff:ffff:ff"); /* hidden from a virtual machine */
    return pci_class(p, "tclass", &link->class);
}

static bool begin_net(parser_t *p)
{
    sel_machine_t *machine = p->machine;
    if (!full(p, machine->nics, SEL_MAX_NICS, "NICs"))
        return false;
    sel_nic_t *nic = &machine->nic[machine->nics++];
    int64_t index = -1, speed = 0;
    uint32_t down = 0;
    const bool good = need(p, "name") && word(p, "name", nic->name, sizeof nic->name) &&
                      number(p, "dev", -1, 65535, &index) && number(p, "speed", -1, INT32_MAX, &speed) &&
                      number32(p, "port", 255, &nic->port) && number32(p, "down", 1, &down);
    nic->pci = p->pci;
    nic->cpu = machine->cpus - 1;
    nic->index = (int32_t)index;
    nic->mbps = speed > 0 ? (uint32_t)speed : 0;
    nic->down = down;
    return good;
}

static bool begin_nic(parser_t *p)
{
    (void)p;
    return true;
}

static const struct {
    node_t above;
    const char *name;
    node_t node;
    bool (*begin)(parser_t *p);
} RULES[] = {
    {NODE_ROOT, "system", NODE_SYSTEM, begin_system}, {NODE_SYSTEM, "cpu", NODE_CPU, begin_cpu},
    {NODE_CPU, "pci", NODE_PCI, begin_pci},           {NODE_CPU, "nic", NODE_NIC, begin_nic},
    {NODE_PCI, "pci", NODE_PCI, begin_pci},           {NODE_PCI, "gpu", NODE_GPU, begin_gpu},
    {NODE_PCI, "nic", NODE_NIC, begin_nic},           {NODE_GPU, "nvlink", NODE_OTHER, begin_nvlink},
    {NODE_NIC, "net", NODE_OTHER, begin_net},
};

static bool leave(parser_t *p)
{
    if (p->level[--p->depth].node == NODE_PCI)
        p->pci = p->machine->pci[p->pci].parent;
    return true;
}

static bool enter(parser_t *p)
{
    const node_t above = p->depth ? p->level[p->depth - 1].node : NODE_ROOT;
    node_t node = NODE_OTHER;
    if (p->depth == MOST_DEPTH)
        return xml_fault(&p->xml, &p->element.place, "at most %d levels", MOST_DEPTH);
    for (size_t i = 0; i < sizeof RULES / sizeof RULES[0]; i++) {
        if (RULES[i].above != above || !xml_is(p->element.name, RULES[i].name))
            continue;
        if (!RULES[i].begin(p))
            return false;
        node = RULES[i].node;
    }
    if (above == NODE_ROOT && node != NODE_SYSTEM)
        return xml_fault(&p->xml, &p->element.place, "<system version=\"1\">");
    p->level[p->depth++] = (level_t){node, p->element.name};
    return p->element.kind == XML_OPEN || leave(p);
}

static bool close_element(parser_t *p)
{
    if (p->depth == 0)
        return xml_fault(&p->xml, &p->element.place, "nothing to end here");
    const xml_text_t open = p->level[p->depth - 1].name;
    if (open.bytes != p->element.name.bytes || memcmp(open.at, p->element.name.at, open.bytes))
        return xml_fault(&p->xml, &p->element.place, "</%.*s>", (int)(open.bytes < 64 ? open.bytes : 64), open.at);
    return leave(p);
}

static bool finish(parser_t *p)
{
    if (p->depth) {
        const xml_text_t open = p->level[p->depth - 1].name;
        return xml_fault(&p->xml, &p->element.place, "</%.*s>", (int)(open.bytes < 64 ? open.bytes : 64), open.at);
    }
    return p->seen || xml_fault(&p->xml, &p->element.place, "<system version=\"1\">");
}

static int compare_gpus(const void *a, const void *b)
{
    const sel_gpu_t *x = a, *y = b;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    return x->pci < y->pci ? -1 : x->pci > y->pci;
}

static int compare_nics(const void *a, const void *b)
{
    const sel_nic_t *x = a, *y = b;
    const int name = strcmp(x->name, y->name);
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    if (name != 0)
        return name;
    if (x->port != y->port)
        return x->port < y->port ? -1 : 1;
    return x->cpu < y->cpu ? -1 : x->cpu > y->cpu;
}

/* Sorts, so that the file's order does not matter, and fills in what a file may omit: a GPU's number of links, and the
 * class of an NVLink's target, as in NCCL (a GPU if the file has it, else a switch). */
static void complete(sel_machine_t *machine)
{
    qsort(machine->gpu, machine->gpus, sizeof machine->gpu[0], compare_gpus);
    qsort(machine->nic, machine->nics, sizeof machine->nic[0], compare_nics);
    for (uint32_t g = 0; g < machine->gpus; g++) {
        sel_nvlinks_t *links = &machine->gpu[g].nvlinks;
        for (uint32_t i = 0; i < links->targets; i++) {
            bool gpu = false;
            for (uint32_t k = 0; k < machine->gpus; k++)
                gpu = gpu || strcmp(machine->pci[machine->gpu[k].pci].bus, links->to[i].target) == 0;
            if (links->to[i].class == 0)
                links->to[i].class = gpu ? 0x030000 : 0x068000;
        }
        machine->gpu[g].kind.nvlinks = sel_nvlinks_count(links);
    }
}

static bool walk(parser_t *p)
{
    for (;;) {
        if (!xml_next(&p->xml, &p->element))
            return false;
        if (p->element.kind == XML_END)
            return finish(p);
        if (!(p->element.kind == XML_CLOSE ? close_element(p) : enter(p)))
            return false;
    }
}

bool sel_machine_parse(sel_machine_t *machine, const char *file, const char *text, size_t bytes, char *fault,
                       size_t fault_bytes)
{
    parser_t *p = calloc(1, sizeof *p);
    sel_machine_t *fresh = calloc(1, sizeof *fresh);
    bool good = p && fresh;
    if (good) {
        p->machine = fresh;
        p->pci = -1;
        xml_begin(&p->xml, file, text, bytes, fault, fault_bytes);
        good = walk(p);
    } else if (fault && fault_bytes) {
        snprintf(fault, fault_bytes, "%s: out of memory", file);
    }
    if (good) {
        complete(fresh);
        *machine = *fresh;
    }
    free(fresh);
    free(p);
    return good;
}

/* Returns NULL with the reason in *why. O_NONBLOCK: opening a pipe does not wait. */
static FILE *open_file(const char *file, const char **why)
{
    struct stat about;
    const int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool special = fd >= 0 && fstat(fd, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode);
    FILE *in = fd >= 0 && !special ? fdopen(fd, "r") : NULL;
    *why = special ? "not a file" : strerror(errno);
    if (!in && fd >= 0)
        close(fd);
    return in;
}

bool sel_machine_load(sel_machine_t *machine, const char *file, char *fault, size_t fault_bytes)
{
    const char *why = NULL;
    FILE *in = open_file(file, &why);
    char *text = in ? malloc(MOST_FILE_BYTES + 1) : NULL;
    size_t bytes = text ? fread(text, 1, MOST_FILE_BYTES + 1, in) : 0;
    if (in)
        why = !text || ferror(in) ? strerror(errno) : bytes > MOST_FILE_BYTES ? "larger than 4 MiB" : NULL;
    const bool good = !why && sel_machine_parse(machine, file, text, bytes, fault, fault_bytes);
    if (why && fault && fault_bytes)
        snprintf(fault, fault_bytes, "%s: %s", file, why);
    free(text);
    if (in)
        fclose(in);
    return good;
}

/* NCCL reads no escapes in values. */
static void print_word(FILE *out, const char *name, const char *value)
{
    fprintf(out, " %s=\"", name);
    for (const char *c = value; *c; c++)
        fputc(*c < ' ' || *c > '~' || strchr("\"<>&", *c) ? '_' : *c, out);
    fputc('"', out);
}

static void print_known(FILE *out, const char *name, uint64_t value)
{
    if (value)
        fprintf(out, " %s=\"%llu\"", name, (unsigned long long)value);
}

static void print_id(FILE *out, const char *name, uint32_t value)
{
    if (value)
        fprintf(out, " %s=\"0x%04x\"", name, value);
}

static void indent(FILE *out, uint32_t depth)
{
    fprintf(out, "%*s", (int)(2 * depth), "");
}

static void print_gpu(const sel_gpu_t *gpu, uint32_t depth, FILE *out)
{
    indent(out, depth);
    fprintf(out, "<gpu");
    if (gpu->index >= 0)
        fprintf(out, " dev=\"%d\"", gpu->index);
    print_known(out, "sm", gpu->kind.arch);
    if (gpu->kind.name[0])
        print_word(out, "name", gpu->kind.name);
    print_known(out, "multiprocessors", gpu->kind.multiprocessors);
    print_known(out, "memory", gpu->kind.memory_bytes);
    print_known(out, "driver", gpu->kind.driver);
    print_known(out, "multicast", gpu->multicast);
    fprintf(out, gpu->nvlinks.targets ? ">\n" : "/>\n");
    for (uint32_t i = 0; i < gpu->nvlinks.targets; i++) {
        const sel_nvlink_t *link = &gpu->nvlinks.to[i];
        indent(out, depth + 1);
        fprintf(out, "<nvlink target=\"%s\" count=\"%u\" tclass=\"0x%06x\"/>\n", link->target, link->count,
                link->class);
    }
    if (gpu->nvlinks.targets) {
        indent(out, depth);
        fprintf(out, "</gpu>\n");
    }
}

/* Prints nothing if there are none. */
static void print_nics(const sel_machine_t *machine, int32_t pci, uint32_t cpu, uint32_t depth, FILE *out)
{
    bool any = false;
    for (uint32_t i = 0; i < machine->nics; i++) {
        const sel_nic_t *nic = &machine->nic[i];
        if (nic->pci != pci || nic->cpu != cpu)
            continue;
        if (!any) {
            indent(out, depth);
            fprintf(out, "<nic>\n");
        }
        any = true;
        indent(out, depth + 1);
        fprintf(out, "<net");
        print_word(out, "name", nic->name);
        if (nic->index >= 0)
            fprintf(out, " dev=\"%d\"", nic->index);
        print_known(out, "speed", nic->mbps);
        print_known(out, "port", nic->port);
        print_known(out, "down", nic->down);
        fprintf(out, "/>\n");
    }
    if (any) {
        indent(out, depth);
        fprintf(out, "</nic>\n");
    }
}

static void print_below(const sel_machine_t *machine, int32_t parent, uint32_t cpu, uint32_t depth, FILE *out);

static void print_pci(const sel_machine_t *machine, uint32_t index, uint32_t depth, FILE *out)
{
    const sel_pci_t *pci = &machine->pci[index];
    indent(out, depth);
    fprintf(out, "<pci busid=\"%s\"", pci->bus);
    if (pci->class)
        fprintf(out, " class=\"0x%06x\"", pci->class);
    print_id(out, "vendor", pci->vendor);
    print_id(out, "device", pci->device);
    print_id(out, "subsystem_vendor", pci->subsystem_vendor);
    print_id(out, "subsystem_device", pci->subsystem_device);
    if (pci->speed[0])
        print_word(out, "link_speed", pci->speed);
    print_known(out, "link_width", pci->width);
    fprintf(out, ">\n");
    for (uint32_t g = 0; g < machine->gpus; g++) {
        if (machine->gpu[g].pci == index)
            print_gpu(&machine->gpu[g], depth + 1, out);
    }
    print_nics(machine, (int32_t)index, pci->cpu, depth + 1, out);
    print_below(machine, (int32_t)index, pci->cpu, depth + 1, out);
    indent(out, depth);
    fprintf(out, "</pci>\n");
}

static void print_below(const sel_machine_t *machine, int32_t parent, uint32_t cpu, uint32_t depth, FILE *out)
{
    for (uint32_t i = 0; i < machine->pcis; i++) {
        if (machine->pci[i].parent == parent && machine->pci[i].cpu == cpu)
            print_pci(machine, i, depth, out);
    }
}

void sel_machine_print_xml(const sel_machine_t *machine, FILE *out)
{
    fprintf(out, "<system version=\"1\">\n");
    for (uint32_t i = 0; i < machine->cpus; i++) {
        const sel_cpu_t *cpu = &machine->cpu[i];
        fprintf(out, "  <cpu numaid=\"%d\"", cpu->numa);
        if (cpu->set[0])
            print_word(out, "affinity", cpu->set);
        if (cpu->arch[0])
            print_word(out, "arch", cpu->arch);
        if (cpu->vendor[0])
            print_word(out, "vendor", cpu->vendor);
        print_known(out, "familyid", cpu->family);
        print_known(out, "modelid", cpu->model);
        fprintf(out, ">\n");
        print_nics(machine, -1, i, 2, out);
        print_below(machine, -1, i, 2, out);
        fprintf(out, "  </cpu>\n");
    }
    fprintf(out, "</system>\n");
}
