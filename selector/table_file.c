/* SPDX-License-Identifier: Apache-2.0 */
/* table_file.c - the reader and the writer of table_file.h's format. Any bytes are safe input. */
#include "selector/table_file.h"

#include <stdio.h>
#include <string.h>

static const char MAGIC[] = "# shunt table 2", OLD_MAGIC[] = "# shunt table 1";
static const char MACHINE[] = "# machine: ";
static const char LINK[] = "# link: ", PINNED[] = "# host: ", MEASURED[] = "# measured: ", NCCL[] = " nccl ";
const char sel_file_columns[] = "collective,ranks,class,types,from,to,algorithm,blocks,threads,source";
static const char OLD_COLUMNS[] = "collective,ranks,class,mode,types,from,to,algorithm,blocks,threads,source";

static const char *const KINDS[SEL_KINDS] = {"f1", "f2", "f4", "f8", "i1", "i2", "i4", "i8"};

/* A slice of the text, without NUL. */
typedef struct piece {
    const char *at;
    size_t bytes;
} piece_t;

static bool equals(piece_t piece, const char *text)
{
    return piece.bytes == strlen(text) && memcmp(piece.at, text, piece.bytes) == 0;
}

static bool begins(piece_t piece, const char *text)
{
    return piece.bytes >= strlen(text) && memcmp(piece.at, text, strlen(text)) == 0;
}

/* Cuts at `separator`, which belongs to neither part. */
static piece_t cut(piece_t *rest, char separator)
{
    const char *found = memchr(rest->at, separator, rest->bytes);
    const piece_t first = {rest->at, found ? (size_t)(found - rest->at) : rest->bytes};
    const size_t gone = first.bytes + (found != NULL);
    rest->at += gone;
    rest->bytes -= gone;
    return first;
}

static piece_t next_line(sel_file_t *file)
{
    piece_t rest = {file->at, (size_t)(file->end - file->at)};
    piece_t line = cut(&rest, '\n');
    file->at = rest.at;
    file->line++;
    if (line.bytes && line.at[line.bytes - 1] == '\r')
        line.bytes--;
    return line;
}

static bool read_number(piece_t piece, unsigned base, uint64_t *number)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t value = 0;
    for (size_t i = 0; i < piece.bytes; i++) {
        const char *digit = piece.at[i] ? memchr(digits, piece.at[i], base) : NULL;
        if (!digit || value > (UINT64_MAX - (uint64_t)(digit - digits)) / base)
            return false;
        value = value * base + (uint64_t)(digit - digits);
    }
    *number = value;
    return piece.bytes > 0;
}

static bool read_name(piece_t piece, char *name, size_t capacity)
{
    if (piece.bytes == 0 || piece.bytes >= capacity)
        return false;
    for (size_t i = 0; i < piece.bytes; i++) {
        if (piece.at[i] < ' ' || piece.at[i] > '~') /* it may be printed */
            return false;
    }
    memset(name, 0, capacity);
    memcpy(name, piece.at, piece.bytes);
    return true;
}

static bool read_collective(piece_t piece, sel_file_row_t *row)
{
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        if (equals(piece, alg_collective_name((alg_collective_t)c))) {
            row->collective = (alg_collective_t)c;
            return true;
        }
    }
    return false;
}

static bool read_ranks(piece_t piece, sel_file_row_t *row)
{
    uint64_t number;
    if (!read_number(piece, 10, &number) || number < 2 || number > ALG_MAX_RANKS)
        return false;
    row->ranks = (uint32_t)number;
    return true;
}

static bool read_class(piece_t piece, sel_file_row_t *row)
{
    return read_name(piece, row->class_name, sizeof row->class_name);
}

/* "eager" leaves the row without kinds; sel_file_next skips it. */
static bool read_mode(piece_t piece, sel_file_row_t *row)
{
    const bool eager = equals(piece, "eager");
    row->kinds = eager ? 0 : SEL_ANY_KIND;
    return eager || equals(piece, "captured") || equals(piece, "any");
}

