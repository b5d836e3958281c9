/* SPDX-License-Identifier: Apache-2.0 */
/*
 * static_nccl.c - see static_nccl.h.
 *
 * A symbol table may have a million entries, so their names are not compared one by one: the offsets of the name in the
 * string table are found first, then the symbols with these offsets. The file is read, as a mapping raises SIGBUS if
 * the file shrinks.
 */
#include "tools/doctor/static_nccl.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char name[] = "ncclCommInitRank";

enum {
    MOST_PLACES = 8,          /* offsets of the name: linkers store it once, or within pncclCommInitRank */
    MOST_SYMBOL_BYTES = 24576 /* size of a read; a multiple of a symbol's size */
};
static const uint64_t most_strings = 256 << 20;

typedef struct places {
    uint32_t count, at[MOST_PLACES];
} places_t;

static void *read_part(int file, uint64_t offset, uint64_t bytes)
{
    void *part = bytes > 0 && bytes <= most_strings ? malloc(bytes) : NULL;
    if (part != NULL && pread(file, part, bytes, (off_t)offset) != (ssize_t)bytes) {
        free(part);
        part = NULL;
    }
    return part;
}

static void find_places(const char *strings, uint64_t bytes, places_t *places)
{
    const char *at = strings, *end = strings + bytes;
    while (places->count < MOST_PLACES && (at = memmem(at, (size_t)(end - at), name, sizeof name)) != NULL) {
        places->at[places->count++] = (uint32_t)(at - strings);
        at += sizeof name;
    }
}

/* A function without a size is a stub that opens the shared library (JAX's plugin has one for each of NCCL's
 * functions). */
static bool is_defined(const ElfW(Sym) * symbol, const places_t *places)
{
    for (uint32_t i = 0; i < places->count; i++) {
        if (symbol->st_name == places->at[i] && symbol->st_shndx != SHN_UNDEF && symbol->st_size > 0) {
            return true;
        }
    }
    return false;
}

static bool has_nccl_symbol(int file, const ElfW(Shdr) * symbols, const places_t *places)
{
    ElfW(Sym) part[MOST_SYMBOL_BYTES / sizeof(ElfW(Sym))];
    for (uint64_t done = 0; done < symbols->sh_size;) {
        const uint64_t left = symbols->sh_size - done, bytes = left < sizeof part ? left : sizeof part;
        const ssize_t got = pread(file, part, bytes, (off_t)(symbols->sh_offset + done));
        for (ssize_t i = 0; i < got / (ssize_t)sizeof part[0]; i++) {
            if (is_defined(&part[i], places)) {
                return true;
            }
        }
        if (got != (ssize_t)bytes) {
            return false;
        }
        done += bytes;
    }
    return false;
}

static bool table_defines(int file, const ElfW(Shdr) * sections, uint32_t count, const ElfW(Shdr) * symbols)
{
    places_t places = {0};
    if (symbols->sh_link >= count || symbols->sh_entsize != sizeof(ElfW(Sym))) {
        return false;
    }
    const ElfW(Shdr) *strings = &sections[symbols->sh_link];
    char *text = read_part(file, strings->sh_offset, strings->sh_size);
    if (text != NULL) {
        find_places(text, strings->sh_size, &places);
    }
    free(text);
    return places.count > 0 && has_nccl_symbol(file, symbols, &places);
}

static bool file_defines(int file)
{
    ElfW(Ehdr) elf;
    if (pread(file, &elf, sizeof elf, 0) != sizeof elf || memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 ||
        elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_shentsize != sizeof(ElfW(Shdr))) {
        return false;
    }
    ElfW(Shdr) *sections = read_part(file, elf.e_shoff, (uint64_t)elf.e_shnum * sizeof *sections);
    bool found = false;
    for (uint32_t i = 0; sections != NULL && i < elf.e_shnum && !found; i++) {
        const bool symbols = sections[i].sh_type == SHT_DYNSYM || sections[i].sh_type == SHT_SYMTAB;
        found = symbols && table_defines(file, sections, elf.e_shnum, &sections[i]);
    }
    free(sections);
    return found;
}

bool tool_static_nccl(const char *path)
{
    struct stat info;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool found = file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode) && file_defines(file);
    if (file >= 0) {
        close(file);
    }
    return found;
}
