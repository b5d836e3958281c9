/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forward.S - jumps to the real NCCL, for the names that Shunt does not treat.
 *
 * A jump leaves the caller's registers and stack, so it needs no signature: functions that our headers do not declare
 * work as well. The target is in forward.c's table. While its slot is empty, the slow path saves every register that
 * can carry an argument (128 bits of vector registers: NCCL passes nothing wider), calls shim_forward_resolve, restores
 * and jumps. The code is position independent and needs no relocation.
 */
#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif

#if defined(__x86_64__)

#ifdef __CET__
#include <cet.h> /* the ELF note for CET */
#endif

    .text
    .hidden shim_forward_table
    .hidden shim_forward_resolve

    .macro trampoline name
    .globl \name
    .type \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    movq    shim_forward_table + 8 * forward_index(%rip), %r11
    testq   %r11, %r11
    je      1f
    jmp     *%r11
1:  movl    $forward_index, %r11d
    jmp     forward_slow
    .cfi_endproc
    .size \name, . - \name
    .set forward_index, forward_index + 1
    .endm

    /* Input: %r11d is the name's index. %rax is the number of vector registers of a variadic call, %r10 a static
     * chain. */
    .type forward_slow, @function
    .p2align 4
forward_slow:
    .cfi_startproc
    pushq   %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq    %rsp, %rbp
    .cfi_def_cfa_register %rbp
    subq    $192, %rsp /* 8 * 8 + 8 * 16; the stack is a multiple of 16 here */
    movq    %rdi, 0(%rsp)
    movq    %rsi, 8(%rsp)
    movq    %rdx, 16(%rsp)
    movq    %rcx, 24(%rsp)
    movq    %r8, 32(%rsp)
    movq    %r9, 40(%rsp)
    movq    %rax, 48(%rsp)
    movq    %r10, 56(%rsp)
    movaps  %xmm0, 64(%rsp)
    movaps  %xmm1, 80(%rsp)
    movaps  %xmm2, 96(%rsp)
    movaps  %xmm3, 112(%rsp)
    movaps  %xmm4, 128(%rsp)
    movaps  %xmm5, 144(%rsp)
    movaps  %xmm6, 160(%rsp)
    movaps  %xmm7, 176(%rsp)
    movl    %r11d, %edi
    call    shim_forward_resolve
    movq    %rax, %r11
    movq    0(%rsp), %rdi
    movq    8(%rsp), %rsi
    movq    16(%rsp), %rdx
    movq    24(%rsp), %rcx
    movq    32(%rsp), %r8
    movq    40(%rsp), %r9
    movq    48(%rsp), %rax
    movq    56(%rsp), %r10
    movaps  64(%rsp), %xmm0
    movaps  80(%rsp), %xmm1
    movaps  96(%rsp), %xmm2
    movaps  112(%rsp), %xmm3
    movaps  128(%rsp), %xmm4
    movaps  144(%rsp), %xmm5
    movaps  160(%rsp), %xmm6
    movaps  176(%rsp), %xmm7
    leave
    .cfi_def_cfa %rsp, 8
    .cfi_restore %rbp
    jmp     *%r11
    .cfi_endproc
    .size forward_slow, . - forward_slow

#elif defined(__aarch64__)

    .text
    .hidden shim_forward_table
    .hidden shim_forward_resolve

    .macro trampoline name
    .globl \name
    .type \name, %function
    .p2align 4
\name:
    .cfi_startproc
    hint    #34 /* bti c */
    adrp    x16, shim_forward_table + 8 * forward_index
    ldr     x16, [x16, #:lo12:shim_forward_table + 8 * forward_index]
    cbz     x16, 1f
    br      x16
1:  mov     w17, #forward_index
    b       forward_slow
    .cfi_endproc
    .size \name, . - \name
    .set forward_index, forward_index + 1
    .endm

    /* Input: w17 is the name's index. x8 is the address of a returned struct. */
    .type forward_slow, %function
    .p2align 4
forward_slow:
    .cfi_startproc
    stp     x29, x30, [sp, #-224]! /* 2 * 8 + 10 * 8 + 8 * 16 */
    .cfi_def_cfa_offset 224
    .cfi_offset x29, -224
    .cfi_offset x30, -216
    mov     x29, sp
    stp     x0, x1, [sp, #16]
    stp     x2, x3, [sp, #32]
    stp     x4, x5, [sp, #48]
    stp     x6, x7, [sp, #64]
    str     x8, [sp, #80]
    stp     q0, q1, [sp, #96]
    stp     q2, q3, [sp, #128]
    stp     q4, q5, [sp, #160]
    stp     q6, q7, [sp, #192]
    mov     w0, w17
    bl      shim_forward_resolve
    mov     x16, x0
    ldp     x0, x1, [sp, #16]
    ldp     x2, x3, [sp, #32]
    ldp     x4, x5, [sp, #48]
    ldp     x6, x7, [sp, #64]
    ldr     x8, [sp, #80]
    ldp     q0, q1, [sp, #96]
    ldp     q2, q3, [sp, #128]
    ldp     q4, q5, [sp, #160]
    ldp     q6, q7, [sp, #192]
    ldp     x29, x30, [sp], #224
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    br      x16
    .cfi_endproc
    .size forward_slow, . - forward_slow

#else
#error "Shunt is for x86-64 and aarch64"
#endif

    .set forward_index, 0
#define SHIM_FORWARD(name) trampoline name; trampoline p##name
#define SHIM_FORWARD_ONLY(name) trampoline name
#include "shim/names/names.def"