static bool read_types(piece_t piece, sel_file_row_t *row)
{
    if (equals(piece, "any"))
        return true;
    unsigned kinds = 0;
    for (bool more = true; more;) {
        more = memchr(piece.at, '+', piece.bytes) != NULL;
        const piece_t name = cut(&piece, '+');
        unsigned kind = 0;
        while (kind < SEL_KINDS && !equals(name, KINDS[kind]))
            kind++;
        if (kind == SEL_KINDS)
            return false;
        kinds |= 1u << kind;
    }
    row->kinds &= (uint8_t)kinds;
    return true;
}

static bool read_from(piece_t piece, sel_file_row_t *row)
{
    return read_number(piece, 10, &row->from_bytes);
}

static bool read_to(piece_t piece, sel_file_row_t *row)
{
    row->to_bytes = UINT64_MAX;
    return piece.bytes == 0 || (read_number(piece, 10, &row->to_bytes) && row->to_bytes >= row->from_bytes);
}

static bool read_algorithm(piece_t piece, sel_file_row_t *row)
{
    return read_name(piece, row->algorithm, sizeof row->algorithm);
}

static bool read_limited(piece_t piece, const sel_file_row_t *row, uint64_t most, uint16_t *field)
{
    uint64_t number;
    if (!read_number(piece, 10, &number) || number > most || (number == 0) != (strcmp(row->algorithm, "nccl") == 0))
        return false;
    *field = (uint16_t)number;
    return true;
}

static bool read_blocks(piece_t piece, sel_file_row_t *row)
{
    return read_limited(piece, row, SEL_MOST_BLOCKS, &row->blocks);
}

static bool read_threads(piece_t piece, sel_file_row_t *row)
{
    return read_limited(piece, row, SEL_MOST_THREADS, &row->threads);
}

static bool read_source(piece_t piece, sel_file_row_t *row)
{
    return read_name(piece, row->source, sizeof row->source);
}

/* In the order of OLD_COLUMNS; a reader may use the fields before its own. */
static const struct {
    bool (*read)(piece_t piece, sel_file_row_t *row);
    const char *expected;
} FIELDS[] = {
    {read_collective, "allreduce or another collective"},
    {read_ranks, "a number of ranks from 2 to 8"},
    {read_class, "a class of at most 31 characters"},
    {read_mode, "eager, captured or any"},
    {read_types, "any, or some of f1 f2 f4 f8 i1 i2 i4 i8 joined by +"},
    {read_from, "a number of bytes"},
    {read_to, "nothing, or a number of bytes that is not below `from`"},
    {read_algorithm, "an algorithm or nccl"},
    {read_blocks, "blocks from 1 to 1024 (nccl: 0)"},
    {read_threads, "threads from 1 to 1024 (nccl: 0)"},
    {read_source, "a source of at most 47 characters"},
};
enum { FIELD_COUNT = sizeof FIELDS / sizeof FIELDS[0] };

static bool fault_at(const sel_file_t *file, size_t column, const char *expected, char fault[SEL_FILE_FAULT_BYTES])
{
    snprintf(fault, SEL_FILE_FAULT_BYTES, "%u:%zu: expected %s", file->line, column + 1, expected);
    return false;
}

static bool read_row(const sel_file_t *file, piece_t line, sel_file_row_t *row, char fault[SEL_FILE_FAULT_BYTES])
{
    piece_t rest = line;
    memset(row, 0, sizeof *row);
    row->kinds = SEL_ANY_KIND;
    for (int i = 0; i < FIELD_COUNT; i++) {
        const size_t column = (size_t)(rest.at - line.at);
        if (FIELDS[i].read == read_mode && file->format > 1)
            continue;
        const bool ended = i > 0 && rest.at[-1] != ','; /* the last field ended the line */
        const piece_t field = i + 1 < FIELD_COUNT ? cut(&rest, ',') : rest;
        if (ended)
            return fault_at(file, column, "',' and more fields", fault);
        if (!FIELDS[i].read(field, row))
            return fault_at(file, column, FIELDS[i].expected, fault);
    }
    return true;
}

/* Figures are read as thousandths: without rounding, independent of the locale. */
typedef struct figure {
    uint32_t least, most, step;
    const char *after, *expected;
} figure_t;

