/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool.h - what the sub-commands of `shunt` share.
 *
 * The command is an ordinary client of the library: it opens libnccl.so.2 with dlopen, so it can report why the library
 * cannot be loaded. It links few of the library's sources, such as the table format, and the search for a real NCCL,
 * which `shunt run` needs before the library is loaded (tools/run/behind.c).
 */
#ifndef SHUNT_TOOL_H
#define SHUNT_TOOL_H

#include <limits.h>
#include <nccl.h>
#include <shunt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2 }; /* exit status */

/* Report a wrong argument on stderr, with a hint to --help. Returns TOOL_USAGE. */
int tool_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Parse a decimal number from low to high, or a size from 1 to 1024G with K, M or G for powers of 1024. */
bool tool_number(const char *text, uint64_t low, uint64_t high, uint64_t *value);
bool tool_size(const char *text, uint64_t *value);

/* NCCL functions that the command calls, in Shunt's library or the real one. */
#define TOOL_NCCL_CALLS(X)      \
    X(ncclGetVersion)           \
    X(ncclGetUniqueId)          \
    X(ncclGetErrorString)       \
    X(ncclGetLastError)         \
    X(ncclCommInitRank)         \
    X(ncclCommDestroy)          \
    X(ncclAllReduce)            \
    X(ncclReduceScatter)        \
    X(ncclReduce)               \
    X(ncclAllGather)            \
    X(ncclBroadcast)            \
    X(ncclSend)                 \
    X(ncclRecv)                 \
    X(ncclGroupStart)           \
    X(ncclGroupEnd)             \
    X(ncclRedOpCreatePreMulSum) \
    X(ncclRedOpDestroy)
/* Functions that are NULL in a library before NCCL 2.28. */
#define TOOL_LATER_NCCL_CALLS(X) \
    X(ncclAlltoAll)              \
    X(ncclGather)                \
    X(ncclScatter)
#define TOOL_SHUNT_CALLS(X) \
    X(shunt_version)        \
    X(shunt_host_mode)      \
    X(shunt_nccl_path)      \
    X(shunt_last_decision)  \
    X(shunt_setting)        \
    X(shunt_topology)       \
    X(shunt_topology_class) \
    X(shunt_table_row)      \
    X(shunt_communicator)   \
    X(shunt_algorithm)      \
    X(shunt_choose)         \
    X(shunt_set_policy)     \
    X(shunt_table_path)
#define TOOL_POINTER(name) __typeof__(&name) name;
typedef struct tool_nccl {
    TOOL_NCCL_CALLS(TOOL_POINTER)
    TOOL_LATER_NCCL_CALLS(TOOL_POINTER)
} tool_nccl_t;
typedef struct tool_shunt {
    TOOL_SHUNT_CALLS(TOOL_POINTER)
} tool_shunt_t;
#undef TOOL_POINTER

enum { TOOL_ERROR_BYTES = 512 };

/* The absolute path of Shunt's library: SHUNT_LIB, or found relative to this program. */
bool tool_library_path(char path[PATH_MAX], char error[TOOL_ERROR_BYTES]);
/* Open Shunt's library until the process ends. `nccl` may be NULL. */
bool tool_open_shunt(tool_shunt_t *shunt, tool_nccl_t *nccl, char error[TOOL_ERROR_BYTES]);
/* Open the real NCCL at an absolute path, until the process ends. */
bool tool_open_nccl(const char *path, tool_nccl_t *nccl, char error[TOOL_ERROR_BYTES]);
enum { TOOL_NAME_BYTES = 64 };

/* The next environment variable SHUNT_*, from index *at on, that is not a setting, so usually mistyped. False: none. */
bool tool_unknown_name(size_t *at, char name[TOOL_NAME_BYTES]);
/* Print a warning on stderr for each such variable. */
void tool_warn_of_names(const char *command);
/* What a setting of this name may be, in words; "" for another name. */
const char *tool_setting_allows(const char *name);
/* Unset the variables of Shunt and NCCL that change how a program's calls are served. Those that describe how this
 * machine's GPUs are reached, and where files are, stay. */
void tool_forget_variables(void);
/* 22809 becomes "2.28.9". */
void tool_version_text(int code, char text[16]);
/* For example "1.50 ms". */
void tool_duration_text(double us, char text[16]);
/* Make room in a full array of `count` elements for one more; false: out of memory, and the array stays. */
bool tool_grow(void **array, uint32_t count, uint32_t *capacity, size_t size);

#endif
