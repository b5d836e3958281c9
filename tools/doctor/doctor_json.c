/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_json.c - the findings as JSON. Every name is always present; unknown values are null.
 */
#include "tools/base/json.h"
#include "tools/doctor/doctor.h"

static void json_machine(tool_json_t *json, const doctor_t *doctor)
{
    const bench_machine_t *machine = doctor->machine;
    const shunt_communicator_t *all = &doctor->facts->all;
    const bool looked = machine->shunt_version != 0;
    char shunt[16] = "", nccl[16] = "", fingerprint[20] = "";
    if (looked) {
        tool_version_text(machine->shunt_version, shunt);
    }
    if (machine->nccl_version != 0) {
        tool_version_text(machine->nccl_version, nccl);
    }
    if (all->ranks > 0) {
        snprintf(fingerprint, sizeof fingerprint, "%016llx", (unsigned long long)all->machine);
    }
    tool_json_word(json, "shunt", shunt);
    tool_json_text(json, "library", looked ? doctor->report->library : NULL);
    tool_json_word(json, "nccl", nccl);
    tool_json_word(json, "nccl_path", machine->nccl_path);
    tool_json_text(json, "device", !looked ? NULL : machine->cpu ? "cpu" : "cuda");
    tool_json_value(json, "gpu_count", "%u", machine->gpus.count);
    tool_json_word(json, "class", all->class_name);
    tool_json_word(json, "machine", fingerprint);
}

static void json_checks(tool_json_t *json, const doctor_report_t *report)
{
    static const char *const levels[] = {"ok", "note", "fault"};
    tool_json_begin(json, "checks", '[');
    for (uint32_t i = 0; i < report->count; i++) {
        const doctor_finding_t *finding = &report->finding[i];
        tool_json_begin(json, NULL, '{');
        tool_json_text(json, "check", finding->check);
        tool_json_text(json, "level", levels[finding->level]);
        tool_json_text(json, "text", finding->text);
        tool_json_text(json, "what_to_do", finding->what_to_do);
        tool_json_end(json, '}');
    }
    tool_json_end(json, ']');
}

static void json_calls(tool_json_t *json, const doctor_report_t *report)
{
    if (!report->counted) {
        tool_json_text(json, "calls", NULL);
        return;
    }
    tool_json_begin(json, "calls", '{');
    tool_json_value(json, "processes", "%u", report->processes);
    tool_json_value(json, "taken", "%llu", (unsigned long long)report->taken);
    tool_json_value(json, "forwarded", "%llu", (unsigned long long)report->forwarded);
    tool_json_end(json, '}');
}

static void json_us(tool_json_t *json, const char *name, double seconds)
{
    if (seconds > 0) {
        tool_json_value(json, name, "%.3f", seconds * 1e6);
    } else {
        tool_json_text(json, name, NULL);
    }
}

static void json_bench(tool_json_t *json, const doctor_report_t *report)
{
    const bench_row_t *row = &report->row;
    if (!report->measured) {
        tool_json_text(json, "bench", NULL);
        return;
    }
    tool_json_begin(json, "bench", '{');
    tool_json_text(json, "collective", alg_collective_name(row->collective));
    tool_json_value(json, "bytes", "%llu", (unsigned long long)row->bytes);
    tool_json_text(json, "algorithm", row->algorithm);
    json_us(json, "us", row->seconds);
    json_us(json, "nccl_us", row->nccl_seconds);
    tool_json_value(json, "wrong", "%llu", (unsigned long long)row->wrong);
    tool_json_end(json, '}');
}

void doctor_json(const doctor_t *doctor, tool_json_t *json)
{
    const doctor_report_t *report = doctor->report;
    tool_json_begin(json, NULL, '{');
    tool_json_bool(json, "complete", report->complete);
    tool_json_value(json, "faults", "%u", report->faults);
    tool_json_word(json, "error", doctor->machine->error);
    json_machine(json, doctor);
    json_checks(json, report);
    tool_json_begin(json, "output", '[');
    for (uint32_t i = 0; i < report->lines; i++) {
        tool_json_text(json, NULL, report->line[i]);
    }
    tool_json_end(json, ']');
    json_calls(json, report);
    json_bench(json, report);
    tool_json_end(json, '}');
}