#define RATE 100, 99999999, 1
#define GPUS                                                                                                        \
    {                                                                                                               \
        2000, ALG_MAX_RANKS * 1000, 1000, "GPUs, one way ", "a number of GPUs from 2 to 8, and \" GPUs, one way \"" \
    }
#define ONE_WAY                                                       \
    {                                                                 \
        10, 1000000, 1, "us", "a time from 0.01 to 1000, and \" us\"" \
    }
static const figure_t LINK_FIGURES[] = {
    {RATE, "GB/s among ", "a rate from 0.1 to 99999.999, and \" GB/s among \""}, GPUS, ONE_WAY};
static const figure_t PINNED_FIGURES[] = {
    {RATE, "GB/s stored, ", "a rate from 0.1 to 99999.999, and \" GB/s stored, \""},
    {RATE, "GB/s loaded among ", "a rate from 0.1 to 99999.999, and \" GB/s loaded among \""},
    GPUS,
    ONE_WAY};
enum {
    LINK_COUNT = sizeof LINK_FIGURES / sizeof LINK_FIGURES[0],
    PINNED_COUNT = sizeof PINNED_FIGURES / sizeof PINNED_FIGURES[0]
};

static bool read_thousandths(piece_t text, uint64_t *number)
{
    uint64_t decimals = 0;
    const piece_t whole = cut(&text, '.');
    if (!read_number(whole, 10, number) || *number > UINT32_MAX || text.bytes > 3 ||
        (text.bytes && !read_number(text, 10, &decimals)))
        return false;
    for (size_t i = text.bytes; i < 3; i++)
        decimals *= 10;
    *number = *number * 1000 + decimals;
    return true;
}

static bool in_range(uint64_t number, const figure_t *figure)
{
    return number >= figure->least && number <= figure->most && number % figure->step == 0;
}

/* Older tables lack it. */
static const char OVER[] = ", over ";

static bool read_over(piece_t rest, uint32_t *link)
{
    *link = SEL_LINK_CPU;
    if (rest.bytes == 0)
        return true;
    const size_t name = sizeof OVER - 1;
    if (!begins(rest, OVER))
        return false;
    for (uint32_t one = SEL_LINK_NVSWITCH; one < SEL_LINK_NETWORK; one++) {
        if (equals((piece_t){rest.at + name, rest.bytes - name}, sel_link_text((sel_link_t)one)))
            *link = one;
    }
    return *link != SEL_LINK_CPU;
}

static bool read_figures(sel_file_t *file, piece_t line, const char *name, const figure_t *figure, int count,
                         uint64_t *number, uint32_t *link, char fault[SEL_FILE_FAULT_BYTES])
{
    piece_t rest = {line.at + strlen(name), line.bytes - strlen(name)};
    for (int i = 0; i < count; i++) {
        const char *after = figure[i].after;
        const size_t column = (size_t)(rest.at - line.at);
        const bool right = read_thousandths(cut(&rest, ' '), &number[i]) && in_range(number[i], &figure[i]) &&
                           begins(rest, after) &&
                           (i + 1 < count || equals(rest, after) || rest.at[strlen(after)] == ',');
        if (!right)
            return fault_at(file, column, figure[i].expected, fault);
        rest.at += strlen(after);
        rest.bytes -= strlen(after);
    }
    return read_over(rest, link) ||
           fault_at(file, (size_t)(rest.at - line.at),
                    "nothing, or \", over \" and nvswitch, mesh, bridges, pcie, phb or sys", fault);
}

static bool read_link(sel_file_t *file, piece_t line, char fault[SEL_FILE_FAULT_BYTES])
{
    uint64_t number[LINK_COUNT];
    uint32_t link;
    if (!read_figures(file, line, LINK, LINK_FIGURES, LINK_COUNT, number, &link, fault))
        return false;
    file->link = (sel_measured_t){.bytes_per_us = (uint32_t)number[0],
                                  .gpus = (uint32_t)number[1] / 1000,
                                  .one_way_ns = (uint32_t)number[2],
                                  .link = link};
    return true;
}

