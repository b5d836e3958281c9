/* SPDX-License-Identifier: Apache-2.0 */
/* real_elf.c - checks a library's file before dlopen, which runs constructors and maps the file by its header: a
 * truncated file causes SIGBUS, and another copy of Shunt would forward to itself. Reads by pread, since a mapped file
 * that shrinks raises a signal. A library is NCCL if its dynamic string table has NCCL's names, defined or imported; no
 * real NCCL imports shunt_version. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/real/real_parts.h"

#if defined(__x86_64__)
#define ELF_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define ELF_MACHINE EM_AARCH64
#else
#error "Shunt is for x86-64 and aarch64"
#endif

enum {
    ELF_MAX_HEADERS = 256,     /* program headers; typically 10 */
    ELF_MAX_DYNAMIC = 4096,    /* dynamic entries; typically 40 */
    ELF_MAX_SECTIONS = 4096,   /* sections; typically 40 */
    ELF_MAX_STRINGS = 64 << 20 /* bytes of a string table; NCCL's have 7 KB (dynamic) and 2 MB */
};

typedef struct elf_file {
    int descriptor;
    uint64_t bytes;
    ElfW(Phdr) * header;
    size_t headers;
} elf_file_t;

static bool elf_read(const elf_file_t *file, uint64_t offset, void *to, uint64_t bytes)
{
    if (offset > file->bytes || bytes > file->bytes - offset)
        return false;
    for (char *at = to; bytes > 0;) {
        ssize_t got = pread(file->descriptor, at, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return true;
}

/* Reads the headers; checks loaded segments against the file's size. */
static const char *elf_read_headers(elf_file_t *file)
{
    ElfW(Ehdr) elf;
    if (!elf_read(file, 0, &elf, sizeof elf) || memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0)
        return "not a shared library";
    if (elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_ident[EI_DATA] != ELFDATA2LSB || elf.e_machine != ELF_MACHINE)
        return "a library for another machine";
    if (elf.e_type != ET_DYN || elf.e_phentsize != sizeof(ElfW(Phdr)) || elf.e_phnum == 0 ||
        elf.e_phnum > ELF_MAX_HEADERS)
        return "not a shared library";
    file->headers = elf.e_phnum;
    file->header = malloc(file->headers * sizeof *file->header);
    if (!file->header)
        return "out of memory";
    if (!elf_read(file, elf.e_phoff, file->header, file->headers * sizeof *file->header))
        return "the file is cut short";
    for (size_t i = 0; i < file->headers; i++) {
        const ElfW(Phdr) *part = &file->header[i];
        if (part->p_type == PT_LOAD && (part->p_offset > file->bytes || part->p_filesz > file->bytes - part->p_offset))
            return "the file is cut short";
    }
    return NULL;
}

static bool elf_offset(const elf_file_t *file, uint64_t address, uint64_t bytes, uint64_t *offset)
{
    for (size_t i = 0; i < file->headers; i++) {
        const ElfW(Phdr) *part = &file->header[i];
        if (part->p_type != PT_LOAD || address < part->p_vaddr)
            continue;
        uint64_t into = address - part->p_vaddr;
        if (into > part->p_filesz || bytes > part->p_filesz - into)
            continue;
        *offset = part->p_offset + into;
        return true;
    }
    return false;
}

/* The dynamic string table, malloc'd; or NULL. */
static char *elf_strings(const elf_file_t *file, size_t *bytes)
{
    const ElfW(Phdr) *dynamic = NULL;
    for (size_t i = 0; i < file->headers && !dynamic; i++)
        if (file->header[i].p_type == PT_DYNAMIC)
            dynamic = &file->header[i];
    if (!dynamic)
        return NULL;
    uint64_t table = 0, size = 0, offset;
    for (uint64_t i = 0; i < ELF_MAX_DYNAMIC && (i + 1) * sizeof(ElfW(Dyn)) <= dynamic->p_filesz; i++) {
        ElfW(Dyn) entry;
        if (!elf_read(file, dynamic->p_offset + i * sizeof entry, &entry, sizeof entry) || entry.d_tag == DT_NULL)
            break;
        if (entry.d_tag == DT_STRTAB)
            table = entry.d_un.d_ptr;
        else if (entry.d_tag == DT_STRSZ)
            size = entry.d_un.d_val;
    }
    if (size == 0 || size > ELF_MAX_STRINGS || !elf_offset(file, table, size, &offset))
        return NULL;
    char *strings = malloc(size);
    if (strings && !elf_read(file, offset, strings, size)) {
        free(strings);
        return NULL;
    }
    *bytes = size;
    return strings;
}

/* Also finds `name` as a longer name's tail: linkers share tails. */
static bool elf_knows(const char *strings, size_t bytes, const char *name)
{
    return memmem(strings, bytes, name, strlen(name) + 1) != NULL;
}

static const char *elf_check_names(const elf_file_t *file)
{
    size_t bytes = 0;
    char *strings = elf_strings(file, &bytes);
    if (!strings)
        return "its dynamic section cannot be read";
    const char *fault = NULL;
    if (elf_knows(strings, bytes, "shunt_version"))
        fault = "it is another copy of Shunt";
    else if (!elf_knows(strings, bytes, "ncclCommInitRank") || !elf_knows(strings, bytes, "ncclGetVersion"))
        fault = "it is not NCCL";
    free(strings);
    return fault;
}

/* Returns NULL, or the fault. Call elf_close in either case. */
static const char *elf_open(elf_file_t *file, const char *path)
{
    struct stat status;
    /* Without O_NONBLOCK a pipe would block. */
    *file = (elf_file_t){.descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file->descriptor < 0 || fstat(file->descriptor, &status) != 0)
        return strerror(errno);
    if (!S_ISREG(status.st_mode))
        return "not a file";
    file->bytes = (uint64_t)status.st_size;
    return elf_read_headers(file);
}

static void elf_close(elf_file_t *file)
{
    free(file->header);
    if (file->descriptor >= 0)
        close(file->descriptor);
}

bool shim_elf_check(const char *path, char *why, size_t capacity)
{
    elf_file_t file;
    const char *fault = elf_open(&file, path);
    if (!fault)
        fault = elf_check_names(&file);
    if (fault)
        snprintf(why, capacity, "%s", fault);
    elf_close(&file);
    return fault == NULL;
}

static char *elf_strings_of(const char *path, size_t *bytes)
{
    elf_file_t file;
    char *strings = elf_open(&file, path) ? NULL : elf_strings(&file, bytes);
    elf_close(&file);
    return strings;
}

bool shim_elf_has_name(const char *path, const char *name)
{
    size_t bytes = 0;
    char *strings = elf_strings_of(path, &bytes);
    bool has = strings && elf_knows(strings, bytes, name);
    free(strings);
    return has;
}

/* The section headers, malloc'd; or NULL. */
static ElfW(Shdr) * elf_sections(const elf_file_t *file, size_t *count)
{
    ElfW(Ehdr) elf;
    if (!elf_read(file, 0, &elf, sizeof elf) || elf.e_shentsize != sizeof(ElfW(Shdr)) || elf.e_shnum > ELF_MAX_SECTIONS)
        return NULL;
    *count = elf.e_shnum;
    ElfW(Shdr) *section = malloc((*count + 1) * sizeof *section);
    if (section && !elf_read(file, elf.e_shoff, section, *count * sizeof *section)) {
        free(section);
        return NULL;
    }
    return section;
}

static bool elf_is_data(const elf_file_t *file, uint64_t address, uint64_t bytes)
{
    for (size_t i = 0; i < file->headers; i++) {
        const ElfW(Phdr) *part = &file->header[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_W) && address >= part->p_vaddr && bytes <= part->p_memsz &&
            address - part->p_vaddr <= part->p_memsz - bytes)
            return true;
    }
    return false;
}

static bool elf_find_in(const elf_file_t *file, const ElfW(Shdr) * table, const ElfW(Shdr) * names, const char *name,
                        uint64_t bytes, uint64_t *address)
{
    const size_t length = strlen(name) + 1;
    ElfW(Sym) symbol[256];
    bool found = false;
    if (names->sh_size == 0 || names->sh_size > ELF_MAX_STRINGS)
        return false;
    char *text = malloc(names->sh_size);
    if (text && elf_read(file, names->sh_offset, text, names->sh_size)) {
        const uint64_t end = table->sh_size / sizeof *symbol;
        for (uint64_t at = 0, some; at < end && !found; at += some) {
            some = end - at < 256 ? end - at : 256;
            if (!elf_read(file, table->sh_offset + at * sizeof *symbol, symbol, some * sizeof *symbol))
                break;
            for (uint64_t i = 0; i < some && !found; i++) {
                const ElfW(Sym) *s = &symbol[i];
                found = ELF64_ST_TYPE(s->st_info) == STT_OBJECT && s->st_size == bytes &&
                        s->st_name <= names->sh_size && length <= names->sh_size - s->st_name &&
                        memcmp(text + s->st_name, name, length) == 0 && elf_is_data(file, s->st_value, bytes);
                if (found)
                    *address = s->st_value;
            }
        }
    }
    free(text);
    return found;
}

bool shim_elf_find(const char *path, const char *name, uint64_t bytes, uint64_t *address)
{
    elf_file_t file;
    size_t count = 0;
    bool found = false;
    ElfW(Shdr) *section = elf_open(&file, path) ? NULL : elf_sections(&file, &count);
    for (size_t i = 0; section && i < count && !found; i++)
        if (section[i].sh_type == SHT_SYMTAB && section[i].sh_link < count)
            found = elf_find_in(&file, &section[i], &section[section[i].sh_link], name, bytes, address);
    free(section);
    elf_close(&file);
    return found;
}

static bool elf_is_public(const char *name, size_t length)
{
    return (strncmp(name, "nccl", 4) == 0 || strncmp(name, "pnccl", 5) == 0) &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == length;
}

bool shim_elf_unknown(const char *path, const char *own, char *name, size_t capacity)
{
    size_t bytes = 0, own_bytes = 0;
    char *strings = elf_strings_of(path, &bytes), *known = elf_strings_of(own, &own_bytes);
    bool found = false;
    if (strings && known && elf_knows(known, own_bytes, "shunt_version")) {
        for (size_t at = 0; at < bytes && !found; at += strnlen(strings + at, bytes - at) + 1) {
            size_t length = strnlen(strings + at, bytes - at);
            found = at + length < bytes && elf_is_public(strings + at, length) &&
                    !elf_knows(known, own_bytes, strings + at);
            if (found)
                snprintf(name, capacity, "%s", strings + at);
        }
    }
    free(strings);
    free(known);
    return found;
}
