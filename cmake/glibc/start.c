/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start.c - what the C run time calls to start a program.
 *
 * Before 2.34 glibc left the constructors to a function of the program, which newer C run times no longer have. Every
 * glibc calls it if there is one, and then runs none itself.
 */
#ifdef __x86_64__
__asm__(".symver start_old, __libc_start_main@GLIBC_2.2.5");
#else
__asm__(".symver start_old, __libc_start_main@GLIBC_2.17");
#endif

typedef int (*main_t)(int, char **, char **);
typedef void (*constructor_t)(int, char **, char **);
typedef void (*end_t)(void);

extern constructor_t __init_array_start[] __attribute__((visibility("hidden")));
extern constructor_t __init_array_end[] __attribute__((visibility("hidden")));
int start_old(main_t main, int count, char **words, constructor_t init, end_t fini, end_t linker_fini, void *stack);
int __libc_start_main(main_t main, int count, char **words, constructor_t init, end_t fini, end_t linker_fini,
                      void *stack);

static void construct(int count, char **words, char **variables)
{
    for (constructor_t *each = __init_array_start; each < __init_array_end; ++each)
        (*each)(count, words, variables);
}

/* An older C run time brings its own. */
int __libc_start_main(main_t main, int count, char **words, constructor_t init, end_t fini, end_t linker_fini,
                      void *stack)
{
    return start_old(main, count, words, init ? init : construct, fini, linker_fini, stack);
}