static bool read_pinned(sel_file_t *file, piece_t line, char fault[SEL_FILE_FAULT_BYTES])
{
    uint64_t number[PINNED_COUNT];
    uint32_t link;
    if (!read_figures(file, line, PINNED, PINNED_FIGURES, PINNED_COUNT, number, &link, fault))
        return false;
    file->pinned = (sel_pinned_measured_t){.store_bytes_per_us = (uint32_t)number[0],
                                           .load_bytes_per_us = (uint32_t)number[1],
                                           .gpus = (uint32_t)number[2] / 1000,
                                           .one_way_ns = (uint32_t)number[3],
                                           .link = link};
    return true;
}

static bool read_measured(sel_file_t *file, piece_t line, char fault[SEL_FILE_FAULT_BYTES])
{
    const size_t name = sizeof MEASURED - 1, nccl = sizeof NCCL - 1;
    piece_t rest = {line.at + name, line.bytes - name};
    const piece_t class = cut(&rest, ',');
    sel_file_measured_t one;
    uint64_t version;
    if (!read_name(class, one.class_name, sizeof one.class_name) || !begins(rest, NCCL) ||
        !read_number((piece_t){rest.at + nccl, rest.bytes - nccl}, 10, &version) || version > UINT32_MAX)
        return fault_at(file, name, "a class, \", nccl \" and a version such as 22809", fault);
    one.nccl = (uint32_t)version;
    if (file->measured < SEL_FILE_CLASSES)
        file->of[file->measured++] = one;
    return true;
}

static bool is_row(piece_t line)
{
    return line.bytes && line.at[0] != '#' && !equals(line, sel_file_columns) && !equals(line, OLD_COLUMNS);
}

bool sel_file_open(sel_file_t *file, const char *text, size_t bytes, char fault[SEL_FILE_FAULT_BYTES])
{
    *file = (sel_file_t){.at = text, .end = text + bytes};
    if (bytes > SEL_FILE_MOST_BYTES) {
        file->line = 1;
        return fault_at(file, 0, "a file of at most 1 MiB", fault);
    }
    const piece_t magic = next_line(file);
    file->format = equals(magic, OLD_MAGIC) ? 1 : 2;
    if (file->format > 1 && !equals(magic, MAGIC))
        return fault_at(file, 0, "\"# shunt table 2\"", fault);
    const sel_file_t first = *file;
    for (bool known = false; file->at < file->end;) { /* not a row: skip it */
        const piece_t line = next_line(file);
        if (is_row(line) && !known)
            return fault_at(file, 0, "\"# machine: \" and a fingerprint before the first row", fault);
        if (is_row(line))
            break;
        if (begins(line, MACHINE)) {
            const size_t name = sizeof MACHINE - 1;
            known = read_number((piece_t){line.at + name, line.bytes - name}, 16, &file->machine);
            if (!known)
                return fault_at(file, name, "a fingerprint of hexadecimal digits", fault);
        }
    }
    file->at = first.at; /* sel_file_next reads the head's other lines */
    file->line = first.line;
    return true;
}

sel_file_step_t sel_file_next(sel_file_t *file, sel_file_row_t *row, char fault[SEL_FILE_FAULT_BYTES])
{
    while (file->at < file->end) {
        const piece_t line = next_line(file);
        if ((begins(line, LINK) && !read_link(file, line, fault)) ||
            (begins(line, PINNED) && !read_pinned(file, line, fault)) ||
            (begins(line, MEASURED) && !read_measured(file, line, fault)))
            return SEL_FILE_FAULT;
        if (is_row(line) && !read_row(file, line, row, fault))
            return SEL_FILE_FAULT;
        if (is_row(line) && row->kinds)
            return SEL_FILE_ROW;
    }
    return SEL_FILE_END;
}

uint32_t sel_kind(alg_type_t type)
{
    static const uint8_t kind[ALG_TYPE_COUNT] = {
        [ALG_FLOAT8_E4M3] = 0, [ALG_FLOAT8_E5M2] = 0, [ALG_FLOAT16] = 1, [ALG_BFLOAT16] = 1,
        [ALG_FLOAT32] = 2,     [ALG_FLOAT64] = 3,     [ALG_INT8] = 4,    [ALG_UINT8] = 4,
        [ALG_INT32] = 6,       [ALG_UINT32] = 6,      [ALG_INT64] = 7,   [ALG_UINT64] = 7,
    };
    return kind[type];
}

