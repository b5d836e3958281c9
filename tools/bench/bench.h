/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - the parts of `shunt bench` and what passes between them.
 *
 *   bench.c          the command: what the machine allows, the ranks, the report
 *   bench_family.c   forks the ranks, watches them, collects rows
 *   bench_options.c  the command line
 *   bench_rank.c     one rank: communicators, the loop over cases
 *   bench_collective.c  what each collective takes and gives
 *   bench_check.c    inputs, expected outputs, comparison
 *   bench_time.c     rounds, ours and NCCL's in turn
 *   bench_calls.c    what a call costs the host (--host-time)
 *   bench_beside.c   calls beside matrix products (--beside; the products are load.h's)
 *   bench_launch.c   ranks that torchrun, mpirun or srun started (--launched)
 *   bench_meet.c     how these meet, and whom rank 0 takes for one
 *   bench_type.c     element types and operators
 *   bench_host.c, bench_cuda.c, bench_nocuda.c  memory, streams and clocks
 *   bench_report.c   table, CSV, JSON
 *
 * The floor (--floor, and for what `shunt tune` says of the links) is measured by a process of its own before the
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
    BENCH_WINDOW_BYTES = 1 << 20, /* of output compared between ranks at a time */
    BENCH_MAX_ROUNDS = 101,
    BENCH_GUARD_BYTES = 256, /* behind each output; must stay untouched */
    BENCH_ROTATE = 255
};

/* The sub-command; argv[0] is its name. */
int tool_bench(int argc, char **argv);

/* ---- Types and operators ---------------------------------------------------------- */

typedef enum bench_class { BENCH_SIGNED, BENCH_UNSIGNED, BENCH_FLOAT } bench_class_t;

typedef struct bench_type {
    const char *name;
    const char *alias; /* "" for none */
    ncclDataType_t type;
    bench_class_t kind;
    uint8_t bytes;
    uint8_t mantissa; /* floats: bits of the fraction */
    uint8_t exponent; /* floats: bits of the exponent */
} bench_type_t;

typedef struct bench_op {
    const char *name;
    ncclRedOp_t op;
    bool premul; /* created per communicator; the scalar is bench_scalar's */
} bench_op_t;

extern const bench_type_t bench_types[];
extern const uint32_t bench_type_count;
/* The index of a type by its name or alias; -1: none. */
int32_t bench_type_find(const char *name);
extern const bench_op_t bench_ops[];
extern const uint32_t bench_op_count;

/* The bits of a value, rounded to nearest, little-endian; for floats and integers. */
uint64_t bench_encode(const bench_type_t *type, double value);
/* The value of a float's bits. */
double bench_decode(const bench_type_t *type, uint64_t bits);
/* The rank's factor under the operator premulsum. */
int bench_scalar(const bench_type_t *type, uint32_t rank);

/* ---- Options ------------------------------------------------------------------------ */

enum { BENCH_SECRET_BYTES = 64, BENCH_LEAST_SECRET = 16 };

/* One rank of a launcher's. */
typedef struct bench_launch {
    bool on;
    uint32_t rank, ranks;
    uint32_t local; /* of those on this host: its GPU */
    uint32_t port;
    char address[256]; /* rank 0's */
    bool has_secret;   /* --secret */
    uint8_t secret[BENCH_SECRET_BYTES];
} bench_launch_t;

