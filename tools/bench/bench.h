/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - the parts of `shunt bench` and their interfaces.
 *
 *   bench.c          the command: what the machine allows, the ranks, the report
 *   bench_family.c   forks the ranks, watches them, collects rows
 *   bench_options.c  the command line
 *   bench_rank.c     one rank: communicators, the loop over cases
 *   bench_collective.c  inputs and outputs of each collective
 *   bench_check.c    inputs, expected outputs, comparison
 *   bench_time.c     rounds, ours and NCCL's in turn
 *   bench_calls.c    what a call costs the host (--host-time)
 *   bench_beside.c   calls beside matrix products (--beside; the products are load.h's)
 *   bench_launch.c   ranks that torchrun, mpirun or srun started (--launched)
 *   bench_meet.c     how these meet, and how rank 0 recognises them
 *   bench_type.c     element types and operators
 *   bench_cpu.c, bench_cuda.c, bench_nocuda.c  memory, streams and clocks
 *   bench_report.c   table, CSV, JSON
 *
 * The floor (--floor, and for `shunt tune`'s report of the links) is measured by a process of its own before the
 * ranks: floor.h.
 *
 * Each rank is a process, forked before any call of CUDA. Ranks meet in one
 * anonymous shared mapping, which the parent owns; rank 0 sends finished rows to
 * the parent through a pipe. With --launched each rank has a parent of its own, and
 * they meet by TCP.
 */
#ifndef SHUNT_BENCH_H
#define SHUNT_BENCH_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "algorithms/algorithm.h"
#include "tools/base/gpus.h"
#include "tools/base/tool.h"
#include "tools/floor/floor.h"

enum {
    BENCH_MAX_RANKS = 8,
    BENCH_ERROR_BYTES = 768,
    BENCH_WINDOW_BYTES = 1 << 20, /* bytes of output compared at a time */
    BENCH_MAX_ROUNDS = 101,
    BENCH_GUARD_BYTES = 256, /* behind each output, to detect writes past its end */
    BENCH_ROTATE = 255
};

int tool_bench(int argc, char **argv);

/* ---- Types and operators ---------------------------------------------------------- */

typedef enum bench_class { BENCH_SIGNED, BENCH_UNSIGNED, BENCH_FLOAT } bench_class_t;

typedef struct bench_type {
    const char *name;
    const char *alias; /* "" for none */
    ncclDataType_t type;
    bench_class_t kind;
    uint8_t bytes;
    uint8_t mantissa; /* bits of a float's fraction */
    uint8_t exponent; /* bits of a float's exponent */
} bench_type_t;

typedef struct bench_op {
    const char *name;
    ncclRedOp_t op;
    bool premul; /* created for each communicator with the factor bench_scalar */
} bench_op_t;

extern const bench_type_t bench_types[];
extern const uint32_t bench_type_count;
/* The index of a type in bench_types by its name or alias; -1: none. */
int32_t bench_type_find(const char *name);
extern const bench_op_t bench_ops[];
extern const uint32_t bench_op_count;

/* Encode a value, rounded to nearest, as the little-endian bits of a float or integer type. */
uint64_t bench_encode(const bench_type_t *type, double value);
/* Decode the bits of a float. */
double bench_decode(const bench_type_t *type, uint64_t bits);
/* A rank's factor of the operator premulsum. */
int bench_scalar(const bench_type_t *type, uint32_t rank);

/* ---- Options ------------------------------------------------------------------------ */

enum { BENCH_SECRET_BYTES = 64, BENCH_LEAST_SECRET = 16 };

/* A rank that a launcher started. */
typedef struct bench_launch {
    bool on;
    uint32_t rank, ranks;
    uint32_t local; /* index of the rank, and of its GPU, on this node */
    uint32_t port;
    char address[256]; /* address of rank 0 */
    bool has_secret;   /* --secret */
    uint8_t secret[BENCH_SECRET_BYTES];
} bench_launch_t;

typedef struct bench_options {
    uint64_t from_bytes;
    uint64_t to_bytes;
    uint32_t factor;      /* ratio of consecutive sizes; 0: step_bytes is added instead */
    uint64_t step_bytes;  /* -i; ignored if `factor` is set */
    uint32_t ranks;       /* 0: all GPUs, or 4 on the CPU device */
    uint32_t times_ranks; /* -t; a factor that `ranks` already includes */
    uint32_t grouped;     /* calls in a group; 0, 1: no groups */
    bench_launch_t launch;
    uint32_t calls;      /* calls of a timed run; 0: the device's default */
    uint32_t warmup;     /* calls before each timed run */
    uint32_t rounds;     /* timed runs; the median is reported */
    int32_t type;        /* index, or -1 for all */
    int32_t op;          /* index, or -1 for all */
    int32_t collective;  /* an alg_collective_t, or -1 for all */
    uint32_t root;       /* BENCH_ROTATE: the next rank for each call */
    bool sizes_given[2]; /* -b, -e */
    bool graph;
    bool in_place;    /* only in place */
    bool both_places; /* out of place, then in place */
    bool blocking;    /* wait after each eager call */
    bool skew;        /* buffers one element off alignment and one element shorter */
    bool check;
    bool nccl;
    bool floor;
    bool host_time;
    bool messages; /* all-to-all as a group of sends and receives */
    bool roots;    /* all-gather as broadcasts, reduce-scatter as reduces */
    bool choose;
    bool beside;
    bool help;
    const char *csv;
    const char *json;
    char line[512]; /* the command line, for the reports */
} bench_options_t;

/* TOOL_OK, or TOOL_USAGE after a message on stderr. */
int bench_options_parse(bench_options_t *options, int argc, char **argv);
extern const char bench_help[];

/* ---- What ranks share ---------------------------------------------------------------- */

/* Host times, in seconds. */
typedef struct bench_calls {
    double call;        /* time from entry to return of the call */
    double nccl_call;   /* 0: not measured */
    double launch;      /* time until the launch of an empty kernel returns */
    double launch_each; /* time between such kernels on the GPU, launched back to back */
    double sync;        /* host time of one call and a wait for the stream */
    double nccl_sync;   /* 0: not measured */
} bench_calls_t;

/* Seconds until both calls and products have ended. */
typedef struct bench_beside {
    uint32_t calls;
    double products; /* products without calls */
    double total;
    double nccl_total; /* 0: not measured */
} bench_beside_t;

typedef struct bench_row {
    alg_collective_t collective;
    uint64_t bytes; /* size of a rank's larger buffer */
    uint64_t count; /* the call's count argument */
    int32_t type;
    int32_t op;
    bool in_place;
    char algorithm[32];
    double seconds;        /* time of one call on the slowest rank, median over rounds */
    double nccl_seconds;   /* 0: not measured */
    uint64_t wrong;        /* wrong elements of all ranks; UINT64_MAX: not checked */
    bench_calls_t calls;   /* with --host-time */
    double choice;         /* --choose: seconds to choose an algorithm */
    bench_beside_t beside; /* with --beside */
} bench_row_t;

/* Facts found by a separate process before the ranks are forked. */
typedef struct bench_machine {
    bool cpu;
    int shunt_version;
    int nccl_version;     /* 0: none */
    uint32_t collectives; /* bit c: Shunt has an algorithm for this alg_collective_t */
    uint64_t fingerprint; /* the fingerprint that tables name, of all GPUs; 0: unknown */
    bool policy;          /* SHUNT_ALGO is set */
    char class_name[32];  /* class of all GPUs, as in shunt.h; "": unknown */
    char nccl_path[PATH_MAX];
    char error[TOOL_ERROR_BYTES];
    tool_gpus_t gpus;
    tool_floor_t floor; /* filled in by bench_floor */
} bench_machine_t;

/* On a cache line of its own, so that counting steps does not slow the measured call. */
typedef struct bench_pulse {
    _Alignas(64) atomic_ullong steps;
} bench_pulse_t;

typedef struct bench_shared {
    bench_machine_t machine;
    atomic_uint waiting;                  /* ranks at the barrier */
    atomic_uint phase;                    /* the barrier's phase */
    bench_pulse_t pulse[BENCH_MAX_RANKS]; /* the steps increase while a rank makes progress */
    ncclUniqueId id[2];
    double seconds[BENCH_MAX_RANKS];
    uint64_t wrong[BENCH_MAX_RANKS];
    char error[BENCH_MAX_RANKS][BENCH_ERROR_BYTES];
    _Atomic uint64_t case_bytes; /* the running case's size, set by rank 0 */
    atomic_uint case_part;       /* completed thousandths of the running case */
    uint64_t window_bytes;       /* bytes of `window` that rank 0 publishes at the next barrier */
    uint8_t window[BENCH_WINDOW_BYTES];
} bench_shared_t;

/* A combination that is measured at every size. */
typedef struct bench_kind {
    alg_collective_t collective;
    int32_t type; /* index into bench_types */
    int32_t op;   /* index into bench_ops; 0 for a collective without operators */
} bench_kind_t;

/* The size after this one. */
uint64_t bench_next_size(const bench_options_t *options, uint64_t bytes);
/* Whether a collective is measured in place, or out of place. */
bool bench_measures_place(const bench_options_t *options, alg_collective_t collective, bool in_place);
/* The call's count for this many bytes of the larger buffer; 0: there is no such case. */
uint64_t bench_count(const bench_options_t *options, const bench_kind_t *kind, uint64_t bytes);
/* The next kind that the options ask for; `at` starts at 0. False: no more. With all collectives or types, kinds that
 * the machine cannot run are skipped (the CPU device cannot forward), and with --in-place those without an in-place
 * form. */
bool bench_next_kind(const bench_options_t *options, const bench_machine_t *machine, uint32_t *at, bench_kind_t *kind);

/* ---- The parent ------------------------------------------------------------------------ */

/* Run `work` in a separate process, which may call CUDA. False, after a message, if that process failed. */
bool bench_apart(const char *command, const char *what, void (*work)(void *argument), void *argument);
/* Fill in the facts needed before the ranks are forked; `machine` is shared memory. False after a message. */
bool bench_look(const char *command, bench_machine_t *machine);
/* Measure the floor of GPUs 0 to gpus-1, into shared memory. False after a message. */
bool bench_floor(const char *command, uint32_t gpus, tool_floor_t *floor);

typedef struct bench_family {
    const char *command;
    bench_shared_t *shared;     /* a new mapping for every family */
    uint32_t first, ranks;      /* the first rank, and how many are forked */
    pid_t pid[BENCH_MAX_RANKS]; /* the fields from here on are private; 0: ended */
    int rows;
    unsigned long long pulse;
    double pulse_time;
} bench_family_t;

/* The work of a rank in its process. Writes rows of one size to `rows`. False: see shared->error. */
typedef bool (*bench_body_t)(const void *job, bench_shared_t *shared, uint32_t rank, int rows);
/* Called with each row, and with NULL at intervals without one. Returns false to end the ranks. */
typedef bool (*bench_take_t)(void *context, const void *row);
/* Fork the ranks and pass their rows, of at most 1 KiB, to `take` until they have ended. False after a message. */
bool bench_family_run(bench_family_t *family, bench_body_t body, const void *job, size_t row_bytes, bench_take_t take,
                      void *context);

/* ---- One rank -------------------------------------------------------------------------- */

typedef struct bench_device bench_device_t;

typedef struct bench_side {
    const tool_nccl_t *nccl; /* NULL: an empty kernel instead of a call */
    ncclComm_t comm;
    ncclRedOp_t op; /* the running case's operator */
} bench_side_t;

typedef struct bench_rank {
    const bench_options_t *options;
    bench_shared_t *shared;
    uint32_t rank;
    uint32_t nranks;
    uint32_t local;            /* index of the rank's GPU */
    int peer[BENCH_MAX_RANKS]; /* sockets to the ranks that a launcher started; 0: none */
    const bench_device_t *device;
    void *device_state; /* owned by the device */
    void *stream;       /* cudaStream_t; NULL on the CPU device */
    tool_shunt_t shunt;
    tool_nccl_t nccl[2];  /* Shunt's, the real NCCL's */
    bench_side_t side[2]; /* Shunt's, the real NCCL's */
    uint32_t comms;       /* number of open communicators */
    uint32_t sides;       /* 2 if the real NCCL has the running case's call */
    double products;      /* seconds of the products alone */
    uint8_t *memory[2];   /* device memory behind input and output; NULL for the input when in place */
    uint8_t *input;       /* buffer of the running case, set by bench_place */
    uint8_t *output;
    uint8_t *guard; /* behind the output, or in place behind the larger of the two buffers */
} bench_rank_t;

typedef struct bench_case {
    alg_collective_t collective;
    uint32_t root; /* root of a run's first call */
    bool rotates;  /* each call takes the next rank as root */
    const bench_type_t *type;
    const bench_op_t *op;
    bool in_place;
    uint64_t count;
    uint64_t seed;
} bench_case_t;

/* ---- Collectives ---- */

/* Elements of this rank's input and output. */
uint64_t bench_input_count(const bench_rank_t *rank, const bench_case_t *one);
uint64_t bench_output_count(const bench_rank_t *rank, const bench_case_t *one);
/* The root of the run's call number `call`. */
uint32_t bench_root(const bench_rank_t *rank, const bench_case_t *one, uint32_t call);
bool bench_has_place(alg_collective_t collective);
/* Set rank->input, output and guard within the memory. */
void bench_place(bench_rank_t *rank, const bench_case_t *one);
/* Whether the library has the collective's functions. */
bool bench_can_call(const bench_options_t *options, const tool_nccl_t *nccl, alg_collective_t collective);
ncclResult_t bench_call(bench_rank_t *rank, const bench_side_t *side, const bench_case_t *one, uint32_t call);
/* Ratio of bus bandwidth to algorithm bandwidth, as nccl-tests define them. */
double bench_bus_factor(alg_collective_t collective, uint32_t nranks);

/* Record why this rank fails, unless a reason is recorded already; returns false. */
bool bench_fail(bench_rank_t *rank, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bench_barrier(bench_rank_t *rank);
/* Read the launcher's variables; TOOL_OK, or TOOL_USAGE after a message. */
int bench_launch_find(bench_launch_t *launch);
/* Connect a launcher's ranks. */
bool bench_launch_open(bench_rank_t *rank);
/* Set a socket's options. */
void bench_launch_set_up(int socket);
/* Read the secret from a file that the user alone may read; TOOL_OK, or TOOL_USAGE after a message. */
int bench_secret_read(const char *path, uint8_t secret[BENCH_SECRET_BYTES]);
/* Rank 0 accepts all others on a non-blocking listener; the others authenticate to it. */
bool bench_meet_ranks(bench_rank_t *rank, int listener);
bool bench_meet_first(bench_rank_t *rank, int connection);
/* Wait for all ranks and exchange the shared data. Ends the process if a rank is gone. */
void bench_launch_barrier(bench_rank_t *rank);
/* Rank 0 publishes the completed part of the running case. Bytes: the case's size; 0: as before. */
void bench_tell_part(bench_rank_t *rank, uint64_t bytes, uint32_t done, uint32_t all);
bool bench_issue(bench_rank_t *rank, const bench_side_t *side, const bench_case_t *one, uint32_t call);
/* Set a case's buffers and sides. */
void bench_begin(bench_rank_t *rank, const bench_case_t *one);
/* Open the libraries, the device, the communicators and the buffers of a zeroed rank. After a failure nothing is
 * closed, as peers may still be in a call; the process ends. */
bool bench_rank_open(bench_rank_t *rank, const bench_options_t *options, bench_shared_t *shared, uint32_t number);
bool bench_rank_close(bench_rank_t *rank);
/* Run a rank from start to end; rank 0 writes rows to `rows`. False: see shared->error. */
bool bench_rank_run(const bench_options_t *options, bench_shared_t *shared, uint32_t rank, int rows);

/* Check a case: exact data against the expected output, and for floats rounded data for equal bits on all ranks. Leaves
 * exact data in the input. *wrong counts this rank's wrong elements. */
bool bench_check(bench_rank_t *rank, const bench_case_t *one, uint64_t *wrong);
/* Check a whole run, issued as it was timed. Out of place only. */
typedef struct bench_run bench_run_t;
bool bench_check_run(bench_rank_t *rank, const bench_case_t *one, const bench_run_t *run, uint64_t *wrong);

/* A timed sequence of calls: eager calls, or a graph of them. */
struct bench_run {
    const bench_side_t *side;
    uint32_t calls;
    void *graph; /* NULL: eager */
};
bool bench_run_open(bench_rank_t *rank, const bench_case_t *one, const bench_side_t *side, uint32_t calls,
                    bench_run_t *run);
bool bench_run_start(bench_rank_t *rank, const bench_case_t *one, const bench_run_t *run);
void bench_run_close(bench_rank_t *rank, bench_run_t *run);
/* Time Shunt and NCCL alternately; sets the row's times on every rank. */
bool bench_time(bench_rank_t *rank, const bench_case_t *one, bench_row_t *row, uint64_t *wrong);
/* Time one run: seconds of a call on the slowest rank, by the stream's clock. */
bool bench_round(bench_rank_t *rank, const bench_case_t *one, const bench_run_t *run, double *seconds);
/* The maximum of `own` over the ranks. All ranks call it, with a barrier before the next call. */
double bench_slowest(bench_rank_t *rank, double own);
/* Sorts the values. */
double bench_median(double *values, uint32_t count);
bool bench_calls(bench_rank_t *rank, const bench_case_t *one, bench_calls_t *calls);
/* Open the products and set `rank->products`. */
bool bench_beside_open(bench_rank_t *rank);
/* The number of calls of `seconds` each to run beside the products. */
uint32_t bench_beside_calls(double products, double seconds);
/* Seconds until a run and the products have ended, on the slowest rank. A run of 0 calls times the products alone. */
bool bench_beside_round(bench_rank_t *rank, const bench_case_t *one, const bench_run_t *run, double *seconds);
/* Time Shunt and NCCL alternately beside products; the row has the calls' times without products. */
bool bench_beside(bench_rank_t *rank, const bench_case_t *one, const bench_row_t *row, bench_beside_t *beside);
/* Seconds that the library takes to choose for messages of up to this size. */
bool bench_choice(bench_rank_t *rank, const bench_case_t *one, double *seconds);

/* ---- Devices ---------------------------------------------------------------------------- */

struct bench_device {
    bool (*open)(bench_rank_t *rank); /* select the device and create the stream */
    void (*close)(bench_rank_t *rank);
    bool (*allocate)(bench_rank_t *rank, size_t bytes, uint8_t **memory);
    void (*release)(bench_rank_t *rank, uint8_t *memory);
    bool (*upload)(bench_rank_t *rank, uint8_t *to, const void *from, size_t bytes);
    bool (*download)(bench_rank_t *rank, void *to, const uint8_t *from, size_t bytes);
    bool (*fill)(bench_rank_t *rank, uint8_t *to, int byte, size_t bytes);
    bool (*wait)(bench_rank_t *rank);                     /* wait until the stream is empty */
    bool (*mark)(bench_rank_t *rank, int which);          /* record mark 0 or 1 in the stream */
    bool (*elapsed)(bench_rank_t *rank, double *seconds); /* time between the marks; waits for the second */
    /* The following are NULL on a device without graphs and kernels. */
    bool (*launch_empty)(bench_rank_t *rank);
    bool (*capture_begin)(bench_rank_t *rank);
    bool (*capture_end)(bench_rank_t *rank, void **graph);
    bool (*replay)(bench_rank_t *rank, void *graph);
    void (*graph_free)(bench_rank_t *rank, void *graph);
    bool (*load_open)(bench_rank_t *rank);
    bool (*load_start)(
        bench_rank_t *rank); /* start the products on a separate stream, after the present work of this one */
    bool (*load_join)(bench_rank_t *rank);
};
extern const bench_device_t bench_device_cpu;
extern const bench_device_t *const bench_device_cuda; /* NULL in a build without CUDA */

/* ---- Reports ---------------------------------------------------------------------------- */

typedef struct bench_report bench_report_t;
/* Open the files and write their heads. `weight` is that of all cases (progress.h). `options` and `machine` must
 * outlive the report. NULL, after a message: a file cannot be written. */
bench_report_t *bench_report_open(const bench_options_t *options, const bench_machine_t *machine, double weight);
void bench_report_row(bench_report_t *report, const bench_row_t *row);
/* Called at intervals while there is no row. */
void bench_report_progress(bench_report_t *report, uint64_t bytes, double part);
/* End the files, whose JSON says whether the run is complete; false if one could not be written. */
bool bench_report_close(bench_report_t *report, bool complete);

#endif
