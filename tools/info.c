/*
 * info.c - `shunt info`: what Shunt sees and how it would decide.
 */
#include "gpus.h"
#include "tool.h"

#include <stdio.h>
#include <string.h>

static const char help[] = "usage: shunt info\n\n"
                           "Prints the devices and how they are linked, the real NCCL that was found, the settings in\n"
                           "force with their origin, and the decision table for the devices of this machine.\n";

static void print_devices(const tool_gpus_t *gpus)
{
    if (gpus->count == 0) {
        printf("GPUs: none (%s)\n", gpus->error);
        return;
    }
    printf("GPUs: %u", gpus->count);
    if (gpus->driver[0] != '\0') {
        printf(", driver %s", gpus->driver);
    }
    printf(", CUDA %u.%u (built with %u.%u)\n", gpus->cuda_driver / 1000, gpus->cuda_driver % 1000 / 10,
           gpus->cuda_runtime / 1000, gpus->cuda_runtime % 1000 / 10);
    for (uint32_t i = 0; i < gpus->listed; i++) {
        const tool_gpu_t *gpu = &gpus->gpu[i];
        printf("  %2u  %s, %s, sm_%u, %u multiprocessors, %llu MiB\n", i, gpu->name, gpu->bus, gpu->capability,
               gpu->multiprocessors, (unsigned long long)(gpu->bytes >> 20));
    }
    static const char *const text[] = {".", "nvlink", "peer", "none"};
    printf("Links:\n     ");
    for (uint32_t to = 0; to < gpus->listed; to++) {
        printf(" %6u", to);
    }
    printf("\n");
    for (uint32_t from = 0; from < gpus->listed; from++) {
        printf("  %2u ", from);
        for (uint32_t to = 0; to < gpus->listed; to++) {
            printf(" %6s", text[gpus->link[from][to]]);
        }
        printf("\n");
    }
}

static void print_nccl(const tool_shunt_t *shunt, const tool_nccl_t *nccl)
{
    const char *path = shunt->shunt_nccl_path();
    int code = 0;
    char version[16] = "?";
    if (path == NULL) {
        printf("NCCL: none found\n");
        return;
    }
    if (nccl->ncclGetVersion(&code) == ncclSuccess) {
        tool_version_text(code, version);
    }
    printf("NCCL: %s, %s\n", version, path);
}

static void print_settings(const tool_shunt_t *shunt)
{
    shunt_setting_t setting;
    printf("Settings:\n");
    for (uint32_t i = 0; shunt->shunt_setting(i, &setting) == 0; i++) {
        printf("  %s=%s  (%s)\n", setting.name, setting.value, setting.origin);
    }
}

/* The worst link of all pairs, as a communicator over all GPUs would see it. */
static uint32_t link_class(const tool_gpus_t *gpus)
{
    enum { HOST = 0, NVLINK = 1, PCIE = 4 }; /* of sel_link_t, as shunt_table_row takes it */
    if (gpus->count == 0) {
        return HOST;
    }
    for (uint32_t from = 0; from < gpus->listed; from++) {
        for (uint32_t to = 0; to < gpus->listed; to++) {
            if (from != to && gpus->link[from][to] != TOOL_LINK_NVLINK) {
                return PCIE;
            }
        }
    }
    return NVLINK;
}

static void print_table(const tool_shunt_t *shunt, const tool_gpus_t *gpus, bool host)
{
    uint32_t link = host ? 0 : link_class(gpus);
    uint32_t nranks = host || gpus->count < 2 ? 4 : gpus->count;
    static const char *const captured_text[] = {"eager", "captured"};
    for (int captured = 0; captured < (host ? 1 : 2); captured++) {
        printf("All-reduce, %u ranks, %s:\n", nranks, captured_text[captured]);
        char line[256];
        for (uint32_t i = 0; shunt->shunt_table_row(nranks, link, captured, i, line, sizeof line) == 0; i++) {
            printf("  %s\n", line);
        }
    }
}

int tool_info(int argc, char **argv)
{
    bool asked = false;
    int fault = tool_no_arguments("info", argc, argv, &asked);
    if (fault != TOOL_OK) {
        return fault;
    }
    if (asked) {
        fputs(help, stdout);
        return TOOL_OK;
    }
    tool_shunt_t shunt;
    tool_nccl_t nccl;
    char error[TOOL_ERROR_BYTES];
    char library[PATH_MAX];
    if (!tool_library_path(library, error) || !tool_open_shunt(&shunt, &nccl, error)) {
        fprintf(stderr, "shunt info: %s\n", error);
        return TOOL_FAILED;
    }
    int version = shunt.shunt_version();
    bool host = shunt.shunt_host_mode() == 1;
    printf("Shunt: %d.%d.%d, %s\n", version / 10000, version / 100 % 100, version % 100, library);
    printf("Device: %s\n", host ? "host (ranks share memory, no GPU is used)" : "CUDA");
    static tool_gpus_t gpus;
    tool_gpus_read(&gpus);
    print_devices(&gpus);
    print_nccl(&shunt, &nccl);
    print_settings(&shunt);
    print_table(&shunt, &gpus, host);
    return TOOL_OK;
}
