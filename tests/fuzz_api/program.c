/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - random programs, and programs as text. */
#include "fuzz.h"

#include <string.h>

static const char *const names[FUZZ_KIND_COUNT] = {
#define FUZZ_NAME(name, weight) #name,
    FUZZ_KINDS(FUZZ_NAME)
#undef FUZZ_NAME
};

static const unsigned weights[FUZZ_KIND_COUNT] = {
#define FUZZ_WEIGHT(name, weight) weight,
    FUZZ_KINDS(FUZZ_WEIGHT)
#undef FUZZ_WEIGHT
};

static fuzz_kind_t draw_kind(uint64_t *dice)
{
    unsigned sum = 0;
    for (int i = 0; i < FUZZ_KIND_COUNT; i++)
        sum += weights[i];
    unsigned at = (unsigned)data_below(dice, sum);
    fuzz_kind_t kind = 0;
    while (at >= weights[kind])
        at -= weights[kind++];
    return kind;
}

void fuzz_make(fuzz_program_t *program, uint64_t seed)
{
    uint64_t dice = seed;
    memset(program, 0, sizeof(*program));
    program->threads = data_below(&dice, 2) == 0;
    program->actors = 1 + (int)data_below(&dice, FUZZ_ACTORS);
    program->dies = -1;
    if (!program->threads && program->actors > 1 && data_below(&dice, 12) == 0)
        program->dies = (int)data_below(&dice, (uint64_t)program->actors);
    program->watch = data_below(&dice, 2) == 0;
    program->leave = data_below(&dice, 4) == 0;
    program->count = 5 + (int)data_below(&dice, FUZZ_STEPS - 5);
    program->slots = data_below(&dice, 4) ? FUZZ_FEW_SLOTS : FUZZ_SLOTS;
    const int inits = program->slots == FUZZ_SLOTS ? FUZZ_SLOTS : 2;
    program->count = program->count < inits + 5 ? inits + 5 : program->count;
    for (int i = 0; i < program->count; i++) {
        const uint32_t slot = (uint32_t)data_below(&dice, program->slots);
        program->step[i] = (fuzz_step_t){.kind = i < inits ? FUZZ_init : draw_kind(&dice),
                                         .slot = i < inits && inits == FUZZ_SLOTS ? (uint32_t)i : slot,
                                         .other = (uint32_t)data_below(&dice, program->slots),
                                         .seed = data_below(&dice, 1u << 30)};
    }
}

void fuzz_write(const fuzz_program_t *program, FILE *file)
{
    fprintf(file, "%s %d dies %d watch %d leave %d slots %u\n", program->threads ? "threads" : "processes",
            program->actors, program->dies, program->watch, program->leave, program->slots);
    for (int i = 0; i < program->count; i++) {
        const fuzz_step_t *step = &program->step[i];
        fprintf(file, "%s %u %u %llu\n", names[step->kind], step->slot, step->other, (unsigned long long)step->seed);
    }
}

static bool read_step(const char *line, fuzz_step_t *step)
{
    char name[32];
    unsigned long long seed;
    if (sscanf(line, "%31s %u %u %llu", name, &step->slot, &step->other, &seed) != 4 || step->slot >= FUZZ_SLOTS ||
        step->other >= FUZZ_SLOTS)
        return false;
    step->seed = seed;
    for (int i = 0; i < FUZZ_KIND_COUNT; i++) {
        step->kind = (fuzz_kind_t)i;
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

static bool read_head(const char *line, fuzz_program_t *program)
{
    char shape[32];
    int watch, leave;
    program->slots = FUZZ_FEW_SLOTS; /* of earlier programs, which do not say so */
    if (sscanf(line, "%31s %d dies %d watch %d leave %d slots %u", shape, &program->actors, &program->dies, &watch,
               &leave, &program->slots) < 5)
        return false;
    program->threads = strcmp(shape, "threads") == 0;
    program->watch = watch;
    program->leave = leave;
    return program->slots >= 1 && program->slots <= FUZZ_SLOTS && program->actors >= 1 &&
           program->actors <= FUZZ_ACTORS && program->dies < program->actors;
}

/* Lines that begin with # are comments on what a program found. */
bool fuzz_read(fuzz_program_t *program, const char *path)
{
    char line[256];
    int number = 0;
    bool head = false, right = true;
    FILE *file = fopen(path, "r");
    memset(program, 0, sizeof(*program));
    while (file && right && fgets(line, sizeof(line), file)) {
        number++;
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (!head)
            right = head = read_head(line, program);
        else
            right = program->count < FUZZ_STEPS && read_step(line, &program->step[program->count++]);
    }
    if (file)
        fclose(file);
    if (!file || !head || !right)
        fprintf(stderr, "%s:%d: this is no program\n", path, number);
    return file && head && right;
}