uint32_t sel_class_hash(const char *name)
{
    uint32_t hash = UINT32_C(0x811c9dc5); /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * UINT32_C(0x01000193);
    return hash;
}

void sel_file_head(uint64_t machine, char text[SEL_FILE_LINE_BYTES])
{
    snprintf(text, SEL_FILE_LINE_BYTES, "%s\n%s%016llx\n", MAGIC, MACHINE, (unsigned long long)machine);
}

static void write_over(uint32_t link, char text[SEL_FILE_LINE_BYTES])
{
    const bool known = link > SEL_LINK_CPU && link < SEL_LINK_NETWORK;
    const size_t used = strlen(text);
    snprintf(text + used, SEL_FILE_LINE_BYTES - used, "%s%s\n", known ? OVER : "",
             known ? sel_link_text((sel_link_t)link) : "");
}

void sel_file_link(const sel_measured_t *link, char text[SEL_FILE_LINE_BYTES])
{
    text[0] = '\0';
    if (in_range(link->bytes_per_us, &LINK_FIGURES[0]) && in_range((uint64_t)link->gpus * 1000, &LINK_FIGURES[1]) &&
        in_range(link->one_way_ns, &LINK_FIGURES[2])) {
        snprintf(text, SEL_FILE_LINE_BYTES, "%s%u.%03u GB/s among %u GPUs, one way %u.%03u us", LINK,
                 link->bytes_per_us / 1000, link->bytes_per_us % 1000, link->gpus, link->one_way_ns / 1000,
                 link->one_way_ns % 1000);
        write_over(link->link, text);
    }
}

void sel_file_pinned(const sel_pinned_measured_t *pinned, char text[SEL_FILE_LINE_BYTES])
{
    text[0] = '\0';
    if (in_range(pinned->store_bytes_per_us, &PINNED_FIGURES[0]) &&
        in_range(pinned->load_bytes_per_us, &PINNED_FIGURES[1]) &&
        in_range((uint64_t)pinned->gpus * 1000, &PINNED_FIGURES[2]) &&
        in_range(pinned->one_way_ns, &PINNED_FIGURES[3])) {
        snprintf(text, SEL_FILE_LINE_BYTES,
                 "%s%u.%03u GB/s stored, %u.%03u GB/s loaded among %u GPUs, one way %u.%03u us", PINNED,
                 pinned->store_bytes_per_us / 1000, pinned->store_bytes_per_us % 1000, pinned->load_bytes_per_us / 1000,
                 pinned->load_bytes_per_us % 1000, pinned->gpus, pinned->one_way_ns / 1000, pinned->one_way_ns % 1000);
        write_over(pinned->link, text);
    }
}

void sel_file_measured(const sel_file_measured_t *measured, char text[SEL_FILE_LINE_BYTES])
{
    snprintf(text, SEL_FILE_LINE_BYTES, "%s%s,%s%u\n", MEASURED, measured->class_name, NCCL, measured->nccl);
}

void sel_file_types(uint8_t kinds, char types[SEL_FILE_TYPES_BYTES])
{
    size_t used = 0;
    types[0] = '\0';
    for (unsigned kind = 0; kind < SEL_KINDS; kind++) {
        if (kinds >> kind & 1)
            used += (size_t)snprintf(types + used, SEL_FILE_TYPES_BYTES - used, "%s%s", used ? "+" : "", KINDS[kind]);
    }
    if (kinds == SEL_ANY_KIND)
        snprintf(types, SEL_FILE_TYPES_BYTES, "any");
}

void sel_file_line(const sel_file_row_t *row, char text[SEL_FILE_LINE_BYTES])
{
    char types[SEL_FILE_TYPES_BYTES], to[24] = "";
    sel_file_types(row->kinds, types);
    if (row->to_bytes != UINT64_MAX)
        snprintf(to, sizeof to, "%llu", (unsigned long long)row->to_bytes);
    snprintf(text, SEL_FILE_LINE_BYTES, "%s,%u,%s,%s,%llu,%s,%s,%u,%u,%s\n", alg_collective_name(row->collective),
             row->ranks, row->class_name, types, (unsigned long long)row->from_bytes, to, row->algorithm, row->blocks,
             row->threads, row->source);
}
