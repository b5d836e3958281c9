/* SPDX-License-Identifier: Apache-2.0 */
/* real_slots.c - keeps the real NCCL's calls of its own functions within it. NCCL calls some of its public functions
 * through its PLT. With Shunt preloaded, or in the program's scope as libnccl.so.2, the dynamic linker binds these
 * calls to Shunt: ncclBcast would call Shunt's ncclBroadcast, also on NCCL's threads and inside its groups.
 * RTLD_DEEPBIND would hide a preloaded allocator from NCCL. So every jump slot, GOT entry and data word of an nccl* or
 * pnccl* function that the library defines is set to that definition. */
#define _GNU_SOURCE
#include <elf.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim/real/real_parts.h"

#if defined(__x86_64__)
#define SLOT_JUMP R_X86_64_JUMP_SLOT
#define SLOT_GOT R_X86_64_GLOB_DAT
#define SLOT_DATA R_X86_64_64
#elif defined(__aarch64__)
#define SLOT_JUMP R_AARCH64_JUMP_SLOT
#define SLOT_GOT R_AARCH64_GLOB_DAT
#define SLOT_DATA R_AARCH64_ABS64
#endif

typedef struct slots {
    const struct link_map *library;
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * data, *jumps;
    size_t data_bytes, jump_bytes;
    uintptr_t relro, relro_end;
    uintptr_t page; /* bytes */
} slots_t;

/* At a library's load glibc turns the dynamic section's offsets into addresses; musl does not. */
static const void *slots_address(const struct link_map *library, ElfW(Addr) pointer)
{
    return (const void *)(pointer < library->l_addr ? library->l_addr + pointer : pointer);
}

static bool slots_read_dynamic(slots_t *slots)
{
    const struct link_map *library = slots->library;
    bool rela = true;
    for (const ElfW(Dyn) *entry = library->l_ld; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB:
            slots->symbols = slots_address(library, entry->d_un.d_ptr);
            break;
        case DT_STRTAB:
            slots->names = slots_address(library, entry->d_un.d_ptr);
            break;
        case DT_RELA:
            slots->data = slots_address(library, entry->d_un.d_ptr);
            break;
        case DT_RELASZ:
            slots->data_bytes = entry->d_un.d_val;
            break;
        case DT_JMPREL:
            slots->jumps = slots_address(library, entry->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            slots->jump_bytes = entry->d_un.d_val;
            break;
        case DT_PLTREL:
            rela = entry->d_un.d_val == DT_RELA;
            break;
        }
    }
    return slots->symbols && slots->names && rela;
}

/* For dl_iterate_phdr: finds the library by its dynamic section, and notes its read-only pages. */
static int slots_find_relro(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    slots_t *slots = data;
    const ElfW(Phdr) *relro = NULL;
    bool found = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_DYNAMIC)
            found = info->dlpi_addr + part->p_vaddr == (uintptr_t)slots->library->l_ld;
        else if (part->p_type == PT_GNU_RELRO)
            relro = part;
    }
    if (!found)
        return 0;
    if (relro) {
        /* The dynamic linker protects whole pages: the last part stays writable. */
        slots->relro = (info->dlpi_addr + relro->p_vaddr) & ~(slots->page - 1);
        slots->relro_end = (info->dlpi_addr + relro->p_vaddr + relro->p_memsz) & ~(slots->page - 1);
    }
    return 1;
}

static bool slots_store(const slots_t *slots, uintptr_t *slot, uintptr_t target)
{
    if (*slot == target)
        return true;
    uintptr_t page = (uintptr_t)slot & ~(slots->page - 1);
    bool read_only = page >= slots->relro && page < slots->relro_end;
    if (read_only && mprotect((void *)page, slots->page, PROT_READ | PROT_WRITE) != 0)
        return false;
    /* The program may already use the library, opened by path: concurrent calls see the old or the new target. */
    __atomic_store_n(slot, target, __ATOMIC_RELEASE);
    if (read_only)
        mprotect((void *)page, slots->page, PROT_READ);
    return true;
}

static bool slots_bind(const slots_t *slots, const ElfW(Rela) * relocations, size_t bytes)
{
    bool all = true;
    for (size_t i = 0; relocations && i < bytes / sizeof *relocations; i++) {
        const ElfW(Rela) *relocation = &relocations[i];
        uint32_t type = ELF64_R_TYPE(relocation->r_info);
        if (type != SLOT_JUMP && type != SLOT_GOT && type != SLOT_DATA)
            continue;
        const ElfW(Sym) *symbol = &slots->symbols[ELF64_R_SYM(relocation->r_info)];
        const char *name = slots->names + symbol->st_name;
        if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC)
            continue;
        if (strncmp(name, "nccl", 4) != 0 && strncmp(name, "pnccl", 5) != 0)
            continue;
        uintptr_t target = slots->library->l_addr + symbol->st_value + (uintptr_t)relocation->r_addend;
        all &= slots_store(slots, (uintptr_t *)(slots->library->l_addr + relocation->r_offset), target);
    }
    return all;
}

bool shim_bind_own_slots(const struct link_map *library)
{
    slots_t slots = {.library = library, .page = (uintptr_t)sysconf(_SC_PAGESIZE)};
    if (!slots_read_dynamic(&slots))
        return false;
    dl_iterate_phdr(slots_find_relro, &slots);
    bool data = slots_bind(&slots, slots.data, slots.data_bytes);
    return slots_bind(&slots, slots.jumps, slots.jump_bytes) && data;
}