typedef struct bench_options {
    uint64_t from_bytes;
    uint64_t to_bytes;
    uint32_t factor;      /* from size to size; 0: step_bytes is added */
    uint64_t step_bytes;  /* -i; ignored where there is a factor */
    uint32_t ranks;       /* 0: all GPUs, or 4 on the host */
    uint32_t times_ranks; /* -t; in `ranks` already */
    uint32_t grouped;     /* calls of one group; 0, 1: none */
    bench_launch_t launch;
    uint32_t calls;      /* of one timed run; 0: the device's default */
    uint32_t warmup;     /* calls before each timed run */
    uint32_t rounds;     /* timed runs; the median counts */
    int32_t type;        /* index, or -1 for all */
    int32_t op;          /* index, or -1 for all */
    int32_t collective;  /* an alg_collective_t, or -1 for all */
    uint32_t root;       /* BENCH_ROTATE: another one for each call */
    bool sizes_given[2]; /* -b, -e */
    bool graph;
    bool in_place;    /* alone */
    bool both_places; /* out of place, then in place */
    bool blocking;    /* eager calls: wait for each */
    bool skew;        /* buffers one element off alignment, and one element fewer */
    bool check;
    bool nccl;
    bool floor;
    bool host_time;
    bool messages; /* all-to-all by sends and receives */
    bool roots;    /* all-gather by broadcasts, reduce-scatter by reduces */
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

/* Seconds of host time of a call, and of the launch of an empty kernel. */
typedef struct bench_calls {
    double call;        /* from entry to return of the call */
    double nccl_call;   /* the same for the real NCCL; 0: not measured */
    double launch;      /* until the launch of an empty kernel returns */
    double launch_each; /* from one such kernel to the next on the GPU, launched back to back */
    double sync;        /* one call and a wait for the stream, from the host */
    double nccl_sync;   /* 0: not measured */
} bench_calls_t;

/* Seconds: calls beside matrix products, until both are through. */
typedef struct bench_beside {
    uint32_t calls;
    double products; /* without calls */
    double total;
    double nccl_total; /* 0: not measured */
} bench_beside_t;

typedef struct bench_row {
    alg_collective_t collective;
    uint64_t bytes; /* of a rank's larger buffer */
    uint64_t count; /* as the call takes it */
    int32_t type;
    int32_t op;
    bool in_place;
    char algorithm[32];
    double seconds;        /* of one call: median over rounds of the slowest rank */
    double nccl_seconds;   /* the same for the real NCCL; 0: not measured */
    uint64_t wrong;        /* elements, over all ranks; UINT64_MAX: not checked */
    bench_calls_t calls;   /* with --host-time */
    double choice;         /* seconds until the library has chosen, with --choose */
    bench_beside_t beside; /* with --beside */
} bench_row_t;

/* Facts found by a separate process before the ranks are forked. */
typedef struct bench_machine {
    bool host;
    int shunt_version;
    int nccl_version;     /* 0: none */
    uint32_t collectives; /* bit c: Shunt has an algorithm of this one */
    uint64_t fingerprint; /* of all its GPUs, as tables name it; 0: unknown */
    bool policy;          /* SHUNT_ALGO is set */
    char class_name[32];  /* theirs, as in shunt.h; "": unknown */
    char nccl_path[PATH_MAX];
    char error[TOOL_ERROR_BYTES];
    tool_gpus_t gpus;
    tool_floor_t floor; /* by bench_floor */
} bench_machine_t;

/* On a separate cache line, so that counting does not slow the measured call. */
typedef struct bench_pulse {
    _Alignas(64) atomic_ullong steps;
} bench_pulse_t;

typedef struct bench_shared {
    bench_machine_t machine;
    atomic_uint waiting;                  /* at the barrier */
    atomic_uint phase;                    /* of the barrier */
    bench_pulse_t pulse[BENCH_MAX_RANKS]; /* move while ranks make progress */
    ncclUniqueId id[2];
    double seconds[BENCH_MAX_RANKS];
    uint64_t wrong[BENCH_MAX_RANKS];
    char error[BENCH_MAX_RANKS][BENCH_ERROR_BYTES];
    _Atomic uint64_t case_bytes; /* of the running case, by rank 0 */
    atomic_uint case_part;       /* of its rounds, in thousandths */
    uint64_t window_bytes;       /* that rank 0 shows at the next barrier */
    uint8_t window[BENCH_WINDOW_BYTES];
} bench_shared_t;

/* What is measured at every size. */
typedef struct bench_kind {
    alg_collective_t collective;
    int32_t type; /* of bench_types */
    int32_t op;   /* of bench_ops; a collective without operators has the first one */
} bench_kind_t;

/* The size after this one. */
uint64_t bench_next_size(const bench_options_t *options, uint64_t bytes);
/* Whether a collective is measured in place, or out of place. */
bool bench_measures_place(const bench_options_t *options, alg_collective_t collective, bool in_place);
/* The call's count for this many bytes of the larger buffer; 0: there is no such case. */
uint64_t bench_count(const bench_options_t *options, const bench_kind_t *kind, uint64_t bytes);
/* The next kind that the options ask for; `at` starts at 0; false: no more. `all` skips kinds that the machine
 * cannot run (the host device cannot forward) and, with --in-place, those without an in-place form. */
bool bench_next_kind(const bench_options_t *options, const bench_machine_t *machine, uint32_t *at, bench_kind_t *kind);

/* ---- The parent ------------------------------------------------------------------------ */

/* Run `work` in a separate process, which may call CUDA. False, after a message, if that process failed. */
bool bench_apart(const char *command, const char *what, void (*work)(void *argument), void *argument);
/* Fill in the facts needed before the ranks are forked; `machine` is shared memory. False after a message. */
bool bench_look(const char *command, bench_machine_t *machine);
/* Measure the floor of GPUs 0 to gpus-1, into shared memory. False after a message. */
bool bench_floor(const char *command, uint32_t gpus, tool_floor_t *floor);

typedef struct bench_family {
    const char *command;        /* in messages */
    bench_shared_t *shared;     /* fresh for every family */
    uint32_t first, ranks;      /* of them, and how many */
    pid_t pid[BENCH_MAX_RANKS]; /* the fields from here on are private; 0: ended */
    int rows;                   /* our end of the pipe */
    unsigned long long pulse;
    double pulse_time;
} bench_family_t;

/* A rank's work, in its process; it writes rows of one size to `rows`. False: see shared->error. */
typedef bool (*bench_body_t)(const void *job, bench_shared_t *shared, uint32_t rank, int rows);
/* Receives each row, and NULL at intervals without one. Returns false to end the ranks. */
typedef bool (*bench_take_t)(void *context, const void *row);
/* Fork the ranks and pass on their rows, of at most 1 KiB, until they have ended. False after a message. */
bool bench_family_run(bench_family_t *family, bench_body_t body, const void *job, size_t row_bytes, bench_take_t take,
                      void *context);

/* ---- One rank -------------------------------------------------------------------------- */

typedef struct bench_device bench_device_t;

typedef struct bench_side {
    const tool_nccl_t *nccl; /* NULL: an empty kernel instead of a call */
    ncclComm_t comm;
    ncclRedOp_t op; /* of the running case */
} bench_side_t;

typedef struct bench_rank {
    const bench_options_t *options;
    bench_shared_t *shared;
    uint32_t rank;
    uint32_t nranks;
    uint32_t local;            /* its GPU */
    int peer[BENCH_MAX_RANKS]; /* of a launcher's ranks: sockets; 0: none */
    const bench_device_t *device;
    void *device_state; /* owned by the device */
    void *stream;       /* cudaStream_t; NULL on the host */
    tool_shunt_t shunt;
    tool_nccl_t nccl[2];  /* ours, the real one */
    bench_side_t side[2]; /* ours, the real one */
    uint32_t comms;       /* of `side`, open */
    uint32_t sides;       /* of the running case: 2 with a real NCCL that has this call */
    double products;      /* seconds of the products alone, with --beside */
    uint8_t *memory[2];   /* the device's: behind input and output; NULL for the input when in place */
    uint8_t *input;       /* of the running case, by bench_place */
    uint8_t *output;
    uint8_t *guard; /* behind the output, or in place behind the larger of both */
} bench_rank_t;

typedef struct bench_case {
    alg_collective_t collective;
    uint32_t root; /* of the first call of a run */
    bool rotates;  /* and the next rank's of the next one */
    const bench_type_t *type;
    const bench_op_t *op;
    bool in_place;
    uint64_t count;
    uint64_t seed;
} bench_case_t;

/* ---- Collectives ---- */

/* Elements of this rank's buffers. */
uint64_t bench_input_count(const bench_rank_t *rank, const bench_case_t *one);
uint64_t bench_output_count(const bench_rank_t *rank, const bench_case_t *one);
/* The root of the run's call number `call`. */
uint32_t bench_root(const bench_rank_t *rank, const bench_case_t *one, uint32_t call);
/* Whether the collective has an in-place form. */
bool bench_has_place(alg_collective_t collective);
/* Put input, output and guard of the running case into the memory. */
void bench_place(bench_rank_t *rank, const bench_case_t *one);
/* Whether this library has the function. */
bool bench_can_call(const bench_options_t *options, const tool_nccl_t *nccl, alg_collective_t collective);
/* Call `call` of a run. */
ncclResult_t bench_call(bench_rank_t *rank, const bench_side_t *side, const bench_case_t *one, uint32_t call);
/* Bus bandwidth over algorithm bandwidth, as nccl-tests count it. */
double bench_bus_factor(alg_collective_t collective, uint32_t nranks);

/* Record why this rank gives up; returns false. The first reason is kept. */
bool bench_fail(bench_rank_t *rank, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Wait for all ranks. */
void bench_barrier(bench_rank_t *rank);
/* What the launcher says of this process's rank; TOOL_OK, or TOOL_USAGE after a message. */
int bench_launch_find(bench_launch_t *launch);
/* A launcher's ranks meet. */
bool bench_launch_open(bench_rank_t *rank);
/* What a connection between them needs. */
void bench_launch_set_up(int socket);
/* The secret in a file of the user's own; TOOL_OK, or TOOL_USAGE after a message. */
int bench_secret_read(const char *path, uint8_t secret[BENCH_SECRET_BYTES]);
/* Rank 0, with a listener that does not block: until all others have come. The others, once connected to it. */
bool bench_meet_ranks(bench_rank_t *rank, int listener);
bool bench_meet_first(bench_rank_t *rank, int connection);
/* Wait for all, who then have each other's part of what is shared. Ends the process where one is gone. */
void bench_launch_barrier(bench_rank_t *rank);
/* Rank 0 says how much of the running case is done. Bytes 0: as before. */
void bench_tell_part(bench_rank_t *rank, uint64_t bytes, uint32_t done, uint32_t all);
/* Issue call `call` of a run on the stream. */
bool bench_issue(bench_rank_t *rank, const bench_side_t *side, const bench_case_t *one, uint32_t call);
/* Begin a case: set its buffers and sides. */
void bench_begin(bench_rank_t *rank, const bench_case_t *one);
/* Libraries, device, communicators and buffers of a zeroed rank. On a failure, and in no other case, nothing is
 * closed: peers may still be in a call, and the process ends. */
bool bench_rank_open(bench_rank_t *rank, const bench_options_t *options, bench_shared_t *shared, uint32_t number);
bool bench_rank_close(bench_rank_t *rank);
/* Run a rank from start to end; rank 0 writes rows to `rows`. False: see shared->error. */
bool bench_rank_run(const bench_options_t *options, bench_shared_t *shared, uint32_t rank, int rows);

/* Check a case: exact data against the expected output, and for floats the bits of all ranks on data that
 * must be rounded. Leaves exact data at the input. *wrong counts this rank's elements. */
bool bench_check(bench_rank_t *rank, const bench_case_t *one, uint64_t *wrong);
/* Again after the timed runs, out of place: a whole run as it was timed. */
typedef struct bench_run bench_run_t;
bool bench_check_run(bench_rank_t *rank, const bench_case_t *one, const bench_run_t *run, uint64_t *wrong);

/* A sequence of calls as it is timed: eager calls, or a graph of them. */
struct bench_run {
    const bench_side_t *side;
    uint32_t calls;
    void *graph; /* NULL: eager */
};
bool bench_run_open(bench_rank_t *rank, const bench_case_t *one, const bench_side_t *side, uint32_t calls,
                    bench_run_t *run);
bool bench_run_start(bench_rank_t *rank, const bench_case_t *one, const bench_run_t *run);
void bench_run_close(bench_rank_t *rank, bench_run_t *run);
/* Time Shunt and NCCL in turn; fills the row's times on every rank. */
bool bench_time(bench_rank_t *rank, const bench_case_t *one, bench_row_t *row, uint64_t *wrong);
/* One timed run: the time of a call on the slowest rank, by the stream's clock. */
bool bench_round(bench_rank_t *rank, const bench_case_t *one, const bench_run_t *run, double *seconds);
/* The maximum over the ranks. All ranks call it, with a barrier before the next call. */
double bench_slowest(bench_rank_t *rank, double own);
/* Sorts the values. */
double bench_median(double *values, uint32_t count);
/* Fill in the host time of calls. */
bool bench_calls(bench_rank_t *rank, const bench_case_t *one, bench_calls_t *calls);
/* Open the products; `rank->products` is set. */
bool bench_beside_open(bench_rank_t *rank);
/* The number of calls of `seconds` to run beside products of `products` seconds. */
uint32_t bench_beside_calls(double products, double seconds);
/* One run beside the products: seconds until both are through, on the slowest rank. A run of 0 calls is the products
 * alone. */
bool bench_beside_round(bench_rank_t *rank, const bench_case_t *one, const bench_run_t *run, double *seconds);
/* Shunt and NCCL in turn; the row already has the calls' times without products. */
bool bench_beside(bench_rank_t *rank, const bench_case_t *one, const bench_row_t *row, bench_beside_t *beside);
/* The library's time, in seconds, to choose for messages of up to this size. */
bool bench_choice(bench_rank_t *rank, const bench_case_t *one, double *seconds);

/* ---- Devices ---------------------------------------------------------------------------- */

struct bench_device {
    bool (*open)(bench_rank_t *rank); /* choose the device, make the stream */
    void (*close)(bench_rank_t *rank);
    bool (*allocate)(bench_rank_t *rank, size_t bytes, uint8_t **memory);
    void (*release)(bench_rank_t *rank, uint8_t *memory);
    bool (*upload)(bench_rank_t *rank, uint8_t *to, const void *from, size_t bytes);
    bool (*download)(bench_rank_t *rank, void *to, const uint8_t *from, size_t bytes);
    bool (*fill)(bench_rank_t *rank, uint8_t *to, int byte, size_t bytes);
    bool (*wait)(bench_rank_t *rank);                     /* until the stream is empty */
    bool (*mark)(bench_rank_t *rank, int which);          /* record mark 0 or 1 in the stream */
    bool (*elapsed)(bench_rank_t *rank, double *seconds); /* between the marks; waits for the second */
    /* NULL on a device without graphs and kernels. */
    bool (*launch_empty)(bench_rank_t *rank);
    bool (*capture_begin)(bench_rank_t *rank);
    bool (*capture_end)(bench_rank_t *rank, void **graph);
    bool (*replay)(bench_rank_t *rank, void *graph);
    void (*graph_free)(bench_rank_t *rank, void *graph);
    bool (*load_open)(bench_rank_t *rank); /* products (load.h), closed with the device */
    bool (*load_start)(
        bench_rank_t *rank); /* start the products on a separate stream, after the present work of this one */
    bool (*load_join)(bench_rank_t *rank); /* the stream waits for them */
};
extern const bench_device_t bench_device_host;
extern const bench_device_t *const bench_device_cuda; /* NULL in a build without CUDA */

/* ---- Reports ---------------------------------------------------------------------------- */

typedef struct bench_report bench_report_t;
/* Open the files and write the heads. `weight`: of all cases (progress.h). Options and machine must outlive the report.
 * NULL: a file cannot be written (told on stderr). */
bench_report_t *bench_report_open(const bench_options_t *options, const bench_machine_t *machine, double weight);
void bench_report_row(bench_report_t *report, const bench_row_t *row);
/* Call at intervals while there is no row. */
void bench_report_progress(bench_report_t *report, uint64_t bytes, double part);
/* Finish the files; false if one could not be written whole. */
bool bench_report_close(bench_report_t *report);

#endif
