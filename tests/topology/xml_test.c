/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invalid files: the reported fault and its position; and what is ignored.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "selector/topology/topology.h"
#include "selector/topology/xml.h"

static sel_machine_t machine;

static bool parse(const char *text, char *fault, size_t bytes)
{
    return sel_machine_parse(&machine, "f.xml", text, strlen(text), fault, bytes);
}

#define SYSTEM(inside) "<system version=\"1\">\n" inside "\n</system>"
#define CPU(inside) SYSTEM("<cpu numaid=\"0\">\n" inside "\n</cpu>")
#define PCI(inside) CPU("<pci busid=\"0000:17:00.0\">\n" inside "\n</pci>")

static void faults(void **state)
{
    (void)state;
    static const struct {
        const char *text, *fault;
    } bad[] = {
        {"", "f.xml:1:1: expected <system version=\"1\">"},
        {"no xml", "f.xml:1:1: expected '<'"},
        {"<?xml version=\"1.0\"?>", "f.xml:1:2: expected an element's name"},
        {"<graphs version=\"1\"/>", "f.xml:1:1: expected <system version=\"1\">"},
        {"<system/>", "f.xml:1:1: expected version in <system>"},
        {"<system version=\"2\"/>", "f.xml:1:18: expected version to be a number from 1 to 1"},
        {"<system version=\"1\"/><system version=\"1\"/>", "f.xml:1:22: expected one <system>"},
        {"<system version=\"1\">\n<cpu numaid=\"0\">", "f.xml:2:17: expected </cpu>"},
        {"<system version=\"1\">\n<cpu numaid=\"0\"", "f.xml:2:16: expected a space, '/' or '>'"},
        {"<system version=\"1\">\n<cpu numaid=\"0", "f.xml:2:15: expected '\"'"},
        {"<system version=\"1\">\n<cpu numaid=", "f.xml:2:13: expected a value in quotes"},
        {"<system version=\"1\">\n<cpu num", "f.xml:2:9: expected '='"},
        {"<system version=\"1\">\n<", "f.xml:2:2: expected an element's name"},
        {"<system version=\"1\"/", "f.xml:1:21: expected '>'"},
        {"<system version=\"1\"></cpu>", "f.xml:1:21: expected </system>"},
        {"<system version=\"1\"/></system>", "f.xml:1:22: expected nothing to end here"},
        {"<system version=\"1\"/> text", "f.xml:1:23: expected '<'"},
        {"<system version=\"1\"\"/>", "f.xml:1:20: expected a space, '/' or '>'"},
        {"<system version=\"1\" =\"\"/>", "f.xml:1:21: expected an attribute's name, '/' or '>'"},
        {"<system version=\"1\n\"/>", "f.xml:1:19: expected the quote that ends the value"},
        {"<!-- <system version=\"1\"/>", "f.xml:1:1: expected --> after this <!--"},
        {SYSTEM("<cpu/>"), "f.xml:2:1: expected numaid in <cpu>"},
        {SYSTEM("<cpu numaid=\"-2\"/>"), "f.xml:2:14: expected numaid to be a number from -1 to 4095"},
        {SYSTEM("<cpu numaid=\"one\"/>"), "f.xml:2:14: expected numaid to be a number from -1 to 4095"},
        {SYSTEM("<cpu numaid=\"99999999999999999999999\"/>"), "f.xml:2:14: expected numaid to be a number"},
        {SYSTEM("<cpu numaid=\"0\" arch=\"an architecture with a long name\"/>"),
         "f.xml:2:23: expected arch of at most 15 characters"},
        {CPU("<pci/>"), "f.xml:3:1: expected busid in <pci>"},
        {CPU("<pci busid=\"17\"/>"), "f.xml:3:13: expected a PCI address such as 0000:17:00.0"},
        {CPU("<pci busid=\"0000:-7:00.0\"/>"), "f.xml:3:13: expected a PCI address such as 0000:17:00.0"},
        {CPU("<pci busid=\"0000:17:00.8\"/>"), "f.xml:3:13: expected a PCI address such as 0000:17:00.0"},
        {CPU("<pci busid=\"0000:17:00.0\" class=\"0x1000000\"/>"), "f.xml:3:34: expected class to be a number"},
        {CPU("<pci busid=\"0000:17:00.0\"/>\n<pci busid=\"0000:17:00.0\"/>"),
         "f.xml:4:1: expected one machine: 0000:17:00.0 is here already"},
        {PCI("<gpu sm=\"-90\"/>"), "f.xml:4:10: expected sm to be a number from 0 to 999"},
        {PCI("<gpu sm=\"0x\"/>"), "f.xml:4:10: expected sm to be a number from 0 to 999"},
        {PCI("<gpu name=\"\xc3\xa9\"/>"), "f.xml:4:12: expected name in plain characters"},
        {PCI("<gpu memory=\"9223372036854775808\"/>"), "f.xml:4:14: expected memory to be a number"},
        {PCI("<gpu><nvlink count=\"1\"/></gpu>"), "f.xml:4:6: expected target in <nvlink>"},
        {PCI("<gpu><nvlink target=\"x\" count=\"1000\"/></gpu>"), "f.xml:4:32: expected count to be a number from 1"},
        {PCI("<nic><net speed=\"1\"/></nic>"), "f.xml:4:6: expected name in <net>"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char fault[200] = "";
        machine.cpus = 77;
        assert_false(parse(bad[i].text, fault, sizeof fault));
        if (strncmp(fault, bad[i].fault, strlen(bad[i].fault)) != 0)
            fail_msg("'%s': '%s', not '%s'", bad[i].text, fault, bad[i].fault);
        assert_null(strchr(fault, '\n'));
        assert_int_equal(machine.cpus, 77); /* written on success only */
        assert_false(parse(bad[i].text, NULL, 0));
    }
}

/* Every proper prefix of a valid file is refused. */
static void cut_short(void **state)
{
    (void)state;
    static const char whole[] =
        PCI("<gpu sm=\"90\"><nvlink target='0000:c4:00.0' count=\"5\" tclass=\"0x068000\"/></gpu><!-- c -->");
    char fault[200];
    assert_true(sel_machine_parse(&machine, "f.xml", whole, sizeof whole - 1, fault, sizeof fault));
    for (size_t bytes = 0; bytes < sizeof whole - 1; bytes++) {
        char *exact = malloc(bytes ? bytes : 1); /* an address sanitizer sees a byte too far */
        memcpy(exact, whole, bytes);
        fault[0] = '\0';
        assert_false(sel_machine_parse(&machine, "f.xml", exact, bytes, fault, sizeof fault));
        assert_true(strncmp(fault, "f.xml:", 6) == 0);
        free(exact);
    }
}

static void passed_over(void **state)
{
    (void)state;
    char fault[200] = "";
    if (!parse("<!-- a machine --> \n<system version=\"1\" name='made up'>"
               "<fabric><cpu numaid=\"7\"/></fabric>"
               "<cpu numaid=\"-1\" host_hash=\"0x1\" colour=\"red\"><gpu sm=\"90\"/>"
               "<pci busid=\"00000000:AB:00.0\" class=\"0x03\" link_width=\"\" link_speed=\"\" ><pcilink target=\"x\"/>"
               "<gpu dev=\"0\" sm=\"90\" mlopart=\"0\"><c2c bw=\"1\" count=\"5\"/>"
               "<nvlink target=\"FFFFFFF:FF:FF.0\" count=\"18\"/></gpu>"
               "<gpu dev=\"0\" sm=\"90\" mlopart=\"1\"><nvlink target=\"fffffff:ff:ff.0\" count=\"18\"/></gpu></pci>"
               "<nic><net name=\"eth0\" speed=\"-1\" latency=\"0.5\"/></nic></cpu></system>\n",
               fault, sizeof fault))
        fail_msg("%s", fault);
    assert_int_equal(machine.cpus, 1);
    assert_int_equal(machine.cpu[0].numa, -1);
    assert_int_equal(machine.gpus, 1); /* two ranks of one GPU */
    assert_int_equal(machine.pci[0].class, 0x030000);
    assert_string_equal(machine.pci[0].bus, "0000:ab:00.0");
    assert_int_equal(sel_nvlinks_switched(&machine.gpu[0].nvlinks), 18);
    assert_int_equal(machine.gpu[0].kind.nvlinks, 18);
    assert_int_equal(machine.nic[0].pci, -1);
    assert_int_equal(machine.nic[0].mbps, 0);
}

/* A file with too much nesting or too many elements is refused, for any number. */
static void bounds(void **state)
{
    (void)state;
    static const struct {
        const char *before, *repeated, *fault;
    } cases[] = {
        {"<system version=\"1\">", "<a>", "at most 32 levels"},
        {"<system version=\"1\">", "<cpu numaid=\"0\"/>", "at most 64 NUMA nodes"},
        {"<system version=\"1\"><cpu numaid=\"0\">", "<nic><net name=\"n\"/></nic>", "at most 64 NICs"},
        {"<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0:1:0.0\"><gpu sm=\"9\">",
         "<nvlink target=\"x\" count=\"1\"/>", "at most 24 NVLink targets of a GPU"},
        {"<system version=\"1\" ", "a=\"\" ", "at most 32 attributes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum { TIMES = 20000 };
        const size_t before = strlen(cases[i].before), length = strlen(cases[i].repeated);
        char fault[200] = "", *text = malloc(before + TIMES * length);
        memcpy(text, cases[i].before, before);
        for (size_t k = 0; k < TIMES; k++)
            memcpy(text + before + k * length, cases[i].repeated, length);
        assert_false(sel_machine_parse(&machine, "f.xml", text, before + TIMES * length, fault, sizeof fault));
        if (!strstr(fault, cases[i].fault))
            fail_msg("'%s', not '%s'", fault, cases[i].fault);
        free(text);
    }
    char text[SEL_MAX_PCI * 64] = "<system version=\"1\"><cpu numaid=\"0\">", fault[200] = "";
    for (unsigned i = 0; i <= SEL_MAX_GPUS; i++)
        sprintf(text + strlen(text), "<pci busid=\"%x:0:0.0\"><gpu/></pci>", i);
    assert_false(parse(text, fault, sizeof fault));
    assert_non_null(strstr(fault, "at most 32 GPUs"));
}

static void files(void **state)
{
    (void)state;
    char fault[200] = "";
    assert_false(sel_machine_load(&machine, "/nonexistent/file.xml", fault, sizeof fault));
    assert_string_equal(fault, "/nonexistent/file.xml: No such file or directory");
    assert_false(sel_machine_load(&machine, "/", fault, sizeof fault));
    assert_string_equal(fault, "/: Is a directory");
    char pipe_path[64];
    snprintf(pipe_path, sizeof pipe_path, "/tmp/shunt-topology-pipe-%d", (int)getpid());
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    alarm(60); /* opening it would wait for a writer */
    const bool loaded = sel_machine_load(&machine, pipe_path, fault, sizeof fault);
    alarm(0);
    unlink(pipe_path);
    assert_false(loaded);
    assert_non_null(strstr(fault, "not a file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults), cmocka_unit_test(cut_short), cmocka_unit_test(passed_over),
        cmocka_unit_test(bounds), cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
