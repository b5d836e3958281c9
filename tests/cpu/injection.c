/* SPDX-License-Identifier: Apache-2.0 */
/*
 * injection.c - a tool that NVTX loads (NVTX_INJECTION64_PATH): it appends each range to the file INJECTION_FILE.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

static void say(const char *what, const void *domain, const char *message, unsigned long long bytes)
{
    char line[256];
    const char *path = getenv("INJECTION_FILE");
    const int fd = path != NULL ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
    const int length = snprintf(line, sizeof line, "%s %s %s %llu\n", what, (const char *)domain, message, bytes);
    if (fd < 0 || write(fd, line, (size_t)length) != length)
        abort();
    close(fd);
}

/* A domain's handle is its name. */
static nvtxDomainHandle_t create_domain(const char *name)
{
    return (nvtxDomainHandle_t)strdup(name);
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *range)
{
    if (range->messageType != NVTX_MESSAGE_TYPE_ASCII || range->payloadType != NVTX_PAYLOAD_TYPE_UNSIGNED_INT64)
        abort();
    say("push", domain, range->message.ascii, (unsigned long long)range->payload.ullValue);
    return 0;
}

static int pop(nvtxDomainHandle_t domain)
{
    say("pop", domain, "", 0);
    return 0;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    unsigned size = 0;
    NvtxFunctionTable table = NULL;
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    if (callbacks == NULL || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
        size <= NVTX_CBID_CORE2_DomainCreateA)
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create_domain;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    say("loaded", "", "", 0);
    return 1;
}
