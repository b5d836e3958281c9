/* SPDX-License-Identifier: Apache-2.0 */
/* trace_text.c - events in the Trace Event Format: one JSON object each; "X" is a slice, "i" an instant, "M" a name;
 * times in µs. Only the host's name needs escaping: other texts are Shunt's. */
#include <stdio.h>

#include "shim/account/slice.h"
#include "shim/account/trace.h"

/* The length that fits: snprintf returns the untruncated one. */
static size_t fitting(int length)
{
    return length < 0 ? 0 : length < SHIM_TRACE_EVENT_BYTES ? (size_t)length : SHIM_TRACE_EVENT_BYTES - 1;
}

static const char *type_name(int32_t type)
{
    static const char *const names[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
                                        "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
    return type >= 0 && type < (int32_t)(sizeof(names) / sizeof(names[0])) ? names[type] : "?";
}

static const char *op_name(int32_t op)
{
    static const char *const names[] = {"sum", "prod", "max", "min", "avg"};
    return op < 0 ? "" : op < (int32_t)(sizeof(names) / sizeof(names[0])) ? names[op] : "custom";
}

static const char *truth(int32_t value)
{
    return value < 0 ? "null" : value > 0 ? "true" : "false";
}

static size_t group_text(const shim_trace_call_t *call, int pid, char text[SHIM_TRACE_EVENT_BYTES])
{
    return fitting(snprintf(text, SHIM_TRACE_EVENT_BYTES,
                            "{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"group\",\"ts\":%llu.%03llu,\"dur\":%llu.%03llu,"
                            "\"pid\":%d,\"tid\":%d,\"args\":{\"result\":%d,\"host_ns\":%llu}}",
                            call->function, SHIM_TRACE_US(call->start_ns), SHIM_TRACE_US(call->host_ns), pid, call->tid,
                            call->result, (unsigned long long)call->host_ns));
}

size_t shim_trace_call_text(const shim_trace_call_t *call, int pid, char text[SHIM_TRACE_EVENT_BYTES])
{
    if (call->type < 0)
        return group_text(call, pid, text);
    const shunt_decision_t *decision = &call->decision;
    const bool decided = decision->reason != NULL;
    const char *route = !decided ? "refused" : decision->taken ? "shunt" : "nccl";
    return fitting(snprintf(
        text, SHIM_TRACE_EVENT_BYTES,
        "{\"ph\":\"X\",\"name\":\"%s %s\",\"cat\":\"%s\",\"ts\":%llu.%03llu,\"dur\":%llu.%03llu,\"pid\":%d,\"tid\":%d,"
        "\"args\":{\"comm\":\"0x%llx\",\"rank\":%d,\"nranks\":%d,\"count\":%llu,\"bytes\":%llu,\"type\":\"%s\","
        "\"op\":\"%s\",\"stream\":\"0x%llx\",\"captured\":%s,\"route\":\"%s\",\"algorithm\":\"%s\",\"blocks\":%u,"
        "\"threads\":%u,\"reason\":\"%s\",\"source\":\"%s\",\"result\":%d,\"host_ns\":%llu}}",
        call->function, decided ? decision->algorithm : "refused", route, SHIM_TRACE_US(call->start_ns),
        SHIM_TRACE_US(call->host_ns), pid, call->tid, (unsigned long long)(uintptr_t)call->comm, call->rank,
        call->nranks, (unsigned long long)call->count, (unsigned long long)decision->bytes, type_name(call->type),
        op_name(call->op), (unsigned long long)(uintptr_t)call->stream, truth(call->captured), route,
        decided ? decision->algorithm : "", decision->blocks, decision->threads, decided ? decision->reason : "",
        decided ? decision->source : "", call->result, (unsigned long long)call->host_ns));
}

size_t shim_trace_head_text(const char *host, int pid, uint64_t now_ns, uint64_t realtime_ns,
                            char text[SHIM_TRACE_EVENT_BYTES])
{
    char name[128];
    size_t length = 0;
    for (; host[length] != '\0' && length + 1 < sizeof(name); length++)
        name[length] = host[length] < ' ' || host[length] == '"' || host[length] == '\\' ? '-' : host[length];
    name[length] = '\0';
    return fitting(
        snprintf(text, SHIM_TRACE_EVENT_BYTES,
                 "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":\"Shunt, %s:%d\"}},\n"
                 "{\"ph\":\"i\",\"s\":\"p\",\"name\":\"begin\",\"ts\":%llu.%03llu,\"pid\":%d,\"tid\":%d,"
                 "\"args\":{\"version\":%d,\"realtime_ns\":%llu}}",
                 pid, name, pid, SHIM_TRACE_US(now_ns), pid, pid, SHUNT_VERSION_CODE, (unsigned long long)realtime_ns));
}

size_t shim_trace_dropped_text(uint64_t calls, int pid, uint64_t now_ns, char text[SHIM_TRACE_EVENT_BYTES])
{
    return fitting(snprintf(text, SHIM_TRACE_EVENT_BYTES,
                            "{\"ph\":\"i\",\"s\":\"p\",\"name\":\"dropped\",\"ts\":%llu.%03llu,\"pid\":%d,\"tid\":%d,"
                            "\"args\":{\"calls\":%llu}}",
                            SHIM_TRACE_US(now_ns), pid, pid, (unsigned long long)calls));
}
